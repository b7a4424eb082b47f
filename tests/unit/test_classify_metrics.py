"""Metrics worked out by hand, and their limits."""

import numpy as np
import pytest

from data.classify.metrics import confusion, f1_of_labels, find_spans, matthews, pearson, score

NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def test_two_labels():
    # 3 true positives, 1 false positive, 2 false negatives, 4 true negatives.
    predictions = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    labels = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]
    scores = score("classification", predictions, labels, ["0", "1"])
    assert scores["accuracy"] == pytest.approx(0.7)
    assert scores["f1"] == pytest.approx(2 / 3)  # precision 3/4, recall 3/5
    assert scores["macro_f1"] == pytest.approx((2 / 3 + 8 / 11) / 2)
    assert scores["matthews"] == pytest.approx((3 * 4 - 1 * 2) / np.sqrt(4 * 5 * 5 * 6))


def test_several_labels_have_no_f1_of_one():
    scores = score("classification", [0, 1, 2, 2], [0, 1, 1, 2], ["a", "b", "c", "d"])
    assert scores["accuracy"] == 0.75 and "f1" not in scores
    # "d" occurs nowhere and does not count.
    assert scores["macro_f1"] == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
    # R_K: 4 samples, 3 right; true 1, 2, 1, predicted 1, 1, 2.
    assert scores["matthews"] == pytest.approx((3 * 4 - 5) / np.sqrt((16 - 6) * (16 - 6)))


def test_one_sided_predictions():
    scores = score("classification", [1, 1], [0, 1], ["0", "1"])
    assert scores["matthews"] == 0 and scores["f1"] == pytest.approx(2 / 3)
    assert score("classification", [0, 0], [0, 0], ["0", "1"])["f1"] == 0
    assert np.isnan(f1_of_labels(confusion(np.array([0]), np.array([0]), 2))[1])
    assert matthews(np.array([[0, 5], [5, 0]])) == -1


def test_correlations():
    scores = score("regression", [1.0, 2.0, 3.0, 10.0], [1.0, 3.0, 2.0, 4.0], [])
    # Ranks 1 2 3 4 and 1 3 2 4: 1 - 6 x 2 / (4 x 15).
    assert scores["spearman"] == pytest.approx(0.8)
    assert scores["pearson"] == pytest.approx(13 / np.sqrt(50 * 5))
    # Equal ones share their mean rank: 1.5 1.5 3 against 1 2 3.
    assert score("regression", [1, 1, 2], [1, 2, 3], [])["spearman"] == pytest.approx(
        1.5 / np.sqrt(1.5 * 2))
    assert pearson([1, 1], [1, 2]) == 0


@pytest.mark.parametrize("tags, spans", [
    ("B-PER I-PER O B-LOC", {("PER", 0, 1), ("LOC", 3, 3)}),
    ("B-PER B-PER", {("PER", 0, 0), ("PER", 1, 1)}),
    ("I-PER I-LOC I-LOC", {("PER", 0, 0), ("LOC", 1, 2)}),  # IOB1 begins with I
    ("O I-PER", {("PER", 1, 1)}),
    ("B-PER I-PER E-PER S-LOC", {("PER", 0, 2), ("LOC", 3, 3)}),
    ("B-X M-X E-X B-X", {("X", 0, 2), ("X", 3, 3)}),
    ("B-X E-X I-X", {("X", 0, 1), ("X", 2, 2)}),
    ("B-X I-X L-X U-X", {("X", 0, 2), ("X", 3, 3)}),
    ("O O", set()), ("", set())])
def test_spans(tags, spans):
    assert find_spans(tags.split()) == spans


def test_labelled_words():
    labels = [np.array([1, 2, 0, 3]), np.array([0, 0]), np.array([], int)]
    predictions = [np.array([1, 0, 0, 3]), np.array([0, 3]), np.array([], int)]
    scores = score("tokens", predictions, labels, NAMES)
    assert scores["accuracy"] == pytest.approx(4 / 6)
    assert scores["token_f1"] == pytest.approx(2 * 2 / (3 + 3))
    # Found PER 0-0, LOC 3, LOC 1; due PER 0-1, LOC 3.
    assert scores["span_precision"] == pytest.approx(1 / 3)
    assert scores["span_recall"] == pytest.approx(1 / 2)
    assert scores["span_f1"] == pytest.approx(2 / 5)
    assert set(score("tokens", [np.array([1])], [np.array([1])], ["NN", "VB"])) == {
        "accuracy", "token_f1"}
