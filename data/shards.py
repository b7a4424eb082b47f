"""Prepared text on disk: token ids that are memory-mapped, never copied, never pickled.

A prepared folder holds ``manifest.json`` (written last) and folders ``shard_NNNNN``, each
with the documents of a stretch of the sources. In a shard, ``train`` and ``held_out`` have
three arrays each: ``tokens`` (codes, 2 bytes each where the vocabulary allows), ``sentences``
(where each starts in tokens) and ``documents`` (where each starts in sentences).

A code is a token's id, or id + vocabulary size where the token goes on with the word of the
token before, as the Chinese word segmenter has it. So word boundaries cost no byte; the rare
id whose sum needs more than two bytes loses its mark.
"""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from configs.errors import InputError
from configs.files import write_json

SPLITS = ("train", "held_out")
ARRAYS = ("tokens", "sentences", "documents")
COUNTS = ("documents", "sentences", "tokens")
COUNTED_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Shard:
    """Whole documents as codes."""

    tokens: np.ndarray
    """uint16 or uint32 ``[tokens]``: codes"""
    sentences: np.ndarray
    """uint32 ``[sentences + 1]``: first token of each sentence, then the end"""
    documents: np.ndarray
    """uint32 ``[documents + 1]``: first sentence of each document, then the end"""

    def counts(self):
        """Documents, sentences and tokens, by name."""
        return {"documents": len(self.documents) - 1, "sentences": len(self.sentences) - 1,
                "tokens": len(self.tokens)}


def make_shard(tokens, sentence_sizes, document_sizes, dtype):
    """A shard of arrays in memory.

    Args:
        tokens: codes ``[tokens]``.
        sentence_sizes: tokens of each sentence.
        document_sizes: sentences of each document.
        dtype: of the stored codes.
    """
    ends = [np.concatenate([[0], np.cumsum(sizes, dtype=np.uint32)]).astype(np.uint32)
            for sizes in (sentence_sizes, document_sizes)]
    return Shard(np.asarray(tokens).astype(dtype), *ends)


def code_dtype(vocabulary_size):
    """The type of stored codes: two bytes where every id fits."""
    return np.uint16 if vocabulary_size <= 1 << 16 else np.uint32


def encode_continuations(tokens, continues, vocabulary_size):
    """Ids and word boundaries as codes, see the module's docstring."""
    largest = np.iinfo(code_dtype(vocabulary_size)).max
    codes = tokens + vocabulary_size * continues
    return np.where(codes <= largest, codes, tokens)


def decode_continuations(codes, vocabulary_size):
    """Codes as ids, and bool of the same shape: whether each goes on with a word."""
    continues = codes >= vocabulary_size
    return codes - vocabulary_size * continues, continues


class ShardWriter:
    """Writes ``directory/shard_NNNNN`` piece by piece; it appears whole or not at all."""

    def __init__(self, directory, number, dtype):
        self.final = Path(directory) / f"shard_{number:05d}"
        self.partial = self.final.with_name(self.final.name + ".partial")
        shutil.rmtree(self.partial, ignore_errors=True)
        self.dtype = dtype
        self.counts = {split: dict.fromkeys(COUNTS, 0) for split in SPLITS}
        self.streams = {}
        for split in SPLITS:
            (self.partial / split).mkdir(parents=True)
            for name in ARRAYS:
                self.streams[split, name] = open(self.partial / split / f"{name}.bin", "wb")
        # Sentences and documents begin with where the first one starts.
        for (_, name), stream in self.streams.items():
            if name != "tokens":
                stream.write(np.zeros(1, np.uint32).tobytes())

    def append(self, split, part):
        """Add the documents of a ``Shard`` in memory."""
        counts = self.counts[split]
        self._write(split, "tokens", part.tokens.astype(self.dtype))
        self._write(split, "sentences", part.sentences[1:] + np.uint32(counts["tokens"]))
        self._write(split, "documents", part.documents[1:] + np.uint32(counts["sentences"]))
        for name, count in part.counts().items():
            counts[name] += count

    def close(self, origin):
        """Let the shard appear.

        Args:
            origin: JSON-ready dict that says which part of the sources it holds.
        """
        self._close_streams()
        record = {**origin, "counts": self.counts, "dtype": np.dtype(self.dtype).name,
                  "files": hash_files(self.partial)}
        write_json(self.partial / "shard.json", record)
        os.replace(self.partial, self.final)

    def abandon(self):
        """Leave nothing behind."""
        self._close_streams()
        shutil.rmtree(self.partial, ignore_errors=True)

    def _write(self, split, name, array):
        self.streams[split, name].write(array.tobytes())

    def _close_streams(self):
        for stream in self.streams.values():
            stream.close()


def read_records(directory):
    """``shard.json`` of each shard, in order."""
    return [read_json(path / "shard.json") for path in shard_folders(directory)]


def shard_folders(directory):
    """Folders of whole shards, in order."""
    return sorted(path for path in Path(directory).glob("shard_*") if path.suffix != ".partial")


def open_shards(directory, split):
    """Map the shards of a split into memory.

    Raises:
        InputError: a file is missing or cut short.
    """
    return [_open_shard(folder, split) for folder in shard_folders(directory)]


def _open_shard(folder, split):
    record = read_json(folder / "shard.json")
    counts = record["counts"][split]
    sizes = {"tokens": counts["tokens"], "sentences": counts["sentences"] + 1,
             "documents": counts["documents"] + 1}
    dtypes = {"tokens": record["dtype"], "sentences": "uint32", "documents": "uint32"}
    return Shard(*(_map(folder / split / f"{name}.bin", dtypes[name], sizes[name])
                   for name in ARRAYS))


def count_tokens(directory, vocabulary_size):
    """How often each token stands in the training split: int64 ``[vocabulary]``."""
    counts = np.zeros(vocabulary_size, np.int64)
    for folder in shard_folders(directory):
        dtype = read_json(folder / "shard.json")["dtype"]
        # Read, not mapped: mapped pages would count as this process's memory.
        with open(folder / "train" / "tokens.bin", "rb") as stream:
            while len(codes := np.fromfile(stream, dtype, COUNTED_AT_ONCE)):
                tokens, _ = decode_continuations(codes.astype(np.int64), vocabulary_size)
                counts += np.bincount(tokens, minlength=vocabulary_size)
    return counts


def read_manifest(directory):
    """The manifest of a prepared folder, or None where there is none."""
    path = Path(directory) / "manifest.json"
    if not path.is_file():
        return None
    manifest = read_json(path)
    if not {"counts", "shards", "vocabulary_tokens"} <= set(manifest):
        raise InputError(path, "is of another version", "remove the folder and prepare again")
    return manifest


def read_json(path):
    """A JSON file that this module wrote."""
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError):
        raise InputError(path, "is missing or damaged",
                         "remove the folder and prepare again") from None


def file_hash(path):
    """SHA-256 of a file, as hexadecimal text."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def hash_files(directory):
    """Hashes of all files below a folder, by relative path."""
    return {str(path.relative_to(directory)): file_hash(path)
            for path in sorted(directory.rglob("*")) if path.is_file()}


def _map(path, dtype, size):
    expected = size * np.dtype(dtype).itemsize
    found = path.stat().st_size if path.is_file() else 0
    if found != expected:
        raise InputError(path, f"has {found} bytes, not {expected}",
                         "remove the folder and prepare again")
    if not size:
        return np.zeros(0, dtype)
    # np.asarray drops the memmap subclass, whose every slice costs a microsecond more.
    return np.asarray(np.memmap(path, dtype, "r", shape=(size,)))
