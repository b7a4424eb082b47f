"""What is no character, though a text of Python can hold it."""

import re

_HALF_A_PAIR = re.compile("[\ud800-\udfff]")


def has_half_a_pair(text):
    """Whether a lone half of a surrogate pair is in a text: JSON can write it, UTF-8 cannot."""
    return bool(_HALF_A_PAIR.search(text))
