"""Texts and labels as sequences of tokens, none longer than a row."""

from dataclasses import dataclass
from typing import Optional, Tuple

import numpy as np

_TEXTS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Features:
    """All sequences of a file: one a row, or where words are labelled as many as they need."""

    first: Tuple[np.ndarray, ...]
    """int32 ``[tokens]`` of each sequence's text, without special tokens"""
    second: Tuple[np.ndarray, ...]
    """The same of the second text of a pair; empty where there is none"""
    labels: Optional[Tuple[np.ndarray, ...]]
    """Of each sequence, one or one for each word; None where they are not told"""
    word_places: Tuple[np.ndarray, ...]
    """int32 ``[labels]``: where what is labelled stands in the sequence: [CLS], or the first
    piece of each word"""
    rows: np.ndarray
    """int32 ``[sequences]``: the row of the file that each is of, ascending"""
    lengths: np.ndarray
    """int64 ``[sequences]``: tokens, special ones included"""
    notices: Tuple[str, ...]
    """What a user should know of the file"""


def make_features(examples, tokenizer, options):
    """Tokenise the texts of a file and cut what is too long.

    Args:
        examples: ``Examples``.
        tokenizer: of the model.
        options: a ``ClassifyConfig``.

    Returns:
        Features.
    """
    make = _label_words if options.objective == "tokens" else _label_texts
    return make(examples, tokenizer, options.sequence_length)


def _label_texts(examples, tokenizer, length):
    first = _encode(tokenizer, examples.texts)
    second = _encode(tokenizer, examples.pairs or [""] * len(first))
    blank = sum(not len(ids) for ids in (*first, *(second if examples.pairs else ())))
    cut = 0
    for number, ids in enumerate(zip(first, second)):
        room = length - 2 - bool(len(ids[1]))
        sizes = cut_longest(*map(len, ids), room)
        cut += sum(sizes) < sum(map(len, ids))
        first[number], second[number] = (part[:size] for part, size in zip(ids, sizes))
    labels = None if examples.labels is None else tuple(examples.labels[:, None])
    return Features(tuple(first), tuple(second), labels,
                    (np.zeros(1, np.int32),) * len(first), np.arange(len(first), dtype=np.int32),
                    _lengths(first, second),
                    _notices((blank, "texts without a token"),
                             (cut, f"rows longer than {length} tokens were cut")))


def _encode(tokenizer, texts):
    """Token ids of each text, int32; a line end inside a text is a space to BERT."""
    encoded = []
    for begin in range(0, len(texts), _TEXTS_AT_ONCE):
        lines = [text.replace("\n", " ") for text in texts[begin:begin + _TEXTS_AT_ONCE]]
        tokens, counts, _ = tokenizer.encode_sentences(lines)
        encoded += np.split(tokens.astype(np.int32), np.cumsum(counts)[:-1])
    return encoded


def cut_longest(first, second, room):
    """How many tokens of two texts are kept: the longer loses one until both fit.

    As ``_truncate_seq_pair`` of google-research/bert's run_classifier.py: of two of one length
    the second.
    """
    surplus = max(first + second - room, 0)
    off_longer = min(surplus, abs(first - second))
    first, second = (first - off_longer, second) if first > second else (first,
                                                                         second - off_longer)
    rest = surplus - off_longer
    return first - rest // 2, second - (rest - rest // 2)


def _label_words(examples, tokenizer, length):
    """Sequences of whole words, as many as a row's words need, so that each gets its label.

    A word's label is learnt and told at its first piece (Devlin et al. 2018, section 5.3).
    """
    room = length - 2
    sequences, places, labels, rows, cut, unknown, split = [], [], [], [], 0, 0, 0
    of_word = iter(_encode(tokenizer, [word for words in examples.texts for word in words]))
    for row, words in enumerate(examples.texts):
        pieces = [next(of_word) for _ in words]
        unknown += sum(not len(ids) for ids in pieces)
        cut += sum(len(ids) > room for ids in pieces)
        pieces = [ids[:room] if len(ids) else np.array([tokenizer.unknown]) for ids in pieces]
        parts = _parts([len(ids) for ids in pieces], room)
        split += len(parts) > 1
        for begin, end in parts:
            sizes = [len(ids) for ids in pieces[begin:end]]
            sequences.append(np.concatenate([[], *pieces[begin:end]]).astype(np.int32))
            places.append(np.cumsum([1, *sizes[:-1]], dtype=np.int32) if sizes
                          else np.zeros(0, np.int32))
            rows.append(row)
            if examples.labels is not None:
                labels.append(examples.labels[row][begin:end])
    second = (np.zeros(0, np.int32),) * len(sequences)
    return Features(tuple(sequences), second, None if examples.labels is None else tuple(labels),
                    tuple(places), np.array(rows, np.int32), _lengths(sequences, second),
                    _notices((unknown, "words without a token were read as [UNK]"),
                             (cut, f"words longer than {room} tokens were cut"),
                             (split, f"rows longer than {length} tokens were parted")))


def _parts(sizes, room):
    """``(begin, end)`` of the words of each part, as many as fit; one part where there is none."""
    parts, begin, used = [], 0, 0
    for number, size in enumerate(sizes):
        if used + size > room:
            parts.append((begin, number))
            begin, used = number, 0
        used += size
    return [*parts, (begin, len(sizes))]


def _lengths(first, second):
    return np.array([len(one) + 2 + (len(two) + 1 if len(two) else 0)
                     for one, two in zip(first, second)], np.int64)


def _notices(*counted):
    return tuple(f"  {count:,} {text}" for count, text in counted if count)
