"""From start and end scores of windows to answers: n-best with probabilities, and null odds."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

import numpy as np

from configs.files import write_whole

FILES = {"predictions": "predictions.json", "nbest": "nbest.json", "null_odds": "null_odds.json"}
_WINDOWS_AT_ONCE = 128
_CERTAIN = 1e9
"""Null odds where a context holds no answer at all; JSON has no infinity."""


@dataclass(frozen=True)
class Answers:
    """What is predicted for each question, dicts by its id."""

    predictions: Mapping[str, str]
    """The text of the answer; "" for no answer"""
    nbest: Mapping[str, list]
    """The best answers of different text, best first: dicts of ``text``, ``probability``,
    ``start_logit``, ``end_logit`` and ``start`` and ``end``, characters of the context. The
    answer "" has no place (None) and stands for none"""
    null_odds: Mapping[str, float]
    """Score of no answer less the best answer's; empty where every question has an answer"""

    def best_texts(self):
        """The best answer to each question if it must have one: what thresholds are sought on."""
        return {identity: next((entry["text"] for entry in entries if entry["text"]), "")
                for identity, entries in self.nbest.items()}

    def write(self, folder):
        """Write ``predictions.json``, ``nbest.json`` and, if there are any, ``null_odds.json``."""
        for name, file in FILES.items():
            if name != "null_odds" or self.null_odds:
                text = json.dumps(getattr(self, name), indent=1, ensure_ascii=False)
                write_whole(Path(folder) / file, text + "\n")


def find_answers(questions, features, start_logits, end_logits, options, with_impossible=None):
    """The best answers of each question over all its windows.

    An answer is a span of at most ``max_answer_length`` tokens within a window, and its score
    is the sum of both logits, taken from the window with most context around it: of the tokens
    before it and behind it, the fewer count. The score of no answer is the least of the
    windows' scores at [CLS]. As Devlin et al. 2018, section 4.3, and Google's ``run_squad.py``,
    but for two things: all spans are looked at, not those of the best starts and ends, and
    context is counted around the span, not its start, so that no long answer is lost.

    Args:
        questions: the ``QuestionFile``.
        features: its ``Features``.
        start_logits, end_logits: float32 ``[windows, sequence_length]`` in the order of
            the text, NaN where none were computed.
        options: ``SquadConfig``.
        with_impossible: whether a question may have no answer; None takes it from the file.

    Returns:
        Answers.

    Raises:
        ValueError: a window has no logits, or some that are not finite.
    """
    logits = np.asarray(start_logits), np.asarray(end_logits)
    _check_logits(features, *logits)
    if with_impossible is None:
        with_impossible = questions.has_impossible
    spans = best_spans(features, *logits, options)
    bounds = np.searchsorted(features.window_question, np.arange(len(questions.questions) + 1))
    predictions, nbest, null_odds = {}, {}, {}
    for number, question in enumerate(questions.questions):
        windows = slice(bounds[number], bounds[number + 1])
        candidates = _candidates(features, windows, spans)
        entries = _distinct_texts(features, questions.contexts[question.context], candidates,
                                  logits, options.n_best)
        best = entries[0]["text"] if entries else ""
        if with_impossible or not entries:
            null = min((_entry("", start, end) for start, end in
                        zip(*(array[windows, 0] for array in logits))), key=_score)
            if with_impossible:
                odds = _score(null) - _score(entries[0]) if entries else np.inf
                null_odds[question.id] = min(odds, _CERTAIN)
                best = "" if odds > options.null_threshold else best
            entries = sorted([*entries, null], key=_score, reverse=True)
        predictions[question.id], nbest[question.id] = best, _with_probabilities(entries)
    return Answers(predictions, nbest, null_odds)


def best_spans(features, start_logits, end_logits, options):
    """The spans of the highest score in each window, of those that have most context there.

    Returns:
        places of the first and of the last token, int ``[windows, n_best]``, and scores
        ``[windows, n_best]``, best first, -inf where a window has no more spans.
    """
    parts = [_best_spans(features, start_logits, end_logits, options,
                         slice(begin, begin + _WINDOWS_AT_ONCE))
             for begin in range(0, len(start_logits), _WINDOWS_AT_ONCE)]
    return [np.concatenate(arrays) for arrays in zip(*parts)]


def _best_spans(features, start_logits, end_logits, options, windows):
    place, first = np.arange(start_logits.shape[1]), features.context_offset[windows, None]
    is_context = (place >= first) & (place < first + features.window_size[windows, None])
    starts = np.where(is_context, start_logits[windows], -np.inf)
    ends = np.where(is_context, end_logits[windows], -np.inf)
    # Column l of the second axis: the end that makes the answer l + 1 tokens long.
    longest = min(options.max_answer_length, starts.shape[1])
    ends = np.pad(ends, ((0, 0), (0, longest - 1)), constant_values=-np.inf)
    scores = starts[:, :, None] + np.lib.stride_tricks.sliding_window_view(ends, longest, axis=1)
    _leave_to_neighbours(features, windows, scores)
    scores = scores.reshape(len(starts), -1)
    count = min(options.n_best, scores.shape[1])
    best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    best_scores = np.take_along_axis(scores, best, axis=1)
    # Of equal scores, the earlier and shorter answer first.
    order = np.lexsort((best, -best_scores), axis=1)
    best, best_scores = (np.take_along_axis(a, order, axis=1) for a in (best, best_scores))
    first = best // longest
    return first, first + best % longest, best_scores


def _leave_to_neighbours(features, windows, scores):
    """Set the scores ``[windows, places, lengths]`` of spans to -inf that have more context around
    them in another window of the question; of windows with as much, the first keeps a span.

    From window to window a span has more and more context and then less and less, so that the
    window before and the one behind tell.
    """
    question = features.window_question
    numbers = np.arange(len(question))[windows]
    for step, has_most in ((-1, np.greater), (1, np.greater_equal)):
        others = np.clip(numbers + step, 0, len(question) - 1)
        shared = np.flatnonzero((others != numbers) & (question[others] == question[numbers]))
        own, others = numbers[shared, None, None], others[shared, None, None]
        first = (np.arange(scores.shape[1])[:, None] - features.context_offset[own]
                 + features.window_first[own])
        last = first + np.arange(scores.shape[2])
        scores[shared] = np.where(has_most(_context_around(features, own, first, last),
                                           _context_around(features, others, first, last)),
                                  scores[shared], -np.inf)


def _context_around(features, windows, first, last):
    """Tokens of windows on that side of a span where there are fewer; negative if not in it."""
    begin = features.window_first[windows]
    return np.minimum(first - begin, begin + features.window_size[windows] - 1 - last)


def _check_logits(features, start_logits, end_logits):
    is_read = np.arange(start_logits.shape[1]) < features.lengths[:, None]
    for name, logits in (("start", start_logits), ("end", end_logits)):
        bad = (~np.isfinite(logits) & is_read).any(axis=1)
        if bad.any():
            raise ValueError(f"{bad.sum()} of {len(bad)} windows have no finite {name} logits, "
                             f"first window {int(np.argmax(bad))}")


def _candidates(features, windows, spans):
    """The best spans of a question's windows, best first, of equal ones the earlier and shorter.

    Args:
        windows: slice of the question's windows.
        spans: what ``best_spans`` returned.

    Returns:
        int arrays ``[spans]``: window, and place of the first and last token in it.
    """
    first, last, scores = (array[windows] for array in spans)
    row, column = np.nonzero(scores > -np.inf)
    first, last, scores = (array[row, column] for array in (first, last, scores))
    window = windows.start + row
    in_context = first - features.context_offset[window] + features.window_first[window]
    order = np.lexsort((last - first, in_context, -scores))
    return window[order], first[order], last[order]


def _distinct_texts(features, context, candidates, logits, most):
    """Entries of the best candidates, one for each text."""
    entries = {}
    for window, first, last in zip(*candidates):
        start, end = features.characters(window, first, last)
        if context[start:end] not in entries:
            entries[context[start:end]] = _entry(context[start:end], logits[0][window, first],
                                                 logits[1][window, last], start, end)
        if len(entries) == most:
            break
    return list(entries.values())


def _entry(text, start_logit, end_logit, start=None, end=None):
    return {"text": text, "start_logit": float(start_logit), "end_logit": float(end_logit),
            "start": start, "end": end}


def _score(entry):
    return entry["start_logit"] + entry["end_logit"]


def _with_probabilities(entries):
    """Entries with a softmax over their scores."""
    scores = np.array([_score(entry) for entry in entries])
    shares = np.exp(scores - scores.max())
    return [{**entry, "probability": float(share)}
            for entry, share in zip(entries, shares / shares.sum())]
