"""A checkpoint as a classifier: its kind, its labels, what it refuses."""

import dataclasses
import json

import numpy as np
import pytest

from configs.errors import InputError
from configs.schema import ModelConfig
from inference.classify import Classifier
from models.initialise import initialise
from models.tasks import build_for_classification, build_for_pretraining
from models.weights.huggingface import save_pretrained

TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c 你 好".split()


@pytest.fixture
def save(tmp_path):
    """Save a tiny network; returns its folder."""
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("\n".join(TOKENS) + "\n", "utf-8")
    model = ModelConfig("bert", vocabulary=str(vocabulary), vocab_size=10, hidden_size=8,
                        num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                        max_position_embeddings=8)

    def call(build, **sizes):
        config = dataclasses.replace(model, **sizes)
        network = build(config)
        initialise(network, 1, 0.5)
        save_pretrained(tmp_path / "saved", network, config, vocabulary)
        return tmp_path / "saved"
    return call


def test_labels_of_texts_cut_to_the_model(save):
    classifier = Classifier(save(lambda c: build_for_classification(
        c, "classification", ["no", "yes", "maybe"])))
    answer = classifier.classify_text("a b c " * 9, "b")
    assert list(answer["probabilities"]) == ["no", "yes", "maybe"]
    assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)
    assert answer == classifier.classify_text("a b c a", "b")  # 8 positions, 3 special tokens
    assert answer != classifier.classify_text("a b c", "b")


def test_labels_of_words_and_numbers(save):
    answer = Classifier(save(lambda c: build_for_classification(
        c, "tokens", ["O", "B-X"]))).classify_text("a b你好 c a b c a b c")
    assert answer["words"] == ["a", "b", "你", "好", "c", "a", "b", "c", "a", "b", "c"]
    assert len(answer["labels"]) == len(answer["probabilities"]) == 11
    score = Classifier(save(lambda c: build_for_classification(
        c, "regression", []))).classify_text("a")["score"]
    assert np.isfinite(score)


def test_labels_without_names(save):
    folder = save(lambda c: build_for_classification(c, "classification", ["x", "y"]))
    config = json.loads((folder / "config.json").read_text())
    del config["id2label"]  # as transformers writes it for two labels
    (folder / "config.json").write_text(json.dumps(config))
    assert Classifier(folder).labels == ["LABEL_0", "LABEL_1"]


def test_refusals(save):
    with pytest.raises(InputError, match="of the kind ForPreTraining, which tells no labels"):
        Classifier(save(lambda c: build_for_pretraining(c, 1)))
    classifier = Classifier(save(lambda c: build_for_classification(
        c, "classification", ["x", "y"]), type_vocab_size=1))
    with pytest.raises(InputError, match="--pair: the model has one segment"):
        classifier.classify_text("a", "b")
    classifier = Classifier(save(lambda c: build_for_classification(c, "tokens", ["x", "y"])))
    with pytest.raises(InputError, match="words are labelled in single texts"):
        classifier.classify_text("a", "b")
    folder = save(lambda c: build_for_classification(c, "classification", ["x", "y", "z"]))
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "x", "1": "y"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="heads.classifier"):
        Classifier(folder)
