"""Checkpoints are whole or absent, and the newest is the highest number."""

import json

import numpy as np
import pytest

from configs.errors import InputError
from training.checkpoint import (newest_checkpoint, prune_checkpoints, read_optimizer, read_state,
                                 remove_partial_checkpoints, save_checkpoint)


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

    with pytest.raises(InputError, match="No space left on device.*make room"):
        save_checkpoint(tmp_path, write_model, {}, {"step": 5})
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    assert json.loads((path / "state.json").read_text())["samples"] == 40


def test_no_checkpoint_is_none(tmp_path):
    assert newest_checkpoint(tmp_path / "nothing") is None


@pytest.mark.parametrize("options, kept", [
    ({"keep_last": 0}, [10, 20, 30, 40, 50, 60]),
    ({"keep_last": 2}, [50, 60]),
    ({"keep_last": 1, "keep_every": 20}, [20, 40, 60]),
    ({"keep_last": 2, "best": 30}, [30, 50, 60]),
    ({"keep_last": 1, "keep_every": 30, "best": 10}, [10, 30, 60]),
    ({"keep_last": 9}, [10, 20, 30, 40, 50, 60]),
])
def test_pruning_keeps_what_was_asked_for(tmp_path, options, kept):
    for step in range(10, 70, 10):
        save(tmp_path, step)
    prune_checkpoints(tmp_path, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step_{n:08d}" for n in kept]


def test_leavings_of_a_kill_are_removed(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "step_00000002.partial").mkdir()
    (tmp_path / "step_00000002.partial" / "model.safetensors").write_bytes(b"half")
    remove_partial_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000001"]


@pytest.mark.parametrize("change", [
    lambda text: text.replace('"samples": 40', '"samples": 48'),
    lambda text: text.replace("\n", "\n "),
    lambda text: text + "\n",
    lambda text: "[]", lambda text: "null", lambda text: "[" * 100_000])
def test_the_state_itself_is_verified(tmp_path, change):
    path = save(tmp_path, 5)
    file = path / "state.json"
    file.write_text(change(file.read_text()))
    with pytest.raises(InputError, match="state.json is missing or damaged"):
        read_state(path)
