"""Checkpoints: a folder that appears whole or not at all, opened by ``transformers`` as it is.

``model.safetensors``, ``config.json`` and the vocabulary are in the Hugging Face layout;
``optimizer.safetensors`` holds the moments, ``state.json`` the step, the samples consumed,
the resolved config and the hash of every other file.
"""

import json
import os
import re
import shutil
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from configs.errors import InputError
from data.shards import file_hash

_NAME = re.compile(r"step_(\d{8,})")


def save_checkpoint(directory, write_model, optimizer_arrays, state):
    """Write ``directory/step_NNNNNNNN``.

    Args:
        directory: the run's ``checkpoints`` folder.
        write_model: called with the folder to write the model's files into.
        optimizer_arrays: numpy arrays by name.
        state: JSON-ready dict with ``step``.

    Returns:
        The path of the checkpoint.
    """
    final = Path(directory) / f"step_{state['step']:08d}"
    partial = final.with_name(final.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        write_model(partial)
        save_file(optimizer_arrays, partial / "optimizer.safetensors")
        files = {path.name: file_hash(path) for path in sorted(partial.iterdir())}
        (partial / "state.json").write_text(json.dumps({**state, "files": files}, indent=2),
                                            "utf-8")
        _flush(partial)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return final


def newest_checkpoint(directory):
    """The whole checkpoint with the highest step number, or None.

    A damaged one is told of and passed over.
    """
    numbered = [(int(match.group(1)), path) for path in Path(directory).glob("step_*")
                if (match := _NAME.fullmatch(path.name))]
    for _, path in sorted(numbered, reverse=True):
        try:
            read_state(path)
            return path
        except InputError as error:
            print(f"passed over: {error}", flush=True)
    return None


def read_state(path):
    """``state.json`` of a checkpoint whose every file has the hash that it records.

    Raises:
        InputError: a file is missing or changed.
    """
    path = Path(path)
    try:
        state = json.loads((path / "state.json").read_text("utf-8"))
        files = dict(state["files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(path, "no whole checkpoint (state.json is missing or damaged)",
                         "take another checkpoint") from None
    for name, digest in files.items():
        if not (path / name).is_file() or file_hash(path / name) != digest:
            raise InputError(path / name, "is missing or differs from what was saved",
                             "take another checkpoint")
    return state


def read_optimizer(path):
    """The optimizer's arrays by name."""
    file = Path(path) / "optimizer.safetensors"
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise InputError(file, f"cannot be read ({error})") from None


def _flush(directory):
    """Have the files on the disk before the rename makes them count."""
    for path in directory.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
