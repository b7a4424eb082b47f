"""TFRecord files without TensorFlow: records by number, every byte under its checksum.

A record is its length (8 bytes, little-endian), the length's masked CRC-32C, the data, and
the data's masked CRC-32C; see tensorflow/core/lib/io/record_writer.h.
"""

import mmap
import struct
from array import array
from pathlib import Path

import numpy as np
from crc32c import crc32c

from configs.errors import InputError

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


def masked_crc(data):
    """The CRC-32C of some bytes, rotated and shifted as the format demands."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class RecordFile:
    """The records of one file. Only their offsets are kept in memory, 8 bytes each."""

    def __init__(self, path):
        """Find the records: by the file's index if there is one, else by their lengths.

        Raises:
            InputError: the file is empty, cut, or no TFRecord.
        """
        self.path = Path(path)
        if not self.path.stat().st_size:
            raise InputError(path, "is empty", "remove it or make it again")
        self.offsets = self._read_index()
        if self.offsets is None:
            self.offsets = self._scan()

    def __len__(self):
        return len(self.offsets) - 1

    def read(self, start, stop):
        """Records ``start`` to ``stop``, a list of bytes.

        Raises:
            InputError: a checksum is wrong, or the file was cut since it was opened.
        """
        begin = int(self.offsets[start])
        with open(self.path, "rb") as stream:
            stream.seek(begin)
            block = stream.read(int(self.offsets[stop]) - begin)
        places = (self.offsets[start:stop + 1] - begin).tolist()
        return [self._record(block, start + index, *places[index:index + 2])
                for index in range(stop - start)]

    def _record(self, block, number, place, end):
        length = self._length(block, number, place, len(block))
        data_end = place + _HEADER.size + length
        data = block[place + _HEADER.size:data_end]
        if data_end + _CHECKSUM.size != end:
            raise self._damaged(number)
        if _CHECKSUM.unpack_from(block, data_end)[0] != masked_crc(data):
            raise self._damaged(number)
        return data

    def _length(self, buffer, number, place, size):
        """Length of the data of the record at ``place``, all of which the buffer holds."""
        if place + _HEADER.size > size:
            raise self._cut(number)
        length, checksum = _HEADER.unpack_from(buffer, place)
        if masked_crc(buffer[place:place + 8]) != checksum:
            raise self._damaged(number)
        if place + _HEADER.size + length + _CHECKSUM.size > size:
            raise self._cut(number)
        return length

    def _scan(self):
        """Offset of each record, then the end, int64 ``[records + 1]``."""
        offsets = array("q", [0])
        with open(self.path, "rb") as stream, \
                mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
            place, size = 0, len(buffer)
            while place < size:
                length = self._length(buffer, len(offsets) - 1, place, size)
                place += _HEADER.size + length + _CHECKSUM.size
                offsets.append(place)
        return np.frombuffer(offsets, np.int64)

    def _read_index(self):
        """Offsets from Graphcore's index, "offset size" a line, or None if it is of no use.

        It spares a large file's whole reading at the start. One of a file of another size is
        passed over, since the file itself tells the same.
        """
        index = self.path.with_suffix(".index")
        try:
            numbers = np.array(index.read_text("ascii").split(), np.int64).reshape(-1, 2)
        except (OSError, ValueError):
            return None
        offsets = np.concatenate([[0], np.cumsum(numbers[:, 1])])
        return offsets if offsets[-1] == self.path.stat().st_size else None

    def _damaged(self, number):
        return InputError(f"{self.path}, record {number}", "damaged, no TFRecord file, or not where "
                          "an .index has it", "copy or make it again")

    def _cut(self, number):
        return InputError(f"{self.path}, record {number}", "the file ends in the midst of it",
                          "copy or make it again")
