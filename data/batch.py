"""The one batch type: what every reader makes and every engine takes."""

from dataclasses import dataclass
from typing import Mapping

import numpy as np


@dataclass(frozen=True)
class Batch:
    """Rows of tokens and what is to be learnt from them, all as numpy arrays.

    In a pretraining row the masked tokens stand in the first ``max_predictions`` slots,
    [CLS] of the row's i-th sequence in slot ``max_predictions + i``, the other tokens in
    the slots that are left, in order, then padding. ``position_ids`` keep the true order.
    """

    input_ids: np.ndarray
    """int32 ``[batch, sequence]``"""
    token_type_ids: np.ndarray
    """int32 ``[batch, sequence]``"""
    position_ids: np.ndarray
    """int32 ``[batch, sequence]``"""
    sequence_id: np.ndarray
    """int32 ``[batch, sequence]``: 1 to k, 0 for padding; attention stays within equal ids"""
    labels: Mapping[str, np.ndarray]
    """By name, ``[batch, ...]``; weights are float32 and sum to 1 over a global batch"""

    INPUTS = ("input_ids", "token_type_ids", "position_ids", "sequence_id")

    def __len__(self):
        return len(self.input_ids)

    @property
    def inputs(self):
        """The arrays that the network reads, by name."""
        return {name: getattr(self, name) for name in self.INPUTS}

    @property
    def token_count(self):
        """Real tokens, without padding."""
        return int(np.count_nonzero(self.sequence_id))

    def rows(self, start, stop):
        """Some of the rows, with their share of the weights."""
        inputs = {name: array[start:stop] for name, array in self.inputs.items()}
        labels = {name: array[start:stop] for name, array in self.labels.items()}
        return Batch(**inputs, labels=labels)


def join_batches(parts):
    """One batch of the rows of several, its weights again a mean over all of them."""
    inputs = {name: np.concatenate([getattr(part, name) for part in parts])
              for name in Batch.INPUTS}
    labels = {name: np.concatenate([part.labels[name] for part in parts])
              for name in parts[0].labels}
    for name, array in labels.items():
        if name.endswith("_weights"):
            labels[name] = mean_weights(array > 0)
    return Batch(**inputs, labels=labels)


def mean_weights(counted):
    """float32 weights that are alike where ``counted`` is true, sum to 1, and are 0 elsewhere."""
    counted = counted.astype(np.float32)
    return counted / max(counted.sum(), 1)


def word_frequency_loss(token_counts, batch):
    """Cross entropy in nats of always predicting the training text's word frequencies.

    Args:
        token_counts: how often each token stands in the training text, ``[vocabulary]``.
        batch: whose masked tokens are predicted.
    """
    # One more of each token, so that a token unseen in training has a probability.
    frequencies = (token_counts + 1) / (token_counts + 1).sum()
    labels = batch.labels["masked_lm_labels"]
    return float(-(np.log(frequencies)[labels] * batch.labels["masked_lm_weights"]).sum())
