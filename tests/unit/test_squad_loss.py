"""Loss of question answering: of packed rows as of windows in rows of their own."""

import numpy as np
import pytest

from configs.data_schema import SquadConfig
from configs.schema import ModelConfig
from data.batch import Batch
from data.squad.features import make_features
from data.squad.questions import Answer, Question, QuestionFile
from data.squad.rows import SquadData
from data.tokenizer import WordPieceTokenizer
from models.tasks import build_for_question_answering
from tests.feeding import randomise, sums_and_gradients, tensors

VOCABULARY = "data/vocabularies/bert_base_uncased.txt"
SIZES = {"vocabulary": VOCABULARY, "vocab_size": 30522, "hidden_size": 32,
         "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
         "max_position_embeddings": 64, "hidden_dropout_prob": 0.0,
         "attention_probs_dropout_prob": 0.0}
OPTIONS = SquadConfig(sequence_length=64, document_stride=16, max_query_length=16,
                       sequences_per_row=3, cache="")


@pytest.fixture(scope="module")
def data():
    """Packed training rows of 40 questions on texts of different lengths."""
    words = "one two three four five six seven eight nine ten eleven twelve".split()
    contexts = tuple(" ".join(words[:2 + n % 11]) for n in range(40))
    questions = tuple(
        Question(str(n), "which word ?" + " really" * (n % 5), n,
                 (Answer(words[n % 2], contexts[n].find(words[n % 2])),), False)
        for n in range(40))
    file = QuestionFile("made", contexts, questions)
    features = make_features(file, VOCABULARY, True, OPTIONS, workers=1)
    return SquadData(features, WordPieceTokenizer(VOCABULARY), OPTIONS, seed=3)


@pytest.fixture(scope="module")
def network():
    network = build_for_question_answering(ModelConfig("bert", **SIZES), sequences_per_row=3)
    randomise(network, seed=1, scale=0.3)
    return network


def test_packed_rows_have_the_loss_and_gradients_of_single_windows(data, network):
    windows = data.windows_of(0, 6)
    assert (windows >= 0).sum() > 14  # most rows hold three
    packed = data.batch(0, 6)
    alone = data.make_rows(windows[windows >= 0][:, None])
    assert alone.input_ids.shape[1] == 64 and packed.input_ids.shape == (6, 64)
    sums, changes = sums_and_gradients(network, packed)
    expected, expected_changes = sums_and_gradients(network, alone)
    for name in expected:
        assert sums[name] == pytest.approx(expected[name], abs=1e-5)
    assert 0 < sums["start_accuracy"] < 1
    for name, gradient in expected_changes.items():
        np.testing.assert_allclose(changes[name], gradient, atol=1e-5, err_msg=name)


def test_micro_batches_add_up(data, network):
    batch = data.batch(0, 6)
    whole = network.heads.loss(network(tensors(batch.inputs)), tensors(batch.labels))
    parts = [network.heads.loss(network(tensors(part.inputs)), tensors(part.labels))
             for part in (batch.rows(0, 1), batch.rows(1, 6))]
    for name, value in whole.items():
        assert float(value) == pytest.approx(sum(float(part[name]) for part in parts), abs=1e-6)


def test_loss_is_cross_entropy_within_the_window(network):
    """Two windows by hand: slots 0, 2, 3 are one, 1 and 4 the other, 5 is padding."""
    logits = {"start_logits": np.array([[1.0, 5.0, 2.0, 3.0, 4.0, 99.0]], "float32"),
              "end_logits": np.array([[0.0, 1.0, 0.5, 0.0, 2.0, 99.0]], "float32")}
    labels = {"sequence_id": np.array([[1, 2, 1, 1, 2, 0]], "int32"),
              "start_positions": np.array([[3, 1]], "int32"),
              "end_positions": np.array([[0, 4]], "int32"),
              "window_weights": np.array([[0.75, 0.25]], "float32")}
    sums = network.heads.loss(tensors(logits), tensors(labels))

    def entropy(scores, right):
        return np.log(np.exp(scores).sum()) - scores[right]

    expected = 0.5 * (0.75 * (entropy(np.array([1.0, 2, 3]), 2)
                              + entropy(np.array([0.0, 0.5, 0]), 0))
                      + 0.25 * (entropy(np.array([5.0, 4]), 0) + entropy(np.array([1.0, 2]), 1)))
    assert float(sums["loss"]) == pytest.approx(expected, rel=1e-6)
    assert float(sums["start_accuracy"]) == pytest.approx(1.0)
    assert float(sums["end_accuracy"]) == pytest.approx(0.25)


def test_absent_windows_count_for_nothing(network):
    inputs = {name: np.zeros((1, 6), "int32") for name in Batch.INPUTS}
    labels = {"sequence_id": inputs["sequence_id"],
              "window_weights": np.zeros((1, 2), "float32"),
              **{f"{end}_positions": np.zeros((1, 2), "int32") for end in ("start", "end")}}
    sums, changes = sums_and_gradients(network, Batch(**inputs, labels=labels))
    assert sums == {"loss": 0.0, "start_accuracy": 0.0, "end_accuracy": 0.0}
    assert all(np.isfinite(array).all() and not array.any() for array in changes.values())
