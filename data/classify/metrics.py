"""Metrics of GLUE and CLUE, from their definitions, and spans of labelled words."""

import numpy as np
from scipy.stats import rankdata

_INSIDE = {"M": "I", "L": "E", "U": "S"}
"""Letters of the schemes BMES and BILOU as those of IOBES."""


def score(objective, predictions, labels, names):
    """All metrics of an objective.

    Args:
        objective: ``classification``, ``regression`` or ``tokens``.
        predictions, labels: ``[rows]``, or where words are labelled a list of ``[words]``.
        names: of the labels, in their order.

    Returns:
        dict of floats.
    """
    if objective == "regression":
        return {"pearson": pearson(predictions, labels),
                "spearman": pearson(rankdata(predictions), rankdata(labels))}
    if objective == "classification":
        return _score_labels(np.asarray(predictions), np.asarray(labels), len(names))
    return _score_words(predictions, labels, names)


def pearson(one, two):
    """Pearson's correlation; 0 where either side is constant."""
    one, two = (np.asarray(values, np.float64) - np.mean(values) for values in (one, two))
    return _share(one @ two, np.sqrt((one @ one) * (two @ two)))


def confusion(predictions, labels, count):
    """How often each label is predicted for each, int ``[true, predicted]``."""
    return np.bincount(labels * count + predictions, minlength=count * count).reshape(count, count)


def matthews(matrix):
    """Matthews' correlation, of several labels R_K of Gorodkin 2004; 0 where it has no value."""
    matrix = matrix.astype(np.float64)
    total, true, predicted = matrix.sum(), matrix.sum(axis=1), matrix.sum(axis=0)
    spread = (total ** 2 - true @ true) * (total ** 2 - predicted @ predicted)
    return _share(np.trace(matrix) * total - true @ predicted, np.sqrt(spread))


def f1_of_labels(matrix):
    """F1 of each label that is true or predicted somewhere, nan elsewhere: ``[labels]``."""
    both = (matrix.sum(axis=0) + matrix.sum(axis=1)).astype(np.float64)
    return np.divide(2 * np.diag(matrix), both, out=np.full(len(matrix), np.nan), where=both > 0)


def find_spans(tags):
    """Spans of a sentence's tags, as conlleval and seqeval (not strict) find them.

    Args:
        tags: strings: O, or a letter of BIO, IOBES, BMES or BILOU, ``-`` and a type.

    Returns:
        A set of ``(type, first, last)``.
    """
    spans, begin, before = set(), None, ("O", "")
    for place, tag in enumerate([*tags, "O"]):
        letter, _, kind = tag.partition("-")
        letter = _INSIDE.get(letter, letter)
        is_cut = letter in "BSO" or before[0] in "ESO" or kind != before[1]
        if begin is not None and is_cut:
            spans.add((before[1], begin, place - 1))
        if is_cut:
            begin = None if letter == "O" else place
        before = letter, kind
    return spans


def has_spans(names):
    """Whether labels are those of spans."""
    return any(name.startswith("B-") for name in names)


def _score_labels(predictions, labels, count):
    matrix = confusion(predictions, labels, count)
    f1 = f1_of_labels(matrix)
    scores = {"accuracy": float(np.mean(predictions == labels)), "macro_f1": float(np.nanmean(f1)),
              "matthews": matthews(matrix)}
    if count == 2:
        scores["f1"] = float(np.nan_to_num(f1[1]))
    return scores


def _score_words(predictions, labels, names):
    """Accuracy; micro F1 of words whose label is not O; precision, recall and F1 of spans."""
    flat, flat_labels = np.concatenate([[], *predictions]), np.concatenate([[], *labels])
    outside = names.index("O") if "O" in names else -1
    hits = np.count_nonzero((flat == flat_labels) & (flat != outside))
    found, due = np.count_nonzero(flat != outside), np.count_nonzero(flat_labels != outside)
    scores = {"accuracy": _share(np.count_nonzero(flat == flat_labels), len(flat)),
              "token_f1": _share(2 * hits, found + due)}
    if has_spans(names):
        pairs = [[find_spans([names[int(number)] for number in numbers]) for numbers in pair]
                 for pair in zip(predictions, labels)]
        hits = sum(len(found & due) for found, due in pairs)
        found, due = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
        scores.update(span_precision=_share(hits, found), span_recall=_share(hits, due),
                      span_f1=_share(2 * hits, found + due))
    return scores


def _share(part, whole):
    """``part / whole``, 0 where there is nothing to share."""
    return float(part / whole) if whole else 0.0
