"""Pieces to batches of like length, and the outputs of batches back to pieces."""

from typing import NamedTuple, Optional

import numpy as np

BATCH_COST = 32
"""Slots that take as long as what a batch costs by itself: more padding than that is not worth
saving a batch"""
# Outputs that have a slot for each token, so that a row's padding is cut off.
_BY_SLOT = ("start_logits", "end_logits", "word_logits", "hidden_states")


class Shape(NamedTuple):
    """Of what computes rows in batches of one size alone."""

    rows: int
    slots: int
    masks: Optional[int]
    """Of every row; None where nothing is guessed"""


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


def make_arrays(pieces, slots, pad, rows=None, shape=None):
    """The graph's inputs.

    Args:
        pieces: a row each.
        slots: of a row.
        pad: id of [PAD].
        rows: of the batch, for devices with fixed shapes: the others are empty.
        shape: ``Shape`` of the parts of the batch that are computed by themselves.

    Returns:
        dict of int32 arrays ``[rows, slots]``, and ``masked`` ``[masks]``, numbered row after row,
        with a ``shape`` in each part anew, and as many for each row.
    """
    sizes = rows or len(pieces), slots
    arrays = {"input_ids": np.full(sizes, pad, np.int32),
              **{name: np.zeros(sizes, np.int32)
                 for name in ("token_type_ids", "position_ids", "sequence_id")}}
    for row, piece in enumerate(pieces):
        size = len(piece.tokens)
        arrays["input_ids"][row, :size] = piece.tokens
        arrays["token_type_ids"][row, piece.first_size:size] = 1
        arrays["position_ids"][row, :size] = np.arange(size)
        arrays["sequence_id"][row, :size] = 1
    places = [piece.masked for piece in pieces]
    first_slots = np.arange(sizes[0]) * slots
    if shape and shape.masks:
        places = [[*masked, *[0] * (shape.masks - len(masked))] for masked in places]
        places += [[0] * shape.masks] * (sizes[0] - len(pieces))
        first_slots %= shape.rows * slots
    masked = [first + place for first, row in zip(first_slots, places) for place in row]
    return {**arrays, "masked": np.array(masked, np.int32)}


def split_outputs(outputs, pieces, shape=None):
    """The outputs of a batch as a list of dicts, one for each piece, without padding."""
    if "masked_lm_logits" in outputs:
        counts = [len(piece.masked) for piece in pieces]
        begins = (np.arange(len(pieces)) * shape.masks if shape and shape.masks
                  else np.cumsum([0, *counts]))
        return [{"masked_lm_logits": outputs["masked_lm_logits"][begin:begin + count]}
                for begin, count in zip(begins, counts)]
    return [{name: array[row, :len(piece.tokens)] if name in _BY_SLOT else array[row]
             for name, array in outputs.items()} for row, piece in enumerate(pieces)]


def run_in_parts(run, arrays, shape):
    """Compute a batch in parts of one ``Shape``.

    Args:
        run: takes and returns dicts of arrays whose first axis is rows, or masks.
        arrays: of a multiple of its rows.
        shape: ``Shape`` of a part.
    """
    count = len(arrays["input_ids"]) // shape.rows
    parts = {name: np.split(array, count) for name, array in arrays.items()}
    found = [run({name: parts[name][number] for name in parts}) for number in range(count)]
    return {name: np.concatenate([one[name] for one in found]) for name in found[0]}
