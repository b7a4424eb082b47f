"""One recipe under several seeds, and what published tables tell of that."""

import dataclasses
import statistics
from pathlib import Path

from configs.errors import InputError
from configs.files import write_json
from engines.startup import is_first_process


def read_seeds(text):
    """``1,2,3`` as numbers; None where nothing is asked for."""
    if text is None:
        return None
    try:
        seeds = [int(word) for word in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise InputError(f"--seeds {text}", "is no list of different numbers",
                         "write e.g. --seeds 1,2,3")
    return seeds


def run_seeds(seeds, config, output, run_one):
    """Run a recipe once for each seed, into a folder each, and sum the evaluations up.

    Args:
        seeds: numbers that take the place of ``train.seed``.
        config: the resolved ``Config``.
        output: folder of the folders ``seed_N`` and of ``seeds.json``.
        run_one: called with config and folder, returns a result with ``held_out``.

    Returns:
        dict of ``seeds`` and, for each number of the evaluation, ``mean``, ``deviation``
        (sample standard deviation, 0 for one seed), ``best`` (the highest; of a loss the
        lowest) and ``values``.

    Raises:
        InputError: the first run's evaluation has no numbers to compare the others with.
    """
    lines = []
    for seed in seeds:
        train = dataclasses.replace(config.train, seed=seed)
        result = run_one(dataclasses.replace(config, train=train), Path(output) / f"seed_{seed}")
        lines.append(result["held_out"])
        if not summarise(seeds[:1], lines[:1])["figures"]:
            raise InputError(config.data.evaluation_file, "does not tell the answers, so that "
                             "runs cannot be compared", f"see {output}/seed_{seed}; name a file "
                             "with answers, or leave out --seeds")
    summary = summarise(seeds, lines)
    if not is_first_process():
        return summary
    write_json(Path(output) / "seeds.json", summary)
    for name, figures in summary["figures"].items():
        print(f"{name}: {figures['mean']:.4f} ± {figures['deviation']:.4f}, "
              f"best {figures['best']:.4f} of {len(seeds)}", flush=True)
    return summary


def summarise(seeds, lines):
    """The figures of ``run_seeds`` from the evaluations of its runs."""
    figures = {}
    for name in lines[0]:
        values = [line[name] for line in lines]
        if name in ("step", "samples") or not all(isinstance(v, (int, float)) for v in values):
            continue
        best = min if name.endswith("loss") else max
        figures[name] = {"mean": statistics.fmean(values), "best": best(values), "values": values,
                         "deviation": statistics.stdev(values) if len(values) > 1 else 0.0}
    return {"seeds": seeds, "figures": figures}
