"""Prepared shards to pretraining batches: any batch of any epoch, made when asked for."""

from pathlib import Path

import numpy as np

from configs.errors import InputError
from data import masking, pairs, rows
from data.batch import Batch
from data.randomness import permutation
from data.shards import file_hash, open_shards, read_manifest
from data.tokenizer import WordPieceTokenizer


class PretrainingData:
    """Rows of one split, addressed by the number of samples that were consumed before."""

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
        self.tokenizer = WordPieceTokenizer(config.model.vocabulary, config.model.lower_case)
        directory = Path(config.data.directory)
        self._check(directory, config)
        room = config.data.sequence_length - pairs.special_tokens(config.data.pair_objective)
        shards = open_shards(directory, split)
        self.samples = pairs.gather_samples(shards, room, config.data.short_sequence_probability,
                                            config.train.seed)
        self._check_enough(directory)
        self.reader = pairs.SegmentReader(shards, self.samples, config.data.pair_objective, room,
                                          config.train.seed)
        self.token_counts = np.load(directory / "token_counts.npy", allow_pickle=False)
        self._order_epoch, self._order = None, None

    def __len__(self):
        """Samples of an epoch."""
        return len(self.samples)

    def batch(self, consumed, count):
        """The rows that follow after ``consumed`` samples.

        Args:
            consumed: samples that were read since the start of the run.
            count: rows wanted; they may cross the end of an epoch.

        Returns:
            Batch with labels ``masked_lm_labels`` and ``masked_lm_weights``
            ``[count, max_predictions]`` and, with a pair objective, ``pair_labels`` and
            ``pair_weights`` ``[count, 1]``.
        """
        positions = np.arange(consumed, consumed + count)
        epochs = positions // len(self)
        parts = [self._rows(epoch, positions[epochs == epoch] % len(self))
                 for epoch in np.unique(epochs)]
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return self._weigh(arrays)

    def word_frequency_loss(self, batch):
        """Cross entropy in nats of always predicting the training text's word frequencies.

        Args:
            batch: whose masked tokens are predicted.
        """
        # One more of each token, so that a token unseen in training has a probability.
        frequencies = (self.token_counts + 1) / (self.token_counts + 1).sum()
        labels = batch.labels["masked_lm_labels"]
        return float(-(np.log(frequencies)[labels] * batch.labels["masked_lm_weights"]).sum())

    def _rows(self, epoch, positions):
        epoch = int(epoch)
        data, seed = self.config.data, self.config.train.seed
        numbers = self._epoch_order(epoch)[positions]
        first, second, pair_labels = self.reader.read(numbers, epoch)
        text = rows.join_segments(first, second, data.sequence_length, self.tokenizer)
        masked = masking.choose_masked(
            text.is_token & ~text.is_special, text.is_token.sum(axis=1),
            data.masked_lm_probability, data.max_predictions, seed, epoch, numbers)
        hidden = masking.replace_masked(text.tokens, masked, self.tokenizer.mask,
                                        len(self.tokenizer), seed, epoch, numbers)
        positions_in_text = np.broadcast_to(np.arange(data.sequence_length), masked.shape)
        slots = rows.predictions_first_slots(masked, text.is_token, positions_in_text == 0,
                                             data.max_predictions)
        labels = rows.scatter(np.where(masked, text.tokens, masking.IGNORED), slots)
        is_prediction = rows.scatter(masked, slots)
        return {
            "input_ids": rows.scatter(hidden, slots, self.tokenizer.pad),
            "token_type_ids": rows.scatter(text.token_type_ids, slots),
            "position_ids": rows.scatter(positions_in_text, slots),
            "sequence_id": rows.scatter(text.is_token, slots),
            "masked_lm_labels": labels[:, :data.max_predictions],
            "is_prediction": is_prediction[:, :data.max_predictions],
            "pair_labels": pair_labels[:, None],
        }

    def _weigh(self, arrays):
        """Weights that sum to 1 over these rows, so that micro batches add up to the mean."""
        is_prediction = arrays.pop("is_prediction").astype(np.float32)
        pair_labels = arrays.pop("pair_labels")
        labels = {"masked_lm_labels": arrays.pop("masked_lm_labels"),
                  "masked_lm_weights": is_prediction / is_prediction.sum()}
        if self.config.data.pair_objective != "none":
            labels["pair_labels"] = pair_labels
            labels["pair_weights"] = np.full(pair_labels.shape, 1 / len(pair_labels), np.float32)
        return Batch(**arrays, labels=labels)

    def _epoch_order(self, epoch):
        if self._order_epoch != epoch:
            self._order = permutation(self.config.train.seed, epoch, len(self))
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
        documents = len(np.unique(self.samples.document))
        if self.config.data.pair_objective == "nsp" and documents < 2:
            raise InputError(
                directory, f"{documents} document in its {self.split} split, but a random next "
                "sentence must come from another document", "part documents by blank lines, "
                "give more text, or set data.pair_objective=sop")
