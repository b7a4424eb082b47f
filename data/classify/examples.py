"""Rows of a table as texts with labels, every cell checked."""

import json
import math
from dataclasses import dataclass
from typing import Any, Optional, Tuple

import numpy as np

from configs.errors import InputError
from data.characters import has_half_a_pair

_MOST_LABELS = 100
_FEWEST_ROWS_A_LABEL = 10
_SEPARATOR = "\x02"
"""Between words and between their labels in Baidu's files; elsewhere it is white space."""


@dataclass(frozen=True)
class Examples:
    """What is read of a file, in its order."""

    path: str
    texts: Tuple[Any, ...]
    """Strings; lists of words where words are labelled"""
    pairs: Optional[Tuple[str, ...]]
    """The second texts, or None"""
    labels: Optional[Any]
    """int32 ``[rows]``, float32 ``[rows]`` in a regression, a tuple of int32 ``[words]`` where
    words are labelled; None where they are not told"""

    def __len__(self):
        return len(self.texts)


def make_examples(table, options, names=None):
    """The texts of a table, and with ``names`` their labels.

    Args:
        table: a ``Table``.
        options: a ``ClassifyConfig``.
        names: of all labels in their order; () in a regression; None reads no labels.

    Raises:
        InputError: a column is missing, or a cell is not what it should be, with its line.
    """
    is_tokens = options.objective == "tokens"
    texts = _cells(table, options.text_column, "text_column", _words if is_tokens else _text)
    pairs = None
    if options.pair_column:
        pairs = _cells(table, options.pair_column, "pair_column", _text)
    labels = None
    if names is not None:
        labels = _labels(table, options, names, texts)
    return Examples(table.path, texts, pairs, labels)


def find_label_names(table, options):
    """The names of all labels of a table, numbers in their order, then words; "O" first of all.

    Raises:
        InputError: there is but one, or so many that they are hardly labels.
    """
    if options.objective == "tokens":
        cells = _cells(table, options.label_column, "label_column", _words)
        names = {name for cell in cells for name in cell}
    else:
        names = set(_cells(table, options.label_column, "label_column", _name))
    if len(names) < 2:
        raise InputError(table.path, f"every row has the label '{names.pop()}'" if names else
                         "has no label", "name another data.label_column")
    numbers = [_number(name) for name in names]
    is_scale = None not in numbers and any(number % 1 for number in numbers)
    if is_scale or len(names) > max(_MOST_LABELS, len(table) / _FEWEST_ROWS_A_LABEL):
        raise InputError(table.path, f"has {len(names):,} different labels in {len(table):,} rows"
                         f", e.g. '{min(names)}'", "write data.objective: regression, name another "
                         "data.label_column, or list the labels in data.labels")
    return tuple(sorted(names, key=_label_order))


def _label_order(name):
    number = _number(name)
    return name != "O", number is None, number or 0, name


def _labels(table, options, names, texts):
    if options.objective == "regression":
        cells = _cells(table, options.label_column, "label_column", _score)
        return np.array(cells, np.float32)
    numbers = {name: number for number, name in enumerate(names)}
    if options.objective == "classification":
        cells = _cells(table, options.label_column, "label_column",
                       lambda cell: _look_up(_name(cell), numbers))
        return np.array(cells, np.int32)
    cells = _cells(table, options.label_column, "label_column",
                   lambda cell: [_look_up(name, numbers) for name in _words(cell)])
    for row, (words, labels) in enumerate(zip(texts, cells)):
        if len(words) != len(labels):
            raise InputError(table.place(row), f"has {len(words)} words and {len(labels)} labels",
                             "give every word a label, parted as the words are")
    return tuple(np.array(labels, np.int32) for labels in cells)


def _cells(table, column, key, convert):
    """The converted cells of a column; a ``ValueError`` is told with the line."""
    converted = []
    for row, cell in enumerate(table.column(column, key)):
        try:
            converted.append(convert(cell))
        except ValueError as error:
            raise InputError(f"{table.place(row)}: '{column}'", str(error),
                             "correct it, or name another column in the recipe") from None
    return tuple(converted)


def _text(cell):
    if not isinstance(cell, str):
        raise ValueError(f"{_shown(cell)} is no text")
    _check_characters(cell)
    return cell


def _words(cell):
    if isinstance(cell, str):
        return cell.split(_SEPARATOR) if _SEPARATOR in cell else cell.split()
    if not isinstance(cell, list) or not all(isinstance(word, str) for word in cell):
        raise ValueError(f"{_shown(cell)} is no list of words")
    _check_characters("".join(cell))
    return cell


def _check_characters(text):
    if has_half_a_pair(text):
        raise ValueError("holds half of a surrogate pair")


def _name(cell):
    """A label's name; JSON's numbers, true and false as they are written."""
    name = cell.strip() if isinstance(cell, str) else json.dumps(cell)
    if isinstance(cell, (list, dict)) or cell is None or not name:
        raise ValueError(f"{_shown(cell)} is no label")
    return name


def _score(cell):
    score = _number(cell)
    if score is None:
        raise ValueError(f"{_shown(cell)} is no number")
    return score


def _number(value):
    """A finite number, or None."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _look_up(name, numbers):
    if name not in numbers:
        shown = ", ".join(list(numbers)[:20]) + (", …" if len(numbers) > 20 else "")
        raise ValueError(f"{_shown(name)} is none of the labels {shown}")
    return numbers[name]


def _shown(cell):
    text = json.dumps(cell, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"
