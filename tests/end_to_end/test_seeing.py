"""A run as people see it: trackers, a trace, a report, and two runs side by side."""

import json

import pytest

import run_pretrain
from training import compare, report

CONFIG = "configs/pretrain/quickstart.yaml"


@pytest.fixture
def pretrain(tiny_overrides):
    def call(output, *overrides):
        sets = [word for value in (*tiny_overrides, *overrides) for word in ("--set", value)]
        return run_pretrain.main(["--config", CONFIG, "--output", str(output), *sets])
    return call


def test_trackers_and_trace_of_a_run(tmp_path, pretrain):
    from visualdl import LogReader

    folder = tmp_path / "run"
    pretrain(folder, "train.trackers=[visualdl]", "train.profile=[3, 4]",
             "train.evaluate_every=3")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    held_out = [json.loads(line)
                for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    file, = (folder / "visualdl").iterdir()
    reader = LogReader(file_path=str(file))
    for split, expected in (("training", lines), ("held_out", held_out)):
        records = reader.get_data("scalar", f"{split}/mlm_loss")
        assert [record.id for record in records] == [line["step"] for line in expected]
        assert [record.value for record in records] == pytest.approx(
            [line["mlm_loss"] for line in expected], rel=1e-6)
    trace = json.loads((folder / "profile.json").read_text("utf-8"))
    names = [event.get("name") or "" for event in trace["traceEvents"]]
    assert [sum(name.startswith(f"step {step}[") for name in names) for step in range(2, 6)] == [
        0, 1, 1, 0]
    # 4 products a layer besides the attention's 2, of 2 layers, 2 micro batches and 2 steps.
    assert sum(name.startswith("matmul dygraph") for name in names) >= 6 * 2 * 2 * 2
    assert "matmul dygraph" in (folder / "profile.txt").read_text("utf-8")


def test_report_and_comparison_of_two_runs(tmp_path, pretrain, capsys):
    one, two, three = (str(tmp_path / name) for name in ("one", "two", "three"))
    pretrain(one)
    pretrain(two, "train.steps=3")
    pretrain(three, "train.seed=7")
    rows = {row[0]: row[1:] for row in report.main([one, two, three, "--x", "tokens"])}
    assert rows["steps"] == ["6", "3", "6"] and rows["samples"] == ["48", "24", "48"]
    result = json.loads((tmp_path / "one" / "result.json").read_text())
    assert rows["mlm loss, held out"][0] == f"{result['held_out']['mlm_loss']:.4f}"
    assert "train.seed" in (tmp_path / "one" / "report.html").read_text("utf-8")
    # Another train.steps alters the learning rate of step 3, which is seen in the loss of step 4.
    assert compare.exit_code([one, two]) == 0
    assert f"only in {one}: 3 steps, the first 4" in capsys.readouterr().out
    assert compare.exit_code([one, three]) == 1
    assert "first difference: step 1, " in capsys.readouterr().out
