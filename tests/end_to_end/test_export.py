"""Every head of BERT and ERNIE is exported, proves itself, and answers text like its checkpoint."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import numpy as np
import psutil
import pytest

import export_model
import predict
from configs.command_line import run
from inference import export
from inference.predictor import open_predictor
from inference.tasks import asked_as
from tests.checkpoints import BUILDERS, BUILDERS_FOR_TOKENS, save_checkpoint

TEXT = "The old [MASK] stood by the river, and 河 was its name."
LONG = " ".join(["The river rose in spring and carried the bridge away."] * 7)
RECORDS = {
    "fill_mask": [{"text": TEXT}, {"text": "[MASK] [MASK]"}, {"text": "a [MASK] " + LONG[:200]}],
    "answer": [{"question": "What rose?", "context": LONG * 3},
               {"question": "Who?", "context": "Ada did."}],
    "classify": [{"text": "fine"}, {"text": LONG}, {"text": "one", "pair": LONG}],
    "embed": [{"text": "fine"}, {"text": LONG}, {"text": ""}],
    "label_words": [{"text": "fine"}, {"text": LONG * 2}, {"text": " "}, {"text": "the 河"}],
    "encode": [{"text": "fine"}, {"text": LONG}, {"text": "one", "pair": "two"}],
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Folders of checkpoint and exported model, made once for each task and architecture."""
    made = {}

    def make(task, architecture="bert"):
        if (task, architecture) not in made:
            folder = tmp_path_factory.mktemp(task)
            checkpoint = save_checkpoint(folder / "checkpoint", task, architecture)
            result = export_model.main(["--checkpoint", checkpoint, "--task", asked_as(task),
                                        "--output", str(folder / "exported")])
            made[task, architecture] = checkpoint, str(folder / "exported"), result
        return made[task, architecture]
    return make


def close(one, other, tolerance=1e-5):
    """Whether two answers tell the same, numbers within the tolerance."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[k], other[k], tolerance) for k in one)
    if isinstance(one, (list, np.ndarray)):
        return len(one) == len(other) and all(map(close, one, other))
    is_number = isinstance(one, (float, np.floating))
    return abs(one - other) < tolerance if is_number else one == other


@pytest.mark.parametrize("architecture", ["bert", "ernie"])
@pytest.mark.parametrize("task", [*BUILDERS, *BUILDERS_FOR_TOKENS])
def test_the_exported_model_answers_as_the_checkpoint_does(exported, task, architecture):
    checkpoint, folder, result = exported(task, architecture)
    assert result.largest_difference.keys() == {"paddle", "onnx"}
    assert all(0 <= value < 1e-4 for value in result.largest_difference.values())
    expected = open_predictor(checkpoint, asked_as(task)).answers(RECORDS[task])
    predictor = open_predictor(folder)
    together = predictor.answers(RECORDS[task])
    assert all("error" not in answer for answer in together) and close(together, expected, 1e-4)
    alone = [predictor.answers([record])[0] for record in RECORDS[task]]
    assert close(alone, together)


def test_what_the_answers_hold(exported):
    words = open_predictor(exported("fill_mask")[1]).answers(RECORDS["fill_mask"])[1]
    assert [len(row) for row in words["tokens"]] == [5, 5]
    assert words["probabilities"][0] == sorted(words["probabilities"][0], reverse=True)
    record = RECORDS["answer"][0]
    answer = open_predictor(exported("answer")[1]).answers([record])[0]
    assert record["context"][answer["start"]:answer["end"]] == answer["answer"] != ""
    label = open_predictor(exported("classify")[1]).answers([{"text": "fine"}])[0]
    assert list(label["probabilities"]) == ["bad", "fine", "good"]
    assert sum(label["probabilities"].values()) == pytest.approx(1)
    assert label["probabilities"][label["label"]] == max(label["probabilities"].values())
    vector = open_predictor(exported("embed")[1]).answers([{"text": "fine"}])[0]["embedding"]
    assert len(vector) == 32 and np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


def test_words_are_labelled_as_the_checkpoint_labels_them(exported, capsys):
    """In parts where they are more than a row holds, at the first piece of each word."""
    checkpoint, folder, _ = exported("label_words")
    capsys.readouterr()  # what the export told
    text = LONG * 2 + " by 河"
    predict.main(["classify", "--model", folder, "--text", text])
    answer = json.loads(capsys.readouterr().out)
    predict.main(["classify", "--model", checkpoint, "--text", text])
    expected = json.loads(capsys.readouterr().out)
    assert close(answer, expected, 1e-4)
    assert answer["words"] == [*text.split()[:-1], "河"] and len(set(answer["labels"])) > 1
    assert len(answer["words"]) == len(answer["labels"]) == len(answer["probabilities"])


def test_vectors_of_tokens(exported, capsys):
    checkpoint, folder, _ = exported("encode")
    capsys.readouterr()  # what the export told
    predict.main(["encode", "--model", folder, "--text", "a b", "--pair", "c"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["tokens"] == ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]
    vectors = np.array(answer["hidden_states"])
    assert vectors.shape == (6, 32) and np.abs(np.diff(vectors, axis=0)).max(1).min() > 0.01
    mean = open_predictor(checkpoint, "embed").answers([{"text": "fine"}])[0]["embedding"]
    alone = open_predictor(folder).answers([{"text": "fine"}])[0]["hidden_states"]
    total = np.sum(alone, axis=0)
    assert np.allclose(total / np.linalg.norm(total), mean, atol=1e-5)


def test_a_model_of_one_segment_refuses_pairs(tmp_path):
    checkpoint = save_checkpoint(tmp_path / "checkpoint", "classify", type_vocab_size=1)
    folder = tmp_path / "exported"
    export_model.main(["--checkpoint", checkpoint, "--task", "classify", "--formats", "paddle",
                       "--output", str(folder)])
    good, bad = open_predictor(folder).answers([{"text": "one"}, {"text": "one", "pair": "two"}])
    assert good["label"] in ("bad", "fine", "good") and "has one segment" in bad["error"]


def test_onednn_tells_the_same(exported):
    from configs.inference_schema import InferenceConfig

    folder, records = exported("embed")[1], [{"text": "word " * count} for count in range(40)]
    plain, onednn = (open_predictor(folder, settings=InferenceConfig(onednn=onednn))
                     .answers(records) for onednn in (False, True))
    assert close(plain, onednn)


def test_fixed_shapes_tell_the_same_and_refuse_what_is_longer(exported):
    from configs.inference_schema import InferenceConfig

    _, folder, _ = exported("embed")
    fixed = open_predictor(folder, settings=InferenceConfig(fixed_rows=4, fixed_length=24))
    texts = [{"text": text} for text in ("one", "two words", "fine", "four", "5", LONG)]
    *answers, refused = fixed.answers(texts)
    assert close(answers, open_predictor(folder).answers(texts[:-1]))
    assert "rows are fixed at 24" in refused["error"] and fixed.slots == 2 * 4 * 24


def test_a_model_that_tells_something_else_is_not_kept(tmp_path, monkeypatch, capsys):
    checkpoint = save_checkpoint(tmp_path / "checkpoint", "embed")
    found = export.compare
    monkeypatch.setattr(export, "compare", lambda *arguments: {
        **found(*arguments), "paddle": 1.1e-4})
    assert run(export_model.main, ["--checkpoint", checkpoint, "--task", "embed", "--formats",
                                   "paddle", "--output", str(tmp_path / "exported")]) == 2
    assert "differ by 0.00011, more than 0.0001" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_weights_that_were_lost_are_seen(tmp_path):
    """The comparison is of the files: a number changed in them is told."""
    checkpoint = save_checkpoint(tmp_path / "checkpoint", "embed")
    graph, tokenizer, settings = export.open_graph(checkpoint, "embed")
    batches = export.check_batches(graph, tokenizer, settings)
    expected = [(arrays, graph.run(arrays)) for arrays in batches]
    weight = graph.network.layer[1].output.weight
    weight.set_value(weight.numpy() * 1.01)
    export.write_graph(graph, tmp_path, ["paddle"])
    assert export.compare(expected, graph.outputs, tmp_path, ["paddle"])["paddle"] > 1e-4


@pytest.mark.parametrize("arguments, problem", [
    (["--task", "answer"], "lacks heads.span.weight, heads.span.bias, which answer needs"),
    (["--task", "embed", "--max-tokens", "97"], "97 is not between 8 and the model's 96"),
])
def test_bad_exports_are_told_in_a_line(tmp_path, capsys, arguments, problem):
    checkpoint = save_checkpoint(tmp_path / "checkpoint", "embed")
    assert run(export_model.main, ["--checkpoint", checkpoint, *arguments,
                                   "--output", str(tmp_path / "exported")]) == 2
    error = capsys.readouterr().err
    assert problem in error and error.count("error: ") == 1
    assert not (tmp_path / "exported").exists()


def test_another_task_and_a_damaged_folder_are_told(exported, tmp_path, capsys):
    _, folder, _ = exported("embed")
    assert run(predict.main, ["answer", "--model", folder, "--question", "a", "--text", "b"]) == 2
    assert "was exported for embed, not answer" in capsys.readouterr().err
    (tmp_path / "export.json").write_text('{"layout": 1, "task": "embed"}')
    assert run(predict.main, ["embed", "--model", str(tmp_path), "--text", "b"]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_lines_in_order_through_a_process(exported, tmp_path):
    _, folder, _ = exported("embed")
    lines = ["one", LONG, "", "three 3", "\N{SNOWMAN}"] * 3
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", "utf-8")
    done = subprocess.run([sys.executable, "predict.py", "embed", "--model", folder, "--input",
                           str(tmp_path / "in.txt")], capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    expected = open_predictor(folder).answers([{"text": line} for line in lines])
    assert done.returncode == 0 and close(answers, expected)
    assert "15 lines, 0 refused" in done.stderr
    bad = b'{"text": "fine"}\n{"text": 3}\n\xff\n[[[\n' + b"[" * 100_000 + b'\n{"text": "last"}'
    done = subprocess.run([sys.executable, "predict.py", "embed", "--model", folder, "--jsonl"],
                          input=bad, capture_output=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["error" in answer for answer in answers] == [False, True, True, True, True, False]
    assert done.returncode == 2 and b"4 of 6 lines were refused" in done.stderr


def test_fill_mask_prints_words_or_json(exported, capsys):
    checkpoint, folder, _ = exported("fill_mask")
    capsys.readouterr()
    predict.main(["fill-mask", "--checkpoint", checkpoint, "--text", TEXT])
    printed = capsys.readouterr().out.splitlines()
    answer = predict.main(["fill-mask", "--model", folder, "--text", TEXT, "--json"])
    assert json.loads(capsys.readouterr().out) == answer
    assert printed[:2] == [TEXT, "[MASK] 1"]
    assert [line.split()[1] for line in printed[2:]] == answer["tokens"][0]


def test_an_answer_is_marked_in_its_text(exported, tmp_path, capsys):
    checkpoint, folder, _ = exported("answer")
    context = "Café Ada\r\nstood by 河, and was old. " * 9
    file = tmp_path / "context.txt"
    file.write_bytes(b"\xef\xbb\xbf" + context.encode("utf-8"))
    words = ["answer", "--checkpoint", checkpoint, "--context", str(file), "--question", "What?"]
    capsys.readouterr()
    answer = predict.main(words)
    marked = (f"{context[:answer['start']]}**{answer['answer']}**{context[answer['end']:]}\n"
              f"  {answer['score']:8.4f}  {answer['answer']}\n")
    assert answer["answer"] and capsys.readouterr().out == marked
    same = predict.main(["answer", "--model", folder, "--text", context, "--question", "What?",
                         "--json"])
    assert json.loads(capsys.readouterr().out) == same and close(same, answer, 1e-4)
    (tmp_path / "latin1.txt").write_bytes("Café".encode("latin-1"))
    for change, problem in ((["--text", "b"], "--context: --text is given too"),
                            (["--context", str(tmp_path / "none.txt")], "cannot be read"),
                            (["--context", str(tmp_path / "latin1.txt")], "byte 3 is not UTF-8")):
        assert run(predict.main, [*words, *change]) == 2
        assert problem in capsys.readouterr().err
    assert run(predict.main, words[:5]) == 2
    assert "--question: is missing" in capsys.readouterr().err
    assert run(predict.main, [*words[:3], *words[5:]]) == 2
    assert "--context: is missing" in capsys.readouterr().err


@pytest.mark.parametrize("words, says", [
    (["--text", "a", "--output", "x"], "--output: is for the table that a checkpoint reads"),
    (["--input", "x", "--text-column", "y"], "--text-column: is for the table"),
    (["--pair", "b"], "--pair: is the second text, but --text is missing"),
    (["--input", "x", "--text", "a"], "--input: --text is given too"),
    (["--input", "x", "--jsonl"], "--jsonl: is for lines, but a checkpoint reads a table")])
def test_options_that_would_change_nothing_are_refused(exported, words, says, capsys):
    checkpoint, folder, _ = exported("classify")
    model = checkpoint if "--jsonl" in words else folder
    assert run(predict.main, ["classify", "--model", model, *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--timeout", "inf"], ["--timeout", "0"], ["--port", "65536"]])
def test_a_server_that_could_not_serve_is_refused(words, capsys):
    assert run(predict.main, ["serve", "--model", "none", *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_devices_that_are_not_here_are_refused(exported, capsys):
    _, folder, _ = exported("embed")
    assert run(predict.main, ["embed", "--model", folder, "--text", "a", "--config",
                              "configs/inference/gpu.yaml"]) == 2
    assert "built without CUDA" in capsys.readouterr().err


def test_bf16_is_refused_where_the_processor_has_none(exported, capsys, monkeypatch):
    from inference import runners

    monkeypatch.setattr(runners, "processor", lambda: ("AuthenticAMD", ["avx2"]))
    _, folder, _ = exported("embed")
    assert run(predict.main, ["embed", "--model", folder, "--text", "a", "--set",
                              "precision=bf16"]) == 2
    assert "has none of avx512_bf16, amx_bf16" in capsys.readouterr().err
    assert runners.uses_onednn(runners.InferenceConfig(), ["avx2", "avx512f"])
    assert not runners.uses_onednn(runners.InferenceConfig(), ["avx2"])


@contextmanager
def server_process(folder, *options):
    """``predict.py serve`` as a process, and the port that it tells."""
    process = subprocess.Popen([sys.executable, "predict.py", "serve", "--model", folder, "--port",
                                "0", *options], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL)
    try:
        line = process.stdout.readline()
        yield process, int(re.search(r"http://127\.0\.0\.1:(\d+) ", line)[1])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def post(port, record):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/predict",
                                     json.dumps(record).encode())
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def test_the_server_answers_stops_on_sigterm_and_starts_anew(exported):
    _, folder, _ = exported("answer")
    expected = open_predictor(folder).answers(RECORDS["answer"])
    with server_process(folder) as (process, port):
        assert close(post(port, {"records": RECORDS["answer"]})["answers"], expected)
        process.send_signal(signal.SIGKILL)
    with server_process(folder) as (process, port):
        assert close(post(port, RECORDS["answer"][0]), expected[0])
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_the_server_outlives_the_processes_that_compute(exported):
    """Killed while they wait, they are replaced before anybody notices."""
    _, folder, _ = exported("embed")
    expected = open_predictor(folder).answers([{"text": "fine"}])[0]
    with server_process(folder, "--set", "processes=2") as (process, port):
        computing = [one for one in psutil.Process(process.pid).children()
                     if "spawn_main" in " ".join(one.cmdline())]
        assert len(computing) == 2
        for one in computing:
            one.kill()
        while any(one.status() != psutil.STATUS_ZOMBIE for one in computing):
            time.sleep(0.01)
        assert all(close(post(port, {"text": "fine"}), expected) for _ in range(4))


def test_a_checkpoint_is_not_served(exported, capsys):
    checkpoint, _, _ = exported("embed")
    assert run(predict.main, ["serve", "--model", checkpoint]) == 2
    assert "has no export.json" in capsys.readouterr().err
