"""Batches made ahead are the batches made when asked for, and replicas share them out."""

import numpy as np
import pytest

from data.batch import join_batches
from data.open import open_pretraining_data
from data.prefetch import PrefetchedData


def assert_same(one, two):
    for name, array in one.inputs.items():
        assert np.array_equal(array, two.inputs[name]), name
    for name, array in one.labels.items():
        assert np.allclose(array, two.labels[name], rtol=1e-6, atol=0), name


def test_prefetched_batches_are_the_same(tiny_config, monkeypatch):
    monkeypatch.setattr("data.prefetch.ROWS_A_TASK", 5)
    config = tiny_config()
    data = open_pretraining_data(config)
    prefetched = PrefetchedData(config, "train", 2)
    try:
        for consumed in (0, 16, 32, 7, len(data) - 3):
            assert_same(prefetched.batch(consumed, 16), data.batch(consumed, 16))
        assert len(prefetched) == len(data)
        assert np.array_equal(prefetched.token_counts, data.token_counts)
    finally:
        prefetched.close()


def test_the_batches_ahead_of_each_replica_are_its_own(tiny_config):
    config = tiny_config("train.global_batch_size=8")
    data, prefetched = open_pretraining_data(config), PrefetchedData(config, "train", 1)
    try:
        # The second of two replicas reads the last 4 of every 8 rows.
        for consumed in (4, 12):
            assert_same(prefetched.batch(consumed, 4), data.batch(consumed, 4))
            assert list(prefetched.waiting) == [(consumed + 8, 4), (consumed + 16, 4)]
    finally:
        prefetched.close()


def test_replicas_together_read_every_sample_once(tiny_config):
    data = open_pretraining_data(tiny_config())
    whole = data.batch(24, 24)
    replicas = [data.batch(24 + replica * 8, 8) for replica in range(3)]
    assert_same(whole, join_batches(replicas))
    assert whole.rows(8, 16).token_count == replicas[1].token_count


def test_a_mix_reads_its_folders(tiny_config, prepared):
    config = tiny_config(f"data.mix=[{prepared}, {prepared}]", "data.mix_weights=[3, 1]")
    one, mixed = open_pretraining_data(tiny_config()), open_pretraining_data(config)
    assert len(mixed) == 2 * len(one)
    rows = {row.tobytes() for row in one.batch(0, 800).input_ids}
    batch = mixed.batch(0, 400)
    assert all(row.tobytes() in rows for row in batch.input_ids)
    assert batch.labels["masked_lm_weights"].sum() == pytest.approx(1, abs=1e-6)
