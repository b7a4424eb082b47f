"""Pretraining data of whatever format the config names."""

import dataclasses

from configs.errors import InputError
from data.formats.folder import format_of
from data.formats.ready import ReadyMaskedData
from data.mixture import MixedData
from data.pretraining import PretrainingData


def open_pretraining_data(config, split="train"):
    """Open one split of ``config.data``.

    Args:
        config: a resolved ``Config``.
        split: "train" or "held_out".

    Returns:
        PretrainingData, MixedData of several, or ReadyMaskedData; all give batches by the
        rows consumed before.

    Raises:
        InputError: what lies in the folder is missing, damaged, or not what the config says.
    """
    if config.data.mix:
        parts = [open_pretraining_data(_of_folder(config, folder), split)
                 for folder in config.data.mix]
        weights = config.data.mix_weights or [len(part) for part in parts]
        return MixedData(parts, weights, config.train.seed)
    directory, found = config.data.directory, format_of(config.data.directory)
    if config.data.format == "prepared" and found not in (None, "prepared"):
        raise InputError(directory, f"data.format is prepared, but {found} files are there",
                         f"set data.format={found}")
    return (PretrainingData if config.data.format == "prepared" else ReadyMaskedData)(config, split)


def _of_folder(config, folder):
    data = dataclasses.replace(config.data, directory=folder, mix=[], mix_weights=[])
    return dataclasses.replace(config, data=data)
