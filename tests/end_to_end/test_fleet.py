"""Stages and replicas on Fleet's processes: the numbers of one process, and clean endings."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import run_pretrain
from benchmarks.launching import ROOT, Job, environment, launch, launcher
from benchmarks.split_parity import (FOUR_STAGES, GOAL, RECIPES, SPLITS, TWO_STAGES, differences,
                                     job_arguments)
from configs.errors import InputError
from engines.fleet_layout import Layout
from models.tasks import build_for_recipe
from training.checkpoint import newest_checkpoint

SIZES = ["model.hidden_size=32", "model.num_hidden_layers=4", "model.num_attention_heads=2",
         "model.intermediate_size=64", "data.sequence_length=48", "data.max_predictions=7",
         "train.steps=3", "train.warmup_steps=1", "train.global_batch_size=8",
         "train.log_every=1", "train.evaluation_rows=6", "train.save_every=2",
         "run.micro_batch_size=2", "run.peak_flops=1.0e+11"]
DROPOUT = ["model.hidden_dropout_prob=0.1", "model.attention_probs_dropout_prob=0.1"]
BOTH = SPLITS["pipeline 2 x replicas 2"].overrides
# Splits over several processes.
SEVERAL = [name for name in SPLITS if name != "one process"]
# name: (processes, split, what else); each is compared with one process or with another name.
DROPPED = {
    "one dropped": (1, "one process", DROPOUT),
    "stages dropped": (2, "pipeline 2", [*DROPOUT, "run.recompute=true"]),
    **{f"{split} dropped{again}": (SPLITS[split].processes, split, DROPOUT)
       for split in SEVERAL for again in ("", " again")},
    "sharded": (4, "pipeline 2 x replicas 2", [*DROPOUT, "run.shard_optimizer=true",
                                               "train.optimizer=lamb"]),
    "one lamb": (1, "one process", [*DROPOUT, "train.optimizer=lamb"]),
}


def arguments(folder, model, name, split, overrides=()):
    words = job_arguments(folder / model, model, split, [*SIZES, *overrides])
    words[words.index("--output") + 1] = str(folder / model / name)
    return words


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder of all runs: ``MODEL/NAME``; three launches compute them."""
    import prepare_data

    folder = tmp_path_factory.mktemp("fleet")
    jobs = {1: [], 2: [], 4: []}
    for model, recipe in RECIPES.items():
        prepare_data.main(["--config", recipe, "--output", str(folder / model / "prepared")])
        for name, split in SPLITS.items():
            jobs[split.processes].append(arguments(folder, model, name, name))
    for name, (processes, split, overrides) in DROPPED.items():
        jobs[processes].append(arguments(folder, "bert", name, split, overrides))
    for words in jobs[1]:
        run_pretrain.main(words)
    # Half of the run in one process and half in four.
    half = folder / "bert" / "resumed"
    shutil.copytree(folder / "bert" / "one dropped", half)
    shutil.rmtree(half / "checkpoints" / "step_00000003")
    jobs[4].append([*arguments(folder, "bert", "resumed", "pipeline 2 x replicas 2", DROPOUT),
                    "--resume"])
    for processes in (2, 4):
        launch(processes, [Job(words) for words in jobs[processes]], folder / f"of_{processes}",
               timeout=900)
    return folder


@pytest.mark.parametrize("model", RECIPES)
@pytest.mark.parametrize("split", SEVERAL)
def test_a_split_has_the_numbers_of_one_process(runs, model, split):
    found = differences(runs / model / "one process", runs / model / split)
    assert found["largest_relative_loss_difference"] < GOAL
    assert found["largest_weight_difference"] < GOAL
    held_out = [json.loads((runs / model / name / "result.json").read_text())["held_out"]
                for name in ("one process", split)]
    assert held_out[0] == pytest.approx(held_out[1], rel=GOAL)


@pytest.mark.parametrize("name, of", [("stages dropped", "one dropped"),
                                      *((f"{split} dropped", "one dropped") for split in SEVERAL),
                                      ("sharded", "one lamb"),
                                      ("resumed", "one dropped")])
def test_dropout_is_the_same_in_every_split(runs, name, of):
    """Recomputation, sharded optimizer state and a resume in another split included."""
    found = differences(runs / "bert" / of, runs / "bert" / name)
    assert found["largest_relative_loss_difference"] < GOAL
    assert found["largest_weight_difference"] < GOAL
    plain = differences(runs / "bert" / "one process", runs / "bert" / of)
    assert plain["largest_relative_loss_difference"] > 100 * GOAL


@pytest.mark.parametrize("split", SEVERAL)
def test_a_split_run_repeats_itself_in_every_bit(runs, split):
    for file in ("model.safetensors", "optimizer.safetensors"):
        one, two = (load_file(runs / "bert" / f"{split} dropped{again}" / "checkpoints"
                              / "step_00000003" / file) for again in ("", " again"))
        assert one.keys() == two.keys()
        assert all(np.array_equal(one[name], two[name]) for name in one)


def test_the_state_of_a_sharded_optimizer_is_that_of_one_process(runs):
    one, two = (load_file(runs / "bert" / name / "checkpoints" / "step_00000003"
                          / "optimizer.safetensors") for name in ("one lamb", "sharded"))
    assert one.keys() == two.keys()
    for name in one:
        if ".key.bias/" in name:
            # A softmax does not see what is added to all keys: the gradient is rounding alone.
            assert max(np.abs(one[name]).max(), np.abs(two[name]).max()) < 1e-7, name
            continue
        difference = np.linalg.norm(one[name].astype(np.float64) - two[name])
        assert difference <= 1e-6 * np.linalg.norm(one[name].astype(np.float64)), name


def test_a_run_in_four_processes_goes_on_in_one(runs):
    folder = runs / "bert" / "back"
    shutil.copytree(runs / "bert" / "pipeline 2 x replicas 2 dropped", folder)
    shutil.rmtree(folder / "checkpoints" / "step_00000003")
    run_pretrain.main([*arguments(runs, "bert", "back", "one process", DROPOUT), "--resume"])
    found = differences(runs / "bert" / "one dropped", folder)
    assert found["largest_relative_loss_difference"] < GOAL
    assert found["largest_weight_difference"] < GOAL


def start(folder, split, overrides, processes=2):
    """A launch that is under way: its process, after the line of step 3."""
    words = arguments(folder, "bert", "ended", split, [*overrides, "train.steps=3000"])
    shutil.rmtree(folder / "bert" / "ended", ignore_errors=True)
    process = subprocess.Popen(
        [*launcher(processes, folder / "ended_log"), "run_pretrain.py", *words], cwd=ROOT,
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        if line.startswith("step 3/"):
            return process
    raise AssertionError("the run ended before step 3")


def ranks(process):
    """Process ids of a launch by rank."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            names = dict(item.split("=", 1) for item in path.read_text().split("\0") if "=" in item)
            parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, UnicodeDecodeError):
            continue
        if parent == process.pid and "PADDLE_TRAINER_ID" in names:
            found[int(names["PADDLE_TRAINER_ID"])] = int(path.parent.name)
    return found


def test_a_killed_rank_ends_all_with_its_name(runs):
    process = start(runs, "pipeline 2", [])
    victims = ranks(process)
    os.kill(victims[1], signal.SIGKILL)
    killed = time.monotonic()
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - killed < 60
    assert process.returncode != 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in victims.values())
    lines = [line for line in output.splitlines() if line.startswith("error: ")]
    assert lines == [f"error: rank 1 (process {victims[1]}) was killed by SIGKILL, perhaps for "
                     "memory; all ranks end, go on with --resume"]
    assert newest_checkpoint(runs / "bert" / "ended" / "checkpoints") is not None


def test_a_signal_to_one_rank_stops_all_at_the_same_step(runs):
    process = start(runs, "replicas 2", [])
    os.kill(ranks(process)[1], signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "go on with --resume" in output and "error: " not in output
    checkpoints = sorted((runs / "bert" / "ended" / "checkpoints").iterdir())
    assert f"at step {int(checkpoints[-1].name[-8:])}, which is saved" in output


def test_a_wrong_number_of_processes_is_told(tiny_config):
    config = tiny_config("model.num_hidden_layers=4", TWO_STAGES, "run.replicas=2")
    layout = Layout(config, build_for_recipe(config))
    layout.check_processes(4)
    with pytest.raises(InputError, match="run.replicas: 2 replicas x 2 processes of run.pipeline "
                       "= 4, but 3 processes were launched; launch with --nproc_per_node 4"):
        layout.check_processes(3)


def test_heads_that_return_stay_on_the_last_process(tiny_config):
    config = tiny_config("model.num_hidden_layers=4", FOUR_STAGES)
    layout = Layout(config, build_for_recipe(config))
    assert layout.places == 4
    assert layout.first_parts() == [0, 1, 4, 7, 11]
    assert [layout.names[number] for number in layout.parts_of(3)] == [
        "layer.3.attention", "layer.3.feed_forward", "pooler", "heads"]
    assert [layout.names[number] for number in layout.holders_of_shared_weight()] == [
        "embeddings", "heads"]
    printed = "\n".join(layout.describe())
    assert "stage 4 returns to device 0" in printed
    assert "the word embedding is shared by the first and the last process" in printed
