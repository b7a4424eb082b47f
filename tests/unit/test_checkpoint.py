"""Checkpoints are whole or absent, and the newest is the highest number."""

import json

import numpy as np
import pytest

from configs.errors import InputError
from training.checkpoint import newest_checkpoint, read_optimizer, read_state, save_checkpoint


def save(directory, step, value=1.0):
    def write_model(path):
        (path / "model.safetensors").write_bytes(b"weights")

    return save_checkpoint(directory, write_model, {"a/moment1": np.full(3, value, "float32")},
                           {"step": step, "samples": step * 8})


def test_what_is_saved_is_read(tmp_path):
    path = save(tmp_path, 12, 2.5)
    assert path.name == "step_00000012"
    state = read_state(path)
    assert (state["step"], state["samples"]) == (12, 96)
    assert read_optimizer(path)["a/moment1"].tolist() == [2.5, 2.5, 2.5]
    assert not list(tmp_path.glob("*.partial"))


def test_newest_goes_by_number_not_by_text(tmp_path):
    for step in (900, 1000, 99_999_999, 100_000_000):
        save(tmp_path, step)
    (tmp_path / "step_900000000.partial").mkdir()
    (tmp_path / "step_best").mkdir()
    assert newest_checkpoint(tmp_path).name == "step_100000000"


@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "no state", "bad state"])
def test_damaged_checkpoint_is_passed_over(tmp_path, capsys, damage):
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    file = path / ("state.json" if "state" in damage else "optimizer.safetensors")
    content = bytearray(file.read_bytes())
    if damage in ("remove", "no state"):
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[:-1])
    elif damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    else:
        file.write_text("{")
    with pytest.raises(InputError, match="step_00000002"):
        read_state(path)
    assert newest_checkpoint(tmp_path).name == "step_00000001"
    assert "passed over" in capsys.readouterr().out


def test_failed_save_leaves_the_old_one(tmp_path):
    path = save(tmp_path, 5)

    def write_model(folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError):
        save_checkpoint(tmp_path, write_model, {}, {"step": 5})
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    assert json.loads((path / "state.json").read_text())["samples"] == 40


def test_no_checkpoint_is_none(tmp_path):
    assert newest_checkpoint(tmp_path / "nothing") is None
