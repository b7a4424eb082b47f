"""Several corpora read as one."""

import numpy as np
import pytest

from data.batch import Batch, mean_weights
from data.mixture import BLOCK, MixedData, _shares


class Counting:
    """A corpus whose n-th row holds its name and n."""

    def __init__(self, name, size):
        self.name, self.size = name, size
        self.token_counts = np.bincount([name], minlength=4) * size

    def __len__(self):
        return self.size

    def batch(self, consumed, count):
        rows = np.arange(consumed, consumed + count)[:, None]
        names = np.full_like(rows, self.name)
        return Batch(names, names, rows, names, {"masked_lm_labels": rows,
                                                 "masked_lm_weights": mean_weights(rows >= 0)})


def mixed():
    return MixedData([Counting(1, 700), Counting(2, 300), Counting(3, 50)], [6.5, 3, 0.5], seed=4)


def test_each_block_holds_the_shares():
    batch = mixed().batch(BLOCK, BLOCK)
    assert np.bincount(batch.input_ids[:, 0]).tolist() == [0, 650, 300, 50]


def test_each_corpus_is_read_in_its_own_order():
    batch = mixed().batch(0, 2 * BLOCK)
    for name, share in ((1, 650), (2, 300), (3, 50)):
        assert batch.position_ids[batch.input_ids == name].tolist() == list(range(2 * share))


def test_any_batch_can_be_made_first():
    whole = mixed().batch(0, 3 * BLOCK)
    part = mixed().batch(1234, 777)
    assert (part.input_ids == whole.input_ids[1234:2011]).all()
    assert (part.position_ids == whole.position_ids[1234:2011]).all()
    assert part.labels["masked_lm_weights"].sum() == pytest.approx(1)


def test_word_frequencies_follow_the_weights():
    frequencies = mixed().token_counts / mixed().token_counts.sum()
    assert frequencies.tolist() == pytest.approx([0, 0.65, 0.3, 0.05])


@pytest.mark.parametrize("weights, expected", [
    ([1, 1, 1], [334, 333, 333]), ([1, 1e-9], [999, 1]), ([5], [1000])])
def test_shares_fill_the_block(weights, expected):
    assert _shares(np.array(weights, float)).tolist() == expected
