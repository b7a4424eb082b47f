"""Numbers as IPUs keep them in float16."""

import numpy as np

LARGEST = 65504.0
_SMALLEST_EXPONENT = -14  # of a normal float16; below, neighbours are 2 ** -24 apart
_DIGITS = 10


class Rounding:
    """Rounds float32 arrays to numbers that float16 has."""

    def __init__(self, is_stochastic, seed):
        self._random = np.random.default_rng(seed) if is_stochastic else None

    def __call__(self, array):
        """To the nearest; or at random to one of the two nearest, right on average."""
        if self._random is None:
            with np.errstate(over="ignore"):
                return array.astype(np.float16).astype(np.float32)
        _, exponent = np.frexp(array)
        step = np.ldexp(np.float32(1), np.maximum(exponent - 1, _SMALLEST_EXPONENT) - _DIGITS)
        noise = self._random.random(array.shape, dtype=np.float32)
        rounded = np.floor(array / step + noise) * step
        return np.where(np.abs(rounded) > LARGEST, np.copysign(np.inf, rounded), rounded)


def keep(array):
    """float32 needs no rounding."""
    return array
