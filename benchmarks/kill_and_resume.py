"""A tiny run that is killed (SIGKILL) again and again, and what it ends with.

``python -m benchmarks.kill_and_resume --kills 100 --output FILE`` trains with a checkpoint every
five steps, kills the process at a random moment, goes on with ``run_pretrain.py --resume``, kills
again, and at last compares with an unbroken run: weights, moments and metrics must be equal in
every bit. Leaves with 1 where they are not, and then keeps both run folders.

A moment is a random number of steps after training began and a random share of the time of a few
more, checkpoints included; or, where that number is 0, it falls while the run is being opened.
"""

import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from configs.command_line import Parser, run, tell
from configs.errors import InputError
from training.metrics import COST_KEYS, JsonLines

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "configs/pretrain/quickstart.yaml"
SAVE_EVERY, LONGEST_LIFE, LONGEST_DELAY = 5, 10, 0.2  # steps, steps, seconds
STEPS_A_KILL, STEPS_BESIDE = 14, 20  # more than killed processes can get done
TINY = [
    "model.hidden_size=16", "model.num_hidden_layers=1", "model.num_attention_heads=2",
    "model.intermediate_size=32", "model.hidden_dropout_prob=0.1",
    "model.attention_probs_dropout_prob=0.1", "data.sequence_length=32", "data.max_predictions=5",
    "train.global_batch_size=4", "train.warmup_steps=5", "train.log_every=1",
    "train.evaluate_every=0", "train.evaluation_rows=8", "run.micro_batch_size=4",
    "run.data_workers=0", "run.threads=1", "run.peak_flops=1.0e11"]


def main(argv=None):
    """Kill, resume, compare; print the figures as JSON and return them."""
    parser = Parser(prog="python -m benchmarks.kill_and_resume", description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=42, help="of the moments")
    parser.add_argument("--output", metavar="FILE", help="write the JSON there too")
    arguments = parser.parse_args(argv)
    if arguments.kills < 1:
        raise InputError("--kills", f"{arguments.kills} is too few", "write 1 or more")
    folder = Path(tempfile.mkdtemp(prefix="kill_and_resume_"))
    figures = measure(folder, arguments.kills, arguments.seed)
    if all(figures["equal"].values()):
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}", file=sys.stderr)
    tell(figures, arguments.output)
    return figures


def measure(folder, kills, seed):
    """Figures of a run with so many kills; what it writes is left in ``folder``."""
    start = time.perf_counter()
    prepared, broken, whole = folder / "prepared", folder / "broken", folder / "whole"
    steps = kills * STEPS_A_KILL + STEPS_BESIDE
    recipe = [*TINY, f"data.directory={prepared}", f"train.steps={steps}"]
    _finish(_start("prepare_data.py", recipe, "--output", str(prepared)))
    _finish(_start_training(whole, [*recipe, f"train.save_every={steps}"]))
    chance, recipe = random.Random(seed), [*recipe, f"train.save_every={SAVE_EVERY}"]
    deaths, begun = [], time.perf_counter()
    for _ in range(kills):
        deaths.append(_live_and_die(broken, recipe, chance))
    _finish(_start_training(broken, recipe))
    end = time.perf_counter()
    lost = [death["steps_lost"] for death in deaths]
    return {"kills": len(deaths), "seed": seed, "steps": steps, "save_every": SAVE_EVERY,
            "moments": dict(Counter(death["moment"] for death in deaths)),
            "mean_steps_lost": sum(lost) / kills, "most_steps_lost": max(lost),
            "equal": compare(whole, broken), "seconds": end - start,
            "seconds_a_life": (end - begun) / (kills + 1), "deaths": deaths}


def _start_training(output, recipe):
    return _start("run_pretrain.py", recipe, "--output", str(output), "--resume")


def _start(script, recipe, *options):
    words = [word for value in recipe for word in ("--set", value)]
    return subprocess.Popen([sys.executable, script, "--config", CONFIG, *options, *words],
                            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _finish(process):
    """What a process prints that is left alone."""
    output, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {errors}")
    return output


def _live_and_die(folder, recipe, chance):
    """Start or resume the run and kill it at a random moment; where that was."""
    life, delay = chance.randint(0, LONGEST_LIFE), chance.uniform(0, LONGEST_DELAY)
    process = _start_training(folder, recipe)
    printed = _read_until(process, life)
    time.sleep(delay)
    process.kill()  # SIGKILL, which no handler sees
    rest, errors = process.communicate()
    if process.returncode != -9:
        raise RuntimeError(f"ended by itself, with exit code {process.returncode}: {errors}")
    return _describe_death(folder, printed + rest)


def _read_until(process, life):
    """Read what the process prints until it has done so many steps, or opens the run."""
    printed, done = "", 0
    for line in process.stdout:
        printed += line
        done += line.startswith("step ")
        if done == life and (life or line.startswith("engine: ")):
            break
    return printed


def _describe_death(folder, printed):
    """Where a process was, from what it printed and left behind."""
    steps = [int(step) for step in re.findall(r"^step (\d+)/", printed, re.M)]
    names = [path.name for path in (folder / "checkpoints").glob("*")]
    whole = max((name for name in names if re.fullmatch(r"step_\d+", name)), default="step_0")
    halves = [name for name in names if not re.fullmatch(r"step_\d+", name)]
    checkpoint = int(whole[len("step_"):])
    moment = "between checkpoints"
    if not steps:
        moment = "opening the run"  # what an earlier process left half may still be there
    elif halves:
        moment = f"{'writing' if max(halves) > whole else 'deleting'} a checkpoint"
    return {"step": steps[-1] if steps else None, "checkpoint": checkpoint, "moment": moment,
            "steps_lost": max(0, steps[-1] - checkpoint) if steps else 0}


def compare(whole, broken):
    """Whether the two runs end with the same bits, by file."""
    equal = {}
    for file in ("model.safetensors", "optimizer.safetensors"):
        one, two = (_last_checkpoint(folder) / file for folder in (whole, broken))
        equal[file] = one.read_bytes() == two.read_bytes()
    for file in ("metrics.jsonl", "evaluations.jsonl"):
        one, two = (_without_cost(JsonLines(folder / file).read()) for folder in (whole, broken))
        equal[file] = bool(one) and one == two
    return equal


def _last_checkpoint(folder):
    return max((folder / "checkpoints").glob("step_????????"))


def _without_cost(lines):
    return [{key: value for key, value in line.items() if key not in COST_KEYS} for line in lines]


def exit_code(argv=None):
    """Run ``main`` as a command."""
    answers = []
    code = run(lambda words: answers.append(main(words)), argv)
    return code or int(not all(answers[0]["equal"].values()))


if __name__ == "__main__":
    sys.exit(exit_code())
