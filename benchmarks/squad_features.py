"""How long features take: ``python -m benchmarks.squad_features DATA --vocabulary FILE``.

Measures reading a file, making its features with a cold cache, and opening them again; prints
JSON.
"""

import os
import sys
import tempfile
import time

from configs.command_line import Parser, run, tell
from configs.data_schema import SquadConfig
from data.squad.features import open_features
from data.squad.questions import read_questions


def main(argv=None):
    """Measure, print the figures as JSON and return them."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.workers < 1:
        parser.error("--workers must be 1 or more")
    with tempfile.TemporaryDirectory() as cache:
        figures = measure(arguments.data, arguments.vocabulary, not arguments.cased,
                          SquadConfig(cache=cache), arguments.workers)
    tell(figures, arguments.output)
    return figures


def measure(path, vocabulary, lower_case, options, workers):
    """Seconds by step, and counts; ``options.cache`` is an empty folder."""
    times = [time.perf_counter()]
    questions = read_questions(path)
    times.append(time.perf_counter())
    for _ in range(2):
        features = open_features(questions, vocabulary, lower_case, options, workers)
        times.append(time.perf_counter())
    reading, cold, warm = (after - before for before, after in zip(times, times[1:]))
    print("\n".join(features.lines(questions)), file=sys.stderr)
    return {"data": str(path), "workers": workers, "questions": len(questions.questions),
            "windows": len(features.lengths), "mean_tokens": float(features.lengths.mean()),
            "read_seconds": reading, "cold_seconds": cold, "warm_seconds": warm}


def _parser():
    parser = Parser(prog="python -m benchmarks.squad_features", description=__doc__)
    parser.add_argument("data", metavar="DATA", help="questions in the layout of SQuAD")
    parser.add_argument("--vocabulary", required=True, metavar="FILE")
    parser.add_argument("--cased", action="store_true", help="do not lower-case")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", metavar="FILE", help="write the JSON there too")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
