"""Prepared text on disk: token ids that are memory-mapped, never copied, never pickled.

A prepared folder holds ``manifest.json`` (written last), ``token_counts.npy`` and, for
each of ``train`` and ``held_out``, shards of three arrays: ``tokens`` (ids, 2 bytes each
where the vocabulary allows), ``sentences`` (where each starts in tokens) and
``documents`` (where each starts in sentences).
"""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from configs.errors import InputError

SPLITS = ("train", "held_out")
TOKENS_PER_SHARD = 1 << 26
SENTENCES_AT_ONCE = 4096


@dataclass(frozen=True)
class Shard:
    """Whole documents as token ids."""

    tokens: np.ndarray
    """uint16 or uint32 ``[tokens]``"""
    sentences: np.ndarray
    """uint32 ``[sentences + 1]``: first token of each sentence, then the end"""
    documents: np.ndarray
    """uint32 ``[documents + 1]``: first sentence of each document, then the end"""


def file_hash(path):
    """SHA-256 of a file, as hexadecimal text."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def write_prepared(directory, documents, tokenizer, settings):
    """Write a prepared folder whole or not at all.

    Args:
        directory: its final name, which must not exist.
        documents: iterable of ``(split, sentences)``.
        tokenizer: what ``encode``s sentences.
        settings: what the manifest records beside the counts.

    Returns:
        The manifest, a dict.

    Raises:
        InputError: there was no text.
    """
    directory = Path(directory)
    partial = directory.with_name(directory.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        writers = {split: _SplitWriter(partial / split, tokenizer) for split in SPLITS}
        for split, sentences in documents:
            writers[split].add(sentences)
        counts = {split: writer.close() for split, writer in writers.items()}
        if not counts["train"]["tokens"]:
            raise InputError("data.sources", "no text in any file", "check the files")
        np.save(partial / "token_counts.npy", writers["train"].token_counts)
        manifest = {**settings, "counts": counts}
        (partial / "manifest.json").write_text(json.dumps(manifest, indent=2), "utf-8")
        partial.rename(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return manifest


def read_manifest(directory):
    """The manifest of a prepared folder, or None where there is none."""
    path = Path(directory) / "manifest.json"
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError:
        raise InputError(path, "not a manifest", "remove the folder and prepare again") from None


def open_shards(directory, split):
    """Map the shards of a split into memory.

    Raises:
        InputError: a file is missing or cut short.
    """
    folders = sorted((Path(directory) / split).glob("shard_*"))
    return [Shard(*(_map(folder / f"{name}.npy") for name in ("tokens", "sentences", "documents")))
            for folder in folders]


def _map(path):
    try:
        # np.asarray drops the memmap subclass, whose every slice costs a microsecond more.
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise InputError(path, f"not a whole array ({error})",
                         "remove the folder and prepare again") from None


class _SplitWriter:
    """Gathers documents, tokenises many sentences at once, writes a shard when it is full."""

    def __init__(self, directory, tokenizer):
        self.directory, self.tokenizer = directory, tokenizer
        self.dtype = np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32
        self.token_counts = np.zeros(len(tokenizer), np.int64)
        self.totals = {"documents": 0, "sentences": 0, "tokens": 0, "shards": 0}
        self.waiting, self.waiting_sentences = [], 0
        self._start_shard()

    def add(self, sentences):
        self.waiting.append(sentences)
        self.waiting_sentences += len(sentences)
        if self.waiting_sentences >= SENTENCES_AT_ONCE:
            self._encode()

    def close(self):
        """Write what is left and return the totals."""
        self._encode()
        self._write_shard()
        return self.totals

    def _start_shard(self):
        self.tokens, self.token_total = [], 0
        self.sentences, self.documents = [0], [0]

    def _encode(self):
        ids = iter(self.tokenizer.encode(s for document in self.waiting for s in document))
        for document in self.waiting:
            encoded = [next(ids) for _ in document]
            self._append([sentence for sentence in encoded if sentence])
        self.waiting, self.waiting_sentences = [], 0

    def _append(self, document):
        if not document:
            return
        for sentence in document:
            self.tokens.append(np.array(sentence, self.dtype))
            self.token_total += len(sentence)
            self.sentences.append(self.token_total)
        self.documents.append(len(self.sentences) - 1)
        if self.token_total >= TOKENS_PER_SHARD:
            self._write_shard()

    def _write_shard(self):
        if not self.token_total:
            return
        folder = self.directory / f"shard_{self.totals['shards']:05d}"
        folder.mkdir(parents=True)
        tokens = np.concatenate(self.tokens)
        np.save(folder / "tokens.npy", tokens)
        np.save(folder / "sentences.npy", np.array(self.sentences, np.uint32))
        np.save(folder / "documents.npy", np.array(self.documents, np.uint32))
        self.token_counts += np.bincount(tokens, minlength=len(self.token_counts))
        self.totals["tokens"] += self.token_total
        self.totals["sentences"] += len(self.sentences) - 1
        self.totals["documents"] += len(self.documents) - 1
        self.totals["shards"] += 1
        self._start_shard()
