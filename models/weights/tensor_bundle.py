"""TensorFlow's checkpoint format without TensorFlow.

``PREFIX.index`` is a LevelDB table of BundleEntryProto, see tensorflow/core/util/tensor_bundle
and tensorflow/core/lib/io/table_format.txt; ``PREFIX.data-00000-of-00001`` and further shards
are the tensors' bytes, end to end.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from crc32c import crc32c

from configs.errors import InputError
from models.weights import bfloat16
from models.weights.files import read_bytes

TABLE_MAGIC = 0xDB4775248B80FB57
FOOTER_SIZE = 48
BLOCK_TRAILER_SIZE = 5

# tensorflow/core/framework/types.proto; other types are no weights.
DTYPES = {1: "<f4", 2: "<f8", 14: "bfloat16", 19: "<f2"}


def read_bundle(prefix, wanted):
    """Names and arrays of the floating-point variables.

    Args:
        prefix: path without ``.index``.
        wanted: function of a variable's name; what it denies is not read.

    Returns:
        dict of name to array in the file's type, bfloat16 as float32.

    Raises:
        InputError: a file is missing, cut, damaged, or of a kind that is not read.
    """
    index = Path(f"{prefix}.index")
    entries = _read_table(index)
    if b"" not in entries:
        raise InputError(index, "no TensorFlow checkpoint: it has no header")
    shard_count = _first(_fields(index, entries.pop(b"")), 1, 0)
    shards, arrays = {}, {}
    for key, message in entries.items():
        name = key.decode("utf-8", "replace")
        entry = _Entry.parse(index, name, message)
        if entry.dtype not in DTYPES or not wanted(name):
            continue
        shard = Path(f"{prefix}.data-{entry.shard:05d}-of-{shard_count:05d}")
        if shard not in shards:
            shards[shard] = memoryview(read_bytes(shard))
        arrays[name] = entry.read(shard, shards[shard])
    return arrays


@dataclass
class _Entry:
    """BundleEntryProto: where a tensor's bytes lie."""

    name: str
    shape: list
    dtype: int
    shard: int
    offset: int
    size: int
    checksum: int

    @classmethod
    def parse(cls, path, name, message):
        fields = _fields(path, message)
        if any(number == 7 for number, _ in fields):
            raise InputError(path, f"'{name}' is saved in slices (a partitioned variable)",
                             "save it unpartitioned")
        dimensions = _fields(path, _first(fields, 2, b""))
        shape = [_first(_fields(path, dimension), 1, 0)
                 for number, dimension in dimensions if number == 2]
        numbers = {key: _first(fields, number, 0) for key, number in
                   (("dtype", 1), ("shard", 3), ("offset", 4), ("size", 5), ("checksum", 6))}
        return cls(name, shape, **numbers)

    def read(self, path, data):
        """The array, from the bytes of its data file."""
        raw = data[self.offset:self.offset + self.size]
        if len(raw) < self.size:
            raise InputError(path, f"damaged: cut short at '{self.name}'")
        if self.size >= 4 and _masked_crc(raw) != self.checksum:
            raise InputError(path, f"damaged: the checksum of '{self.name}' differs")
        dtype = DTYPES[self.dtype]
        try:
            array = np.frombuffer(raw, "<u2" if dtype == "bfloat16" else dtype)
            array = array.reshape(self.shape)
        except ValueError:
            raise InputError(path, f"damaged: '{self.name}' has {self.size} bytes, which do "
                             f"not fill the shape {self.shape}") from None
        return bfloat16.widen(array) if dtype == "bfloat16" else array


def _read_table(path):
    """All keys and values of a LevelDB table, or InputError."""
    data = read_bytes(path)
    if len(data) < FOOTER_SIZE or struct.unpack("<Q", data[-8:])[0] != TABLE_MAGIC:
        raise InputError(path, "damaged, or no index of a TensorFlow checkpoint")
    try:
        footer = data[-FOOTER_SIZE:]
        _, position = _handle(footer, 0)
        index_handle, _ = _handle(footer, position)
        entries = {}
        for handle in _read_block(path, data, index_handle).values():
            entries.update(_read_block(path, data, _handle(handle, 0)[0]))
        return entries
    except (IndexError, struct.error):
        raise InputError(path, "damaged: it ends inside a block") from None


def _read_block(path, data, handle):
    """Keys and values of a block. Keys share a prefix with the key before."""
    offset, size = handle
    block = data[offset:offset + size]
    trailer = data[offset + size:offset + size + BLOCK_TRAILER_SIZE]
    compression, checksum = struct.unpack("<BI", trailer)
    if _masked_crc(block + trailer[:1]) != checksum:
        raise InputError(path, "damaged: the checksum of a block differs")
    if compression:
        raise InputError(path, "the index is compressed, which TensorFlow does not do",
                         "save the checkpoint again")
    restarts = struct.unpack("<I", block[-4:])[0]
    end = len(block) - 4 * (restarts + 1)
    entries, key, position = {}, b"", 0
    while position < end:
        shared, position = _varint(block, position)
        rest, position = _varint(block, position)
        length, position = _varint(block, position)
        key = key[:shared] + block[position:position + rest]
        position += rest
        entries[key] = block[position:position + length]
        position += length
    return entries


def _handle(data, position):
    """Offset and size of a block, and the position behind them."""
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return (offset, size), position


def _masked_crc(data):
    """LevelDB stores checksums rotated and shifted (table_format.txt)."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(data, position):
    """A protobuf varint and the position behind it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _fields(path, message):
    """Pairs of number and value of a protobuf message: integers and bytes."""
    fields, position = [], 0
    try:
        while position < len(message):
            tag, position = _varint(message, position)
            if tag & 7 == 0:
                value, position = _varint(message, position)
            elif tag & 7 == 2:
                length, position = _varint(message, position)
                value, position = message[position:position + length], position + length
            elif tag & 7 == 5:
                value, position = struct.unpack_from("<I", message, position)[0], position + 4
            else:
                raise struct.error
            fields.append((tag >> 3, value))
    except (IndexError, struct.error):
        raise InputError(path, "damaged: an entry is no protobuf message") from None
    return fields


def _first(fields, number, default):
    return next((value for key, value in fields if key == number), default)
