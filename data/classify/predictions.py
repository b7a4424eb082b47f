"""From logits to what is told of each row: a label with probabilities, a number, or tags."""

import numpy as np


def choose(logits, objective):
    """What is predicted: numbers of labels, or of a regression the numbers themselves.

    Args:
        logits: a list for each sequence of float ``[labelled, labels]``.
        objective: ``classification``, ``regression`` or ``tokens``.

    Returns:
        A list of ``[labelled]``.
    """
    if objective == "regression":
        return [array[:, 0] for array in logits]
    return [array.argmax(axis=1) for array in logits]


def describe_rows(features, logits, options):
    """What is predicted for each row of a file, ready for JSON.

    Args:
        features: of the file.
        logits: as in ``choose``.
        options: a ``ClassifyConfig``, its labels named.

    Returns:
        A list of dicts: ``label`` and ``probabilities`` by label; ``score``; or ``labels`` and
        ``probabilities`` of the words. With ``expected`` where the file tells it.
    """
    chosen = choose(logits, options.objective)
    described = {}
    for sequence, row in enumerate(features.rows.tolist()):
        given = None if features.labels is None else features.labels[sequence].tolist()
        entry = _describe(logits[sequence], chosen[sequence], given, options)
        if row in described:  # a row of words that needed several sequences
            entry = {key: described[row][key] + value for key, value in entry.items()}
        described[row] = entry
    return [{"row": row, **entry} for row, entry in described.items()]


def _describe(logits, chosen, given, options):
    names = options.labels
    if options.objective == "regression":
        entry = {"score": float(chosen[0])}
        return entry if given is None else {**entry, "expected": given[0]}
    shares = softmax(logits)
    if options.objective == "classification":
        entry = {"label": names[chosen[0]],
                 "probabilities": dict(zip(names, np.round(shares[0], 6).tolist()))}
        return entry if given is None else {**entry, "expected": names[given[0]]}
    entry = {"labels": [names[number] for number in chosen],
             "probabilities": np.round(shares.max(axis=1), 6).tolist()}
    return entry if given is None else {**entry, "expected": [names[n] for n in given]}


def softmax(logits):
    """Probabilities over the last axis, float64."""
    shares = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)
