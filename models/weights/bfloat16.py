"""bfloat16, the upper half of a float32, which numpy has no name for."""

import numpy as np


def widen(raw):
    """uint16 array that holds bfloat16 numbers as the float32 array of the same numbers."""
    return (raw.astype(np.uint32) << 16).view(np.float32)
