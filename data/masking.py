"""Which tokens are predicted, and what stands in their place (Devlin et al. 2018, 3.1)."""

import numpy as np

from data.randomness import uniform

IGNORED = 0  # label of an empty prediction slot; its weight is 0

_CHOICE, _REPLACE, _RANDOM_TOKEN = 3, 4, 5  # purposes of random draws


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
    wanted = np.clip(np.rint(token_counts * probability).astype(np.int64), 1, max_predictions)
    wanted = np.minimum(wanted, maskable.sum(axis=1))
    keys = uniform(seed, epoch, samples, _CHOICE, maskable.shape[1])
    order = np.argsort(np.where(maskable, keys, 2.0), axis=1, kind="stable")
    masked = np.zeros(maskable.shape, bool)
    np.put_along_axis(masked, order, np.arange(maskable.shape[1]) < wanted[:, None], axis=1)
    return masked


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
