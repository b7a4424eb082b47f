"""TFRecord files of masked rows: Google's layout, and Graphcore's of packed rows.

See google-research/bert, ``create_pretraining_data.py``, and graphcore/examples,
``nlp/bert/pytorch/data/packing/pack_pretraining_data.py``. In a packed row [CLS] of the
i-th sequence stands in the i-th slot from the end, and so do the sequences' labels.
"""

import numpy as np

from configs.errors import InputError
from data.formats.example import FLOAT_LIST, INT64_LIST, decode_float, decode_int64, parse_example
from data.formats.record_file import RecordFile
from data.formats.stored_rows import StoredRows

PATTERNS = ("*.tfrecord", "*.tfrecords", "*.tf_record", "*.tfrecord-*-of-*")

_PLAIN = {"input_ids": INT64_LIST, "input_mask": INT64_LIST, "segment_ids": INT64_LIST,
          "masked_lm_positions": INT64_LIST, "masked_lm_ids": INT64_LIST,
          "masked_lm_weights": FLOAT_LIST, "next_sentence_labels": INT64_LIST}
_PACKED = {"packed_input_ids": INT64_LIST, "packed_input_mask": INT64_LIST,
           "packed_segment_ids": INT64_LIST, "packed_position_ids": INT64_LIST,
           "packed_masked_lm_positions": INT64_LIST, "packed_masked_lm_ids": INT64_LIST,
           "packed_masked_lm_mask": FLOAT_LIST, "packed_next_sentence_labels": INT64_LIST,
           "packed_next_sentence_mask": FLOAT_LIST}
_DECODERS = {INT64_LIST: decode_int64, FLOAT_LIST: decode_float}


class TFRecordShard:
    """One file, plain or packed."""

    def __init__(self, path):
        """Find the records and read the first.

        Raises:
            InputError: the file is empty, cut, damaged, or of another layout.
        """
        self.path = path
        self.records = RecordFile(path)
        first = self.records.read(0, 1)
        is_packed = b"packed_input_ids" in self._parse(first[0], 0)
        self.layout, self.convert = (_PACKED, _packed_rows) if is_packed else (_PLAIN, _plain_rows)
        self.widths = self.decode(first, [0]).widths
        self.sequence_length, self.max_predictions, self.sequences_per_row = self.widths

    def __len__(self):
        return len(self.records)

    def load(self, start, stop):
        """Rows ``start`` to ``stop``, decoded when they are taken.

        Raises:
            InputError: a record is damaged.
        """
        return _LoadedRecords(self, start, self.records.read(start, stop))

    def decode(self, records, numbers):
        """Some records as ``StoredRows``.

        Args:
            records: list of bytes.
            numbers: which records of the file they are, to be named.

        Raises:
            InputError: one is of another layout, or they are not of one size.
        """
        examples = [self._parse(record, number) for record, number in zip(records, numbers)]
        try:
            rows = self.convert({name: _DECODERS[kind](self._lists(examples, numbers, name, kind))
                                 for name, kind in self.layout.items()})
            rows.widths
        except ValueError as error:
            raise InputError(self.path, f"records of uneven size ({error})",
                             "make the file again") from None
        return rows

    def _lists(self, examples, numbers, name, kind):
        lists = []
        for example, number in zip(examples, numbers):
            found, values = example.get(name.encode(), (None, b""))
            if found != kind:
                raise InputError(f"{self.path}, record {number}",
                                 f"no feature {name} of the right type",
                                 f"make files with {', '.join(self.layout)}")
            lists.append(values)
        return lists

    def _parse(self, record, number):
        try:
            return parse_example(record)
        except ValueError as error:
            raise InputError(f"{self.path}, record {number}", f"no tf.train.Example ({error})",
                             "make the file again") from None


class _LoadedRecords:
    """Records of a file in memory. Decoding is the costly part, so only some are decoded."""

    def __init__(self, shard, start, records):
        self.shard, self.start, self.records = shard, start, records

    def take(self, numbers):
        """Some of the records, counted from the first one loaded, as ``StoredRows``.

        Raises:
            InputError: one is of another layout or size than the file's first.
        """
        shard = self.shard
        rows = shard.decode([self.records[number] for number in numbers], self.start + numbers)
        if rows.widths != shard.widths:
            raise InputError(shard.path, f"records of uneven size ({rows.widths} slots, "
                             f"predictions and sequences, but {shard.widths} in the first)",
                             "make the file again")
        return rows


def _plain_rows(fields):
    shape = fields["input_ids"].shape
    return StoredRows(
        fields["input_ids"], fields["segment_ids"],
        np.broadcast_to(np.arange(shape[1]), shape), fields["input_mask"],
        fields["masked_lm_positions"], fields["masked_lm_ids"], fields["masked_lm_weights"] > 0,
        fields["next_sentence_labels"], np.ones((shape[0], 1), bool))


def _packed_rows(fields):
    return StoredRows(
        fields["packed_input_ids"], fields["packed_segment_ids"], fields["packed_position_ids"],
        fields["packed_input_mask"], fields["packed_masked_lm_positions"],
        fields["packed_masked_lm_ids"],
        # Position 0 may be masked here, so that only the mask tells a free slot.
        fields["packed_masked_lm_mask"] > 0,
        fields["packed_next_sentence_labels"][:, ::-1],
        fields["packed_next_sentence_mask"][:, ::-1] > 0)
