"""The planner against published pods: ``python -m benchmarks.planner [--output FILE]``.

``published_pods.yaml`` holds what was published. The planner's three constants are fitted on its
``fit`` rows alone; ``check`` rows are predicted. Prints a table, and writes it as JSON.
"""

import dataclasses
import functools
import itertools
import statistics
import sys
from pathlib import Path

import yaml

from configs.command_line import Parser, run
from configs.files import write_json
from configs.load import load_config, load_section
from configs.schema import Config, SquadConfig
from engines.planner import timing
from engines.planner.hardware import IPUS, MIB
from engines.planner.plan import make_plan

ROWS = Path(__file__).with_name("published_pods.yaml")
CONFIGS = Path(__file__).parents[1] / "configs"
OTHER_ROUNDS = ("MLPerf v1.0", "MLPerf v2.0")
# Rows of the word embedding that the implementations have, by pieces of the product with it.
VOCABULARY = {5: 30400, 4: 30912}


def main(argv=None):
    """Fit, predict, print; return what is written."""
    parser = Parser(prog="python -m benchmarks.planner", description=__doc__)
    parser.add_argument("--output", metavar="FILE", help="write the JSON there")
    arguments = parser.parse_args(argv)
    result = compare()
    print("\n".join(table(result)))
    if arguments.output:
        write_json(arguments.output, result)
    return result


def compare():
    """Every published row beside its plan, and the constants that the fit gives."""
    published = read_rows()
    rows = [_compare_row(row, published["sources"]) for row in published["rows"]]
    errors = {use: [abs(row["error"]) for row in rows if row["use"] == use]
              for use in ("fit", "check")}
    fitted = fit([row for row in published["rows"] if row["use"] == "fit"])
    return {"fitted": fitted._asdict(), "used": timing.FITTED._asdict(),
            "median_error": {use: statistics.median(those) for use, those in errors.items()},
            "largest_error": {use: max(those) for use, those in errors.items()},
            "median_error_if_fitted_on": {round_: _median_with(published["rows"], round_)
                                          for round_ in OTHER_ROUNDS},
            "all_fit": all(row["fits"] for row in rows), "rows": rows}


def read_rows():
    """What was published: dict of ``sources`` and ``rows``."""
    return yaml.safe_load(ROWS.read_text("utf-8"))


def _median_with(rows, round_):
    """Median error of the rows that a fit on phase 1 and another MLPerf round predicts."""
    used = [row for row in rows if row["use"] == "fit" and "MLPerf" not in row["name"]]
    used += [row for row in rows if row["name"].startswith(f"{round_} ")]
    constants = fit(used)
    return statistics.median(
        abs(plan_row(row, constants).sequences_per_second / row["throughput"] - 1)
        for row in rows if row not in used and row["use"] != "memory")


def configuration(row):
    """The ``Config`` of a published row."""
    recipe, half = _recipe(), "fp16" if row.get("half_moments") else "fp32"
    train = dataclasses.replace(
        recipe.train, first_moment_precision=half, second_moment_precision=half,
        global_batch_size=row["micro"] * row["accumulation"] * row["replicas"])
    data = dataclasses.replace(
        recipe.data, sequence_length=row["length"], max_predictions=row.get("masked", 1),
        sequences_per_row=3 if "sequences" in row else 1)
    if _reads(row):
        data = SquadConfig(sequence_length=row["length"])
        train = dataclasses.replace(train, steps=None, epochs=3.0)
    model = dataclasses.replace(
        _model(row["model"]), vocab_size=VOCABULARY.get(row.get("pieces"), 30522),
        attention_probs_dropout_prob=0.1 if "MLPerf" in row["name"] or _reads(row) else 0.0)
    return Config(model, data, train, _machine(row, model.num_hidden_layers))


def _reads(row):
    return row.get("task") == "squad"


def _machine(row, layers):
    return dataclasses.replace(
        _recipe().run, device="ipu", micro_batch_size=row["micro"], replicas=row["replicas"],
        pipeline=pipeline(row, layers), precision="fp16", loss_scale=1.0, recompute=True,
        half_partials=True, shard_optimizer=row.get("shard", False),
        optimizer_state_on_chip=row.get("on_chip", False), batches_per_step=row.get("calls", 1),
        available_memory_proportion=row["products"] or [],
        embedding_serialization_factor=row.get("pieces", 1))


@functools.lru_cache
def _recipe():
    return load_config(CONFIGS / "pretrain/bert_base_128.yaml")


@functools.lru_cache
def _model(name):
    return load_section("model", CONFIGS / f"models/bert_{name}_uncased.yaml")


def plan_row(row, constants=timing.FITTED):
    """The plan of a published row."""
    return make_plan(configuration(row), IPUS[row["ipu"]], row.get("sequences"), constants)


def pipeline(row, layers):
    """``run.pipeline`` of a row: whole layers on each IPU, or halves on IPUs 1 and up."""
    tail = ["heads"] if _reads(row) else ["pooler", "heads"]
    if "attention" in row:
        return _halves(row["attention"], row["feed_forward"], layers, tail)
    stages = [[] for _ in row["layers"]]
    stages[0].append("embeddings")
    numbers = iter(range(layers))
    for parts, count in zip(stages, row["layers"]):
        parts.extend(f"layer.{number}" for number in itertools.islice(numbers, count))
    ipus = [*range(len(stages))]
    if row.get("heads", -1 if _reads(row) else 0) == 0:
        stages.append([])
        ipus.append(0)
    stages[-1].extend(tail)
    return [f"{', '.join(parts)} on {ipu}" for parts, ipu in zip(stages, ipus)]


def _halves(attention, feed_forward, layers, tail):
    stages, done = ["embeddings on 0"], [0, 0]
    for ipu, counts in enumerate(zip(attention, feed_forward), 1):
        parts = [f"layer.{number}.{half}"
                 for half, start, count in zip(("attention", "feed_forward"), done, counts)
                 for number in range(start, start + count)]
        done = [start + count for start, count in zip(done, counts)]
        stages.append(f"{', '.join(parts)} on {ipu}")
    rest = [f"layer.{number}.{half}" for half, start in zip(("attention", "feed_forward"), done)
            for number in range(start, layers)]
    return [*stages, f"{', '.join(rest + tail)} on 0"]


def fit(rows):
    """The ``Constants`` with the least squares of the relative errors of published rows."""
    from scipy.optimize import least_squares

    def errors(values):
        constants = timing.Constants(*values)
        return [plan_row(row, constants).sequences_per_second / row["throughput"] - 1
                for row in rows]

    scale = [0.1, 1e5, 0.1]
    found = least_squares(errors, [0.4, 1e4, 0.2], bounds=([0.05, 0, 0], [1, 1e7, 2]),
                          x_scale=scale)
    return timing.Constants(*(float(value) for value in found.x))


def _compare_row(row, sources):
    plan, published = plan_row(row), row.get("throughput")
    predicted = plan.sequences_per_second
    return {"name": row["name"], "use": row["use"], "published": published,
            "predicted": predicted, "error": predicted / published - 1 if published else None,
            "fullest_ipu_mib": max(plan.used) / MIB, "memory_mib": plan.ipu.memory / MIB,
            "fits": plan.fits, "source": sources[row["source"]]}


def table(result):
    """The comparison for a terminal."""
    lines = [f"{'use':7}{'row':46}{'published':>10}{'planned':>9}{'error':>8}{'fullest IPU':>14}"]
    for row in result["rows"]:
        figures = (f"{row['published']:10,.0f}{row['predicted']:9,.0f}{row['error']:+8.1%}"
                   if row["published"] else f"{'':10}{row['predicted']:9,.0f}{'':8}")
        lines.append(f"{row['use']:7}{row['name'][:45]:46}{figures}"
                     f"{row['fullest_ipu_mib']:10.0f} MiB{'' if row['fits'] else '  too much'}")
    fitted, median, largest = (result[key] for key in ("fitted", "median_error", "largest_error"))
    lines.append(f"fit gives efficiency {fitted['efficiency']:.3f}, {fitted['part_cycles']:,.0f} "
                 f"cycles a part, {fitted['host_seconds']:.3f} s a call")
    lines += [f"error of {name} rows: median {median[use]:.1%}, largest {largest[use]:.1%}"
              for use, name in (("fit", "fitted"), ("check", "predicted"))]
    return lines + [f"median of the predicted rows if fitted on phase 1 and {round_} instead: "
                    f"{error:.1%}" for round_, error in
                    result["median_error_if_fitted_on"].items()]


if __name__ == "__main__":
    sys.exit(run(main))
