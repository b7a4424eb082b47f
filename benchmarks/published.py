"""Published figures, reproduced: ``python -m benchmarks.published run sts_benchmark …``."""

import csv
import sys
from pathlib import Path

import numpy as np

from configs.command_line import Parser, run, tell
from configs.errors import InputError
from engines import startup

# all-MiniLM-L6-v2 in the result files of the embeddings benchmark (MTEB), STSBenchmark test.
STS_PUBLISHED_SPEARMAN = 0.8203247
MAX_TOKENS = 256  # as that model was trained


def main(argv=None):
    """Run a benchmark; print its result as JSON and return it."""
    arguments = _parser().parse_args(argv)
    startup.prepare()
    result = BENCHMARKS[arguments.name](arguments.model, arguments.data)
    tell(result, arguments.output)
    return result


def sts_benchmark(model, data):
    """Cosine similarity of sentence pairs against human scores (Cer et al. 2017), test part.

    Args:
        model: folder of a sentence encoder, exported or a checkpoint; masked mean pooling, at
            most 256 tokens.
        data: folder with ``stsb-en-test.csv`` (sentence1, sentence2, score), at any depth.

    Returns:
        dict with ``spearman``, ``pearson`` and the ``published`` Spearman correlation of
        all-MiniLM-L6-v2.
    """
    from scipy import stats

    from inference.predictor import open_predictor

    rows = read_sts(data)
    predictor = open_predictor(model, "embed")
    predictor.task.max_tokens = MAX_TOKENS
    vectors = [answer["embedding"] for answer in predictor.answers(
        [{"text": text} for row in rows for text in row[:2]])]
    first, second = np.array(vectors).reshape(len(rows), 2, -1).transpose(1, 0, 2)
    similarities, scores = (first * second).sum(axis=1), [row[2] for row in rows]
    return {"benchmark": "sts_benchmark", "pairs": len(rows),
            "spearman": float(stats.spearmanr(similarities, scores).statistic),
            "pearson": float(stats.pearsonr(similarities, scores).statistic),
            "published": STS_PUBLISHED_SPEARMAN}


def read_sts(data):
    """Rows of ``sentence1, sentence2, score`` from ``stsb-en-test.csv``, at any depth."""
    files = sorted(Path(data).rglob("stsb-en-test.csv"))
    if not files:
        raise InputError(data, "no stsb-en-test.csv in it", "name the folder of the STS benchmark")
    with open(files[0], encoding="utf-8", newline="") as stream:
        try:
            return [(one, two, float(score)) for one, two, score in csv.reader(stream)]
        except ValueError as error:
            raise InputError(files[0], f"not sentence1, sentence2, score ({error})") from None


BENCHMARKS = {"sts_benchmark": sts_benchmark}


def _parser():
    parser = Parser(prog="python -m benchmarks.published", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("run", help="run one benchmark")
    command.add_argument("name", choices=sorted(BENCHMARKS))
    command.add_argument("--model", required=True, metavar="DIR")
    command.add_argument("--data", required=True, metavar="DIR")
    command.add_argument("--output", metavar="FILE", help="write the JSON there too")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
