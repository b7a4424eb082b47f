"""Checkpoints: a folder that appears whole or not at all, opened by ``transformers`` as it is.

``model.safetensors``, ``config.json`` and the vocabulary are in the Hugging Face layout;
``optimizer.safetensors`` holds the moments and the loss scale, ``state.json`` the step, the
samples consumed, the resolved config and the hash of every other file and of itself.
"""

import hashlib
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
_PARTIAL = ".partial"
_MAKE_ROOM = "make room or choose another --output, then go on with --resume"


def save_checkpoint(directory, write_model, optimizer_arrays, state):
    """Write ``directory/step_NNNNNNNN``.

    Args:
        directory: the run's ``checkpoints`` folder.
        write_model: called with the folder to write the model's files into.
        optimizer_arrays: numpy arrays by name.
        state: JSON-ready dict with ``step``.

    Returns:
        The path of the checkpoint.

    Raises:
        InputError: the disk is full or read-only; older checkpoints are untouched.
    """
    final = Path(directory) / f"step_{state['step']:08d}"
    partial = final.with_name(final.name + _PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        write_model(partial)
        save_file(optimizer_arrays, partial / "optimizer.safetensors")
        files = {path.name: file_hash(path) for path in sorted(partial.iterdir())}
        (partial / "state.json").write_text(_to_text({**state, "files": files}), "utf-8")
        _flush(*partial.iterdir())
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        _flush(final.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise InputError(final, f"cannot be written ({error})", _MAKE_ROOM) from None
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return final


def prune_checkpoints(directory, keep_last, keep_every=0, best=None):
    """Delete all but the newest checkpoints and those that are kept for good.

    Args:
        directory: the run's ``checkpoints`` folder.
        keep_last: how many of the newest stay; 0 keeps all.
        keep_every: steps that this divides stay; 0 means none.
        best: step that stays, too.
    """
    checkpoints = _numbered(directory)
    for step, path in checkpoints[keep_last:] if keep_last else []:
        if step != best and not (keep_every and step % keep_every == 0):
            # First out of the way, so that a kill in between leaves no half checkpoint.
            doomed = path.with_name(path.name + _PARTIAL)
            path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)


def remove_partial_checkpoints(directory):
    """Delete what a kill in the middle of writing or deleting left."""
    for path in Path(directory).glob(f"step_*{_PARTIAL}"):
        shutil.rmtree(path, ignore_errors=True)


def newest_checkpoint(directory):
    """The whole checkpoint with the highest step number, or None.

    A damaged one is told of and passed over.
    """
    for _, path in _numbered(directory):
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
        text = (path / "state.json").read_text("utf-8")
        state = json.loads(text)
        state.pop("hash")
        is_whole = text == _to_text(state)
        files = dict(state["files"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise InputError(path, "no whole checkpoint (state.json is missing or damaged)",
                         "take another checkpoint")
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


def _to_text(state):
    """A state as JSON that carries its own hash."""
    digest = hashlib.sha256(json.dumps(state).encode()).hexdigest()
    return json.dumps({**state, "hash": digest}, indent=2)


def _numbered(directory):
    """Pairs of step and path of the checkpoints in a folder, the newest first."""
    numbered = [(int(match.group(1)), path) for path in Path(directory).glob("step_*")
                if (match := _NAME.fullmatch(path.name))]
    return sorted(numbered, reverse=True)


def _flush(*paths):
    """Have files, or the names in a folder, on the disk before anything builds on them."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
