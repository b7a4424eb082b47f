"""What goes wrong in a long run: nothing is lost, and one line tells what happened."""

import contextlib
import json
import resource
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import run_pretrain
from configs.command_line import run
from data.pretraining import PretrainingData
from training import replay

CONFIG = "configs/pretrain/quickstart.yaml"
COSTS = ("sequences_per_second", "tokens_per_second", "mfu", "data_seconds", "step_seconds")


@pytest.fixture
def pretrain(tiny_overrides):
    """Run run_pretrain.py on the tiny recipe; returns its exit code."""
    def call(output, *overrides, options=()):
        sets = [word for override in (*tiny_overrides, *overrides) for word in ("--set", override)]
        return run(run_pretrain.main,
                   ["--config", CONFIG, "--output", str(output), *sets, *options])
    return call


def metrics(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in COSTS} for line in lines]


def checkpoints(folder):
    return sorted(int(path.name[len("step_"):]) for path in (folder / "checkpoints").iterdir())


def weights(folder, step=6):
    return load_file(folder / "checkpoints" / f"step_{step:08d}" / "model.safetensors")


def assert_same_weights(one, two):
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[name], two[name]) for name in one)


@pytest.fixture
def break_batches(monkeypatch):
    """Make the loss of chosen steps infinite: ``break_batches([3, 4])``."""
    whole = PretrainingData.batch

    def call(steps, rows=8):
        def batch(self, consumed, count):
            result = whole(self, consumed, count)
            if self.split == "train" and consumed // rows + 1 in steps:
                result.labels["masked_lm_weights"][0] = np.inf
            return result
        monkeypatch.setattr(PretrainingData, "batch", batch)
    return call


def test_steps_that_are_not_finite_are_skipped_and_counted(tmp_path, pretrain, break_batches):
    break_batches([3, 4])
    assert pretrain(tmp_path / "run", "train.save_every=2") == 0
    lines = metrics(tmp_path / "run")
    assert [line["skipped_steps"] for line in lines] == [0, 0, 1, 2, 2, 2]
    assert [line["loss"] is None for line in lines] == [False, False, True, True, False, False]
    assert [line["samples"] for line in lines] == [8, 16, 24, 32, 40, 48]
    assert_same_weights(weights(tmp_path / "run", 2), weights(tmp_path / "run", 4))
    assert all(np.isfinite(array).all() for array in weights(tmp_path / "run").values())
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["skipped_steps"] == 2
    # The count outlives a stop.
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_00000006")
    assert pretrain(tmp_path / "run", "train.save_every=2", options=["--resume"]) == 0
    assert metrics(tmp_path / "run") == lines


def test_too_many_in_a_row_stop_the_run_and_leave_the_batch(tmp_path, pretrain, break_batches,
                                                            capsys):
    break_batches([2, 4, 5, 6])
    assert pretrain(tmp_path / "run", "train.max_skipped_steps=2", "train.steps=9") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "3 updates in a row, the last is step 6, rows 40 to 47" in error
    place = tmp_path / "run" / "not_finite" / "step_00000006"
    assert str(place) in error and checkpoints(tmp_path / "run") == [3]
    # The file holds the very batch, and playing it again gives what the run had.
    batch, step = replay.read_batch(place)
    assert step == 6 and len(batch) == 8
    assert np.isinf(batch.labels["masked_lm_weights"][0]).all()
    found = replay.main([str(place)])
    assert not np.isfinite(found["loss"]) and found["parameters"] == [] and found["parts"] == []
    assert "heads.masked_lm.decoder_bias" in found["gradients"]


def test_replay_names_the_weight_that_is_broken(tmp_path, pretrain, capsys):
    assert pretrain(tmp_path / "one", "train.steps=1") == 0
    start = tmp_path / "one" / "checkpoints" / "step_00000001"
    arrays = load_file(start / "model.safetensors")
    arrays["bert.encoder.layer.1.output.dense.weight"][3, 2] = np.nan
    save_file(arrays, start / "model.safetensors", {"format": "pt"})
    assert pretrain(tmp_path / "two", f"train.initial_weights={start}",
                    "train.max_skipped_steps=0") == 2
    assert "1 updates in a row, the last is step 1, rows 0 to 7" in capsys.readouterr().err
    found = replay.main([str(tmp_path / "two" / "not_finite" / "step_00000001")])
    assert found["parts"][0] == "layer.1.output"
    assert found["parameters"] == ["layer.1.output.weight"]
    assert "parameters: layer.1.output.weight" in capsys.readouterr().out


def test_replay_of_no_folder_is_told_in_one_line(tmp_path, capsys):
    assert run(replay.main, [str(tmp_path)]) == 2
    assert "batch.npz: is missing or damaged" in capsys.readouterr().err


@contextlib.contextmanager
def largest_file(size):
    """A disk that takes no file above some bytes: writes fail as on a full one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room, file", [
    # Neither the weights fit, nor, with the weights of 4 MB, the moments of 8 MB.
    (500_000, "step_00000006"), (6_000_000, "step_00000006"), (500, "config.yaml")])
def test_a_full_disk_stops_the_run_and_harms_no_checkpoint(tmp_path, pretrain, capsys, room, file):
    assert pretrain(tmp_path / "whole") == 0
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_00000006")
    capsys.readouterr()
    with largest_file(room):
        assert pretrain(tmp_path / "run", options=["--resume"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and file in error and "make room" in error
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step_00000003"]
    assert pretrain(tmp_path / "run", options=["--resume"]) == 0
    assert_same_weights(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_another_split_goes_on_with_the_same_samples(tmp_path, pretrain):
    """1 replica x accumulation 4 up to step 3, then 1 x 2 with the micro batch doubled."""
    first, second = ["run.micro_batch_size=2"], ["run.micro_batch_size=4"]
    assert pretrain(tmp_path / "whole", *first) == 0
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_00000006")
    for name, options in (("1 x 2", second), ("2 x 2", ["run.micro_batch_size=2",
                                                        "run.replicas=2"])):
        shutil.copytree(tmp_path / "run", tmp_path / name)
        assert pretrain(tmp_path / name, *options, options=["--resume"]) == 0
        for ours, theirs in zip(metrics(tmp_path / name), metrics(tmp_path / "whole")):
            assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-7)


def test_a_resumed_run_reads_no_sample_again(tmp_path, pretrain, monkeypatch):
    """Going on is a seek: what was consumed before is not made, to be thrown away."""
    assert pretrain(tmp_path / "run") == 0
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_00000006")
    whole, read = PretrainingData.batch, []

    def batch(self, consumed, count):
        if self.split == "train":
            read.append((consumed, count))
        return whole(self, consumed, count)
    monkeypatch.setattr(PretrainingData, "batch", batch)
    assert pretrain(tmp_path / "run", options=["--resume"]) == 0
    assert read == [(24, 8), (32, 8), (40, 8)]


def test_checkpoints_are_pruned_and_the_best_one_stays(tmp_path, pretrain):
    """With a rate that spoils the weights from step 4 on, the best evaluation is before."""
    options = ["train.steps=9", "train.warmup_steps=9", "train.learning_rate=40",
               "train.optimizer=lamb", "train.evaluate_every=1", "train.save_every=1",
               "train.keep_last=2", "train.keep_every=5"]
    assert pretrain(tmp_path / "run", *options) == 0
    lines = [json.loads(line) for line
             in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    best = min(lines, key=lambda line: line["loss"])["step"]
    assert best < 8 and checkpoints(tmp_path / "run") == sorted({best, 5, 8, 9})
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["best"]["step"] == best


def test_the_best_evaluation_is_saved_between_checkpoints(tmp_path, pretrain):
    options = ["train.steps=8", "train.evaluate_every=2", "train.save_every=100",
               "train.keep_last=1"]
    assert pretrain(tmp_path / "run", *options) == 0
    assert checkpoints(tmp_path / "run") == [8]
    assert pretrain(tmp_path / "off", *options, "train.keep_best=false") == 0
    assert metrics(tmp_path / "run") == metrics(tmp_path / "off")


def test_an_evaluation_that_is_not_finite_is_told_and_is_not_the_best(tmp_path, pretrain,
                                                                      monkeypatch):
    whole = PretrainingData.batch

    def batch(self, consumed, count):
        result = whole(self, consumed, count)
        if self.split != "train":
            result.labels["masked_lm_weights"][0] = np.inf
        return result
    monkeypatch.setattr(PretrainingData, "batch", batch)
    options = ["train.evaluate_every=2", "train.save_every=3"]
    assert pretrain(tmp_path / "run", *options) == 0
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_00000006")
    assert pretrain(tmp_path / "run", *options, options=["--resume"]) == 0

    def refuse(word):
        raise ValueError(f"{word} is no JSON")
    lines = [json.loads(line, parse_constant=refuse) for line
             in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert all(line["loss"] is None for line in lines)
    result = json.loads((tmp_path / "run" / "result.json").read_text(), parse_constant=refuse)
    assert result["best"] is None and checkpoints(tmp_path / "run") == [3, 6]


def test_a_loss_scale_changes_no_bit(tmp_path, pretrain):
    for name, scale in (("plain", "null"), ("scaled", "4096")):
        assert pretrain(tmp_path / name, f"run.loss_scale={scale}") == 0
    assert metrics(tmp_path / "plain") == metrics(tmp_path / "scaled")
    assert_same_weights(weights(tmp_path / "plain"), weights(tmp_path / "scaled"))
