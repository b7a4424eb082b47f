"""Random numbers by address: a function of what is drawn, not of what was drawn before.

So the n-th batch can be made first, by any worker, and is the same after a resume.
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniform(seed, epoch, samples, purpose, count):
    """Numbers in [0, 1) that depend on the arguments alone.

    Args:
        seed, epoch: integers.
        samples: int array ``[n]`` of sample numbers.
        purpose: a small integer that keeps the draws of one sample apart.
        count: draws a sample.

    Returns:
        float64 ``[n, count]``.

    The mixing function is splitmix64 (Steele, Lea, Flood 2014, "Fast splittable
    pseudorandom number generators"), applied once for each coordinate.
    """
    state = _mix(np.full(1, seed, np.uint64))
    for coordinate in (epoch, purpose):
        state = _mix(state ^ np.uint64(coordinate))
    state = _mix(state ^ np.asarray(samples).astype(np.uint64))
    state = _mix(state[:, None] ^ np.arange(count, dtype=np.uint64))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0 ** -53


def permutation(seed, epoch, count):
    """The order in which an epoch visits ``count`` samples."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def _mix(state):
    with np.errstate(over="ignore"):
        state = state + _GOLDEN
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
