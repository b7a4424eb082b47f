"""CRC-32C (RFC 3720, appendix B.4) of large arrays, with numpy for speed."""

import functools

import numpy as np

POLYNOMIAL = 0x82F63B78
ALL_ONES = 0xFFFFFFFF


def crc32c(data):
    """The checksum of at least four bytes.

    The data is cut into equal pieces, whose states advance together, a word of each at a
    time. A state is linear in its data (over GF(2)), so neighbours are joined by advancing
    the left one over as many zeros as the right one is long.
    """
    size = len(data)
    doublings = size.bit_length() // 2
    length = 1 << doublings
    pieces = 1 << (size // (4 * length)).bit_length()
    # Zeros in front leave a zero state as it is; to start from a state of ones, as the
    # standard has it, is the same as to invert the first four bytes.
    padded = np.zeros(4 * length * pieces, np.uint8)
    padded[-size:] = np.frombuffer(data, np.uint8)
    padded[len(padded) - size:][:4] ^= 0xFF
    states = np.zeros(pieces, np.uint32)
    for words in padded.view("<u4").reshape(pieces, length).T:
        states = _advance_word(states ^ words)
    while len(states) > 1:
        states = _advance(states[::2], _zeros(doublings)) ^ states[1::2]
        doublings += 1
    return int(states[0]) ^ ALL_ONES


def _advance_word(states):
    """Each uint32 state after four bytes of zeros."""
    return _LOW_HALF[states & 0xFFFF] ^ _HIGH_HALF[states >> 16]


@functools.lru_cache(maxsize=None)
def _zeros(doublings):
    """The operator of ``2 ** doublings`` words of zeros: where they take each bit of a state."""
    if doublings == 0:
        return _advance_word(np.uint32(1) << np.arange(32, dtype=np.uint32))
    half = _zeros(doublings - 1)
    return _advance(half, half)


def _advance(states, operator):
    """Each state after the zeros that ``operator`` stands for."""
    result = np.zeros_like(states)
    for bit in range(32):
        result ^= ((states >> bit) & 1) * operator[bit]
    return result


def _table(states):
    for _ in range(32):
        states = np.where(states & 1, (states >> 1) ^ np.uint32(POLYNOMIAL), states >> 1)
    return states


_LOW_HALF = _table(np.arange(1 << 16, dtype=np.uint32))
_HIGH_HALF = _table(np.arange(1 << 16, dtype=np.uint32) << 16)
