"""Classification against Hugging Face, scikit-learn, scipy and seqeval."""

import numpy as np
import paddle
import pytest
import torch
import transformers
from scipy import stats
from seqeval.metrics import f1_score, precision_score, recall_score
from sklearn import metrics as sklearn

from configs.data_schema import ClassifyConfig
from configs.schema import ModelConfig
from data.classify.examples import Examples
from data.classify.features import make_features
from data.classify.metrics import score
from data.classify.rows import ClassifyData
from data.tokenizer import WordPieceTokenizer
from models.tasks import build_for_classification
from models.weights import huggingface
from models.weights.names import HUGGINGFACE
from tests.feeding import gradients, make_inputs, random_rows, randomise
from tests.parity.comparison import assert_same_gradients

VOCABULARY = "data/vocabularies/bert_base_uncased.txt"
MODEL = ModelConfig("bert", vocabulary=VOCABULARY, vocab_size=60, hidden_size=32,
                    num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                    max_position_embeddings=24, hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0)
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
KINDS = {"classification": ("BertForSequenceClassification", ["bad", "fair", "good"]),
         "regression": ("BertForSequenceClassification", []),
         "tokens": ("BertForTokenClassification", TAGS)}


def made_labels(objective, mask):
    random = np.random.default_rng(3)
    if objective == "classification":
        return np.array([2, 0, 1, 1])
    if objective == "regression":
        return np.array([0.5, 4.0, 2.5, 1.0], np.float32)
    is_first = (random.random(mask.shape) < 0.7) & (mask > 0)
    return np.where(is_first, random.integers(0, len(TAGS), mask.shape), -100)


def our_sums(network, objective, rows, labels):
    kind = "float32" if objective == "regression" else "int32"
    labels = labels if objective == "tokens" else labels[:, None]
    counted = (labels != -100).astype(np.float32)
    return network.heads.loss(network(make_inputs(*rows)), {
        "labels": paddle.to_tensor(np.maximum(labels, 0), kind),
        "label_weights": paddle.to_tensor(counted / counted.sum())})


@pytest.mark.parametrize("objective", KINDS)
def test_loss_gradients_and_labels(objective, tmp_path):
    """The checkpoint opens as it is, with its labels; loss and gradients are the same."""
    name, label_names = KINDS[objective]
    network = build_for_classification(MODEL, objective, label_names)
    randomise(network, seed=7, scale=0.2)
    huggingface.save_pretrained(tmp_path, network, MODEL, VOCABULARY)
    model = getattr(transformers, name).from_pretrained(tmp_path).eval()
    assert list(model.config.id2label.values()) == (label_names or ["LABEL_0"])
    assert model.config.num_labels == max(len(label_names), 1)

    rows = random_rows(60, 4, 14)
    labels = made_labels(objective, rows[1])
    output = model(**{key: torch.tensor(array) for key, array in zip(
        ("input_ids", "attention_mask", "token_type_ids"), rows)}, labels=torch.tensor(labels))
    output.loss.backward()
    sums = our_sums(network, objective, rows, labels)
    sums["loss"].backward()
    assert float(sums["loss"]) == pytest.approx(output.loss.item(), abs=1e-5)
    if objective != "regression":
        best, known = output.logits.argmax(-1).numpy(), labels != -100
        assert float(sums["accuracy"]) == pytest.approx((best == labels)[known].mean())
    theirs = HUGGINGFACE.to_ours({key: parameter.grad.numpy() for key, parameter in
                                  model.named_parameters() if parameter.grad is not None}, "here")
    print("largest difference", assert_same_gradients(gradients(network), theirs))


def test_rows_are_those_of_their_tokenizer():
    """Pairs cut to 12 tokens, where their ``longest_first`` cuts as Google's code."""
    texts = ["An unaffable embedding", "One two three four five six seven eight nine", "Why not ?"]
    pairs = ["Go away", "a b c d e f g h", "Because of all the many words in the second text"]
    options = ClassifyConfig(pair_column="pair", sequence_length=12, cache="", labels=["a", "b"])
    tokenizer = WordPieceTokenizer(VOCABULARY)
    features = make_features(Examples("made", tuple(texts), tuple(pairs), None), tokenizer,
                             options)
    data = ClassifyData(features, tokenizer, options, is_training=False)
    batch = data.make_rows(np.arange(3)[:, None])
    theirs = transformers.BertTokenizer(VOCABULARY)(
        texts, pairs, max_length=12, truncation="longest_first", padding="max_length")
    length = batch.input_ids.shape[1]
    assert batch.input_ids.tolist() == [row[:length] for row in theirs["input_ids"]]
    assert batch.token_type_ids.tolist() == [row[:length] for row in theirs["token_type_ids"]]
    assert batch.sequence_id.tolist() == [row[:length] for row in theirs["attention_mask"]]


def test_labels_of_words_stand_at_their_first_pieces():
    words = [["Unaffable", "Lausanne", ",", "B-52s"], ["x"]]
    options = ClassifyConfig(objective="tokens", sequence_length=24, cache="", labels=TAGS)
    tokenizer = WordPieceTokenizer(VOCABULARY)
    labels = (np.array([0, 3, 0, 1]), np.array([2]))
    features = make_features(Examples("made", tuple(words), None, labels), tokenizer, options)
    batch = ClassifyData(features, tokenizer, options, is_training=False).make_rows(
        np.arange(2)[:, None])
    theirs = transformers.BertTokenizerFast(VOCABULARY)(
        words, is_split_into_words=True, padding="max_length",
        max_length=batch.input_ids.shape[1])
    assert batch.input_ids.tolist() == theirs["input_ids"]
    for row in range(2):
        numbers = theirs.word_ids(row)
        for slot, number in enumerate(numbers):
            is_first = number is not None and number != numbers[slot - 1]
            assert (batch.labels["label_weights"][row, slot] > 0) == is_first
            if is_first:
                assert batch.labels["labels"][row, slot] == labels[row][number]


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_scores_of_labels(seed, count):
    random = np.random.default_rng(seed)
    labels = random.integers(0, count, 60)
    predictions = np.where(random.random(60) < 0.5, labels, random.integers(0, count - 1, 60))
    ours = score("classification", predictions, labels, list(map(str, range(count))))
    assert ours["accuracy"] == pytest.approx(sklearn.accuracy_score(labels, predictions))
    assert ours["matthews"] == pytest.approx(sklearn.matthews_corrcoef(labels, predictions))
    assert ours["macro_f1"] == pytest.approx(sklearn.f1_score(labels, predictions,
                                                              average="macro"))
    if count == 2:
        assert ours["f1"] == pytest.approx(sklearn.f1_score(labels, predictions))


@pytest.mark.parametrize("seed", range(5))
def test_correlations(seed):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 6, 80) / 2  # with ties
    predictions = np.round(labels + random.normal(0, 2, 80), 1)
    ours = score("regression", predictions, labels, [])
    assert ours["pearson"] == pytest.approx(stats.pearsonr(predictions, labels).statistic)
    assert ours["spearman"] == pytest.approx(stats.spearmanr(predictions, labels).statistic)


@pytest.mark.parametrize("scheme", ["BI", "I", "BIES"])
@pytest.mark.parametrize("seed", range(5))
def test_scores_of_spans(seed, scheme):
    """Tags drawn at random, so that spans begin, end and break in every way there is."""
    random = np.random.default_rng(seed)
    names = ["O", *(f"{letter}-{kind}" for kind in ("PER", "LOC") for letter in scheme)]
    names += [] if "B" in scheme else ["B-PER"]
    sizes = random.integers(1, 12, 30)
    labels = [random.integers(0, len(names), size) for size in sizes]
    predictions = [np.where(random.random(len(row)) < 0.6, row,
                            random.integers(0, len(names), len(row))) for row in labels]
    ours = score("tokens", predictions, labels, names)
    tags = [[[names[number] for number in row] for row in side] for side in (labels, predictions)]
    assert ours["span_f1"] == pytest.approx(f1_score(*tags))
    assert ours["span_precision"] == pytest.approx(precision_score(*tags))
    assert ours["span_recall"] == pytest.approx(recall_score(*tags))
    flat = [np.concatenate(side) for side in (labels, predictions)]
    assert ours["accuracy"] == pytest.approx(sklearn.accuracy_score(*flat))
    assert ours["token_f1"] == pytest.approx(sklearn.f1_score(
        *flat, average="micro", labels=range(1, len(names))))
