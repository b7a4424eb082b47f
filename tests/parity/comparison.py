"""What both parity tests do: the same loss on both sides, and gradients side by side."""

import numpy as np


def loss_weights(logits, mask):
    """Random weights for each of some outputs; 0 where an output belongs to padding.

    Args:
        logits: dict of name to array, ``[batch, sequence, …]`` or without a sequence.
        mask: ``[batch, sequence]``, 1 for tokens.
    """
    random = np.random.default_rng(0)
    weights = {}
    for name in sorted(logits):
        shape = logits[name].shape
        weights[name] = random.normal(size=shape).astype("float32")
        if tuple(shape[:2]) == mask.shape:
            weights[name] *= mask.reshape(mask.shape + (1,) * (len(shape) - 2))
    return weights


def weighted_sum(logits, weights, to_tensor):
    """Scalar loss of either library's tensors."""
    return sum((logits[name] * to_tensor(weights[name])).sum() for name in weights)


def assert_close(ours, theirs, mask, tolerance=1e-5):
    """Outputs differ by no more than ``tolerance`` at tokens; returns the largest difference."""
    assert set(ours) == set(theirs)
    largest = 0.0
    for name in ours:
        assert ours[name].shape == theirs[name].shape, name
        difference = np.abs(ours[name] - theirs[name])
        if ours[name].shape[:2] == mask.shape:
            difference = difference[mask.astype(bool)]
        largest = max(largest, float(difference.max()))
    assert largest < tolerance
    return largest


def assert_same_gradients(ours, theirs, tolerance=1e-4):
    """Each parameter's gradients differ by a share of their norm; returns the largest share.

    The key's bias adds the same to all scores of a query, so softmax does not see it and its
    gradient is 0 but for rounding.
    """
    assert set(ours) == set(theirs)
    whole = np.sqrt(sum(np.square(gradient).sum() for gradient in theirs.values()))
    largest = 0.0
    for name in theirs:
        if name.endswith("attention.key.bias"):
            assert np.linalg.norm(ours[name]) < 1e-5 * whole, name
            continue
        difference = np.linalg.norm(ours[name] - theirs[name]) / np.linalg.norm(theirs[name])
        assert difference < tolerance, name
        largest = max(largest, float(difference))
    return largest
