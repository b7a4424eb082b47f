"""Pretraining data of whatever format the config names."""

from configs.errors import InputError
from data.formats.folder import format_of
from data.formats.ready import ReadyMaskedData
from data.pretraining import PretrainingData


def open_pretraining_data(config, split="train"):
    """Open one split of ``config.data``.

    Args:
        config: a resolved ``Config``.
        split: "train" or "held_out".

    Returns:
        PretrainingData or ReadyMaskedData; both give batches by the samples consumed before.

    Raises:
        InputError: what lies in the folder is missing, damaged, or not what the config says.
    """
    directory, found = config.data.directory, format_of(config.data.directory)
    if config.data.format == "prepared" and found not in (None, "prepared"):
        raise InputError(directory, f"data.format is prepared, but {found} files are there",
                         f"set data.format={found}")
    return (PretrainingData if config.data.format == "prepared" else ReadyMaskedData)(config, split)
