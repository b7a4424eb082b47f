"""Prepared shards to pretraining batches: any batch of any epoch, made when asked for.

A row holds up to ``data.sequences_per_row`` samples, and rows are what is counted: an epoch
has ``len(data)`` of them and visits every sample once. Packing decides which samples share a
row, anew each epoch; what a sample becomes depends on (seed, epoch, its number) alone.
"""

import dataclasses
from pathlib import Path

import numpy as np

from configs.errors import InputError
from data import masking, packing, pairs, rows
from data.batch import Batch, mean_weights
from data.randomness import permutation
from data.shards import decode_continuations, file_hash, open_shards, read_manifest
from data.tokenizer import open_tokenizer


class PretrainingData:
    """Rows of one split, addressed by the number of rows that were consumed before."""

    def __init__(self, config, split="train"):
        """Open the prepared folder of ``config.data``.

        Args:
            config: a resolved ``Config``.
            split: "train" or "held_out".

        Raises:
            InputError: the folder is missing, was made with another vocabulary, or holds
                too little text for the objective.
        """
        self.config, self.split = config, split
        self.tokenizer = open_tokenizer(config.model)
        directory = Path(config.data.directory)
        self._check(directory, config)
        shards = open_shards(directory, split)
        room = config.data.sequence_length - pairs.special_tokens(config.data.pair_objective)
        self.samples = pairs.open_samples(directory, split, shards, room,
                                          config.data.short_sequence_probability,
                                          config.train.seed)
        self.packing, self.packing_report = None, None
        self._check_enough(directory)
        if config.data.sequences_per_row > 1:
            self._pack(config.data, room)
        self.reader = pairs.SegmentReader(shards, self.samples, config.data.pair_objective, room,
                                          config.train.seed)
        self.is_continuation_piece = self.tokenizer.continuation_pieces()
        self.token_counts = np.load(directory / "token_counts.npy", allow_pickle=False)
        self._order_epoch, self._order = None, None

    def __len__(self):
        """Rows of an epoch."""
        return self.packing_report.rows if self.packing else len(self.samples)

    def batch(self, consumed, count):
        """The rows that follow after ``consumed`` rows.

        Args:
            consumed: rows that were read since the start of the run.
            count: rows wanted; they may cross the end of an epoch.

        Returns:
            Batch with labels ``masked_lm_labels`` and ``masked_lm_weights``
            ``[count, max_predictions]`` and, with a pair objective, ``pair_labels`` and
            ``pair_weights`` ``[count, sequences_per_row]``.
        """
        positions = np.arange(consumed, consumed + count)
        epochs = positions // len(self)
        parts = [self._rows(epoch, positions[epochs == epoch] % len(self))
                 for epoch in np.unique(epochs)]
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return self._weigh(arrays)

    def _pack(self, data, room):
        self.samples = pairs.with_known_lengths(self.samples, data.pair_objective, room)
        histogram = packing.length_histogram(self._planned_lengths(), data.sequence_length)
        self.packing = packing.pack(histogram, data.sequences_per_row, data.directory)
        self.packing_report = packing.packing_report(self.packing, histogram,
                                                     data.sequences_per_row)

    def _planned_lengths(self):
        return self.samples.target + pairs.special_tokens(self.config.data.pair_objective)

    def _rows(self, epoch, positions):
        epoch = int(epoch)
        data = self.config.data
        numbers = self._epoch_order(epoch)[positions]
        is_present = numbers >= 0
        first, second, pair_labels = self.reader.read(numbers[is_present], epoch)
        text = rows.join_segments(first, second, data.sequence_length, self.tokenizer)
        tokens, continues = decode_continuations(text.tokens, len(self.tokenizer))
        text = dataclasses.replace(text, tokens=tokens)
        masked = self._choose_masked(text, continues, is_present, epoch, numbers[is_present])
        hidden = masking.replace_masked(text.tokens, masked, self.tokenizer.mask,
                                        len(self.tokenizer), self.config.train.seed, epoch,
                                        numbers[is_present])
        token_counts = _spread(text.is_token.sum(axis=1), is_present)
        places = rows.row_places(token_counts, data.sequence_length)
        position_ids = np.broadcast_to(np.arange(data.sequence_length), masked.shape)
        sequence_id = np.broadcast_to(np.nonzero(is_present)[1][:, None] + 1, masked.shape)
        tokens, hidden, token_types, masked, position_ids, sequence_id = (
            rows.join_sequences(values, text.is_token, places)
            for values in (text.tokens, hidden, text.token_type_ids, masked, position_ids,
                           sequence_id))
        slots = rows.predictions_first_slots(masked, places, places & (position_ids == 0),
                                             data.max_predictions, data.sequences_per_row)
        labels = rows.scatter(np.where(masked, tokens, masking.IGNORED), slots)
        is_prediction = rows.scatter(masked, slots)
        return {
            "input_ids": rows.scatter(hidden, slots, self.tokenizer.pad),
            "token_type_ids": rows.scatter(token_types, slots),
            "position_ids": rows.scatter(position_ids, slots),
            "sequence_id": rows.scatter(sequence_id, slots),
            "masked_lm_labels": labels[:, :data.max_predictions],
            "is_prediction": is_prediction[:, :data.max_predictions],
            "pair_labels": _spread(pair_labels, is_present),
            "is_present": is_present,
        }

    def _choose_masked(self, text, continues, is_present, epoch, numbers):
        """Masks of each sequence, fewer than its own where the row has not the slots for all.

        ``max_predictions`` is a budget of the row. Rounding may put depth / 2 predictions
        more into a row than its share of tokens: Graphcore's recipe gives a row of up to 3
        sequences 2 slots more than a plain one.
        """
        maskable, token_counts = text.is_token & ~text.is_special, text.is_token.sum(axis=1)
        continues = continues | self.is_continuation_piece[text.tokens]

        def choose(which, most):
            return self._draw_masked(maskable[which], continues[which], token_counts[which], most,
                                     epoch, numbers[which])

        masked = choose(slice(None), self.config.data.max_predictions)
        wanted = masked.sum(axis=1)
        most = packing.share_predictions(_spread(wanted, is_present),
                                         self.config.data.max_predictions)[is_present]
        cut = np.flatnonzero(most < wanted)
        if len(cut):
            masked[cut] = choose(cut, most[cut])
        return masked

    def _draw_masked(self, maskable, continues, token_counts, most, epoch, numbers):
        data, seed = self.config.data, self.config.train.seed
        kind = data.masking
        if self.split == "held_out":
            kind = data.held_out_masking or kind
        if kind == "token":
            return masking.choose_masked(maskable, token_counts, data.masked_lm_probability, most,
                                         seed, epoch, numbers)
        return masking.choose_masked_words(
            maskable, continues, token_counts, data.masked_lm_probability, most, seed, epoch,
            numbers, data.max_ngram if kind == "ngram" else 1)

    def _weigh(self, arrays):
        """A Batch whose weights make means over these rows, so that micro batches add up."""
        is_prediction, is_present, pair_labels = (
            arrays.pop(name) for name in ("is_prediction", "is_present", "pair_labels"))
        labels = {"masked_lm_labels": arrays.pop("masked_lm_labels"),
                  "masked_lm_weights": mean_weights(is_prediction)}
        if self.config.data.pair_objective != "none":
            labels["pair_labels"] = pair_labels
            labels["pair_weights"] = mean_weights(is_present)
        return Batch(**arrays, labels=labels)

    def _epoch_order(self, epoch):
        """Sample numbers of each row ``[rows, sequences_per_row]``, -1 for an absent one."""
        if self._order_epoch != epoch:
            seed = self.config.train.seed
            samples = np.arange(len(self.samples))[:, None]
            if self.packing:
                samples = packing.assign_samples(self.packing, self._planned_lengths(),
                                                 self.config.data.sequences_per_row, seed, epoch)
            self._order = samples[permutation(seed, epoch, len(self))]
            self._order_epoch = epoch
        return self._order

    def _check(self, directory, config):
        manifest = read_manifest(directory)
        if manifest is None:
            raise InputError(directory, "no prepared text there",
                             "run prepare_data.py with the same --config first")
        vocabulary = config.model.vocabulary
        if (manifest.get("vocabulary_sha256") != file_hash(vocabulary)
                or manifest.get("lower_case") != config.model.lower_case):
            raise InputError(
                directory, f"was prepared with {manifest.get('vocabulary')}, lower_case "
                f"{manifest.get('lower_case')}, not {vocabulary}, {config.model.lower_case}",
                "prepare it again or set data.directory to another folder")

    def _check_enough(self, directory):
        if not len(self):
            raise InputError(directory, f"no text in its {self.split} split",
                             "give more text or change data.held_out_share")
        one_document = self.samples.document[0] == self.samples.document[-1]
        if self.config.data.pair_objective == "nsp" and one_document:
            raise InputError(
                directory, f"one document in its {self.split} split, but a random next "
                "sentence must come from another document", "part documents by blank lines, "
                "give more text, or set data.pair_objective=sop")


def _spread(values, is_present):
    """Values of the sequences ``[sequences]`` by row ``[rows, k]``, 0 where one is absent."""
    spread = np.zeros(is_present.shape, values.dtype)
    spread[is_present] = values
    return spread
