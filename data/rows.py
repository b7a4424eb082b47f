"""Segments to rows: first in the order of the text, then predictions first."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TextRows:
    """Rows in the order of the text, all ``[batch, sequence]``."""

    tokens: np.ndarray
    """int32, padded with [PAD]"""
    token_type_ids: np.ndarray
    """int32"""
    is_token: np.ndarray
    """bool, false for padding"""
    is_special: np.ndarray
    """bool, true for [CLS] and [SEP]"""


def join_segments(first, second, length, tokenizer):
    """``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]`` for each pair of token arrays.

    Args:
        first, second: lists of token arrays that fit; an empty B is left out.
        length: slots of a row.
        tokenizer: for the special tokens' ids.

    Returns:
        TextRows.
    """
    tokens = np.full((len(first), length), tokenizer.pad, np.int32)
    types = np.zeros((len(first), length), np.int32)
    is_token = np.zeros((len(first), length), bool)
    is_special = np.zeros((len(first), length), bool)
    for row, (tokens_a, tokens_b) in enumerate(zip(first, second)):
        end_a = 1 + len(tokens_a)
        end_b = end_a + 1 + len(tokens_b)
        tokens[row, 0], tokens[row, 1:end_a] = tokenizer.cls, tokens_a
        tokens[row, end_a] = tokenizer.sep
        specials = [0, end_a]
        if len(tokens_b):
            tokens[row, end_a + 1:end_b], tokens[row, end_b] = tokens_b, tokenizer.sep
            types[row, end_a + 1:end_b + 1] = 1
            specials.append(end_b)
        is_token[row, :specials[-1] + 1] = True
        is_special[row, specials] = True
    return TextRows(tokens, types, is_token, is_special)


def row_places(token_counts, length):
    """Which slots of the rows are tokens where sequences follow one another in the text's order.

    Args:
        token_counts: int ``[rows, k]``, 0 for an absent sequence.
        length: slots of a row.

    Returns:
        bool ``[rows, length]``.
    """
    return np.arange(length) < token_counts.sum(axis=1, keepdims=True)


def join_sequences(values, is_token, places):
    """Lay sequences into rows, in order.

    Args:
        values: ``[sequences, length]``, those of the first row first.
        is_token: bool ``[sequences, length]``.
        places: bool ``[rows, length]`` as ``row_places`` gives it.

    Returns:
        ``[rows, length]``, 0 where there is no token.
    """
    joined = np.zeros(places.shape, values.dtype)
    joined[places] = values[is_token]
    return joined


def predictions_first_slots(masked, is_token, is_cls, max_predictions, sequences_per_row=1):
    """The slot that each token of a row moves to.

    Masked tokens take the first slots. [CLS] of the row's i-th sequence takes slot
    ``max_predictions + i``, where the pooler reads it. The other tokens take the slots
    that are left, in order; the reserved slots of absent sequences stay padding until every
    other slot is taken, so that a row holds as many tokens as it has slots, however many
    sequences they are.

    Args:
        masked: bool ``[batch, sequence]`` in the order of the text.
        is_token: bool ``[batch, sequence]``, false for padding.
        is_cls: bool ``[batch, sequence]``, true for the first token of each sequence.
        max_predictions: the slots that the masked-language-model head reads.
        sequences_per_row: the slots behind them that the pooler reads.

    Returns:
        int ``[batch, sequence]``; padding gets slots beyond the row.

    Raises:
        ValueError: a row has more masked tokens or more sequences than slots for them.
    """
    predictions = _counts(masked, max_predictions, "masked tokens")
    sequences = _counts(is_cls, sequences_per_row, "sequences")
    length = masked.shape[1]
    is_other = is_token & ~masked & ~is_cls
    other_slot = predictions + np.cumsum(is_other, axis=1) - 1
    other_slot += sequences_per_row * (other_slot >= max_predictions)
    surplus = other_slot - length
    other_slot = np.where(surplus < 0, other_slot, max_predictions + sequences + surplus)
    slots = np.where(masked, np.cumsum(masked, axis=1) - 1, other_slot)
    slots = np.where(is_cls, max_predictions + np.cumsum(is_cls, axis=1) - 1, slots)
    return np.where(is_token, slots, length)


def _counts(marks, most, name):
    counts = marks.sum(axis=1, keepdims=True)
    if counts.max(initial=0) > most:
        raise ValueError(f"{counts.max()} {name} in a row, but {most} slots for them")
    return counts


def scatter(values, slots, fill=0):
    """Move ``values`` ``[batch, sequence]`` to their slots; slots beyond the row are dropped."""
    batch, length = slots.shape
    moved = np.full((batch, length + 1), fill, np.int32)
    np.put_along_axis(moved, slots, values.astype(np.int32), axis=1)
    return moved[:, :length]
