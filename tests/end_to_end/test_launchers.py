"""The launchers of scripts/: what they would run, for every recipe of every machine."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from configs.load import load_config
from engines.placement import resolve

ROOT = Path(__file__).resolve().parents[2]
RECIPES = [re.fullmatch(r"(.+)_(cpu|gpu|pod)([0-9]*)", path.stem)
           for path in sorted((ROOT / "configs/pretrain").glob("*.yaml"))]
RECIPES = [match.groups() for match in RECIPES if match]
POPRUN = {"HOSTS": "host1,host2", "IPU_PARTITION": "p", "VIPU_SERVER": "10.1.3.101"}
# What a shell would take apart if it were not quoted.
AWKWARD = ["--set", 'run.pipeline=["embeddings, -1 on 0", "-1, pooler, heads on 1"]',
           "--set", "data.directory=a b/$HOME;`x`'\\"]


def start(folder, *arguments, **environment):
    return subprocess.run(["bash", str(ROOT / f"scripts/{folder}/pretrain.sh"), *arguments],
                          env={"PATH": os.environ["PATH"], **environment},
                          capture_output=True, text=True, timeout=30)


def printed(folder, *arguments, **environment):
    """The words of the command that a launcher shows."""
    result = start(folder, *arguments, "--print", **environment)
    assert (result.returncode, result.stderr) == (0, "")
    line, = result.stdout.splitlines()
    return shlex.split(line)


def training(recipe, machine, *options):
    return ["run_pretrain.py", "--config", f"configs/pretrain/{recipe}_{machine}.yaml",
            "--output", f"runs/{recipe}", "--resume", *options]


def needs(recipe, machine):
    """Replicas and devices a replica of a shipped file."""
    config = load_config(ROOT / f"configs/pretrain/{recipe}_{machine}.yaml")
    return config.run.replicas, resolve(config).ipus_per_replica


@pytest.mark.parametrize("recipe, kind, size", RECIPES, ids="_".join)
def test_every_shipped_file_has_a_launcher_that_starts_what_it_needs(recipe, kind, size):
    replicas, devices = needs(recipe, kind + size)
    folder = kind if kind != "pod" else kind + size
    processes = size if kind != "pod" and size else "1"
    words = printed(folder, recipe, "--processes", processes, **POPRUN)
    start = words.index("run_pretrain.py")
    assert words[start:] == training(recipe, kind + size)
    launcher = words[:start]
    if kind == "pod" and int(size) > 64:
        assert launcher == [
            "python", "-m", "paddle.distributed.launch", "--devices", size, "ipu",
            "--hosts", "host1,host2", "--nproc_per_host", "1", "--ipus_per_replica", str(devices),
            "--ipu_partition", "p", "--vipu_server", "10.1.3.101"]
        assert replicas * devices == int(size)
    elif kind == "pod" or not size:
        assert launcher == ["python"]
    else:
        cpu = ["env", "-u", "CUDA_VISIBLE_DEVICES"] if kind == "cpu" else []
        assert launcher == [*cpu, "python", "-m", "paddle.distributed.launch", "--nproc_per_node",
                            size, "--log_dir", f"runs/{recipe}_log"]
        assert replicas * devices == int(size)


def test_options_go_through_as_they_are():
    assert printed("pod16", "bert_base_128", *AWKWARD) == [
        "python", *training("bert_base_128", "pod16", *AWKWARD)]
    words = printed("cpu", "bert_base_128", "--dry-run", "--processes", "4", *AWKWARD)
    start = words.index("run_pretrain.py")
    assert words[start:] == training("bert_base_128", "cpu4", "--dry-run", *AWKWARD)


def test_a_yaml_file_is_taken_as_it_is():
    file = "configs/pretrain/bert_base_128_pod16.yaml"
    words = printed("cpu", file, "--processes", "4", RUNS="/tmp/my runs")
    assert words[-6:] == ["run_pretrain.py", "--config", file, "--output",
                          "/tmp/my runs/bert_base_128_pod16", "--resume"]


def test_two_machines_of_eight_gpus():
    words = printed("gpu", "bert_base_128", "--processes", "16", NODES="2", MASTER="10.0.0.1:8090",
                    PYTHON="/opt/paddle/bin/python")
    assert words[:11] == ["/opt/paddle/bin/python", "-m", "paddle.distributed.launch", "--master",
                          "10.0.0.1:8090", "--nnodes", "2", "--nproc_per_node", "8", "--log_dir",
                          "runs/bert_base_128_log"]


def test_paddles_launcher_makes_the_poprun_command_of_it(monkeypatch):
    from paddle.distributed.launch.context.args_envs import parse_args
    from paddle.distributed.launch.controllers.ipu_controller import IPUController

    words = printed("pod128", "bert_base_128", *AWKWARD, PROCESSES_PER_HOST="2", **POPRUN)
    monkeypatch.setattr("sys.argv", words[2:])
    arguments, unknown = parse_args()
    controller = IPUController.__new__(IPUController)
    controller.ctx = SimpleNamespace(args=arguments, logger=SimpleNamespace(info=print))
    controller.replace_training_script()
    command = shlex.split(controller._get_entrypoint()[0])
    assert unknown == [] and command[0] == "poprun"
    assert {"--num-instances=4", "--num-replicas=32", "--ipus-per-replica=4",
            "--host=host1,host2", "--vipu-partition=p"} <= set(command)
    start = command.index("run_pretrain.py")
    assert command[start:] == training("bert_base_128", "pod128", *AWKWARD)


def test_a_launcher_runs_what_it_prints_and_passes_the_exit_code_on(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$PWD" "$@"\nexit 75\n')
    python.chmod(0o755)
    result = start("pod16", "bert_base_128", *AWKWARD, PYTHON=str(python))
    assert result.returncode == 75
    assert result.stdout.splitlines() == [str(ROOT), *training("bert_base_128", "pod16", *AWKWARD)]


@pytest.mark.parametrize("folder, arguments, says", [
    ("pod16", ["bert_bas"], "error: configs/pretrain/bert_bas_pod16.yaml: no such file; there "
                            "are: bert_base_128_pod16 bert_base_384_pod16 "),
    ("gpu", ["bert_base_128", "--processes", "3"], "bert_base_128_gpu3.yaml: no such file"),
    ("cpu", ["nowhere.yaml"], "error: nowhere.yaml: no such file"),
    ("cpu", ["bert_base_128", "--processes", "four"], "--processes: 'four' is not a number"),
    ("cpu", ["bert_base_128", "--processes"], "--processes: '--print' is not a number"),
    ("pod128", ["bert_base_128"], "error: HOSTS is not set; see --help")])
def test_what_cannot_be_launched_is_told_in_one_line(folder, arguments, says):
    result = start(folder, *arguments, "--print")
    assert (result.returncode, result.stdout) == (2, "")
    assert says in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("environment, says", [
    ({"NODES": "2"}, "MASTER is not set"), ({"NODES": "3"}, "NODES=3 do not divide 16")])
def test_wrong_machines_are_told(environment, says):
    result = start("gpu", "bert_base_128", "--processes", "16", "--print", **environment)
    assert result.returncode == 2 and says in result.stderr


@pytest.mark.parametrize("folder", ["cpu", "gpu", "pod4", "pod16", "pod64", "pod128", "pod256"])
def test_help_is_the_head_of_the_file(folder):
    result = start(folder, "--help")
    head = (ROOT / f"scripts/{folder}/pretrain.sh").read_text(encoding="utf-8").split("\n\n")[0]
    assert result.returncode == 0 and f"scripts/{folder}/pretrain.sh RECIPE" in result.stdout
    lines = [line[2:] for line in head.splitlines()[1:] if line.startswith("#")]
    assert result.stdout.splitlines() == lines
    assert start(folder).returncode == 2


# The POD16 recipe made small: recomputation and the sharded optimizer stay as the pod has them.
SMALL = [
    "run.device=cpu", "run.precision=fp32", "run.micro_batch_size=2", "run.replicas=2",
    "run.pipeline=[embeddings -1 on 0, -1 on 1, pooler heads on 0]", "run.peak_flops=1e11",
    "model.hidden_size=32", "model.num_hidden_layers=4", "model.num_attention_heads=2",
    "model.intermediate_size=64", "data.sequence_length=48", "data.max_predictions=7",
    "train.steps=2", "train.warmup_steps=0", "train.global_batch_size=16", "train.log_every=1",
    "train.evaluation_rows=8"]


def losses(processes, folder, prepared):
    """Losses of the small POD16 recipe on so many CPU processes."""
    overrides = [word for value in [*SMALL, f"data.directory={prepared}"]
                 for word in ("--set", value)]
    words = printed("cpu", "configs/pretrain/bert_base_128_pod16.yaml", "--processes",
                    str(processes), *overrides, RUNS=str(folder))
    words[words.index("python")] = sys.executable
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    lines = (folder / "bert_base_128_pod16/metrics.jsonl").read_text().splitlines()
    return result.stdout, [json.loads(line)["loss"] for line in lines]


def test_the_pod16_recipe_trains_on_four_cpu_processes_by_overrides_alone(prepared, tmp_path):
    _, alone = losses(1, tmp_path / "1", prepared)
    output, together = losses(4, tmp_path / "4", prepared)
    assert together == pytest.approx(alone, rel=1e-5) and len(alone) == 2
    assert "engine: fleet, 4 cpu processes over gloo" in output
    assert re.search(r"pipeline: 3 stages x 2 replicas, 4 devices of 16;", output)
    assert "2       0  pooler, heads" in output and "stage 2 returns to device 0" in output


@pytest.mark.parametrize("folder, options, machine", [
    ("cpu", [], "cpu"), ("cpu", ["--processes", "4"], "cpu4"), ("gpu", [], "gpu"),
    ("gpu", ["--processes", "8"], "gpu8"), ("pod4", [], "pod4"), ("pod16", [], "pod16"),
    ("pod64", [], "pod64")])
def test_reading_comprehension_starts_alike(folder, options, machine):
    done = subprocess.run(["bash", str(ROOT / f"scripts/{folder}/squad.sh"), "bert_base",
                           *options, "--print"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (f"run_squad.py --config configs/squad/bert_base_{machine}.yaml --output "
            "runs/bert_base --resume") in done.stdout
    assert ("paddle.distributed.launch" in done.stdout) == bool(options)
