"""A run that is killed five times at random moments ends with the bits of an unbroken one."""

import json

import pytest

from benchmarks import kill_and_resume
from configs.command_line import run


def test_five_kills(tmp_path):
    output = tmp_path / "figures.json"
    assert kill_and_resume.exit_code(["--kills", "5", "--output", str(output)]) == 0
    figures = json.loads(output.read_text())
    assert figures["kills"] == len(figures["deaths"]) == 5
    assert sum(figures["moments"].values()) == 5
    assert figures["equal"] == {"model.safetensors": True, "optimizer.safetensors": True,
                                "metrics.jsonl": True, "evaluations.jsonl": True}
    reached = [death["checkpoint"] for death in figures["deaths"]]
    assert reached == sorted(reached) and reached[-1] < figures["steps"]
    assert any(death["step"] for death in figures["deaths"])


def write_run(folder, weights=b"weights", loss=1.0, **cost):
    checkpoint = folder / "checkpoints" / "step_00000002"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(weights)
    (checkpoint / "optimizer.safetensors").write_bytes(b"moments")
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 2, "loss": loss, **cost}) + "\n")
    (folder / "evaluations.jsonl").write_text('{"step": 2, "loss": 3.0}\n')
    return folder


def test_a_difference_is_seen(tmp_path):
    whole = write_run(tmp_path / "whole", mfu=0.5, step_seconds=1.0)
    compare = kill_and_resume.compare
    assert all(compare(whole, write_run(tmp_path / "same", mfu=0.25)).values())
    assert not compare(whole, write_run(tmp_path / "bit", b"weightr"))["model.safetensors"]
    other = write_run(tmp_path / "loss", loss=1.0000000000000002)
    assert not compare(whole, other)["metrics.jsonl"]
    (other / "evaluations.jsonl").write_text("")
    assert not compare(whole, other)["evaluations.jsonl"]


@pytest.mark.parametrize("kills", ["0", "many"])
def test_bad_input(kills, capsys):
    assert run(kill_and_resume.main, ["--kills", kills]) == 2
    assert "--kills" in capsys.readouterr().err
