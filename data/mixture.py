"""Several corpora read as one, each with its share of the rows."""

import numpy as np

from data.batch import Batch, join_batches
from data.randomness import permutation

BLOCK = 1000  # rows in which the shares are met exactly


class MixedData:
    """Rows of several corpora in a fixed random order, in proportion to weights.

    Of every ``BLOCK`` rows each corpus has its share, rounded, so the corpus and the place in
    it follow from a row's number alone. A corpus that is read to its end begins its next epoch.
    """

    def __init__(self, parts, weights, seed):
        """
        Args:
            parts: data of one corpus each, with ``batch``, ``__len__`` and ``token_counts``.
            weights: a positive number for each.
            seed: of the order.
        """
        self.parts, self.seed = parts, seed
        self.shares = _shares(np.array(weights, np.float64))
        counts = [part.token_counts / part.token_counts.sum() for part in parts]
        total = sum(part.token_counts.sum() for part in parts)
        self.token_counts = total * np.average(counts, axis=0, weights=self.shares)

    def __len__(self):
        """Rows until the corpora together have given as many as one epoch of each."""
        return sum(map(len, self.parts))

    def batch(self, consumed, count):
        """The rows that follow after ``consumed`` rows, as ``PretrainingData.batch``."""
        corpus, place = self._locate(np.arange(consumed, consumed + count))
        batches, positions = [], []
        for number, part in enumerate(self.parts):
            chosen = np.flatnonzero(corpus == number)
            if len(chosen):
                # A corpus is read in its own order, so its rows are neighbours.
                batches.append(part.batch(int(place[chosen[0]]), len(chosen)))
                positions.append(chosen)
        joined, back = join_batches(batches), np.argsort(np.concatenate(positions))
        inputs = {name: array[back] for name, array in joined.inputs.items()}
        labels = {name: array[back] for name, array in joined.labels.items()}
        return Batch(**inputs, labels=labels)

    def _locate(self, rows):
        """The corpus of each row and the number of its rows that came before."""
        corpus, place = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        blocks = rows // BLOCK
        for block in np.unique(blocks):
            order = np.repeat(np.arange(len(self.parts)), self.shares)
            order = order[permutation(self.seed, int(block), BLOCK)]
            before = np.empty(BLOCK, np.int64)
            for number, share in enumerate(self.shares):
                before[order == number] = block * share + np.arange(share)
            inside = blocks == block
            corpus[inside] = order[rows[inside] % BLOCK]
            place[inside] = before[rows[inside] % BLOCK]
        return corpus, place


def _shares(weights):
    """Rows of a block for each weight, at least one, by largest remainder."""
    exact = weights / weights.sum() * BLOCK
    shares = np.maximum(1, np.floor(exact)).astype(np.int64)
    for number in np.argsort(np.floor(exact) - exact, kind="stable"):
        if shares.sum() < BLOCK:
            shares[number] += 1
    shares[np.argmax(shares)] -= shares.sum() - BLOCK
    return shares
