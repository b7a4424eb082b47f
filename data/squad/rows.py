"""Windows to batches: packed and shuffled in training, sorted by length in evaluation."""

import os

import numpy as np

from configs.errors import InputError
from data import packing, rows
from data.batch import Batch, mean_weights
from data.randomness import permutation
from data.squad.features import UNKNOWN

_ROUNDED_TO = 8
"""Evaluation rows have a multiple of so many slots: fewer shapes, and aligned products."""


class SquadData:
    """Rows of windows, addressed by the number of rows that were consumed before.

    The i-th window of a row has ``sequence_id`` i + 1 and its [CLS] in slot i; attention and
    the loss keep windows apart. Which windows share a row is drawn anew each epoch. Windows of
    unknown answer are left out of training.
    """

    def __init__(self, features, tokenizer, options, seed=0, is_training=True,
                 fixed_length=False):
        """
        Args:
            features: a file's ``Features``.
            tokenizer: for the special tokens' ids.
            options: ``SquadOptions``.
            seed: of order and packing.
            is_training: shuffled epochs without end, packed, rows of ``max_sequence_length``
                slots; or one pass over all windows, the longest first, one in each row, rows
                no longer than a batch needs.
            fixed_length: in evaluation too, rows of ``max_sequence_length`` slots, and a last
                batch that is filled up with empty rows, for devices with fixed shapes.

        Raises:
            InputError: there is no window to train on.
        """
        self.features, self.tokenizer, self.options = features, tokenizer, options
        self.seed, self.is_training = seed, is_training
        self.fixed_length = fixed_length or is_training
        self.depth = options.sequences_per_row if is_training else 1
        self.packing, self.packing_report = None, None
        self._order_epoch, self._order = None, None
        if is_training:
            self.windows = np.flatnonzero(features.window_start != UNKNOWN)
            if not len(self.windows):
                raise InputError("data", "no question has an answer to learn",
                                 "see what is told of the file's answers")
            self._pack()
        else:
            self.windows = np.argsort(-features.lengths, kind="stable")

    def __len__(self):
        """Rows of an epoch."""
        return self.packing_report.rows if self.packing else len(self.windows)

    def batch(self, consumed, count):
        """The rows that follow after ``consumed`` rows.

        Args:
            consumed: rows that were read since the start of the run.
            count: rows wanted. In training they may cross the end of an epoch; in evaluation
                there are fewer at the end, unless rows have a fixed length.

        Returns:
            Batch with labels ``start_positions`` and ``end_positions``, int32
            ``[count, depth]``, slots of the row; ``window_weights``, float32 ``[count, depth]``,
            which sum to 1, 0 where there is no window or no known answer; and ``sequence_id``
            ``[count, slots]`` as among the inputs, for the loss is taken within a window.
        """
        return self.make_rows(self.windows_of(consumed, count))

    def windows_of(self, consumed, count):
        """Which windows of the features stand in the rows of ``batch``.

        Returns:
            int64 ``[count, depth]``, -1 where a row has fewer.
        """
        positions = np.arange(consumed, consumed + count)
        if self.is_training:
            epochs = positions // len(self)
            return np.concatenate([self._epoch_order(int(epoch))[positions[epochs == epoch]
                                                                 % len(self)]
                                   for epoch in np.unique(epochs)])
        windows = self.windows[consumed:consumed + count]
        if self.fixed_length:
            windows = np.append(windows, np.full(count - len(windows), -1))
        return windows[:, None]

    def make_rows(self, windows):
        """The Batch of chosen windows, int ``[rows, k]``, -1 where a row has fewer than k.

        Raises:
            ValueError: they do not fit ``max_sequence_length`` slots.
        """
        features, is_present = self.features, windows >= 0
        present = windows[is_present]
        lengths = np.zeros(windows.shape, np.int64)
        lengths[is_present] = features.lengths[present]
        longest = int(lengths.sum(axis=1).max(initial=1))
        if longest > self.options.max_sequence_length:
            raise ValueError(f"windows of {longest} tokens in a row of "
                             f"{self.options.max_sequence_length}")
        length = self._row_length(longest)
        arrays, slots = self._lay(present, is_present, lengths, length)
        labels = self._labels(present, is_present, lengths, slots)
        return Batch(**arrays, labels={**labels, "sequence_id": arrays["sequence_id"]})

    def _row_length(self, longest):
        if self.fixed_length:
            return self.options.max_sequence_length
        return min(-(-longest // _ROUNDED_TO) * _ROUNDED_TO, self.options.max_sequence_length)

    def _lay(self, present, is_present, lengths, length):
        """The inputs, and the slot of each token where tokens stand in the order of the text."""
        pairs = [self.features.tokens(window) for window in present]
        text = rows.join_segments([first for first, _ in pairs], [second for _, second in pairs],
                                  length, self.tokenizer)
        places = rows.row_places(lengths, length)
        position_ids = np.broadcast_to(np.arange(length), text.tokens.shape)
        sequence_id = np.broadcast_to(np.nonzero(is_present)[1][:, None] + 1, text.tokens.shape)
        tokens, types, position_ids, sequence_id = (
            rows.join_sequences(values, text.is_token, places)
            for values in (text.tokens, text.token_type_ids, position_ids, sequence_id))
        slots = rows.predictions_first_slots(np.zeros_like(places), places,
                                             places & (position_ids == 0), 0,
                                             is_present.shape[1])
        return {"input_ids": rows.scatter(tokens, slots, self.tokenizer.pad),
                "token_type_ids": rows.scatter(types, slots),
                "position_ids": rows.scatter(position_ids, slots),
                "sequence_id": rows.scatter(sequence_id, slots)}, slots

    def _labels(self, present, is_present, lengths, slots):
        first_place = np.cumsum(lengths, axis=1) - lengths  # of each window in the text's order
        labels = {}
        for name, places in (("start_positions", self.features.window_start),
                             ("end_positions", self.features.window_end)):
            labels[name] = np.zeros(is_present.shape, np.int32)
            row = np.nonzero(is_present)[0]
            labels[name][is_present] = slots[
                row, first_place[is_present] + np.maximum(places[present], 0)]
        is_known = is_present.copy()
        is_known[is_present] = self.features.window_start[present] != UNKNOWN
        return {**labels, "window_weights": mean_weights(is_known)}

    def _pack(self):
        if self.depth > 1:
            lengths = self.features.lengths[self.windows]
            histogram = packing.length_histogram(lengths, self.options.max_sequence_length)
            folder = self.options.cache or os.devnull  # where nothing can be kept
            self.packing = packing.pack(histogram, self.depth, folder)
            self.packing_report = packing.packing_report(self.packing, histogram, self.depth)

    def _epoch_order(self, epoch):
        """Windows of each row, int64 ``[rows, depth]``."""
        if self._order_epoch != epoch:
            order = self.windows[:, None]
            if self.packing:
                numbers = packing.assign_samples(
                    self.packing, self.features.lengths[self.windows], self.depth, self.seed,
                    epoch)
                order = np.where(numbers >= 0, self.windows[numbers], -1)
            self._order = order[permutation(self.seed, epoch, len(self))]
            self._order_epoch = epoch
        return self._order


def window_logits(data, compute, rows_at_once):
    """Start and end logits of all windows of evaluation data.

    Args:
        data: ``SquadData``, not for training.
        compute: takes a Batch, returns dict with ``start_logits`` and ``end_logits``,
            ``[rows, slots]``.
        rows_at_once: rows of a batch.

    Returns:
        two float32 arrays ``[windows, max_sequence_length]`` as ``find_answers`` takes them.
    """
    shape = len(data.features.lengths), data.options.max_sequence_length
    start_logits, end_logits = (np.full(shape, np.nan, np.float32) for _ in range(2))
    for consumed in range(0, len(data), rows_at_once):
        batch, windows = (read(consumed, rows_at_once) for read in (data.batch, data.windows_of))
        logits = compute(batch)
        gather_logits(logits["start_logits"], windows, batch, start_logits)
        gather_logits(logits["end_logits"], windows, batch, end_logits)
    return start_logits, end_logits


def gather_logits(logits, windows, batch, out):
    """Put logits of rows back to their windows, in the order of the text.

    Args:
        logits: ``[rows, slots]``.
        windows: int ``[rows, depth]``: which windows stand in the rows.
        batch: the rows' ``Batch``.
        out: ``[windows, max_sequence_length]``, filled in place; start it with NaN.
    """
    row, slot = np.nonzero(batch.sequence_id)
    window = windows[row, batch.sequence_id[row, slot] - 1]
    out[window, batch.position_ids[row, slot]] = np.asarray(logits)[row, slot]
