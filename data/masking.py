"""Which tokens are predicted, and what stands in their place (Devlin et al. 2018, 3.1)."""

import numpy as np

from data.randomness import uniform

IGNORED = 0  # label of an empty prediction slot; its weight is 0

_CHOICE, _REPLACE, _RANDOM_TOKEN, _NGRAM = 3, 4, 5, 6  # purposes of random draws


def choose_masked(maskable, token_counts, probability, max_predictions, seed, epoch, samples):
    """Draw the tokens to predict, uniformly among those that may be masked.

    Args:
        maskable: bool ``[batch, sequence]``, false for special tokens and padding.
        token_counts: int ``[batch]``, tokens of each row, special ones included.
        probability: share of them to predict, rounded, at least one token.
        max_predictions: most of them.
        seed, epoch, samples: address of the draw; ``samples`` is ``[batch]``.

    Returns:
        bool ``[batch, sequence]``.
    """
    wanted = _wanted(maskable, token_counts, probability, max_predictions)
    keys = uniform(seed, epoch, samples, _CHOICE, maskable.shape[1])
    order = np.argsort(np.where(maskable, keys, 2.0), axis=1, kind="stable")
    masked = np.zeros(maskable.shape, bool)
    np.put_along_axis(masked, order, np.arange(maskable.shape[1]) < wanted[:, None], axis=1)
    return masked


def choose_masked_words(maskable, continues, token_counts, probability, max_predictions, seed,
                        epoch, samples, max_ngram=1):
    """Draw whole words, or phrases of up to ``max_ngram`` words, until the wanted tokens are met.

    Words come in random order. Each brings its phrase, the words that follow it in its segment:
    n of them with a probability in proportion to 1/n, as PaddleNLP's ERNIE does (Sun et al.
    2019 mask phrases and entities). A phrase that holds a masked word or exceeds what is
    still wanted is shortened, and passed over when one word is too long (BERT's whole-word
    masking).

    Args:
        continues: bool ``[batch, sequence]``, whether a token goes on with the word before.
        max_ngram: words of the longest phrase; 1 is whole-word masking.
        The others are those of ``choose_masked``.

    Returns:
        bool ``[batch, sequence]``.
    """
    left = _wanted(maskable, token_counts, probability, max_predictions)
    words = _Words(maskable, continues)
    keys = uniform(seed, epoch, samples, _CHOICE, words.most)
    order = np.argsort(np.where(words.exists, keys, 2.0), axis=1, kind="stable")
    lengths = _ngram_lengths(uniform(seed, epoch, samples, _NGRAM, words.most), max_ngram)
    rows = np.arange(len(maskable))
    for rank in range(words.most):
        word, searching = order[:, rank], (left > 0) & (rank < words.counts)
        if not searching.any():
            break
        for length in range(max_ngram, 0, -1):
            taken = searching & (length <= lengths[rows, word])
            taken &= words.phrase_is_free(rows, word, length)
            taken &= words.phrase_tokens(rows, word, length) <= left
            left = left - np.where(taken, words.phrase_tokens(rows, word, length), 0)
            words.mask_phrase(rows[taken], word[taken], length)
            searching &= ~taken
    return words.masked_tokens()


class _Words:
    """Words of a batch of rows: how many tokens each has, where it is, whether it is masked."""

    def __init__(self, maskable, continues):
        batch, length = maskable.shape
        after_gap = np.ones(maskable.shape, bool)
        after_gap[:, 1:] = ~maskable[:, :-1]
        starts = maskable & (~continues | after_gap)
        self.maskable = maskable
        self.number = np.cumsum(starts, axis=1) - 1  # of each token's word
        self.counts = starts.sum(axis=1)
        self.most = max(1, int(self.counts.max(initial=0)))
        self.exists = np.arange(self.most) < self.counts[:, None]
        # Words of one segment share a number, so that no phrase crosses a [SEP].
        self.segment = np.full((batch, self.most), -1)
        row, position = np.nonzero(starts)
        segment = np.cumsum(maskable & after_gap, axis=1)
        self.segment[row, self.number[row, position]] = segment[row, position]
        sizes = np.zeros((batch, self.most), np.int64)
        row, position = np.nonzero(maskable)
        np.add.at(sizes, (row, self.number[row, position]), 1)
        self.ends = np.concatenate([np.zeros((batch, 1), np.int64), np.cumsum(sizes, axis=1)], 1)
        self.masked = np.zeros((batch, self.most), bool)

    def phrase_tokens(self, rows, word, length):
        """Tokens of ``length`` words from ``word`` on, ``[batch]``."""
        return self.ends[rows, np.minimum(word + length, self.most)] - self.ends[rows, word]

    def phrase_is_free(self, rows, word, length):
        """Whether those words are in one segment and none of them is masked, ``[batch]``."""
        last = word + length - 1
        free = last < self.counts
        last = np.minimum(last, self.most - 1)
        free &= self.segment[rows, last] == self.segment[rows, word]
        for offset in range(length):
            free &= ~self.masked[rows, np.minimum(word + offset, self.most - 1)]
        return free

    def mask_phrase(self, rows, word, length):
        for offset in range(length):
            self.masked[rows, word + offset] = True

    def masked_tokens(self):
        """bool ``[batch, sequence]``."""
        number = np.maximum(self.number, 0)
        return self.maskable & np.take_along_axis(self.masked, number, axis=1)


def _ngram_lengths(draws, max_ngram):
    """1 to ``max_ngram`` with a probability in proportion to 1/n, of draws in [0, 1)."""
    weights = 1.0 / np.arange(1, max_ngram + 1)
    return 1 + np.searchsorted(np.cumsum(weights / weights.sum())[:-1], draws, side="right")


def _wanted(maskable, token_counts, probability, max_predictions):
    wanted = np.clip(np.rint(token_counts * probability).astype(np.int64), 1, max_predictions)
    return np.minimum(wanted, maskable.sum(axis=1))


def replace_masked(tokens, masked, mask_id, vocabulary_size, seed, epoch, samples):
    """Hide the chosen tokens: 80 % [MASK], 10 % a random token, 10 % themselves.

    Args:
        tokens: int ``[batch, sequence]``.
        masked: bool ``[batch, sequence]``.
        mask_id: id of [MASK].
        vocabulary_size: random tokens are drawn below it.
        seed, epoch, samples: address of the draw.

    Returns:
        int ``[batch, sequence]``.
    """
    length = tokens.shape[1]
    action = uniform(seed, epoch, samples, _REPLACE, length)
    random_tokens = uniform(seed, epoch, samples, _RANDOM_TOKEN, length) * vocabulary_size
    replaced = np.where(action < 0.8, mask_id, tokens)
    replaced = np.where(action >= 0.9, random_tokens.astype(tokens.dtype), replaced)
    return np.where(masked, replaced, tokens)
