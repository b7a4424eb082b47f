"""The same recipe in different splits of stages and replicas, compared step by step.

``python -m benchmarks.split_parity [--steps N] [--output FILE]`` trains a 4-layer BERT on
English and a 4-layer ERNIE on Chinese text without dropout in float32: in one process, in two
stages, in two replicas, in both, and in four stages. It tells the largest relative difference
of a loss at any step, and the largest difference of a final weight, from one process. The goal
is 1e-5 for both.
"""

import sys
import tempfile
from pathlib import Path
from typing import List, NamedTuple

from benchmarks.launching import Job, launch
from configs.command_line import Parser, run, tell

GOAL = 1e-5


class Split(NamedTuple):
    """How a recipe is laid on processes."""

    processes: int
    overrides: List[str]


TWO_STAGES = 'run.pipeline=["embeddings, -1 on 0", "-1, pooler, heads on 1"]'
# Halves of a layer apart, and the heads back on the first device, as on an IPU pod.
FOUR_STAGES = ('run.pipeline=["embeddings on 0", "layer.0, layer.1.attention on 1", '
               '"layer.1.feed_forward, layer.2 on 2", "layer.3 on 3", "pooler, heads on 0"]')
SPLITS = {
    "one process": Split(1, []),
    "pipeline 2": Split(2, [TWO_STAGES]),
    "replicas 2": Split(2, ["run.replicas=2"]),
    "pipeline 2 x replicas 2": Split(4, [TWO_STAGES, "run.replicas=2"]),
    "pipeline 4": Split(4, [FOUR_STAGES]),
}
RECIPES = {"bert": "configs/pretrain/quickstart.yaml",
           "ernie": "configs/pretrain/quickstart_ernie_zh.yaml"}
SIZES = ["model.hidden_size=64", "model.num_hidden_layers=4", "model.num_attention_heads=2",
         "model.intermediate_size=256", "data.sequence_length=64", "data.max_predictions=10",
         "train.warmup_steps=4", "train.global_batch_size=8", "run.micro_batch_size=2",
         "train.log_every=1", "train.evaluation_rows=8", "run.peak_flops=1.0e+11"]


def main(argv=None):
    """Measure, print the figures as JSON and return them."""
    parser = Parser(prog="python -m benchmarks.split_parity", description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--output", metavar="FILE", help="write the JSON there too")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        figures = {"steps": arguments.steps, "goal": GOAL,
                   "models": measure(Path(folder), arguments.steps)}
    tell(figures, arguments.output)
    return figures


def measure(folder, steps):
    """Differences from one process, by model and split."""
    import prepare_data

    for model, recipe in RECIPES.items():
        prepare_data.main(["--config", recipe, "--output", str(folder / model / "prepared")])
    for processes in sorted({split.processes for split in SPLITS.values()}):
        jobs = [Job(job_arguments(folder / model, model, name, [
                    *SIZES, f"train.steps={steps}", f"train.save_every={steps}"]))
                for model in RECIPES for name, split in SPLITS.items()
                if split.processes == processes]
        launch(processes, jobs, folder / f"launch_{processes}", timeout=3600)
    return {model: {name: differences(folder / model / "one process", folder / model / name)
                    for name in SPLITS if name != "one process"} for model in RECIPES}


def job_arguments(folder, model, name, overrides):
    """Arguments of ``run_pretrain.py`` for one split, into the folder of its name."""
    sets = [*overrides, f"data.directory={folder / 'prepared'}", *SPLITS[name].overrides]
    return ["--config", RECIPES[model], "--output", str(folder / name),
            *(word for override in sets for word in ("--set", override))]


def differences(one, other):
    """Largest relative difference of a loss at any step, and of a final weight.

    Raises:
        RuntimeError: the two runs have not the same steps or weights.
    """
    import numpy as np
    from safetensors.numpy import load_file

    from training.checkpoint import newest_checkpoint
    from training.compare import read_losses

    losses = [read_losses(folder) for folder in (one, other)]
    weights = [load_file(newest_checkpoint(folder / "checkpoints") / "model.safetensors")
               for folder in (one, other)]
    for ours, theirs in (losses, weights):
        if ours.keys() != theirs.keys():
            raise RuntimeError(f"{other}: other steps or weights than {one}")
    return {"largest_relative_loss_difference": max(
                abs(losses[1][step][key] / loss - 1)
                for step, values in losses[0].items() for key, loss in values.items()),
            "largest_weight_difference": max(
                float(np.abs(weights[0][name] - weights[1][name]).max()) for name in weights[0])}


if __name__ == "__main__":
    sys.exit(run(main))
