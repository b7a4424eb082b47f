"""Which files of a folder are read, and by what."""

from pathlib import Path

from configs.errors import InputError
from data.formats import hdf5, tfrecord

READERS = {"hdf5": (hdf5.PATTERNS, hdf5.HDF5Shard),
           "tfrecord": (tfrecord.PATTERNS, tfrecord.TFRecordShard)}


def open_shards(data):
    """Open the files of ``data.format`` in ``data.directory``, sorted by name.

    Args:
        data: a ``DataConfig``.

    Raises:
        InputError: there is none, one is damaged, or one has other sizes than the config's.
    """
    directory = Path(data.directory)
    if not directory.is_dir():
        raise InputError(directory, "no such folder", "set data.directory to the files' folder")
    patterns, reader = READERS[data.format]
    shards = [reader(path) for path in _matches(directory, patterns)]
    if not shards:
        raise InputError(directory, f"no file named {' or '.join(patterns)} there",
                         _mend_format(directory))
    for shard in shards:
        _check_sizes(shard, data)
    return shards


def format_of(directory):
    """What ``data.format`` should be for the files of a folder, or None if it has none."""
    if (Path(directory) / "manifest.json").is_file():
        return "prepared"
    for name, (patterns, _) in READERS.items():
        if _matches(Path(directory), patterns):
            return name
    return None


def _matches(directory, patterns):
    paths = {path for pattern in patterns for path in directory.glob(pattern)}
    return sorted(path for path in paths if path.is_file())


def _mend_format(directory):
    found = format_of(directory)
    return f"set data.format={found}, whose files are there" if found else "check data.directory"


def _check_sizes(shard, data):
    for found, key, what in (
            (shard.sequence_length, "sequence_length", "slots a row"),
            (shard.sequences_per_row, "sequences_per_row", "sequences a row"),
            (shard.max_predictions, "max_predictions", "predictions a row")):
        if found != getattr(data, key):
            raise InputError(shard.path, f"{found} {what}, but data.{key} is {getattr(data, key)}",
                             f"set data.{key}={found} or give other files")
