"""Ready-masked files to pretraining batches: any batch of any epoch, read when asked for."""

import functools

import numpy as np

from configs.errors import InputError
from data import rows
from data.batch import Batch, mean_weights
from data.formats.folder import open_shards
from data.formats.stored_rows import StoredRows, check_rows, in_text_order
from data.formats.windows import JoinedShards, WindowOrder
from data.tokenizer import open_tokenizer

# Rows that are loaded together. NVIDIA's files are compressed in chunks of thousands of rows,
# so that one row at random costs as much as thousands side by side.
WINDOW = 1 << 14
COUNTED_WINDOWS = 4
CHECKED_ROWS = 256


class ReadyMaskedData:
    """Rows of one split, addressed by the number of samples that were consumed before.

    The rows stand in the order of the sorted file names. The last ``data.held_out_share`` of
    them are held out; rows, not documents, since the files do not tell documents apart.
    """

    def __init__(self, config, split="train"):
        """Open the files of ``config.data``.

        Args:
            config: a resolved ``Config`` whose ``data.format`` is hdf5 or tfrecord.
            split: "train" or "held_out".

        Raises:
            InputError: there are no such files, one is damaged, or they were made with other
                sizes or another vocabulary than the config's.
        """
        self.config = config
        self.tokenizer = open_tokenizer(config.model)
        self.stored = JoinedShards(open_shards(config.data), self._check_rows)
        held_out = round(len(self.stored) * config.data.held_out_share)
        self.train_count = len(self.stored) - held_out
        self.first, count = {"train": (0, self.train_count),
                             "held_out": (self.train_count, held_out)}[split]
        if not count:
            raise InputError(config.data.directory, f"{len(self.stored)} rows, none of which fall "
                             f"to the {split} split", "give more files or change "
                             "data.held_out_share")
        self.order = WindowOrder(config.train.seed, count, WINDOW)
        self._window_number, self._window = None, None
        # Another vocabulary shows in the first rows: say so before a network is built.
        checked = min(CHECKED_ROWS, len(self.stored))
        self.stored.load(0, checked).take(np.arange(checked))

    def __len__(self):
        """Rows of an epoch."""
        return self.order.count

    def batch(self, consumed, count):
        """The rows that follow after ``consumed`` samples.

        Args:
            consumed: samples that were read since the start of the run.
            count: rows wanted; they may cross the end of an epoch.

        Returns:
            Batch with labels ``masked_lm_labels`` and ``masked_lm_weights``
            ``[count, max_predictions]`` and, with a pair objective, ``pair_labels`` and
            ``pair_weights`` ``[count, sequences_per_row]``.

        Raises:
            InputError: a file is damaged.
        """
        stored = StoredRows.join([self._load(window).take(numbers)
                                  for window, numbers in self.order.visits(consumed, count)])
        data, text = self.config.data, in_text_order(stored)
        slots = rows.predictions_first_slots(text.masked, text.is_token, text.is_cls,
                                             data.max_predictions, data.sequences_per_row)
        is_prediction = rows.scatter(text.masked, slots)[:, :data.max_predictions]
        labels = {"masked_lm_labels": rows.scatter(text.labels, slots)[:, :data.max_predictions],
                  "masked_lm_weights": mean_weights(is_prediction)}
        if data.pair_objective != "none":
            labels["pair_labels"] = stored.pair_labels.astype(np.int32)
            labels["pair_weights"] = mean_weights(stored.has_sequence)
        return Batch(rows.scatter(text.tokens, slots, self.tokenizer.pad),
                     rows.scatter(text.token_type_ids, slots),
                     rows.scatter(text.position_ids, slots),
                     rows.scatter(text.sequence_id, slots), labels)

    @functools.cached_property
    def token_counts(self):
        """How often each token stands in the training rows before masking, int64 ``[vocabulary]``.

        [CLS] and [SEP] are left out, as they are never masked. Of many rows only some windows
        are counted, evenly spread: millions of tokens, which settle the loss to a hundredth.
        """
        counts = np.zeros(len(self.tokenizer), np.int64)
        train = WindowOrder(self.config.train.seed, self.train_count, WINDOW)
        for window in np.unique(np.linspace(0, train.windows - 1, COUNTED_WINDOWS).astype(int)):
            first, end = train.bounds(int(window))
            text = in_text_order(self.stored.load(first, end).take(np.arange(end - first)))
            counts += np.bincount(text.unmasked_tokens[text.is_token], minlength=len(counts))
        counts[[self.tokenizer.cls, self.tokenizer.sep]] = 0
        return counts

    def _load(self, window):
        if self._window_number != window:
            first, end = self.order.bounds(window)
            self._window = self.stored.load(self.first + first, self.first + end)
            self._window_number = window
        return self._window

    def _check_rows(self, stored, path, numbers):
        check_rows(stored, path, numbers, self.tokenizer, self.config.model.vocabulary,
                   self.config.model.type_vocab_size)
