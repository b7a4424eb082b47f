"""Step time of splits on this machine, and how long pipeline stages stand idle.

``python -m benchmarks.pipeline [--steps N] [--micro-batches M …] [--output FILE]`` trains a
BERT whose stages cost about the same: in one process, in replicas, and in pipelines of two and
four stages with M micro batches an update. Every stage notes when it computes. Its bubble is
the share of the time from the first to the last computation of an update in which it does not;
told is the mean over stages, the median over updates, beside

- the formula for equal stages, (p - 1) / (m + p - 1) (Narayanan et al. 2021, section 2.2.1, as a
  share of the whole), and
- what follows from the stages' measured times where they are not equal: the slowest stage sets
  the pace, so an update takes the sum of all stages' times for one micro batch, and m - 1
  times that of the slowest.

Processes have one thread each. With fewer cores than processes, stages wait for a core too, and
the bubble tells little: ``cores`` says how many there were.
"""

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.launching import Job, launch
from configs.command_line import Parser, run, tell

CONFIG = "configs/pretrain/quickstart.yaml"
MICRO_BATCH = 4
SIZES = ["model.hidden_size=256", "model.num_hidden_layers=12", "model.num_attention_heads=4",
         "model.intermediate_size=1024", "data.max_predictions=8",
         f"run.micro_batch_size={MICRO_BATCH}", "train.log_every=1", "train.evaluation_rows=8",
         "data.held_out_share=0.1", "run.peak_flops=1.0e+11", "train.keep_last=1"]
# By number of stages.
PIPELINES = {2: 'run.pipeline=["embeddings, layer.0-5 on 0", "-1, pooler, heads on 1"]',
             4: 'run.pipeline=["embeddings, layer.0-2 on 0", "layer.3-5 on 1", '
                '"layer.6-8 on 2", "-1, pooler, heads on 3"]'}


def main(argv=None):
    """Measure, print the figures as JSON and return them."""
    parser = Parser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--stages", type=int, nargs="+", choices=PIPELINES, default=[2, 4])
    parser.add_argument("--output", metavar="FILE", help="write the JSON there too")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), arguments)
    tell(figures, arguments.output)
    return figures


def measure(folder, arguments):
    """Figures of all splits."""
    import prepare_data

    prepare_data.main(["--config", CONFIG, "--output", str(folder / "prepared")])
    figures = []
    for replicas in (1, 2):
        name = f"replicas_{replicas}"
        jobs = [_job(folder, name, count, replicas, [f"run.replicas={replicas}"], arguments.steps)
                for count in arguments.micro_batches if count % replicas == 0]
        figures += _run(folder, name, replicas, jobs, {"replicas": replicas, "stages": 1})
    for stages in arguments.stages:
        name = f"pipeline_{stages}"
        jobs = [_job(folder, name, count, 1, [PIPELINES[stages]], arguments.steps, trace=True)
                for count in arguments.micro_batches]
        figures += _run(folder, name, stages, jobs, {"replicas": 1, "stages": stages})
    return {"cores": len(os.sched_getaffinity(0)), "steps": arguments.steps,
            "micro_batch_size": MICRO_BATCH, "splits": figures}


def _job(folder, name, micro_batches, replicas, overrides, steps, trace=False):
    """A run whose replicas together compute ``micro_batches`` an update."""
    output = folder / f"{name}_of_{micro_batches}"
    sets = [*SIZES, f"train.steps={steps}", "train.warmup_steps=0",
            f"train.global_batch_size={micro_batches * MICRO_BATCH}",
            f"data.directory={folder / 'prepared'}", *overrides]
    words = ["--config", CONFIG, "--output", str(output)]
    return Job([*words, *(word for override in sets for word in ("--set", override))],
               str(output / "trace") if trace else None)


def _run(folder, name, processes, jobs, split):
    launch(processes, jobs, folder / name, timeout=7200, threads=1)
    return [_read(job, processes, split) for job in jobs]


def _read(job, processes, split):
    """Figures of one run; its first update, which warms up, is left out."""
    output = Path(job.arguments[job.arguments.index("--output") + 1])
    micro_batches = int(output.name.rpartition("_")[2])
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()][1:]
    figures = {**split, "micro_batches": micro_batches,
               "step_seconds": statistics.median(line["step_seconds"] for line in lines),
               "sequences_per_second": statistics.median(
                   line["sequences_per_second"] for line in lines)}
    if job.trace:
        traces = [json.loads((Path(job.trace) / f"rank_{rank}.json").read_text())
                  for rank in range(processes)]
        figures.update(bubble(traces, micro_batches))
    return figures


def bubble(traces, micro_batches):
    """Idle shares from the stages' traces.

    Args:
        traces: for each stage a list of ``[kind, begin, end]``, kind F or B, in seconds.
        micro_batches: an update, each of them once forward and once backward.
    """
    # An evaluation at the end goes forward alone; it is no update.
    events, length = 2 * micro_batches, min(map(len, traces))
    updates = [[trace[start:start + events] for trace in traces]
               for start in range(0, length - events + 1, events)]
    updates = [update for update in updates[1:]
               if all(sum(kind == "B" for kind, _, _ in stage) == micro_batches
                      for stage in update)]
    stages = len(traces)
    seconds = [statistics.median(_busy(update[stage]) for update in updates) / micro_batches
               for stage in range(stages)]
    paced = sum(seconds) + (micro_batches - 1) * max(seconds)
    return {"measured_bubble": statistics.median(map(_idle_share, updates)),
            "formula_bubble": (stages - 1) / (micro_batches + stages - 1),
            "bubble_of_measured_stage_times":
                1 - micro_batches * sum(seconds) / (stages * paced),
            "stage_seconds_per_micro_batch": seconds}


def _busy(stage):
    return sum(end - begin for _, begin, end in stage)


def _idle_share(update):
    """Of an update, the mean over its stages."""
    begin = min(event[1] for stage in update for event in stage)
    end = max(event[2] for stage in update for event in stage)
    return 1 - statistics.fmean(map(_busy, update)) / (end - begin)


if __name__ == "__main__":
    sys.exit(run(main))
