"""``tf.train.Example`` messages without TensorFlow, many at a time.

See tensorflow/core/example/example.proto and feature.proto: an Example (field 1) holds
Features, a map (field 1) of name (1) to Feature (2), which is a list of bytes (1), float
(2) or int64 (3), whose values (1) are packed into one field.
"""

import numpy as np

FLOAT_LIST, INT64_LIST = 2, 3

# Tags of length-delimited fields: the number, then 2 in the low three bits.
_FIELD_1, _FIELD_2 = 0x0A, 0x12


def parse_example(message):
    """Find the features of one Example without reading their values.

    Args:
        message: bytes.

    Returns:
        dict of name, as bytes, to ``(kind, list message)``.

    Raises:
        ValueError: it is no Example.
    """
    features = {}
    try:
        tag, position, end = _delimited(message, 0)
        while position < end:
            entry_tag, entry, entry_end = _delimited(message, position)
            name_tag, name, name_end = _delimited(message, entry)
            feature_tag, feature, feature_end = _delimited(message, name_end)
            kind_tag, values, values_end = _delimited(message, feature)
            tags = tag, entry_tag, name_tag, feature_tag
            if (tags != (_FIELD_1, _FIELD_1, _FIELD_1, _FIELD_2)
                    or not values_end == feature_end == entry_end):
                raise ValueError("other fields than an Example's")
            features[message[name:name_end]] = kind_tag >> 3, message[values:values_end]
            position = entry_end
    except IndexError:
        raise ValueError("it ends too early") from None
    if not position == end == len(message):
        raise ValueError("it ends too early or too late")
    return features


def decode_int64(lists):
    """Values of Int64List messages, each of equally many.

    Args:
        lists: list of bytes.

    Returns:
        int64 ``[messages, values]``.

    Raises:
        ValueError: they are not equally many, not packed, or cut.
    """
    payloads = [_packed(message) for message in lists]
    data = np.frombuffer(b"".join(payloads), np.uint8)
    ends = np.flatnonzero(data < 0x80)  # the last byte of a varint has no high bit
    bounds = np.cumsum([len(payload) for payload in payloads])
    counts = np.diff(np.searchsorted(ends, bounds), prepend=0)
    if (data[bounds - 1] >= 0x80).any():
        raise ValueError("a number is cut")
    _check_equal(set(counts.tolist()))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    values = (data[starts] & 0x7F).astype(np.uint64)
    for index in range(1, int(lengths.max())):
        longer = np.flatnonzero(lengths > index)
        bits = (data[starts[longer] + index] & 0x7F).astype(np.uint64)
        values[longer] |= bits << np.uint64(7 * index)
    return values.astype(np.int64).reshape(len(lists), -1)


def decode_float(lists):
    """Values of FloatList messages, as ``decode_int64``: float32 ``[messages, values]``."""
    payloads = [_packed(message) for message in lists]
    _check_equal({len(payload) / 4 for payload in payloads})
    return np.frombuffer(b"".join(payloads), "<f4").reshape(len(lists), -1)


def _packed(message):
    """The values of a list message, end to end."""
    if len(message) < 3:
        raise ValueError("no values")
    tag, first, end = _delimited(message, 0)
    if tag != _FIELD_1 or end != len(message):
        raise ValueError("values that are not packed")
    return message[first:end]


def _check_equal(counts):
    if len(counts) > 1:
        raise ValueError(f"records of {min(counts):g} and of {max(counts):g} values")


def _delimited(message, position):
    """Tag, and first and end position of the content, of the field at ``position``."""
    length, first = message[position + 1], position + 2
    shift = 7
    while length >> shift:  # as long as the byte before had its high bit set
        length = (length & (1 << shift) - 1) | message[first] << shift
        first, shift = first + 1, shift + 7
    return message[position], first, first + length
