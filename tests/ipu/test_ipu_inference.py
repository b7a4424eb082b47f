"""Models exported for IPUs: a Program that holds to the contract and tells what the trained one does."""

import importlib.util
import re

import numpy as np
import paddle
import pytest

import export_model
import predict
from configs.command_line import run
from configs.errors import InputError
from configs.inference_schema import InferenceConfig
from inference.export import FORMATS, export_model as export
from inference.graphs import ClassifyGraph
from inference.predictor import open_predictor
from tests.checkpoints import BUILDERS, save_checkpoint

SETTINGS = dict(device="ipu_model", fixed_rows=2, fixed_length=32)
WORDS = "The old [MASK] stood by the river, and [MASK] was its name."
RECORDS = {"fill_mask": [{"text": WORDS}, {"text": "[MASK]"}, {"text": f"3 {WORDS}"}],
           "answer": [{"question": "What stood?", "context": "The old bridge stood. " * 8}],
           "classify": [{"text": "fine"}, {"text": "one", "pair": "two"}, {"text": "a " * 60}],
           "embed": [{"text": "fine"}, {"text": "the river rose"}, {"text": ""}]}
CASES = [(task, architecture) for architecture in ("bert", "ernie") for task in BUILDERS]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Folders of a checkpoint and of its export for two rows of 32 slots, made once each."""
    made = {}

    def make(task, architecture="bert"):
        if (task, architecture) not in made:
            folder = tmp_path_factory.mktemp(task)
            checkpoint = save_checkpoint(folder / "checkpoint", task, architecture)
            has_onnx = architecture == "bert" and importlib.util.find_spec("paddle2onnx")
            result = export(checkpoint, task, folder / "exported",
                            FORMATS if has_onnx else ("paddle",),
                            inference=InferenceConfig(**SETTINGS))
            made[task, architecture] = checkpoint, str(folder / "exported"), result
        return made[task, architecture]
    return make


def numbers(answers):
    """Every float of some answers."""
    if isinstance(answers, float):
        return [answers]
    parts = answers.values() if isinstance(answers, dict) else answers
    return [number for part in parts if not isinstance(part, (str, int, type(None)))
            for number in numbers(part)]


@pytest.mark.parametrize("task, architecture", CASES)
def test_each_task_tells_what_the_checkpoint_does(exported, task, architecture):
    checkpoint, folder, result = exported(task, architecture)
    assert {"paddle", "ipu_model"} <= result.largest_difference.keys()
    assert all(0 <= value < 1e-5 for value in result.largest_difference.values())
    records = [record for record in RECORDS[task] if len(record.get("text", "")) < 100]
    expected = open_predictor(checkpoint, task).answers(records)
    for settings in (InferenceConfig(), InferenceConfig(**SETTINGS)):
        answers = open_predictor(folder, settings=settings).answers(records)
        assert [sorted(answer) for answer in answers] == [sorted(answer) for answer in expected]
        # A question is read in windows of another length, so it alone may be answered otherwise.
        if task != "answer":
            assert numbers(answers) == pytest.approx(numbers(expected), abs=1e-5)


def test_a_text_is_cut_where_the_row_ends(exported):
    _, folder, result = exported("classify")
    cut = open_predictor(folder).answers([{"text": "a " * 60}, {"text": "a " * 30}])
    assert result.max_tokens == 32 and cut[0] == cut[1]


@pytest.mark.parametrize("options", [
    {"ipu_replicas": 2, "fixed_rows": 4}, {"ipus": 2},
    {"ipus": 2, "ipu_pipelining": True, "ipu_batches_per_step": 3, "fixed_rows": 6},
    {"ipu_replicas": 2, "fixed_rows": 8, "ipu_pipelining": False}])
def test_rows_come_back_in_order_from_every_pod(exported, options):
    _, folder, _ = exported("embed")
    settings = {**SETTINGS, **options}
    if settings["fixed_rows"] == 8:
        with pytest.raises(InputError, match="computes 4 rows of 32 .* exported for 2 of 32"):
            open_predictor(folder, settings=InferenceConfig(**settings))
        return
    texts = [{"text": f"river {number}"} for number in range(7)]
    expected = open_predictor(folder).answers(texts)
    found = open_predictor(folder, settings=InferenceConfig(**settings)).answers(texts)
    assert numbers(found) == pytest.approx(numbers(expected), abs=1e-6)
    assert len({answer["embedding"][0] for answer in found}) == 7


def test_half_precision_is_near(exported):
    _, folder, _ = exported("embed")
    settings = InferenceConfig(**SETTINGS, precision="fp16")
    half, whole = (numbers(open_predictor(folder, settings=one).answers(RECORDS["embed"][:2]))
                   for one in (settings, InferenceConfig()))
    assert 1e-7 < np.abs(np.subtract(half, whole)).max() < 2e-2


def test_what_ipus_would_refuse_is_refused_with_a_mend(exported):
    _, folder, _ = exported("fill_mask")
    pipeline = {"ipus": 2, "ipu_pipelining": True, "ipu_batches_per_step": 2, "fixed_rows": 4}
    for options, words in (
            (pipeline, "the weight network.embeddings.word_embeddings.weight"),
            ({"ipus": 3}, "3 is no power of two"),
            ({"ipu_available_memory_proportion": 1.5}, "outside [0, 1]")):
        with pytest.raises(InputError, match=re.escape(words)) as caught:
            open_predictor(folder, settings=InferenceConfig(**{**SETTINGS, **options}))
        assert caught.value.mend
    # Without a pipeline the table is copied from one IPU to the other.
    assert open_predictor(folder, settings=InferenceConfig(**SETTINGS, ipus=2))
    answer, = open_predictor(folder).answers([{"text": "[MASK] " * 5}])
    assert "5 [MASK]s, but the model was exported for 4 a row" in answer["error"]


@pytest.mark.parametrize("options, words", [
    ({"ipus": 2, "ipu_replicas": 2, "fixed_rows": 4}, "inference.ipu_replicas: 2, but Paddle"),
    ({"ipu_pipelining": True}, "one IPU is no pipeline"),
    ({"ipu_batches_per_step": 2}, "passes over without a pipeline"),
    ({"ipu_half_partials": True}, "passes over in fp32")])
def test_settings_that_paddle_would_mistake(options, words):
    with pytest.raises(InputError, match=words):
        InferenceConfig(**{**SETTINGS, **options}).check()


def test_an_operator_that_ipus_lack_is_named_and_nothing_is_written(tmp_path, monkeypatch):
    def read(self, stream):
        columns = paddle.gather(stream["pooled"][:, 0], paddle.full([3], 1, "int32"), axis=1)
        return {"logits": columns}

    monkeypatch.setattr(ClassifyGraph, "read", read)
    checkpoint = save_checkpoint(tmp_path / "checkpoint", "classify")
    with pytest.raises(InputError) as caught:
        export(checkpoint, "classify", tmp_path / "exported", ("paddle",),
               inference=InferenceConfig(**SETTINGS))
    assert str(caught.value).startswith("heads, operator gather: gathers along another axis")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_the_onnx_model_is_such_as_popart_reads(exported):
    onnx = pytest.importorskip("onnx")
    if not importlib.util.find_spec("paddle2onnx"):
        pytest.skip("paddle2onnx is not installed")
    from inference.ipu import check_onnx

    _, folder, result = exported("fill_mask")
    path = f"{folder}/model.onnx"
    model = onnx.load(path)
    assert {one.name: [size.dim_value for size in one.type.tensor_type.shape.dim]
            for one in model.graph.input} == {**dict.fromkeys(
                ("input_ids", "token_type_ids", "position_ids", "sequence_id"), [2, 32]),
                "masked": [8]}
    assert [version.version for version in model.opset_import] == [11]
    check_onnx(folder)
    for change, words in (
            (lambda copy: copy.graph.node.add(op_type="Einsum"), "operator Einsum, which PopART"),
            (lambda copy: setattr(copy.opset_import[0], "version", 13), "up to 11"),
            (lambda copy: copy.graph.input[0].type.tensor_type.shape.dim[0].Clear(), "fixed")):
        copy = onnx.load(path)
        change(copy)
        onnx.save(copy, path)
        with pytest.raises(InputError, match=words):
            check_onnx(folder)
        onnx.save(model, path)


def test_the_command_line(exported, tmp_path, capsys):
    checkpoint, folder, _ = exported("embed")
    words = ["embed", "--model", folder, "--config", "configs/inference/ipu.yaml", "--text", "a",
             "--set", "fixed_rows=2", "--set", "fixed_length=32"]
    assert run(predict.main, [*words, "--dry-run"]) == 0
    assert re.search(r"contract: \d+ operators and 11 options .* 1 IPUs, 2 rows of 32",
                     capsys.readouterr().out)
    assert run(predict.main, [*words, "--set", "ipu_replicas=2", "--dry-run"]) == 2
    assert "write fixed_rows: 4 and fixed_length: 32" in capsys.readouterr().err
    assert run(predict.main, words) == 2
    assert "built without IPUs" in capsys.readouterr().err
    assert run(predict.main, [*words[:3], "--text", "a", "--dry-run"]) == 2
    assert "add --set device=ipu" in capsys.readouterr().err
    arguments = ["--checkpoint", checkpoint, "--task", "embed", "--output", str(tmp_path / "x")]
    for options, problem in (
            (["--inference", "configs/inference/cpu.yaml"], "exported without --inference"),
            (["--inference", "configs/inference/ipu.yaml"], "128 is not between 8 and the model's "
                                                            "96 positions")):
        assert run(export_model.main, [*arguments, *options]) == 2
        assert problem in capsys.readouterr().err
