"""Rows of whole sequences for fine-tuning: packed in training, sorted in evaluation."""

import os

import numpy as np

from data import packing, rows
from data.batch import Batch
from data.randomness import permutation

_ROUNDED_TO = 8
"""Evaluation rows have a multiple of so many slots: fewer shapes, and aligned products."""


class SequenceData:
    """Rows of sequences, addressed by the number of rows that were consumed before.

    The i-th sequence of a row has ``sequence_id`` i + 1 and its [CLS] in slot i; attention keeps
    sequences apart. Which of them share a row is drawn anew each epoch. What a sequence is and
    what is learnt from it, a subclass says by ``segments`` and ``labels``.
    """

    def __init__(self, lengths, chosen, row_length, tokenizer, sequences_per_row=1, cache="",
                 seed=0, is_training=True, fixed_length=False):
        """
        Args:
            lengths: int ``[sequences]``, tokens of each, special ones included.
            chosen: int array of the sequences that are read.
            row_length: slots of a row.
            tokenizer: for the special tokens' ids.
            sequences_per_row: most sequences of a training row.
            cache: folder where packings are kept; empty keeps none.
            seed: of order and packing.
            is_training: shuffled epochs without end, packed, rows of ``row_length`` slots; or
                one pass over all sequences, the longest first, one in each row, rows no longer
                than a batch needs.
            fixed_length: in evaluation too, rows of ``row_length`` slots, and a last batch that
                is filled up with empty rows, for devices with fixed shapes.
        """
        self.lengths, self.row_length, self.tokenizer = lengths, row_length, tokenizer
        self.seed, self.is_training = seed, is_training
        self.fixed_length = fixed_length or is_training
        self.depth = sequences_per_row if is_training else 1
        self.packing, self.packing_report = None, None
        self._order_epoch, self._order = None, None
        self.chosen = chosen
        if not is_training:
            self.chosen = chosen[np.argsort(-lengths[chosen], kind="stable")]
        if self.depth > 1:
            histogram = packing.length_histogram(lengths[chosen], row_length)
            # Where nothing is to be kept, the folder is one where nothing can be.
            self.packing = packing.pack(histogram, self.depth, cache or os.devnull)
            self.packing_report = packing.packing_report(self.packing, histogram, self.depth)

    def segments(self, number):
        """Token ids of a sequence's two segments, no special ones; the second may be empty."""
        raise NotImplementedError

    def labels(self, present, is_present, lengths, slots):
        """What is to be learnt.

        Args:
            present: int ``[sequences]``, numbers of the rows' sequences, row by row.
            is_present: bool ``[rows, k]``, where they stand.
            lengths: int ``[rows, k]``, 0 where there is none.
            slots: int ``[rows, row length]``, the slot of each token in the order of the text.

        Returns:
            the labels of a Batch.
        """
        raise NotImplementedError

    def __len__(self):
        """Rows of an epoch."""
        return self.packing_report.rows if self.packing else len(self.chosen)

    def batch(self, consumed, count):
        """The rows that follow after ``consumed`` rows.

        Args:
            consumed: rows that were read since the start of the run.
            count: rows wanted. In training they may cross the end of an epoch; in evaluation
                there are fewer at the end, unless rows have a fixed length.

        Returns:
            Batch.
        """
        return self.make_rows(self.sequences_of(consumed, count))

    def sequences_of(self, consumed, count):
        """Which sequences stand in the rows of ``batch``.

        Returns:
            int64 ``[count, depth]``, -1 where a row has fewer.
        """
        positions = np.arange(consumed, consumed + count)
        if self.is_training:
            epochs = positions // len(self)
            return np.concatenate([self._epoch_order(int(epoch))[positions[epochs == epoch]
                                                                 % len(self)]
                                   for epoch in np.unique(epochs)])
        numbers = self.chosen[consumed:consumed + count]
        if self.fixed_length:
            numbers = np.append(numbers, np.full(count - len(numbers), -1))
        return numbers[:, None]

    def make_rows(self, numbers):
        """The Batch of chosen sequences, int ``[rows, k]``, -1 where a row has fewer than k.

        Raises:
            ValueError: they do not fit ``row_length`` slots.
        """
        is_present = numbers >= 0
        present = numbers[is_present]
        lengths = np.zeros(numbers.shape, np.int64)
        lengths[is_present] = self.lengths[present]
        longest = int(lengths.sum(axis=1).max(initial=1))
        if longest > self.row_length:
            raise ValueError(f"sequences of {longest} tokens in a row of {self.row_length}")
        inputs, slots = self._lay(present, is_present, lengths, self._slots_for(longest))
        labels = self.labels(present, is_present, lengths, slots)
        return Batch(**inputs, labels=labels)

    def _slots_for(self, longest):
        if self.fixed_length:
            return self.row_length
        return min(-(-longest // _ROUNDED_TO) * _ROUNDED_TO, self.row_length)

    def _lay(self, present, is_present, lengths, length):
        """The inputs, and the slot of each token where tokens stand in the order of the text."""
        pairs = [self.segments(number) for number in present]
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

    def _epoch_order(self, epoch):
        """Sequences of each row, int64 ``[rows, depth]``."""
        if self._order_epoch != epoch:
            order = self.chosen[:, None]
            if self.packing:
                numbers = packing.assign_samples(self.packing, self.lengths[self.chosen],
                                                 self.depth, self.seed, epoch)
                order = np.where(numbers >= 0, self.chosen[numbers], -1)
            self._order = order[permutation(self.seed, epoch, len(self))]
            self._order_epoch = epoch
        return self._order


def first_places(lengths):
    """int ``[rows, k]``: where each sequence of a row begins in the order of the text."""
    return np.cumsum(lengths, axis=1) - lengths
