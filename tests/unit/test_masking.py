"""Whole words and phrases: what is masked together, and how often."""

import numpy as np
import pytest

from data import masking

BATCH = 3000
# [CLS] a b ##b ##b c | [SEP] d ##d e f g | [SEP]: words of 1, 3, 1, 2, 1, 1, 1 tokens.
MASKABLE = np.array([0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0], bool)
CONTINUES = np.array([0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0], bool)
WORDS = [[1], [2, 3, 4], [5], [7, 8], [9], [10], [11]]


def choose(probability=0.4, max_predictions=20, max_ngram=1, batch=BATCH):
    maskable, continues = np.tile(MASKABLE, (batch, 1)), np.tile(CONTINUES, (batch, 1))
    return masking.choose_masked_words(maskable, continues, np.full(batch, 13), probability,
                                       max_predictions, 5, 0, np.arange(batch), max_ngram)


@pytest.mark.parametrize("max_ngram", [1, 3])
def test_words_are_masked_whole_and_specials_never(max_ngram):
    masked = choose(max_ngram=max_ngram)
    assert not masked[:, ~MASKABLE].any()
    for word in WORDS:
        assert (masked[:, word].all(axis=1) == masked[:, word].any(axis=1)).all()


@pytest.mark.parametrize("probability, wanted", [(0.4, 5), (0.15, 2), (0.01, 1), (0.9, 10)])
def test_never_more_than_wanted_and_one_word_tokens_fill_it(probability, wanted):
    masked = choose(probability).sum(axis=1)
    # There are enough one-token words to reach any number up to 10.
    assert (masked == wanted).all()


def test_max_predictions_is_a_cap():
    assert choose(0.9, max_predictions=4).sum(axis=1).max() == 4


def test_words_are_chosen_alike():
    # One of seven words is drawn first; with one token wanted, the words of one token share.
    masked = choose(0.01)
    single = masked[:, [1, 5, 9, 10, 11]].mean(axis=0)
    assert abs(single - 0.2).max() < 5 * (0.16 / BATCH) ** 0.5
    assert not masked[:, [2, 3, 4, 7, 8]].any()


def test_phrase_lengths_are_in_proportion_to_one_over_n():
    draws = (np.arange(60_000) + 0.5) / 60_000
    shares = np.bincount(masking._ngram_lengths(draws, 3), minlength=4)[1:] / 60_000
    # 1, 1/2, 1/3 over their sum 11/6.
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=1e-4)


def test_phrases_stay_in_their_segment():
    maskable = np.tile(np.array([0, 1, 0, 1, 1, 1, 0], bool), (BATCH, 1))
    masked = masking.choose_masked_words(
        maskable, np.zeros_like(maskable), np.full(BATCH, 7), 0.3, 2, 5, 0, np.arange(BATCH), 2)
    first_alone = masked[:, 1] & (masked.sum(axis=1) == 2)
    # Two tokens are wanted: from position 1 no phrase of two starts, so it joins single words.
    pairs = {tuple(np.flatnonzero(row)) for row in masked}
    assert pairs == {(1, 3), (1, 4), (1, 5), (3, 4), (4, 5), (3, 5)}
    assert first_alone.mean() < 0.6


def test_phrases_make_neighbours_likelier():
    def neighbours(masked):
        return (masked[:, 9] & masked[:, 10]).mean()

    # 0.225 against 0.175, and a standard error of 0.008.
    assert neighbours(choose(0.25, max_ngram=3)) > 1.15 * neighbours(choose(0.25, max_ngram=1))


def test_a_sample_is_masked_the_same_in_any_batch():
    alone = masking.choose_masked_words(MASKABLE[None], CONTINUES[None], np.array([13]), 0.4, 20,
                                        5, 0, np.array([77]), 3)
    assert (alone[0] == choose(max_ngram=3)[77]).all()


def test_rows_without_words_stay_unmasked():
    maskable = np.zeros((2, 5), bool)
    masked = masking.choose_masked_words(maskable, maskable, np.array([5, 5]), 0.15, 3, 1, 0,
                                         np.arange(2), 2)
    assert not masked.any()
