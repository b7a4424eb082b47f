"""Lines of metrics: appended to a JSON lines file and shown while a run goes on."""

import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from configs.errors import InputError
from configs.files import write_whole

# What a line tells of the machine; all else is the same in every run of a recipe.
COST_KEYS = ("sequences_per_second", "tokens_per_second", "mfu", "data_seconds", "step_seconds")

_NOTICED = 0.1  # of a step's time

# tqdm's own, with our estimate of the time left in place of its.
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


class JsonLines:
    """A file with a JSON object a line, whose lines after a resume point can be dropped."""

    def __init__(self, path):
        self.path = Path(path)

    def append(self, line):
        """Write a line at the end.

        Raises:
            InputError: the disk is full; a line cut short is no line to ``read``.
        """
        try:
            with open(self.path, "a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
        except OSError as error:
            raise InputError(self.path, f"cannot be written ({error.strerror})",
                             "make room, then go on with --resume") from None

    def read(self):
        """All whole lines; one cut short by a kill is left out."""
        if not self.path.exists():
            return []
        lines = []
        for text in self.path.read_text("utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                break
        return lines

    def keep_up_to(self, step):
        """Drop what a run wrote after the checkpoint that it is resumed from."""
        lines = [line for line in self.read() if line["step"] <= step]
        write_whole(self.path, "".join(json.dumps(line) + "\n" for line in lines))


class Progress:
    """A bar on a terminal, plain lines elsewhere, with the time that is left."""

    def __init__(self, steps, done, visible=True, clock=time.perf_counter):
        """
        Args:
            steps: of the whole run.
            done: of them before this process.
            visible: false in the processes of a run that print nothing.
            clock: seconds from any start.
        """
        self.visible = visible
        self.steps, self.done, self.clock = steps, done, clock
        self.first, self.mark = done, clock()
        self.step_seconds = _SmoothedMean()
        self.aside_seconds, self.aside_steps = 0.0, 0
        self.bar = tqdm(total=steps, initial=done, unit="step", bar_format=_BAR,
                        disable=not (visible and sys.stderr.isatty()))

    def advance(self):
        """Count a step; what passed since the last one, but for ``aside``, is its time."""
        now = self.clock()
        self.step_seconds.add(now - self.mark)
        self.mark = now
        self.done += 1
        self.bar.set_postfix_str(f"left {show_seconds(self.seconds_left())}", refresh=False)
        self.bar.update()

    @contextmanager
    def aside(self):
        """Around what comes between steps now and then: an evaluation, a checkpoint.

        Where none was due, and next to no time passed, it counts as part of the step.
        """
        start = self.clock()
        try:
            yield
        finally:
            seconds = self.clock() - start
            if seconds > _NOTICED * self.step_seconds.value:
                self.mark += seconds
                self.aside_seconds += seconds
                self.aside_steps = self.done - self.first

    def seconds_left(self):
        """Steps at the smoothed time of one, and the share of evaluations and checkpoints.

        That share is taken up to the last of them, so that it does not sink in between.
        """
        aside = self.aside_seconds / self.aside_steps if self.aside_steps else 0.0
        return (self.steps - self.done) * (self.step_seconds.value + aside)

    def say(self, name, metrics):
        """Show a line of metrics."""
        if not self.visible:
            return
        text = "  ".join([f"{name} {metrics['step']}/{self.steps}", *show_metrics(metrics)])
        if 0 < self.done < self.steps and self.step_seconds.value:
            text += f"  left {show_seconds(self.seconds_left())}"
        if self.bar.disable:
            print(text, flush=True)
        else:
            self.bar.write(text)

    def close(self):
        self.bar.close()


class _SmoothedMean:
    """An exponentially smoothed mean, corrected for its start at zero as Adam's moments are."""

    WEIGHT = 0.1

    def __init__(self):
        self.sum, self.weight = 0.0, 0.0

    def add(self, value):
        self.sum += self.WEIGHT * (value - self.sum)
        self.weight += self.WEIGHT * (1 - self.weight)

    @property
    def value(self):
        return self.sum / self.weight if self.weight else 0.0


def show_metrics(metrics):
    """A line of metrics as short words for people: known keys grouped, any other one by name."""
    rest = {key: value for key, value in metrics.items() if key not in ("step", "samples")
            and not (type(value) is int and value == 0)}  # a counter that has nothing to tell
    words = [*_take_losses(rest), *_take_cost(rest)]
    return [*words, *(f"{key.replace('_', ' ')} {_short(value)}" for key, value in rest.items())]


def _take_losses(rest):
    """``loss 7.12 (mlm 6.43 acc 0.09)`` from keys such as mlm_loss and mlm_accuracy."""
    objectives = [key[:-len("_loss")] for key in rest
                  if key.endswith("_loss") and f"{key[:-len('_loss')]}_accuracy" in rest]
    parts = [f"{name} {_short(rest.pop(f'{name}_loss'))} acc "
             f"{_short(rest.pop(f'{name}_accuracy'))}" for name in objectives]
    words = []
    if "loss" in rest:
        words.append(f"loss {_short(rest.pop('loss'))}")
    if "accuracy" in rest:
        words.append(f"acc {_short(rest.pop('accuracy'))}")
    if parts:
        words.append(f"({', '.join(parts)})" if words else ", ".join(parts))
    return [" ".join(words)] if words else []


def _take_cost(rest):
    """Learning rate, speed and where the time goes."""
    words = []
    if "learning_rate" in rest:
        words.append(f"lr {rest.pop('learning_rate'):.2g}")
    for key, unit in (("sequences_per_second", "seq/s"), ("tokens_per_second", "tok/s")):
        if key in rest:
            words.append(f"{show_count(rest.pop(key))} {unit}")
    if "mfu" in rest:
        words.append(f"mfu {rest.pop('mfu'):.0%}")
    data_seconds, step_seconds = rest.pop("data_seconds", None), rest.pop("step_seconds", None)
    if data_seconds is not None and step_seconds:
        words.append(f"data {data_seconds / step_seconds:.0%}")
    return words


def show_count(value):
    """``1,234``, ``102k`` or ``3.4M``: three digits or so, for a table or a line."""
    for size, letter in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            value = value / {"M": 1e6, "k": 1e3}[letter]
            return f"{value:.0f}{letter}" if abs(value) >= 100 else f"{value:.1f}{letter}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show_seconds(seconds):
    """``3 h 12 min``, ``12 min 5 s`` or ``5 s``."""
    seconds = int(round(seconds))
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    for (size, name), (smaller, smaller_name) in zip(units, units[1:]):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size} {name}" + (f" {rest} {smaller_name}" if rest else "")
    return f"{seconds} s"


def _short(value):
    if value is None:
        return "not finite"  # JSON has no word for it
    if not isinstance(value, float):
        return value
    return f"{value:.2f}" if 1 <= abs(value) < 1000 else f"{value:.3g}"
