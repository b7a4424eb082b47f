"""Ready-masked HDF5 and TFRecord files: what they hold comes back, and nothing else is taken."""

import functools
import shutil
import struct
from pathlib import Path

import h5py
import numpy as np
import pytest

from configs.errors import InputError
from configs.load import load_config
from data.batch import word_frequency_loss
from data.formats import ready
from data.formats.example import decode_float, decode_int64, parse_example
from data.formats.record_file import RecordFile
from data.formats.windows import WindowOrder
from data.open import open_pretraining_data
from data.pretraining import PretrainingData
from data.randomness import permutation
from data.tokenizer import open_tokenizer
from tests.fixtures.shards.made_rows import (CLS, DEPTH, LENGTH, MASK, PACKED_LENGTHS,
                                             PACKED_PREDICTIONS, PLAIN_LENGTHS, PREDICTIONS,
                                             Sequence, make_sequences, packed_fields,
                                             plain_fields)

FIXTURES = Path("tests/fixtures/shards")
REAL = Path("../shared/data/shards")
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="the real shards may not be shipped")
HDF5_TYPES = {"input_ids": "i4", "input_mask": "i1", "segment_ids": "i1",
              "masked_lm_positions": "i4", "masked_lm_ids": "i4", "next_sentence_labels": "i1"}


# Files, written and read without the readers under test.


def varint(number):
    """A protobuf varint."""
    number &= (1 << 64) - 1
    bytes_ = []
    while number >= 0x80:
        bytes_.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*bytes_, number])


def field(number, content):
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def encode_example(row):
    """A tf.train.Example of a dict of name to numbers."""
    entries = b""
    for name, values in row.items():
        if isinstance(values[0], float):
            kind, packed = 2, struct.pack(f"<{len(values)}f", *values)
        else:
            kind, packed = 3, b"".join(map(varint, values))
        entries += field(1, field(1, name.encode()) + field(2, field(kind, field(1, packed))))
    return field(1, entries)


def crc32c(data):
    """CRC-32C bit by bit (RFC 3720, appendix B.4)."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def frame(message):
    """A record of a TFRecord file."""
    def masked(data):
        crc = crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % (1 << 32))

    length = struct.pack("<Q", len(message))
    return length + masked(length) + message + masked(message)


def write_tfrecord(path, rows):
    path.write_bytes(b"".join(frame(encode_example(row)) for row in rows))


def write_hdf5(path, rows, **replaced):
    with h5py.File(path, "w") as file:
        for name, dtype in HDF5_TYPES.items():
            values = np.array([row[name] for row in rows])
            values = values[:, 0] if name == "next_sentence_labels" else values
            file.create_dataset(name, data=replaced.get(name, values), dtype=dtype,
                                compression="gzip")


WRITERS = {"hdf5": write_hdf5, "tfrecord": write_tfrecord}


def decode_tfrecord(path):
    """The rows of a TFRecord file, a number at a time."""
    data, place, rows = path.read_bytes(), 0, []
    while place < len(data):
        length, = struct.unpack_from("<Q", data, place)
        (_, features), = read_fields(data[place + 12:place + 12 + length])
        rows.append(dict(decode_feature(entry) for _, entry in read_fields(features)))
        place += length + 16
    return rows


def decode_feature(entry):
    (_, name), (_, feature) = read_fields(entry)
    (kind, values), = read_fields(feature)
    (_, packed), = read_fields(values)
    if kind == 2:
        return name.decode(), list(struct.unpack(f"<{len(packed) // 4}f", packed))
    numbers, place = [], 0
    while place < len(packed):
        number, place = read_varint(packed, place)
        numbers.append(number)
    return name.decode(), numbers


def read_fields(message):
    fields, place = [], 0
    while place < len(message):
        tag, place = read_varint(message, place)
        length, place = read_varint(message, place)
        fields.append((tag >> 3, message[place:place + length]))
        place += length
    return fields


def read_varint(message, place):
    number = shift = 0
    while True:
        number |= (message[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if message[place - 1] < 0x80:
            return number, place


def plain_sequence(row):
    """What a plain row says, as a ``Sequence``."""
    count, weights = sum(row["input_mask"]), row["masked_lm_weights"]
    masked = [position for position, weight in zip(row["masked_lm_positions"], weights) if weight]
    tokens = list(row["input_ids"][:count])
    shown = [tokens[position] for position in masked]
    for position, token in zip(masked, row["masked_lm_ids"]):
        tokens[position] = token
    return Sequence(tokens, row["segment_ids"][:count], masked, shown,
                    row["next_sentence_labels"][0])


def packed_sequences(row):
    """What a packed row says, as a list of ``Sequence``."""
    return [packed_sequence(row, number) for number in range(1, max(row["packed_input_mask"]) + 1)]


def packed_sequence(row, number):
    own = [slot for slot, mark in enumerate(row["packed_input_mask"]) if mark == number]
    own.sort(key=lambda slot: row["packed_position_ids"][slot])
    tokens = [row["packed_input_ids"][slot] for slot in own]
    masked, shown = [], []
    for slot, token, mark in zip(row["packed_masked_lm_positions"], row["packed_masked_lm_ids"],
                                 row["packed_masked_lm_mask"]):
        if mark == number:
            masked.append(own.index(slot))
            shown.append(tokens[masked[-1]])
            tokens[masked[-1]] = token
    return Sequence(tokens, [row["packed_segment_ids"][slot] for slot in own], masked, shown,
                    row["packed_next_sentence_labels"][-number])


# Batches, read back.


def sequences_of(batch):
    """The sequences of each row of a batch: a list of lists."""
    return [[sequence_of(batch, row, number)
             for number in range(1, batch.sequence_id[row].max() + 1)]
            for row in range(len(batch))]


def sequence_of(batch, row, number):
    weights = batch.labels["masked_lm_weights"][row]
    tokens = batch.input_ids[row].copy()
    slots = np.flatnonzero(batch.sequence_id[row] == number)
    slots = slots[np.argsort(batch.position_ids[row][slots])]
    assert batch.position_ids[row][slots].tolist() == list(range(len(slots)))
    assert slots[0] == len(weights) + number - 1  # where the pooler reads [CLS]
    predicted = np.isin(slots, np.flatnonzero(weights))
    shown = tokens[slots[predicted]].tolist()
    tokens[:len(weights)][weights > 0] = batch.labels["masked_lm_labels"][row][weights > 0]
    return Sequence(tokens[slots].tolist(), batch.token_type_ids[row][slots].tolist(),
                    np.flatnonzero(predicted).tolist(), shown,
                    int(batch.labels["pair_labels"][row][number - 1]))


def make_config(directory, data_format, *overrides, packed=False):
    predictions, depth = (PACKED_PREDICTIONS, DEPTH) if packed else (PREDICTIONS, 1)
    return load_config("configs/pretrain/quickstart.yaml", [
        f"data.directory={directory}", f"data.format={data_format}", "data.held_out_share=0.0",
        f"data.sequence_length={LENGTH}", f"data.max_predictions={predictions}",
        f"data.sequences_per_row={depth}", *overrides])


REAL_SIZES = "data.sequence_length=128", "data.max_predictions=20"
REAL_PACKED_SIZES = "data.sequence_length=128", "data.max_predictions=22"


@pytest.fixture(autouse=True)
def one_tokenizer(monkeypatch):
    """Reading a vocabulary is most of what opening a small file takes."""
    monkeypatch.setattr(ready, "open_tokenizer", read_tokenizer)


read_tokenizer = functools.lru_cache(maxsize=None)(open_tokenizer)


@pytest.fixture
def write(tmp_path):
    """Write rows into one file of a folder of its own; returns the folder."""
    def write(data_format, rows, name="rows", folder="made", **replaced):
        directory = tmp_path / folder
        directory.mkdir(exist_ok=True)
        WRITERS[data_format](directory / f"{name}.{data_format}", rows, **replaced)
        return directory

    return write


def copy_of(source, tmp_path):
    """A folder with a copy of one file."""
    directory = tmp_path / source.name.replace(".", "_")
    directory.mkdir()
    shutil.copy(source, directory)
    return directory


def assert_same(left, right):
    assert left.inputs.keys() == right.inputs.keys() and left.labels.keys() == right.labels.keys()
    for one, other in ((left.inputs, right.inputs), (left.labels, right.labels)):
        for name, array in one.items():
            assert array.dtype == other[name].dtype and (array == other[name]).all(), name


def in_file_order(data, batch):
    """The sequences of one epoch's batch, rows back in the order of the files."""
    order = permutation(data.config.train.seed, 0, len(data))
    sequences = sequences_of(batch)
    return [sequences[place] for place in np.argsort(order)]


# What files hold comes back.


@pytest.mark.parametrize("name", ["plain.hdf5", "plain.tfrecord"])
def test_plain_files_of_tensorflow_and_h5py(name, tmp_path):
    config = make_config(copy_of(FIXTURES / name, tmp_path), name.split(".")[1])
    data = open_pretraining_data(config)
    expected = [[sequence] for sequence in make_sequences(PLAIN_LENGTHS)]
    assert in_file_order(data, data.batch(0, len(PLAIN_LENGTHS))) == expected


def test_packed_file_of_tensorflow(tmp_path):
    config = make_config(copy_of(FIXTURES / "packed.tfrecord", tmp_path), "tfrecord", packed=True)
    data = open_pretraining_data(config)
    batch = data.batch(0, len(PACKED_LENGTHS))
    expected = [make_sequences(lengths, seed) for seed, lengths in enumerate(PACKED_LENGTHS)]
    assert in_file_order(data, batch) == expected
    present = batch.labels["pair_weights"] > 0
    assert present.sum(axis=1).tolist() == batch.sequence_id.max(axis=1).tolist()


def test_hdf5_and_tfrecord_give_identical_batches(write):
    rows = [plain_fields(sequence) for sequence in make_sequences([32, 7, 20, 31, 6] * 20, seed=5)]
    hdf5, tfrecord = (open_pretraining_data(make_config(write(kind, rows, folder=kind), kind))
                      for kind in WRITERS)
    for consumed, count in ((0, 8), (95, 10), (1234, 77)):
        assert_same(hdf5.batch(consumed, count), tfrecord.batch(consumed, count))


def test_types_are_those_of_prepared_data(write, tiny_config):
    rows = [plain_fields(sequence) for sequence in make_sequences([20] * 4)]
    batch = open_pretraining_data(make_config(write("hdf5", rows), "hdf5")).batch(0, 4)
    prepared = PretrainingData(tiny_config()).batch(0, 4)
    for one, other in ((batch.inputs, prepared.inputs), (batch.labels, prepared.labels)):
        assert {name: (array.dtype, array.ndim) for name, array in one.items()} == {
            name: (array.dtype, array.ndim) for name, array in other.items()}


@needs_real
def test_real_hdf5_and_tfrecord_hold_the_same(tmp_path):
    kinds = {"tfrecord": "graphcore_sample_text.tfrecord",
             "hdf5": "sample_text_from_graphcore_tfrecord.hdf5"}
    tfrecord, hdf5 = (
        open_pretraining_data(make_config(copy_of(REAL / name, tmp_path), kind, *REAL_SIZES))
        for kind, name in kinds.items())
    batch = tfrecord.batch(0, 45)
    assert_same(batch, hdf5.batch(0, 45))
    rows = decode_tfrecord(REAL / kinds["tfrecord"])
    assert in_file_order(tfrecord, batch) == [[plain_sequence(row)] for row in rows]
    with h5py.File(REAL / kinds["hdf5"]) as file:
        for name in HDF5_TYPES:
            values = np.array([row[name] for row in rows]).reshape(file[name].shape)
            assert (file[name][:] == values).all(), name


@needs_real
def test_real_packed_file_holds_the_sequences_of_the_plain_one(tmp_path):
    path = REAL / "graphcore_sample_text_packed.tfrecord"
    data = open_pretraining_data(
        make_config(copy_of(path, tmp_path), "tfrecord", *REAL_PACKED_SIZES, packed=True))
    sequences = in_file_order(data, data.batch(0, 44))
    assert sequences == [packed_sequences(row) for row in decode_tfrecord(path)]
    plain = map(plain_sequence, decode_tfrecord(REAL / "graphcore_sample_text.tfrecord"))
    assert sorted(map(repr, sum(sequences, []))) == sorted(map(repr, plain))


def test_a_masked_token_in_the_first_slot_of_a_packed_row(write):
    # Only packed_masked_lm_mask tells position 0 from the padding of the list.
    sequence = Sequence([CLS, 1000, 102, 1001, 102], [0, 0, 0, 1, 1], [1, 3], [MASK, MASK], 1)
    row = packed_fields([sequence, sequence])
    assert row["packed_masked_lm_positions"] == [0, 2, 4, 6, 0, 0, 0]
    data = open_pretraining_data(make_config(write("tfrecord", [row]), "tfrecord", packed=True))
    assert sequences_of(data.batch(0, 1)) == [[sequence, sequence]]


def test_free_prediction_slots_weigh_nothing_whatever_they_hold(write):
    sequences = make_sequences([20, 9, 32, 6])
    batches = []
    for number, (position, token) in enumerate([(0, 0), (0, 10**6), (7, 9), (99, -1)]):
        rows = [plain_fields(sequence, position, token) for sequence in sequences]
        directory = write("tfrecord", rows, folder=f"free_{number}")
        batches.append(open_pretraining_data(make_config(directory, "tfrecord")).batch(0, 4))
        if not position:
            directory = write("hdf5", rows, folder=f"free_hdf5_{number}")
            batches.append(open_pretraining_data(make_config(directory, "hdf5")).batch(0, 4))
    for batch in batches:
        assert_same(batch, batches[0])
        weights = batch.labels["masked_lm_weights"]
        assert np.count_nonzero(weights) == sum(len(s.masked) for s in sequences) < weights.size
        assert weights.sum() == pytest.approx(1)


def test_pair_weights_are_a_mean_over_sequences(write):
    rows = [packed_fields(make_sequences(lengths)) for lengths in ([32], [9, 9], [8, 9, 10])]
    data = open_pretraining_data(make_config(write("tfrecord", rows), "tfrecord", packed=True))
    weights = data.batch(0, 3).labels["pair_weights"]
    assert np.unique(weights).tolist() == pytest.approx([0, 1 / 6])
    assert (weights > 0).sum() == 6
    config = make_config(data.config.data.directory, "tfrecord", "data.pair_objective=none",
                         packed=True)
    assert set(open_pretraining_data(config).batch(0, 3).labels) == {"masked_lm_labels",
                                                                    "masked_lm_weights"}


# Order, splits, files.


@pytest.fixture
def forty(write):
    """Opens 40 rows of two files, whose first words are 1000, 1001, …, in windows of 7 rows."""
    rows = [plain_fields(sequence) for sequence in make_sequences([20] * 40)]
    for number, row in enumerate(rows):
        row["input_ids"][1] = 1000 + number
        row["masked_lm_weights"] = [float(p > 1) for p in row["masked_lm_positions"]]
    write("tfrecord", rows[:13], name="a")
    directory = write("tfrecord", rows[13:], name="b")
    return lambda *overrides, split="train": open_pretraining_data(
        make_config(directory, "tfrecord", *overrides), split)


def numbers_of(batch):
    """Which of the forty rows are in a batch."""
    return [sequence.tokens[1] - 1000 for sequence, in sequences_of(batch)]


def test_rows_of_one_window_come_in_the_permutation_of_the_epoch(forty):
    data = forty()
    for epoch in range(3):
        order = permutation(data.config.train.seed, epoch, 40).tolist()
        assert numbers_of(data.batch(40 * epoch, 40)) == order


def test_windows_cover_every_row_once_an_epoch(forty, monkeypatch):
    monkeypatch.setattr(ready, "WINDOW", 7)
    data = forty()
    epochs = [numbers_of(data.batch(40 * epoch, 40)) for epoch in range(4)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(40))
    assert len(set(map(tuple, epochs))) == 4
    # Windows come whole: of the first seven rows or so, all lie side by side.
    assert {number // 7 for number in epochs[0][:5]} == {epochs[0][0] // 7}
    assert epochs[0][:5] != sorted(epochs[0][:5])
    inner = {tuple(number % 7 for number in epochs[0] if number // 7 == window)
             for window in range(5)}
    assert len(inner) == 5


def test_any_batch_can_be_made_first_and_epochs_cross(forty, monkeypatch):
    monkeypatch.setattr(ready, "WINDOW", 7)
    data = forty()
    run = numbers_of(data.batch(0, 100))
    for consumed, count in ((37, 9), (0, 3), (39, 1), (40, 1), (78, 4), (6, 1)):
        assert numbers_of(forty().batch(consumed, count)) == run[consumed:consumed + count]


def test_a_seek_reads_one_window_and_decodes_the_rows_alone(forty, monkeypatch):
    monkeypatch.setattr(ready, "WINDOW", 7)
    data, read, decoded = forty(), [], []
    load, decode = RecordFile.read, type(data.stored.shards[0]).decode
    monkeypatch.setattr(RecordFile, "read", lambda file, start, stop: (
        read.append(stop - start), load(file, start, stop))[1])
    monkeypatch.setattr(type(data.stored.shards[0]), "decode", lambda shard, records, numbers: (
        decoded.append(len(records)), decode(shard, records, numbers))[1])
    far = 40 * 10**12 + 1  # in the first window of its epoch
    data.batch(far, 2)
    assert sum(read) <= 7 and sum(decoded) == 2
    data.batch(far + 2, 2)
    assert sum(read) <= 7 and sum(decoded) == 4


def test_order_of_many_rows_needs_no_list_of_them():
    order = WindowOrder(1, 10**9, 1 << 14)
    (window, rows), = order.visits(7 * 10**9 + 5, 3)
    assert len(rows) == 3 and 0 <= window < order.windows and rows.max() < 1 << 14


def test_two_replicas_read_every_sample_once(forty, monkeypatch):
    monkeypatch.setattr(ready, "WINDOW", 7)
    replicas, seen = [forty(), forty()], []
    for step in range(5):
        for number, data in enumerate(replicas):
            own = data.batch(8 * step + 4 * number, 4)
            whole = data.batch(8 * step, 8).rows(4 * number, 4 * number + 4)
            assert all((array == own.inputs[name]).all() for name, array in whole.inputs.items())
            seen += numbers_of(own)
    assert sorted(seen) == list(range(40))


def test_the_last_rows_are_held_out(forty):
    train, held_out = (forty("data.held_out_share=0.1", split=split)
                       for split in ("train", "held_out"))
    assert (len(train), len(held_out)) == (36, 4)
    assert sorted(numbers_of(held_out.batch(0, 4))) == [36, 37, 38, 39]
    assert sorted(numbers_of(train.batch(0, 36))) == list(range(36))
    with pytest.raises(InputError, match="40 rows, none of which fall to the held_out split"):
        forty(split="held_out")


def test_word_frequency_loss_against_a_plain_sum(write, monkeypatch):
    monkeypatch.setattr(ready, "WINDOW", 7)
    monkeypatch.setattr(ready, "COUNTED_WINDOWS", 100)
    rows = [plain_fields(sequence) for sequence in make_sequences([20] * 40, end=1010)]
    config = make_config(write("tfrecord", rows), "tfrecord", "data.held_out_share=0.1")
    train, held_out = (open_pretraining_data(config, split) for split in ("train", "held_out"))
    counts = np.ones(30522)
    for sequence, in sequences_of(train.batch(0, 36)):
        for token in sequence.tokens:
            counts[token] += token not in (101, 102)
    batch = held_out.batch(0, 4)
    labels = [label for sequence, in sequences_of(batch) for label in sequence.labels]
    expected = -np.log(counts[labels] / counts.sum()).mean()
    assert word_frequency_loss(train.token_counts, batch) == pytest.approx(expected, rel=1e-6)
    assert word_frequency_loss(held_out.token_counts, batch) == pytest.approx(expected, rel=1e-6)
    monkeypatch.setattr(ready, "COUNTED_WINDOWS", 2)  # the first and the last, of 7 and 1 rows
    assert open_pretraining_data(config).token_counts.sum() == 8 * 17


def write_index(path):
    """Graphcore's index of a TFRecord file."""
    lines, place, data = [], 0, path.read_bytes()
    while place < len(data):
        size = struct.unpack_from("<Q", data, place)[0] + 16
        lines.append(f"{place} {size}\n")
        place += size
    path.with_suffix(".index").write_text("".join(lines))


def test_an_index_is_used_and_a_foreign_one_passed_over(forty, monkeypatch):
    data = forty()
    expected, paths = data.batch(0, 40), [shard.path for shard in data.stored.shards]
    for path in paths:
        write_index(path)
    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "_scan", None)  # an index makes it needless
        assert_same(forty().batch(0, 40), expected)
    index = paths[0].with_suffix(".index")
    own = index.read_text().splitlines()
    for text in (paths[1].with_suffix(".index").read_text(), "0 7\n", "x y\n", "0\n", ""):
        index.write_text(text)
        assert_same(forty().batch(0, 40), expected)
    # Two records taken for one: the second would be lost without a word.
    merged = sum(int(line.split()[1]) for line in own[:2])
    index.write_text("\n".join([f"0 {merged}", *own[2:]]))
    with pytest.raises(InputError, match="a.tfrecord, record 0: .*not where an .index has it"):
        forty()


def test_one_shard_with_one_row(write):
    sequence, = make_sequences([20])
    for kind in WRITERS:
        directory = write(kind, [plain_fields(sequence)], folder=kind)
        data = open_pretraining_data(make_config(directory, kind))
        assert len(data) == 1
        assert sequences_of(data.batch(5, 3)) == [[sequence]] * 3


# Refusals.


def refused(config, *texts):
    """The one line in which ``config`` is refused, at the latest at the first batch."""
    with pytest.raises(InputError) as caught:
        data = open_pretraining_data(config)
        data.batch(0, len(data))
    message = str(caught.value)
    for text in texts:
        assert text in message
    return message


def test_sizes_that_differ_from_the_config_are_named(write):
    plain = [plain_fields(sequence) for sequence in make_sequences([20, 9])]
    packed = [packed_fields(make_sequences([9, 9]))]
    for kind in WRITERS:
        directory = write(kind, plain, folder=f"plain_{kind}")
        file = f"rows.{kind}: "
        refused(make_config(directory, kind, "data.sequence_length=64"), file,
                "32 slots a row, but data.sequence_length is 64; set data.sequence_length=32")
        refused(make_config(directory, kind, "data.max_predictions=6"), file,
                "5 predictions a row, but data.max_predictions is 6; set data.max_predictions=5")
        refused(make_config(directory, kind, packed=True), file,
                "1 sequences a row, but data.sequences_per_row is 3")
    directory = write("tfrecord", packed, folder="packed")
    refused(make_config(directory, "tfrecord"), "rows.tfrecord: ",
            "3 sequences a row, but data.sequences_per_row is 1")


@needs_real
@pytest.mark.parametrize("name", ["graphcore_sample_text.tfrecord",
                                  "sample_text_from_graphcore_tfrecord.hdf5"])
@pytest.mark.parametrize("length, predictions, text", [
    (128, 76, "20 predictions a row, but data.max_predictions is 76"),
    (384, 20, "128 slots a row, but data.sequence_length is 384")])
def test_real_files_of_other_sizes(name, length, predictions, text, tmp_path):
    config = make_config(copy_of(REAL / name, tmp_path), name.split(".")[1],
                         f"data.sequence_length={length}", f"data.max_predictions={predictions}")
    refused(config, name, text)


@needs_real
def test_real_truncated_hdf5(tmp_path):
    shutil.copy(REAL / "sample_text_from_graphcore_tfrecord.hdf5", tmp_path / "a.hdf5")
    shutil.copy(REAL / "truncated_70pct.hdf5", tmp_path)
    refused(make_config(tmp_path, "hdf5", *REAL_SIZES), "truncated_70pct.hdf5: no whole HDF5 file")


def test_a_cut_file_is_named(write):
    rows = [plain_fields(sequence) for sequence in make_sequences([20] * 3)]
    for kind in WRITERS:
        directory = write(kind, rows, folder=kind)
        whole = (directory / f"rows.{kind}").read_bytes()
        for size in (len(whole) - 1, len(whole) * 7 // 10, 20, 5):
            (directory / f"rows.{kind}").write_bytes(whole[:size])
            refused(make_config(directory, kind), f"rows.{kind}", "copy or make it again")


def test_an_empty_file_is_named(write, tmp_path):
    (tmp_path / "rows.tfrecord").touch()
    refused(make_config(tmp_path, "tfrecord"), "rows.tfrecord: is empty")
    (tmp_path / "rows.hdf5").touch()
    refused(make_config(tmp_path, "hdf5"), "rows.hdf5: no whole HDF5 file")
    rows = [plain_fields(sequence) for sequence in make_sequences([20])]
    none = {name: np.zeros((0, *np.shape(rows[0][name])[:name != "next_sentence_labels"]))
            for name in HDF5_TYPES}
    directory = write("hdf5", rows, name="none", folder="none", **none)
    refused(make_config(directory, "hdf5"), "none.hdf5: ", "no rows")


@pytest.mark.parametrize("kind", WRITERS)
def test_a_folder_without_such_files_is_named(kind, write, tmp_path, prepared):
    refused(make_config(tmp_path / "nowhere", kind), "nowhere: no such folder")
    (tmp_path / "notes.txt").touch()
    refused(make_config(tmp_path, kind), f"{tmp_path}: no file named *.", "check data.directory")
    refused(make_config(prepared, kind), f"{prepared}: no file named *.",
            "set data.format=prepared")


def test_the_other_format_is_named(write):
    rows = [plain_fields(sequence) for sequence in make_sequences([20])]
    for kind, other in (("hdf5", "tfrecord"), ("tfrecord", "hdf5")):
        directory = write(kind, rows, folder=kind)
        refused(make_config(directory, other), f"set data.format={kind}")
        refused(make_config(directory, "prepared"), "data.format is prepared",
                f"set data.format={kind}")


def test_prepared_data_is_opened_as_before(tiny_config):
    for split in ("train", "held_out"):
        assert isinstance(open_pretraining_data(tiny_config(), split), PretrainingData)


def test_another_vocabulary_is_refused_when_files_are_opened(write):
    sequence = Sequence([CLS, 25000, 102, 1001, 102], [0, 0, 0, 1, 1], [3], [MASK], 1)
    for kind in WRITERS:
        directory = write(kind, [plain_fields(sequence)], folder=kind)
        chinese = make_config(directory, kind, "model.vocabulary=data/vocabularies/"
                              "bert_base_chinese.txt", "model.vocab_size=21128")
        with pytest.raises(InputError, match=f"rows.{kind}, row 0: an id outside the "
                                             "vocabulary's 21128 tokens"):
            open_pretraining_data(chinese)
        # Every id exists there, but [CLS] is another.
        ernie = make_config(directory, kind, "model.vocabulary=data/vocabularies/"
                            "ernie_3.0_zh.txt", "model.vocab_size=40000")
        with pytest.raises(InputError, match="does not start with \\[CLS\\], 1;.*ernie_3.0_zh"):
            open_pretraining_data(ernie)


PLAIN_DAMAGE = {
    "a masked position twice": {"masked_lm_positions": [3, 3, 5, 0, 0]},
    "a masked position on padding": {"masked_lm_positions": [3, 4, 25, 0, 0]},
    "a masked position on [CLS]": {"masked_lm_positions": [0, 4, 5, 0, 0]},
    "segment id": {"segment_ids": [2] * LENGTH},
    "next-sentence label": {"next_sentence_labels": [2]},
    "sequences that are not numbered": {"input_mask": [2] * LENGTH},
    "sequences that are not numbered from": {"input_mask": [0] * LENGTH},
    "an id outside the vocabulary": {"input_ids": [CLS, -5] + [1000] * 30},
    "an id to predict outside the vocabulary": {"masked_lm_ids": [1000, 1000, 30522, 0, 0]},
}


@pytest.mark.parametrize("fault", PLAIN_DAMAGE)
def test_plain_rows_that_contradict_themselves(fault, write):
    first, second = (plain_fields(sequence) for sequence in make_sequences([20, 20]))
    assert second["masked_lm_weights"] == [1, 1, 1, 0, 0]
    second.update(PLAIN_DAMAGE[fault])
    message = refused(make_config(write("tfrecord", [first, second]), "tfrecord"),
                      "rows.tfrecord, row 1: ")
    assert fault.split()[-1] in message


@pytest.mark.parametrize("position", [-1, LENGTH, 99])
def test_a_masked_position_beyond_the_row(position, write):
    row = plain_fields(make_sequences([LENGTH])[0])
    row["masked_lm_positions"][2] = position
    for kind in WRITERS:
        refused(make_config(write(kind, [row], folder=kind), kind), f"rows.{kind}, row 0: ",
                "a masked position")


@pytest.mark.parametrize("number", [0, 19])
def test_the_row_is_named_in_whichever_file_it_lies(number, forty, monkeypatch):
    monkeypatch.setattr(ready, "WINDOW", 7)
    monkeypatch.setattr(ready, "CHECKED_ROWS", 1)
    path = forty().stored.shards[1].path
    rows = decode_tfrecord(path)
    rows[number]["segment_ids"][4] = 2
    write_tfrecord(path, rows)
    with pytest.raises(InputError, match=f"b.tfrecord, row {number}: a segment id"):
        forty().batch(0, 40)


def change(name, place, value):
    """A packed row of sequences of 9 and 12 tokens with one number changed."""
    row = packed_fields(make_sequences([9, 12]))
    row[name][place] = value
    return row


@pytest.mark.parametrize("name, place, value", [
    ("packed_input_mask", -1, 3), ("packed_input_mask", -2, 0), ("packed_input_mask", 0, 4),
    ("packed_input_mask", 5, 3),
    ("packed_position_ids", 0, 0), ("packed_position_ids", -1, 1), ("packed_position_ids", 3, 32),
    ("packed_next_sentence_mask", 2, 0.0), ("packed_next_sentence_mask", 0, 1.0),
    ("packed_masked_lm_positions", 0, 31), ("packed_masked_lm_positions", 0, 25)])
def test_packed_rows_that_contradict_themselves(name, place, value, write):
    good = packed_fields(make_sequences([9, 12]))
    directory = write("tfrecord", [good, change(name, place, value)])
    refused(make_config(directory, "tfrecord", packed=True), "rows.tfrecord, row 1: ")


def test_packed_rows_without_a_first_or_second_sequence(write):
    sequences = make_sequences([9, 12])
    row = packed_fields(sequences)
    for name in ("packed_input_mask", "packed_masked_lm_mask"):
        row[name] = [type(number)(3) if number == 2 else number for number in row[name]]
    row["packed_next_sentence_mask"] = [1.0, 0.0, 1.0]
    empty = {**packed_fields([]), "packed_masked_lm_mask": [0.0] * PACKED_PREDICTIONS}
    for wrong in (row, empty):
        directory = write("tfrecord", [packed_fields(sequences), wrong])
        refused(make_config(directory, "tfrecord", packed=True), "rows.tfrecord, row 1: ",
                "not numbered from 1")


def test_records_of_uneven_size_are_refused(write):
    first, second = (plain_fields(sequence) for sequence in make_sequences([20, 20]))
    for name in ("input_ids", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels"):
        short = {**second, name: second[name][:-1] or [0, 0]}
        for rows in ([first, short], [short, first], [short]):
            directory = write("tfrecord", rows)
            refused(make_config(directory, "tfrecord"), "rows.tfrecord: ", "uneven size")


def test_a_later_record_of_another_size_is_refused(write, monkeypatch):
    monkeypatch.setattr(ready, "CHECKED_ROWS", 1)
    first, second = (plain_fields(sequence) for sequence in make_sequences([20, 20]))
    shorter = {name: values[:-1] if name in ("input_ids", "input_mask", "segment_ids") else values
               for name, values in second.items()}
    data = open_pretraining_data(make_config(write("tfrecord", [first, shorter]), "tfrecord"))
    with pytest.raises(InputError, match="rows.tfrecord: records of uneven size .*31, 5, 1"):
        [data.batch(position, 1) for position in range(2)]


def test_features_that_are_missing_or_of_another_type(write):
    row = plain_fields(make_sequences([20])[0])
    for name in row:
        without = {key: values for key, values in row.items() if key != name}
        directory = write("tfrecord", [without])
        refused(make_config(directory, "tfrecord"), "record 0", f"no feature {name} ")
    floats = {**row, "input_ids": [float(token) for token in row["input_ids"]]}
    refused(make_config(write("tfrecord", [floats]), "tfrecord"), "no feature input_ids of the")


def test_hdf5_without_a_dataset_or_of_odd_shapes(write):
    rows = [plain_fields(sequence) for sequence in make_sequences([20, 9])]
    directory = write("hdf5", rows)
    with h5py.File(directory / "rows.hdf5", "a") as file:
        del file["masked_lm_ids"]
    refused(make_config(directory, "hdf5"), "rows.hdf5: no dataset masked_lm_ids")
    for name, shape in (("input_mask", (2, 31)), ("segment_ids", (2,)), ("input_ids", (3, 32)),
                        ("masked_lm_ids", (2, 4)), ("next_sentence_labels", (3,))):
        directory = write("hdf5", rows, **{name: np.zeros(shape)})
        refused(make_config(directory, "hdf5"), "rows.hdf5: shapes that do not belong together")


def test_a_damaged_chunk_of_hdf5_is_named(write):
    rows = [plain_fields(sequence) for sequence in make_sequences([20] * 50)]
    directory = write("hdf5", rows)
    with h5py.File(directory / "rows.hdf5") as file:
        chunk = file["input_ids"].id.get_chunk_info(0)
    data = bytearray((directory / "rows.hdf5").read_bytes())
    data[chunk.byte_offset + 10:chunk.byte_offset + 30] = bytes(20)
    (directory / "rows.hdf5").write_bytes(data)
    refused(make_config(directory, "hdf5"), "rows.hdf5: no whole HDF5 file")


def test_every_flipped_byte_of_a_record_is_seen(write):
    rows = [plain_fields(sequence) for sequence in make_sequences([20] * 3)]
    path = write("tfrecord", rows) / "rows.tfrecord"
    whole = path.read_bytes()
    offsets = RecordFile(path).offsets.tolist()
    write_index(path)
    for with_index in (True, False):
        for place in range(offsets[1], offsets[2]):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << place % 8
            path.write_bytes(damaged)
            with pytest.raises(InputError, match="rows.tfrecord, record 1: (damaged|the file en)"):
                RecordFile(path).read(0, 3)
        path.with_suffix(".index").unlink(missing_ok=True)


# The decoder of messages.


def test_numbers_of_every_length():
    numbers = [0, 1, 127, 128, 16383, 16384, 2**31, 2**35 + 9, 2**56, 2**63 - 1, -1, -2**63]
    lists = [field(1, b"".join(map(varint, order))) for order in (numbers, numbers[::-1])]
    assert decode_int64(lists).tolist() == [numbers, numbers[::-1]]


@pytest.mark.parametrize("lists, text", [
    ([field(1, b"\x01\x02"), field(1, b"\x01")], "of 1 and of 2 values"),
    ([field(1, b"\x01\x82"), field(1, b"\x01\x02")], "cut"),
    ([b"\x08\x01\x08\x02"], "not packed"), ([b""], "no values"), ([field(1, b"")], "no values")])
def test_odd_lists_are_refused(lists, text):
    with pytest.raises(ValueError, match=text):
        decode_int64(lists)


def test_floats():
    assert decode_float([field(1, struct.pack("<2f", 0.5, -2.0))]).tolist() == [[0.5, -2.0]]
    with pytest.raises(ValueError, match="of 1 and of 2 values"):
        decode_float([field(1, bytes(4)), field(1, bytes(8))])


def test_long_names_and_other_features_are_passed_over():
    long = {"x" * 300: [7] * 20_000, "name": [1, 2]}
    assert {name: (kind, decode_int64([values]).tolist()[0])
            for name, (kind, values) in parse_example(encode_example(long)).items()} == {
        b"x" * 300: (3, [7] * 20_000), b"name": (3, [1, 2])}
    with_bytes = field(1, field(1, field(1, b"raw") + field(2, field(1, field(1, b"ab") * 2))))
    assert parse_example(with_bytes) == {b"raw": (1, field(1, b"ab") * 2)}
    list_ = field(3, field(1, b"\x01"))
    for odd in (field(1, b"x") + field(2, list_ * 2), field(1, b"x") + field(2, list_) * 2,
                field(2, list_) + field(1, b"x"), field(1, b"x") + field(3, list_)):
        with pytest.raises(ValueError, match="other fields|too early"):
            parse_example(field(1, field(1, odd)))


def test_a_message_cut_anywhere_is_refused():
    message = encode_example({"one": [1, 2, 300], "two": [0.5]})
    for size in range(len(message)):
        with pytest.raises(ValueError):
            parse_example(message[:size])
    (_, features), = read_fields(message)
    first, second = (field(*entry) for entry in read_fields(features))
    for size in range(1, len(second)):
        with pytest.raises(ValueError):
            parse_example(field(1, first + second[:size]))
    with pytest.raises(ValueError):
        parse_example(message + b"\x0a\x00")
