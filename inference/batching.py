"""Pieces to batches of like length, and the outputs of batches back to pieces."""

import numpy as np

BATCH_COST = 32
"""Slots that take as long as what a batch costs by itself: more padding than that is not worth
saving a batch"""
# Outputs that have a slot for each token, so that a row's padding is cut off.
_BY_SLOT = ("start_logits", "end_logits")


def batches_by_length(lengths, batch_tokens, most_rows=None, max_tokens=None, rounded_to=1):
    """Put rows of like length together, the longest first.

    Args:
        lengths: tokens of each piece.
        batch_tokens: slots of a batch, padding included; a longer row is alone in its batch.
        most_rows: of a batch.
        max_tokens: that a row may be rounded up to.
        rounded_to: rows have a multiple of so many slots.

    Returns:
        A list of ``(numbers of the pieces, slots of a row)``.
    """
    batches, slots, padding = [], 0, 0
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        rows, length = len(batches[-1][0]) if batches else 0, lengths[number]
        padding += max(slots - length - rounded_to, 0)
        if (not rows or (rows + 1) * slots > batch_tokens or rows == most_rows
                or padding > BATCH_COST):
            slots = -(-length // rounded_to) * rounded_to
            slots, padding = max(length, min(slots, max_tokens or slots)), 0
            batches.append(([], slots))
        batches[-1][0].append(number)
    return batches


def make_arrays(pieces, slots, pad, rows=None):
    """The graph's inputs.

    Args:
        pieces: a row each.
        slots: of a row.
        pad: id of [PAD].
        rows: of the batch, for devices with fixed shapes: the others are empty.

    Returns:
        dict of int32 arrays ``[rows, slots]``, and ``masked`` ``[masks]``, numbered row after row.
    """
    shape = rows or len(pieces), slots
    arrays = {"input_ids": np.full(shape, pad, np.int32),
              **{name: np.zeros(shape, np.int32)
                 for name in ("token_type_ids", "position_ids", "sequence_id")}}
    masked = []
    for row, piece in enumerate(pieces):
        size = len(piece.tokens)
        arrays["input_ids"][row, :size] = piece.tokens
        arrays["token_type_ids"][row, piece.first_size:size] = 1
        arrays["position_ids"][row, :size] = np.arange(size)
        arrays["sequence_id"][row, :size] = 1
        masked.extend(row * slots + place for place in piece.masked)
    return {**arrays, "masked": np.array(masked, np.int32)}


def split_outputs(outputs, pieces):
    """The outputs of a batch as a list of dicts, one for each piece, without padding."""
    if "masked_lm_logits" in outputs:
        ends = np.cumsum([len(piece.masked) for piece in pieces])
        parts = np.split(outputs["masked_lm_logits"], ends)
        return [{"masked_lm_logits": part} for part in parts[:len(pieces)]]
    return [{name: array[row, :len(piece.tokens)] if name in _BY_SLOT else array[row]
             for name, array in outputs.items()} for row, piece in enumerate(pieces)]
