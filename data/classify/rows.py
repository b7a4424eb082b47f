"""Sequences to batches with labels, and logits back to rows of the file."""

import numpy as np

from data.batch import mean_weights
from data.sequences import SequenceData, first_places


class ClassifyData(SequenceData):
    """Rows of texts, pairs or labelled words.

    Labels of a batch are ``labels`` and ``label_weights``, which sum to 1 and are 0 where there
    is no label: ``[count, depth]``, one for each sequence, or ``[count, slots]`` where words are
    labelled, at the first piece of each.
    """

    def __init__(self, features, tokenizer, options, seed=0, is_training=True,
                 fixed_length=False):
        """
        Args:
            features: a file's ``Features``.
            options: a ``ClassifyConfig``.
            tokenizer, seed, is_training, fixed_length: as in ``SequenceData``.
        """
        self.features, self.options = features, options
        super().__init__(features.lengths, np.arange(len(features.lengths)),
                         options.sequence_length, tokenizer, options.sequences_per_row,
                         options.cache, seed, is_training, fixed_length)

    def segments(self, number):
        """Tokens of the text and of the second text."""
        return self.features.first[number], self.features.second[number]

    def labels(self, present, is_present, lengths, slots):
        """As ``SequenceData.labels``; none where the file does not tell them."""
        if self.features.labels is None:
            return {}
        found = [self.features.labels[number] for number in present]
        counts = list(map(len, found))
        begin = np.repeat(first_places(lengths)[is_present], counts)
        places = [self.features.word_places[number] for number in present]
        row, place = np.repeat(np.nonzero(is_present)[0], counts), np.concatenate([[], *places])
        slot = slots[row, (begin + place).astype(np.int64)]
        kind = np.float32 if self.options.objective == "regression" else np.int32
        shape = slots.shape if self.options.objective == "tokens" else is_present.shape
        labels, is_labelled = np.zeros(shape, kind), np.zeros(shape, bool)
        # [CLS] of the i-th sequence stands in slot i, so both shapes are filled alike.
        labels[row, slot] = np.concatenate([[], *found])
        is_labelled[row, slot] = True
        return {"labels": labels, "label_weights": mean_weights(is_labelled)}

    def gather(self, compute, rows_at_once):
        """Logits of everything that is labelled, in the order of the file.

        Args:
            compute: takes a Batch, returns ``logits``, ``[rows, depth, labels]``, or ``[rows,
                slots, labels]`` where words are labelled.
            rows_at_once: rows of a batch.

        Returns:
            A list for each sequence of float32 ``[labelled, labels]``.
        """
        gathered = [None] * len(self.features.lengths)
        for consumed in range(0, len(self), rows_at_once):
            numbers = self.sequences_of(consumed, rows_at_once)
            logits = compute(self.make_rows(numbers))
            # In evaluation a row is one sequence in the order of the text.
            for row, number in enumerate(numbers[:, 0]):
                if number >= 0:
                    gathered[number] = logits[row, self.features.word_places[number]]
        return gathered
