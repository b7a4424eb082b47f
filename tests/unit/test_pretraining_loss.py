"""Faults that public software had in its pretraining loss, and that ours must not have."""

import dataclasses

import numpy as np
import pytest

from data.open import open_pretraining_data
from models.initialise import initialise
from models.tasks import build_for_pretraining
from tests.feeding import tensors
from training.loop import _Timer


@pytest.fixture
def network(tiny_config):
    config = tiny_config()
    network = build_for_pretraining(config.model, config.data.max_predictions)
    initialise(network, 0, 0.2)  # large, so that logits differ well
    network.eval()
    return network


@pytest.fixture
def batch(tiny_config):
    return open_pretraining_data(tiny_config()).batch(0, 12)


def loss_of(network, batch):
    return network.heads.loss(network(tensors(batch.inputs)), tensors(batch.labels))


def in_text_order(batch):
    """The same rows with every token at the slot of its position."""
    order = np.argsort(np.where(batch.sequence_id > 0, batch.position_ids, 1000), axis=1,
                       kind="stable")
    return {name: np.take_along_axis(array, order, axis=1)
            for name, array in batch.inputs.items()}


def test_masked_positions_first_or_in_place_give_the_same_logits(network, batch):
    sliced = network(tensors(batch.inputs))["masked_lm_logits"].numpy()
    stream = network.encode(tensors(in_text_order(batch)))
    everywhere = network.heads.masked_lm(stream["hidden"]).numpy()
    for row in range(len(batch)):
        for slot in np.flatnonzero(batch.labels["masked_lm_weights"][row]):
            in_place = everywhere[row, batch.position_ids[row, slot]]
            assert np.allclose(sliced[row, slot], in_place, rtol=0, atol=1e-5)


def test_ids_of_empty_prediction_slots_count_for_nothing(network, batch):
    labels = dict(batch.labels)
    empty = labels["masked_lm_weights"] == 0
    assert empty.any()
    labels["masked_lm_labels"] = np.where(empty, 12345, labels["masked_lm_labels"])
    changed = dataclasses.replace(batch, labels=labels)
    for name, value in loss_of(network, batch).items():
        assert float(value) == float(loss_of(network, changed)[name])


@pytest.mark.parametrize("label", [0, 1])
def test_both_pair_labels_are_learnt(network, batch, label):
    labels = {**batch.labels, "pair_labels": np.full_like(batch.labels["pair_labels"], label)}
    loss_of(network, dataclasses.replace(batch, labels=labels))["nsp_loss"].backward()
    gradient = network.heads.pair.bias.grad.numpy()
    # Pulls towards the label, away from the other.
    assert gradient[label] < -0.01 and gradient[1 - label] > 0.01


def test_loss_is_the_mean_over_predictions(network, batch):
    logits = network(tensors(batch.inputs))["masked_lm_logits"].numpy().astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    labels, weights = batch.labels["masked_lm_labels"], batch.labels["masked_lm_weights"]
    losses = [-logs[row, slot, labels[row, slot]] for row, slot in zip(*np.nonzero(weights))]
    assert float(loss_of(network, batch)["mlm_loss"]) == pytest.approx(np.mean(losses), rel=1e-5)


def test_throughput_counts_what_was_done_since_the_last_line(batch):
    timer = _Timer()
    timer.add(batch, data_seconds=0.5, compute_seconds=1.5)
    timer.add(batch, data_seconds=0.5, compute_seconds=2.5)
    assert (timer.steps, timer.rows, timer.tokens) == (2, 2 * len(batch), 2 * batch.token_count)
    assert (timer.seconds, timer.data_seconds) == (5.0, 1.0)
