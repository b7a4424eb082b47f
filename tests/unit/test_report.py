"""Reports of run folders: finished ones, unfinished ones, of any task, and what is none."""

import json
import re
import subprocess
import sys

import pytest

from configs.command_line import run
from training import report
from training.curves import metric_keys
from training.runs import read_lines, read_run


def write_run(folder, metrics, evaluations=None, steps=40, result=None, learning_rate=0.001):
    """A run folder as run_pretrain.py leaves it."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        f"train:\n  steps: {steps}\n  learning_rate: {learning_rate}\n")
    for name, lines in (("metrics", metrics), ("evaluations", evaluations)):
        if lines is not None:
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / f"{name}.jsonl").write_text(text)
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def line(step, loss, **others):
    return {"step": step, "samples": 16 * step, "loss": loss + 0.5, "mlm_loss": loss,
            "nsp_loss": 0.5, "mlm_accuracy": 0.125, "nsp_accuracy": 0.5, "learning_rate": 1e-3,
            "gradient_norm": 2.0, **others}


def cost(seconds):
    """16 rows of 100 tokens a step, the machine half used at 0.1 s a step."""
    return {"sequences_per_second": 16 / seconds, "tokens_per_second": 1600 / seconds,
            "mfu": 0.05 / seconds, "data_seconds": 0.01, "step_seconds": seconds}


@pytest.fixture
def finished(tmp_path):
    """40 steps: 10 of 0.1 s, 30 of 0.2 s."""
    metrics = [line(10, 8.0, **cost(0.1)), line(40, 7.0, **cost(0.2))]
    evaluations = [line(20, 7.25, word_frequency_loss=7.5),
                   line(40, 7.375, mlm_accuracy=0.25, word_frequency_loss=7.5)]
    return write_run(tmp_path / "finished", metrics, evaluations, result={"train_seconds": 7.0})


@pytest.fixture
def killed(tmp_path):
    folder = write_run(tmp_path / "killed", [line(10, 8.25, **cost(0.1))], learning_rate=0.002)
    with open(folder / "metrics.jsonl", "a") as stream:
        stream.write('{"step": 20, "sam')
    return folder


def test_table_of_a_finished_and_a_killed_run(finished, killed, capsys):
    rows = report.main([str(finished), str(killed)])
    assert {row[0]: row[1:] for row in rows} == {
        "steps": ["40", "10 of 40"],
        "samples": ["640", "160"],
        "training time": ["7 s", "1 s"],
        # 640 rows in 7 s; 10 x 0.1 s at 0.5 and 30 x 0.2 s at 0.25.
        "sequences/s": ["91.4", "160"],
        "tokens/s": ["9,143", "16.0k"],
        "MFU": ["28.6%", "50.0%"],
        "mlm loss, held out": ["7.3750", "–"],
        "mlm loss, held out, best": ["7.2500 at 20", "–"],
        "nsp loss, held out": ["0.5000", "–"],
        "nsp loss, held out, best": ["0.5000 at 20", "–"],
        "mlm accuracy, held out": ["0.2500", "–"],
        "mlm accuracy, held out, best": ["0.2500 at 40", "–"],
        "nsp accuracy, held out": ["0.5000", "–"],
        "nsp accuracy, held out, best": ["0.5000 at 20", "–"],
        "learning rate, held out": ["0.0010", "–"],
        "learning rate, held out, best": ["0.0010 at 20", "–"],
        "gradient norm, held out": ["2.0000", "–"],
        "gradient norm, held out, best": ["2.0000 at 20", "–"],
        "word frequency loss": ["7.5000", "–"]}
    assert re.search(r"train.learning_rate +0.001 +0.002\n", capsys.readouterr().out)


def test_page_holds_everything_itself(finished, killed, tmp_path):
    hostile = finished.rename(tmp_path / "<script>&")
    report.main([str(hostile), str(killed), "--output", str(tmp_path / "out"), "--x", "tokens"])
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert re.findall(r'(?:src|href)="([^"]{15})', page) == ["data:image/png;"]
    assert "http" not in page and "<script>" not in page and "&lt;script&gt;&amp;" in page
    for text in ("7.2500 at 20", "Where the recipes differ", "train.learning_rate"):
        assert text in page
    picture = (tmp_path / "out" / "report.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000


def test_axis_positions(finished):
    read = read_run(finished)
    assert read.positions("samples", [10, 20, 40]).tolist() == [160, 320, 640]
    assert read.positions("seconds", [5, 10, 25, 40]) == pytest.approx([0.5, 1, 4, 7])
    assert read.positions("tokens", [10, 25, 40]) == pytest.approx([16_000, 40_000, 64_000])
    assert read.positions("step", [10, 20]).tolist() == [10, 20]


def test_metrics_of_any_task(tmp_path):
    squad = write_run(tmp_path / "squad", [{"step": 1, "loss": 5.0}, {"step": 2, "loss": 4.0}],
                      [{"step": 1, "exact_match": 50.5, "f1": 60.25},
                       {"step": 2, "exact_match": 50.25, "f1": 70.5}], steps=2)
    assert metric_keys([read_run(squad)]) == ["loss", "exact_match", "f1"]
    rows = {row[0]: row[1] for row in report.main([str(squad)])}
    assert rows == {"steps": "2", "loss, training": "4", "exact match, held out": "50.2500",
                    "exact match, held out, best": "50.5000 at 1", "f1, held out": "70.5000",
                    "f1, held out, best": "70.5000 at 2"}
    assert (squad / "report.html").is_file() and (squad / "report.png").is_file()


def test_a_run_that_has_just_begun(tmp_path):
    empty = write_run(tmp_path / "empty", None)
    assert report.main([str(empty), "--x", "seconds"]) == [["steps", "0 of 40"]]


def test_losses_that_are_no_numbers_do_not_count_as_best(tmp_path):
    evaluations = [{"step": 1, "loss": float("nan")}, {"step": 2, "loss": 3.0}]
    folder = write_run(tmp_path / "nan", [{"step": 1, "loss": float("nan"), "note": "text"}],
                       evaluations)
    rows = {row[0]: row[1] for row in report.main([str(folder)])}
    assert rows["loss, held out, best"] == "3.0000 at 2"


@pytest.mark.parametrize("file, content, problem", [
    ("config.yaml", None, "holds no run (config.yaml is missing)"),
    ("config.yaml", "- 1", "config.yaml: is no resolved recipe"),
    ("config.yaml", "a: [", "config.yaml: is no resolved recipe"),
    ("metrics.jsonl", '{"step": 1, "lo\n{"step": 2}\n', "metrics.jsonl:1: is no line of metrics"),
    ("metrics.jsonl", '{"loss": 1}\n', "metrics.jsonl:1: is no line of metrics"),
    ("metrics.jsonl", "[1]\n\n", "metrics.jsonl:1: is no line of metrics"),
    ("evaluations.jsonl", b"\xff\xfe\n", "evaluations.jsonl: cannot be read"),
    ("result.json", "[1, 2]", "result.json: is no JSON object"),
    ("result.json", "{", "result.json: is no JSON object")])
def test_what_is_no_run_is_told_in_one_line(finished, capsys, file, content, problem):
    if content is None:
        (finished / file).unlink()
    else:
        (finished / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert run(report.main, [str(finished)]) == 2
    error = capsys.readouterr().err
    assert problem in error and error.count("\n") == 1
    assert not (finished / "report.html").exists()


def test_an_axis_that_the_lines_do_not_tell(tmp_path, capsys):
    folder = write_run(tmp_path / "run", [{"step": 1, "loss": 5.0}])
    assert run(report.main, [str(folder), "--x", "seconds"]) == 2
    assert "metrics.jsonl: not every line tells step_seconds" in capsys.readouterr().err
    assert not (folder / "report.html").exists()


def test_output_that_cannot_be_written(finished, capsys):
    assert run(report.main, [str(finished), "--output", str(finished / "config.yaml")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_runs_of_one_name_are_told_apart(finished, tmp_path):
    twin = write_run(tmp_path / "other" / "finished", [line(40, 7.0)])
    report.main([str(finished), str(twin), "--output", str(tmp_path / "out")])
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert f"<th>{finished}</th><th>{twin}</th>" in page


def test_lines_of_a_file_that_is_not_there(tmp_path):
    assert read_lines(tmp_path / "none.jsonl") == []


def test_command_line(finished):
    done = subprocess.run([sys.executable, "-m", "training.report", str(finished)],
                          capture_output=True, text=True)
    assert done.returncode == 0 and "7.2500 at 20" in done.stdout
