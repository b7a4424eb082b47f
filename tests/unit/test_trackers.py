"""What VisualDL, TensorBoard and Weights & Biases are told of a run that was killed and resumed."""

import json
import struct
import sys

import pytest

from configs.errors import InputError
from training.metrics import JsonLines
from training.trackers import TRACKERS, open_trackers

# A run of 6 steps, killed after step 4 with a checkpoint of step 3.
LOSSES = {step: 8.0 - step / 4 for step in range(1, 7)}
HELD_OUT = {2: 7.75, 4: 7.25, 6: 6.75}


def write_steps(folder, trackers, first, last):
    """What the training loop does with its lines."""
    metrics, evaluations = (JsonLines(folder / name) for name in
                            ("metrics.jsonl", "evaluations.jsonl"))
    for step in range(first, last + 1):
        line = {"step": step, "loss": LOSSES[step], "skipped": False, "note": "no number"}
        metrics.append(line)
        for tracker in trackers:
            tracker.log(step, line)
        if step in HELD_OUT:
            evaluations.append({"step": step, "loss": HELD_OUT[step]})
            for tracker in trackers:
                tracker.log(step, {"loss": HELD_OUT[step]}, "held_out")


def run_killed_and_resumed(folder, name, config):
    trackers = open_trackers([name], folder, config)
    write_steps(folder, trackers, 1, 4)
    for tracker in trackers:
        tracker.close()  # a kill leaves the same files, or less of them
    for file in ("metrics.jsonl", "evaluations.jsonl"):
        JsonLines(folder / file).keep_up_to(3)
    trackers = open_trackers([name], folder, config)
    write_steps(folder, trackers, 4, 6)
    for tracker in trackers:
        tracker.close()


def test_visualdl(tmp_path, tiny_config):
    run_killed_and_resumed(tmp_path, "visualdl", tiny_config())
    from visualdl import LogReader

    file, = (tmp_path / "visualdl").iterdir()
    reader = LogReader(file_path=str(file))
    for tag, values in (("training/loss", LOSSES), ("held_out/loss", HELD_OUT)):
        assert [(r.id, r.value) for r in reader.get_data("scalar", tag)] == list(values.items())
    assert "training/note" not in reader.get_tags()["scalar"]


def read_tensorboard(file):
    """``(tag, step, value)`` of an events file: records of length, check, message, check."""
    from tensorboardX.proto.event_pb2 import Event

    data, position, found = file.read_bytes(), 0, []
    while position < len(data):
        length, = struct.unpack_from("<Q", data, position)
        event = Event.FromString(data[position + 12:position + 12 + length])
        found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
        position += 16 + length
    return found


def test_tensorboard(tmp_path, tiny_config):
    pytest.importorskip("tensorboardX")
    run_killed_and_resumed(tmp_path, "tensorboard", tiny_config())
    newest, = (tmp_path / "tensorboard").iterdir()
    found = read_tensorboard(newest)
    for tag, values in (("training/loss", LOSSES), ("held_out/loss", HELD_OUT)):
        assert [entry[1:] for entry in found if entry[0] == tag] == list(values.items())
    assert "training/note" not in {tag for tag, _, _ in found}


def read_wandb(file):
    """The history of an offline file, a dict a step, and the run's config."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store, rows, config = DataStore(), [], {}
    store.open_for_scan(str(file))
    for data in iter(store.scan_data, None):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "run":
            config = {item.key: json.loads(item.value_json)
                      for item in record.run.config.update}
        if record.WhichOneof("record_type") == "history":
            rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json)
                         for item in record.history.item})
    return rows, config


def test_wandb_offline(tmp_path, tiny_config, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run_killed_and_resumed(tmp_path, "wandb", tiny_config())
    file, = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    rows, config = read_wandb(file)
    assert [(row["_step"], row["training/loss"]) for row in rows] == list(LOSSES.items())
    assert {row["_step"]: row["held_out/loss"] for row in rows
            if "held_out/loss" in row} == HELD_OUT
    assert config["train"]["steps"] == 6


def test_an_unknown_name_lists_the_known(tmp_path, tiny_config):
    with pytest.raises(InputError, match="unknown tracker 'mlflow'; known are visualdl, "
                                         "tensorboard, wandb"):
        open_trackers(["mlflow"], tmp_path, tiny_config())


@pytest.mark.parametrize("name, package", [
    ("visualdl", "visualdl"), ("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_missing_package_names_the_command(tmp_path, tiny_config, monkeypatch, name, package):
    assert name in TRACKERS
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(InputError, match=f"{name} cannot be imported.*run: pip install -r "
                                         "requirements-trackers.txt"):
        open_trackers([name], tmp_path, tiny_config())
    assert list(tmp_path.iterdir()) == []


def test_wandb_without_a_login_says_so(tmp_path, tiny_config, monkeypatch):
    wandb = pytest.importorskip("wandb")

    def refuse(**options):
        raise wandb.errors.UsageError("No API key configured.")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(InputError, match="No API key configured.*WANDB_MODE=offline"):
        open_trackers(["wandb"], tmp_path, tiny_config())


def test_no_tracker_imports_nothing(tmp_path, tiny_config):
    assert open_trackers([], tmp_path, tiny_config()) == []
