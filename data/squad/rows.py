"""Windows to batches: packed and shuffled in training, sorted by length in evaluation."""

from dataclasses import replace

import numpy as np

from configs.errors import InputError
from data.batch import mean_weights
from data.sequences import SequenceData, first_places
from data.squad.features import UNKNOWN


class SquadData(SequenceData):
    """Rows of windows. Those of unknown answer are left out of training.

    Labels of a batch are ``start_positions`` and ``end_positions``, int32 ``[count, depth]``,
    slots of the row; ``window_weights``, float32 ``[count, depth]``, which sum to 1, 0 where there
    is no window or no known answer; and ``sequence_id`` ``[count, slots]`` as among the inputs,
    for the loss is taken within a window.
    """

    def __init__(self, features, tokenizer, options, seed=0, is_training=True,
                 fixed_length=False):
        """
        Args:
            features: a file's ``Features``.
            options: ``SquadConfig``.
            tokenizer, seed, is_training, fixed_length: as in ``SequenceData``.

        Raises:
            InputError: there is no window to train on.
        """
        self.features, self.options = features, options
        windows = np.arange(len(features.lengths))
        if is_training:
            windows = np.flatnonzero(features.window_start != UNKNOWN)
        if not len(windows):
            raise InputError("data", "no question has an answer to learn",
                             "see what is told of the file's answers")
        super().__init__(features.lengths, windows, options.sequence_length, tokenizer,
                         options.sequences_per_row, options.cache, seed, is_training,
                         fixed_length)

    def windows_of(self, consumed, count):
        """Which windows of the features stand in the rows of ``batch``, as ``sequences_of``."""
        return self.sequences_of(consumed, count)

    def make_rows(self, windows):
        """As ``SequenceData.make_rows``."""
        batch = super().make_rows(windows)
        return replace(batch, labels={**batch.labels, "sequence_id": batch.sequence_id})

    def segments(self, window):
        """Tokens of the question and of the window's part of the context."""
        return self.features.tokens(window)

    def labels(self, present, is_present, lengths, slots):
        """As ``SequenceData.labels``."""
        begin = first_places(lengths)[is_present]
        row, labels = np.nonzero(is_present)[0], {}
        for name, places in (("start_positions", self.features.window_start),
                             ("end_positions", self.features.window_end)):
            labels[name] = np.zeros(is_present.shape, np.int32)
            labels[name][is_present] = slots[row, begin + np.maximum(places[present], 0)]
        is_known = is_present.copy()
        is_known[is_present] = self.features.window_start[present] != UNKNOWN
        return {**labels, "window_weights": mean_weights(is_known)}


def window_logits(data, compute, rows_at_once):
    """Start and end logits of all windows of evaluation data.

    Args:
        data: ``SquadData``, not for training.
        compute: takes a Batch, returns dict with ``start_logits`` and ``end_logits``,
            ``[rows, slots]``.
        rows_at_once: rows of a batch.

    Returns:
        two float32 arrays ``[windows, sequence_length]`` as ``find_answers`` takes them.
    """
    shape = len(data.features.lengths), data.options.sequence_length
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
        out: ``[windows, sequence_length]``, filled in place; start it with NaN.
    """
    row, slot = np.nonzero(batch.sequence_id)
    window = windows[row, batch.sequence_id[row, slot] - 1]
    out[window, batch.position_ids[row, slot]] = np.asarray(logits)[row, slot]
