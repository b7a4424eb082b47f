"""Samples of a corpus, and the two segments that a row is made of.

The recipe is BERT's (``create_pretraining_data.py``): sentences are gathered up to the
row's length, split in two, and for half of the rows the second part is replaced by text
of another document (NSP) or the parts change places (SOP, Lan et al. 2019). Unlike there,
the split, the replacement and the cut are drawn anew each epoch.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from configs.errors import InputError
from data.randomness import uniform

_SHORT, _PAIR = 1, 2  # purposes of random draws


@dataclass(frozen=True)
class Samples:
    """Where each sample's text lies; int64 arrays of one length."""

    shard: np.ndarray
    first_sentence: np.ndarray
    end_sentence: np.ndarray
    document: np.ndarray
    """Number of the document in the whole split."""
    tokens: np.ndarray
    """Tokens of its sentences."""
    target: np.ndarray
    """Tokens that the sample was gathered up to, and that a random next fills up to."""

    def __len__(self):
        return len(self.shard)


def special_tokens(objective):
    """[CLS] and one [SEP] a segment."""
    return 2 if objective == "none" else 3


def gather_samples(shards, room, short_probability, seed):
    """Cut every document into samples that reach ``room`` tokens, as BERT does.

    Args:
        shards: ``Shard``s of a split.
        room: tokens of a full row, special tokens taken off.
        short_probability: share of samples whose target is drawn from 2 to ``room``.
        seed: of that draw.
    """
    parts, documents_before = [], 0
    for number, shard in enumerate(shards):
        parts.append(_cut(shard, number, documents_before, room, short_probability, seed))
        documents_before += len(shard.documents) - 1
    return Samples(*np.concatenate(parts, axis=1)) if parts else Samples(*np.zeros((6, 0), int))


def open_samples(directory, split, shards, room, short_probability, seed):
    """The samples of a prepared folder, cut once and mapped into memory from then on.

    Args:
        directory: the folder, where they are kept if it can be written.
        split: "train" or "held_out".
        shards: its shards of that split.
        The others are those of ``gather_samples``.
    """
    path = Path(directory) / f"samples_{split}_{room}_{short_probability}_{seed}.npy"
    if not path.is_file():
        samples = gather_samples(shards, room, short_probability, seed)
        try:
            partial = path.with_suffix(f".partial{os.getpid()}")
            with open(partial, "wb") as stream:
                np.save(stream, np.stack(list(vars(samples).values())))
            os.replace(partial, path)
        except OSError:  # the folder is read-only
            return samples
    try:
        return Samples(*np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, TypeError, EOFError):
        raise InputError(path, "is damaged", "remove the file; it is made again") from None


def _cut(shard, number, documents_before, room, short_probability, seed):
    starts = shard.sentences.astype(np.int64)
    document_sizes = np.diff(shard.documents.astype(np.int64))
    document = np.repeat(np.arange(len(document_sizes)), document_sizes)
    draws = uniform(seed, number, np.arange(len(starts) - 1), _SHORT, 2)
    short = 2 + (draws[:, 1] * (room - 1)).astype(np.int64)
    target = np.where(draws[:, 0] < short_probability, short, room)
    # Where a sample would end, were it to start at each sentence; then follow the chain.
    ends = np.searchsorted(starts, starts[:-1] + target, side="left")
    ends = np.minimum(ends, shard.documents[1:].astype(np.int64)[document])
    first, next_first = [], 0
    jumps = ends.tolist()
    while next_first < len(jumps):
        first.append(next_first)
        next_first = jumps[next_first]
    first = np.array(first, np.int64)
    tokens = starts[ends[first]] - starts[first]
    first, tokens = first[tokens >= 2], tokens[tokens >= 2]  # one token cannot be split
    return np.stack([np.full(len(first), number), first, ends[first],
                     documents_before + document[first], tokens, target[first]])


def with_known_lengths(samples, objective, room):
    """Samples whose ``target`` is the most tokens that any epoch makes of them, for packing.

    A random next is filled up to the target, in BERT's recipe a whole row, while the true
    next ends with the document. Here it has no more tokens than the text it replaces, so
    that every epoch's segments, cut or not, are within the sample's own tokens. A single
    sentence has only random nexts, which replace nothing and go on to fill the target.

    Args:
        samples: as ``gather_samples`` makes them.
        objective: "nsp", "sop" or "none".
        room: tokens of a full row, special tokens taken off.
    """
    tokens = samples.tokens
    if objective == "nsp":
        is_single = samples.end_sentence - samples.first_sentence == 1
        tokens = np.where(is_single, np.maximum(tokens + 1, samples.target), tokens)
    return replace(samples, target=np.minimum(tokens, room))


class SegmentReader:
    """Reads the two segments of samples out of the shards."""

    def __init__(self, shards, samples, objective, room, seed):
        self.shards, self.samples = shards, samples
        self.objective, self.room, self.seed = objective, room, seed

    def read(self, numbers, epoch):
        """Segments of some samples.

        Args:
            numbers: int array ``[n]`` of sample numbers.
            epoch: decides split, replacement and cut together with the seed.

        Returns:
            Lists ``[n]`` of token arrays A and B (empty without a pair objective), and
            int32 labels ``[n]``: 1 where B is not A's true continuation.
        """
        draws = uniform(self.seed, epoch, numbers, _PAIR, 6)
        if self.objective == "nsp":
            others = self._samples_of_other_documents(numbers, draws[:, 2])
            rows = map(self._next_sentence, numbers, others.tolist(), draws.tolist())
        else:
            pair = {"sop": self._sentence_order, "none": self._single}[self.objective]
            rows = map(pair, numbers, draws.tolist())
        first, second, labels = zip(*rows)
        return first, second, np.array(labels, np.int32)

    def _samples_of_other_documents(self, numbers, draws):
        """For each sample one that is not of its document."""
        document = self.samples.document[numbers]
        # Samples of one document are neighbours: [low, high) is left out of the draw.
        low = np.searchsorted(self.samples.document, document, side="left")
        high = np.searchsorted(self.samples.document, document, side="right")
        others = (draws * (len(self.samples) - (high - low))).astype(np.int64)
        return others + (high - low) * (others >= low)

    def _next_sentence(self, number, other, draws):
        shard, first, end = self._place(number)
        split = first + 1 + int(draws[0] * (end - first - 1))
        is_random = end - first == 1 or draws[1] < 0.5
        tokens_a = self._tokens(shard, first, split)
        if is_random:
            wanted = max(1, int(self.samples.target[number]) - len(tokens_a))
            tokens_b = self._from_document(other, wanted, draws[3])
        else:
            tokens_b = self._tokens(shard, split, end)
        return *self._truncate(tokens_a, tokens_b, draws[4], draws[5]), int(is_random)

    def _sentence_order(self, number, draws):
        shard, first, end = self._place(number)
        if end - first > 1:
            split = first + 1 + int(draws[0] * (end - first - 1))
            parts = self._tokens(shard, first, split), self._tokens(shard, split, end)
        else:
            tokens = self._tokens(shard, first, end)
            split = 1 + int(draws[0] * (len(tokens) - 1))
            parts = tokens[:split], tokens[split:]
        is_swapped = draws[1] < 0.5
        parts = parts[::-1] if is_swapped else parts
        return *self._truncate(*parts, draws[4], draws[5]), int(is_swapped)

    def _single(self, number, draws):
        tokens = self._tokens(*self._place(number))
        return _cut_ends(tokens, self.room, draws[4]), tokens[:0], 0

    def _place(self, number):
        samples = self.samples
        return (self.shards[samples.shard[number]], int(samples.first_sentence[number]),
                int(samples.end_sentence[number]))

    def _tokens(self, shard, first_sentence, end_sentence):
        return shard.tokens[shard.sentences[first_sentence]:shard.sentences[end_sentence]]

    def _from_document(self, other, wanted, draw_sentence):
        """Text of a sample's document, from the start of one of the sample's sentences.

        Where fewer than ``wanted`` tokens follow on that sentence, an earlier one is taken,
        for else the rows with a random next would be the shorter ones.
        """
        shard, first, end = self._place(other)
        start = first + int(draw_sentence * (end - first))
        document = _count_until(shard.documents, start)
        stop = int(shard.sentences[shard.documents[document]])
        if stop - int(shard.sentences[start]) < wanted:
            start = max(_count_until(shard.sentences, max(stop - wanted, 0)) - 1,
                        int(shard.documents[document - 1]))
        begin = int(shard.sentences[start])
        return shard.tokens[begin:min(stop, begin + wanted)]

    def _truncate(self, tokens_a, tokens_b, draw_a, draw_b):
        """Take from the longer segment until both fit, at either end by a random share."""
        room_a = min(len(tokens_a), max(self.room - len(tokens_b), (self.room + 1) // 2))
        room_b = min(len(tokens_b), self.room - room_a)
        return _cut_ends(tokens_a, room_a, draw_a), _cut_ends(tokens_b, room_b, draw_b)


def _count_until(sorted_array, value):
    """Elements up to ``value``. Given another dtype, searchsorted would copy the array."""
    return int(np.searchsorted(sorted_array, sorted_array.dtype.type(value), side="right"))


def _cut_ends(tokens, room, draw):
    surplus = max(0, len(tokens) - room)
    front = int(draw * (surplus + 1))
    return tokens[front:front + len(tokens) - surplus]
