"""Compare two runs' losses step by step.

``python -m training.compare RUN_A RUN_B [--tolerance T]``: each is a run folder, or a text
file with a step and its loss a line. Prints the first difference and the largest one; leaves
with 1 if that is beyond the tolerance (0 asks for equal bits), 2 on bad input.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

from configs.command_line import Parser, run
from configs.errors import InputError
from training.runs import is_number, read_lines, read_text

EXIT_DIFFERENT = 1


@dataclass(frozen=True)
class Difference:
    """Two values of one loss at one step."""

    step: int
    key: str
    one: float
    two: float

    @property
    def size(self):
        """Absolute, in nats; infinite where only one is a number."""
        if math.isnan(self.one) or math.isnan(self.two):
            return 0.0 if math.isnan(self.one) and math.isnan(self.two) else math.inf
        return 0.0 if self.one == self.two else abs(self.one - self.two)

    def __str__(self):
        return f"step {self.step}, {self.key} {self.one!r} and {self.two!r} ({self.size:.3g})"


def main(argv=None):
    """Print how far two runs' losses are apart; returns whether that is within the tolerance."""
    parser = Parser(prog="python -m training.compare", description=__doc__)
    parser.add_argument("one", metavar="RUN_A", help="run folder, or text file of losses")
    parser.add_argument("two", metavar="RUN_B", help="the same")
    parser.add_argument("--tolerance", type=float, default=0.0,
                        help="largest absolute difference of a loss that counts as equal")
    arguments = parser.parse_args(argv)
    if not arguments.tolerance >= 0:
        raise InputError("--tolerance", f"{arguments.tolerance} is no tolerance", "write 0 or more")
    one, two = read_losses(arguments.one), read_losses(arguments.two)
    for place, steps in ((arguments.one, one.keys() - two.keys()),
                         (arguments.two, two.keys() - one.keys())):
        if steps:
            print(f"only in {place}: {len(steps)} steps, the first {min(steps)}")
    differences = compare(one, two)
    if not differences:
        raise InputError(arguments.one, f"has no step in common with {arguments.two}",
                         "name two runs of the same recipe and train.log_every")
    largest = max(differences, key=lambda difference: difference.size)
    print("\n".join(_describe(differences, largest)))
    within = largest.size <= arguments.tolerance
    print(f"{'within' if within else 'beyond'} the tolerance of {arguments.tolerance:g}")
    return within


def read_losses(path):
    """``{step: {key: loss}}`` of a run folder or of a text file with ``step loss`` lines.

    Raises:
        InputError: nothing is there, or something else.
    """
    path = Path(path)
    if path.is_file():
        return _read_file(path)
    if not (path / "metrics.jsonl").is_file():
        raise InputError(path, "is neither a run folder nor a file of losses",
                         "name a folder with metrics.jsonl")
    return {line["step"]: {key: math.nan if value is None else value
                           for key, value in line.items() if _is_loss(key, value)}
            for line in read_lines(path / "metrics.jsonl")}


def _is_loss(key, value):
    # null is how a run writes what is not finite.
    return (key == "loss" or key.endswith("_loss")) and (value is None or is_number(value))


def _read_file(path):
    losses = {}
    for number, text in enumerate(read_text(path).splitlines(), 1):
        if text.strip() and not text.startswith("#"):
            try:
                step, loss = text.split()
                losses[int(step)] = {"loss": float(loss)}
            except ValueError:
                raise InputError(f"{path}:{number}", "is no step with its loss",
                                 "write e.g. 1 10.25") from None
    return losses


def compare(one, two):
    """A ``Difference``, perhaps of 0, for each loss that both have at a step.

    Args:
        one, two: ``{step: {key: loss}}``.
    """
    return [Difference(step, key, one[step][key], two[step][key])
            for step in sorted(one.keys() & two.keys())
            for key in one[step] if key in two[step]]


def _describe(differences, largest):
    steps = {difference.step for difference in differences}
    keys = dict.fromkeys(difference.key for difference in differences)
    yield f"compared: {', '.join(keys)} of {len(steps)} steps"
    if not largest.size:
        yield "every loss is equal in every bit"
        return
    yield f"first difference: {next(d for d in differences if d.size)}"
    yield f"largest difference: {largest}"


def exit_code(argv=None):
    """Run ``main`` as a command."""
    answers = []
    code = run(lambda words: answers.append(main(words)), argv)
    return code or (0 if answers[0] else EXIT_DIFFERENT)


if __name__ == "__main__":
    sys.exit(exit_code())
