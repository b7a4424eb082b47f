"""Ready training rows a second, with dynamic whole-word masks.

``python -m benchmarks.data_loading [--output FILE]`` prepares the English sample and reads
batches of it at the lengths of BERT's two phases, with worker processes. The goals are what
an IPU-POD16 eats (PaddleNLP's published throughput of BERT-Base): 11,700 rows of 128 and
3,470 of 384 a second.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from configs.command_line import Parser, run, tell
from configs.load import load_config

CONFIG = "configs/pretrain/quickstart.yaml"
# Row length, most predictions, published sequences a second.
PHASES = ((128, 20, 11_700), (384, 56, 3_470))
ROWS, WARM_UP_BATCHES, SECONDS = 4096, 3, 10


def main(argv=None):
    """Measure, print the figures as JSON and return them."""
    parser = Parser(prog="python -m benchmarks.data_loading", description=__doc__)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", metavar="FILE", help="write the JSON there too")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        figures = {"workers": arguments.workers,
                   "phases": [measure(Path(folder) / "prepared", arguments.workers, *phase)
                              for phase in PHASES]}
    tell(figures, arguments.output)
    return figures


def measure(directory, workers, length, max_predictions, goal):
    """Rows a second of one length, with the workers and without."""
    import prepare_data
    from data.open import open_pretraining_data
    from data.prefetch import PrefetchedData

    config = load_config(CONFIG, [
        f"data.directory={directory}", f"data.sequence_length={length}",
        f"data.max_predictions={max_predictions}", "data.masking=whole_word"])
    prepare_data.prepare_text(config, config.data.sources, directory, workers, (1, 1))
    prefetched = PrefetchedData(config, "train", workers)
    rate = _rows_per_second(prefetched)
    prefetched.close()
    return {"sequence_length": length, "rows_per_second": rate, "goal": goal,
            "ratio_to_goal": rate / goal,
            "rows_per_second_in_process": _rows_per_second(open_pretraining_data(config, "train"))}


def _rows_per_second(data):
    consumed = 0
    for _ in range(WARM_UP_BATCHES):
        data.batch(consumed, ROWS)
        consumed += ROWS
    start, first = time.perf_counter(), consumed
    while time.perf_counter() - start < SECONDS:
        data.batch(consumed, ROWS)
        consumed += ROWS
    return (consumed - first) / (time.perf_counter() - start)


if __name__ == "__main__":
    sys.exit(run(main))
