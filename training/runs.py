"""Run folders read back, finished or not: what a report or a comparison of runs is made from."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from configs.errors import InputError

# What the x axis of curves can be.
POSITIONS = ("step", "samples", "seconds", "tokens")


@dataclass(frozen=True)
class Run:
    """What a run folder holds."""

    path: Path
    name: str
    config: dict
    """The resolved recipe, ``{"section.key": value}``."""
    metrics: list
    evaluations: list
    result: dict
    """Empty while the run is not finished."""

    def positions(self, kind, steps):
        """Where on an axis steps lie; between two lines of metrics, in proportion.

        Args:
            kind: of ``POSITIONS``; seconds are those of training, without evaluation.
            steps: numbers of updates.

        Raises:
            InputError: the lines do not tell it.
        """
        if kind == "step":
            return np.asarray(steps, float)
        known = np.array([0, *(line["step"] for line in self.metrics)], float)
        return np.interp(steps, known, [0, *self._totals(kind, np.diff(known))])

    def _totals(self, kind, steps_between):
        """Samples, seconds or tokens up to each line of metrics."""
        if kind == "samples":
            return self.column("samples")
        seconds = steps_between * self.column("step_seconds")
        return np.cumsum(seconds if kind == "seconds"
                         else seconds * self.column("tokens_per_second"))

    def column(self, key):
        """A number of every line of metrics, as an array.

        Raises:
            InputError: a line lacks it.
        """
        try:
            return np.array([line[key] for line in self.metrics], float)
        except (KeyError, TypeError, ValueError):
            raise InputError(self.path / "metrics.jsonl", f"not every line tells {key}") from None

    def series(self, split, key):
        """``(steps, values)`` of the lines that hold a number.

        Args:
            split: ``metrics`` or ``evaluations``.
            key: of the number.
        """
        lines = [line for line in getattr(self, split) if is_number(line.get(key))]
        return [line["step"] for line in lines], [line[key] for line in lines]


def is_number(value):
    """Whether a metric can be drawn and compared."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read_runs(paths):
    """Runs with names that tell them apart.

    Raises:
        InputError: a folder holds no run, or something else than a run writes.
    """
    names = [Path(path).resolve().name for path in paths]
    return [read_run(path, name if names.count(name) == 1 else str(path))
            for path, name in zip(paths, names)]


def read_run(path, name=None):
    """One run folder; ``name`` is its own if not given."""
    path = Path(path)
    if not (path / "config.yaml").is_file():
        raise InputError(path, "holds no run (config.yaml is missing)",
                         "name a folder that run_pretrain.py wrote")
    return Run(path, name or path.resolve().name, _read_config(path / "config.yaml"),
               read_lines(path / "metrics.jsonl"), read_lines(path / "evaluations.jsonl"),
               _read_result(path / "result.json"))


def read_lines(path):
    """The lines of a JSON lines file, each with a step; none if it is not there yet.

    A last line that a kill cut short is left out.

    Raises:
        InputError: another line is no JSON object with a step.
    """
    texts = read_text(path).split("\n") if path.exists() else []
    lines = []
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
            if not isinstance(line["step"], int):
                raise TypeError
            lines.append(line)
        except (ValueError, KeyError, TypeError):
            if number < len(texts):
                raise InputError(f"{path}:{number}", "is no line of metrics with a step",
                                 "repair or remove it") from None
    return lines


def _read_config(path):
    try:
        sections = yaml.safe_load(read_text(path))
        return {f"{section}.{key}": value for section, keys in sections.items()
                for key, value in keys.items()}
    except (yaml.YAMLError, AttributeError):
        raise InputError(path, "is no resolved recipe") from None


def _read_result(path):
    if not path.exists():
        return {}
    try:
        return dict(json.loads(read_text(path)))
    except (ValueError, TypeError):
        raise InputError(path, "is no JSON object", "remove it") from None


def read_text(path):
    """A file's text.

    Raises:
        InputError: it cannot be read or is not UTF-8.
    """
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, f"cannot be read ({error})") from None
