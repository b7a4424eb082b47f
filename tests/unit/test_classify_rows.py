"""Rows of texts and labelled words: what stands where, their losses, logits back to the file."""

import numpy as np
import pytest

from configs.data_schema import ClassifyConfig
from configs.schema import ModelConfig
from data.batch import join_batches
from data.classify.examples import Examples
from data.classify.features import make_features
from data.classify.predictions import choose, describe_rows
from data.classify.rows import ClassifyData
from data.tokenizer import WordPieceTokenizer
from models.tasks import build_for_classification
from tests.feeding import randomise, sums_and_gradients, tensors
from training.classify_evaluation import mean_loss

VOCABULARY = "data/vocabularies/bert_base_uncased.txt"
MODEL = ModelConfig("bert", vocabulary=VOCABULARY, vocab_size=30522, hidden_size=32,
                    num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                    max_position_embeddings=64, hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0)
OBJECTIVES = {"classification": ["bad", "fair", "good"], "regression": [],
              "tokens": ["O", "B-X", "I-X"]}
WORDS = "one two unaffable four five embeddings seven eight nine ten eleven twelve".split()


def options(objective, depth=3):
    return ClassifyConfig(objective=objective, labels=OBJECTIVES[objective], sequence_length=32,
                          sequences_per_row=depth, cache="",
                          pair_column="pair" if objective == "classification" else None)


def features_of(objective, with_labels=True):
    random = np.random.default_rng(0)
    words = [tuple(random.choice(WORDS, 1 + n % 7)) for n in range(40)]
    texts, pairs = tuple(map(" ".join, words)), None
    if objective == "tokens":
        texts, labels = words, tuple(random.integers(0, 3, len(row)) for row in words)
    elif objective == "regression":
        labels = random.uniform(0, 5, 40).astype(np.float32)
    else:
        labels, pairs = random.integers(0, 3, 40), tuple(reversed(texts))
    examples = Examples("made", texts, pairs, labels if with_labels else None)
    return make_features(examples, WordPieceTokenizer(VOCABULARY), options(objective))


def open_data(objective, depth=3, **more):
    return ClassifyData(features_of(objective), WordPieceTokenizer(VOCABULARY),
                        options(objective, depth), **more)


@pytest.fixture(scope="module")
def networks():
    """By objective and most sequences a row, all of the same weights."""
    made = {}
    for objective, labels in OBJECTIVES.items():
        for depth in (1, 3):
            network = made[objective, depth] = build_for_classification(MODEL, objective, labels,
                                                                        depth)
            randomise(network, seed=1, scale=0.3)
    return made


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_label_stands_where_it_belongs(objective):
    data = open_data(objective, seed=1)
    features, tokenizer = data.features, data.tokenizer
    numbers, batch = data.sequences_of(0, len(data)), data.batch(0, len(data))
    labels, weights = batch.labels["labels"], batch.labels["label_weights"]
    assert sorted(numbers[numbers >= 0]) == list(range(40)) and numbers.shape[1] == 3
    assert weights.sum() == pytest.approx(1) and len(set(weights[weights > 0])) == 1
    assert np.count_nonzero(weights) == sum(map(len, features.labels))
    assert labels.dtype == (np.float32 if objective == "regression" else np.int32)
    for row, place in zip(*np.nonzero(numbers >= 0)):
        number = numbers[row, place]
        slots = np.flatnonzero(batch.sequence_id[row] == place + 1)
        slots = slots[np.argsort(batch.position_ids[row, slots])]
        first, second = features.first[number].tolist(), features.second[number].tolist()
        ids = [tokenizer.cls, *first, tokenizer.sep, *second, *[tokenizer.sep] * bool(second)]
        assert batch.input_ids[row, slots].tolist() == ids and slots[0] == place
        where = slots[features.word_places[number]]
        assert labels[row, where].tolist() == features.labels[number].tolist()
        assert (weights[row, where] > 0).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_packed_rows_have_the_loss_and_gradients_of_single_sequences(objective, networks):
    data, network = open_data(objective, seed=2), networks[objective, 3]
    numbers = data.sequences_of(0, 6)
    assert (numbers >= 0).sum() > 12  # a row holds two or three
    sums, changes = sums_and_gradients(network, data.batch(0, 6))
    alone = data.make_rows(numbers[numbers >= 0][:, None])
    expected, expected_changes = sums_and_gradients(networks[objective, 1], alone)
    for name in expected:
        assert sums[name] == pytest.approx(expected[name], abs=1e-5)
    assert objective == "regression" or 0 < sums["accuracy"] < 1
    for name, gradient in expected_changes.items():
        np.testing.assert_allclose(changes[name], gradient, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_micro_batches_add_up(objective, networks):
    data, network = open_data(objective, seed=2), networks[objective, 3]
    batch = data.batch(0, 6)
    whole, _ = sums_and_gradients(network, batch)
    parts = [sums_and_gradients(network, part)[0] for part in (batch.rows(0, 2), batch.rows(2, 6))]
    for name in whole:
        assert sum(part[name] for part in parts) == pytest.approx(whole[name], abs=1e-6)
    joined = join_batches([data.batch(0, 2), data.batch(2, 4)])
    np.testing.assert_allclose(joined.labels["label_weights"], batch.labels["label_weights"])


def test_epochs_do_not_repeat_and_can_be_sought():
    data = open_data("classification", seed=1)
    count = len(data)
    first, second = data.sequences_of(0, count), data.sequences_of(count, count)
    assert not np.array_equal(first, second)
    across = data.sequences_of(count - 2, 4)
    assert np.array_equal(across, np.concatenate([first[-2:], second[:2]]))


@pytest.mark.parametrize("fixed_length", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_logits_go_back_to_the_file(objective, fixed_length, networks):
    """As the network tells them of each sequence alone, and the loss as the head's own.

    The network is one for packed rows, as in training; those of the evaluation are not.
    """
    data = open_data(objective, is_training=False, fixed_length=fixed_length)
    shapes = set()

    def compute(batch):
        shapes.add(batch.input_ids.shape)
        return networks[objective, 3](tensors(batch.inputs))["logits"].numpy()

    gathered = data.gather(compute, 7)
    assert shapes == {(7, 32)} if fixed_length else len(shapes) > 1
    for number in (0, 13, 39):
        alone = compute(data.make_rows(np.array([[number]])))[0]
        np.testing.assert_allclose(gathered[number], alone[data.features.word_places[number]],
                                   atol=1e-5)
    batch = data.make_rows(np.arange(40)[:, None])
    sums, _ = sums_and_gradients(networks[objective, 1], batch)
    labels = np.concatenate(data.features.labels)
    assert mean_loss(np.concatenate(gathered), labels, objective) == pytest.approx(sums["loss"],
                                                                                   abs=1e-5)


def test_rows_without_labels_can_be_predicted():
    features = features_of("classification", with_labels=False)
    data = ClassifyData(features, WordPieceTokenizer(VOCABULARY), options("classification"),
                        is_training=False)
    assert data.batch(0, 4).labels == {}


def test_what_is_told_of_rows():
    logits = [np.array([[0.0, np.log(3), 0.0]], np.float32)] * 2
    features = features_of("classification")
    entry = describe_rows(features, logits + [logits[0]] * 38, options("classification"))[1]
    assert entry["label"] == "fair" and entry["row"] == 1
    assert entry["probabilities"] == {"bad": 0.2, "fair": 0.6, "good": 0.2}
    assert choose([np.array([[2.5]])], "regression")[0].tolist() == [2.5]


def test_words_of_a_row_in_several_sequences_are_told_together():
    examples = Examples("made", (("one", "two", "three"), ("four",)), None,
                        (np.array([0, 1, 2]), np.array([0])))
    words = ClassifyConfig(objective="tokens", labels=OBJECTIVES["tokens"], sequence_length=4)
    features = make_features(examples, WordPieceTokenizer(VOCABULARY), words)
    assert features.rows.tolist() == [0, 0, 1]
    logits = [np.array([[9.0, 0, 0], [0, 9, 0]]), np.array([[0.0, 0, 9]]), np.array([[9.0, 0, 0]])]
    rows = describe_rows(features, logits, words)
    assert [row["labels"] for row in rows] == [["O", "B-X", "I-X"], ["O"]]
    assert [row["expected"] for row in rows] == [["O", "B-X", "I-X"], ["O"]]
