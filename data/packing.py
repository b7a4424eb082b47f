"""Several sequences in a row: which lengths share rows, and which samples they are.

Histogram packing after Krell, Kosec, Perez and Fitzgibbon 2021, "Efficient Sequence Packing
without Cross-contamination" (arXiv:2107.02027): what is packed is the histogram of lengths,
so the cost does not grow with the number of sequences. A packing maps each pattern, a tuple
of lengths from the longest to the shortest, to the number of rows that are filled so.

A histogram is an int array ``[row_length + 1]``: how many sequences have each length.
"""

import hashlib
import json
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from data.randomness import uniform

_ASSIGN = 9  # purpose of random draws

MOST_BY_LEAST_SQUARES = 3
"""Sequences a row: the patterns of four lengths are too many to enumerate."""
_WORTH_A_SOLVE = 0.005  # share of rows to gain
_NEGLIGIBLE = 0.03  # share by which another round must lower the residual
_ROUNDING = 0.1  # sequences; rounding to whole rows errs more
_PADDING_WEIGHT, _PADDING_LENGTH = 0.09, 8  # Krell et al.: padding of so few tokens is cheap


def length_histogram(lengths, row_length):
    """Count the lengths, an int array ``[sequences]`` of 1 to ``row_length``."""
    return np.bincount(lengths, minlength=row_length + 1)


def pack(histogram, depth, folder):
    """The better packing of the two algorithms.

    Longest-pack-first takes milliseconds and is near the optimum where most rows are full or
    ``depth`` is large. Least squares takes up to half a minute and is tried where it could
    save rows. What it finds is kept, for another processor may round it to other patterns,
    but every process of a run, resumed runs included, must have the same rows.

    Args:
        histogram: int ``[row_length + 1]``.
        depth: most sequences a row.
        folder: where least squares keeps its packing, if it can be written.

    Returns:
        dict of patterns to rows.
    """
    packing = pack_longest_first(histogram, depth)
    fewest = packing_report(packing, histogram, depth).fewest_rows
    if depth > MOST_BY_LEAST_SQUARES or _count_rows(packing) <= (1 + _WORTH_A_SOLVE) * fewest:
        return packing
    digest = hashlib.sha256(np.asarray(histogram, "<i8").tobytes() + bytes([depth])).hexdigest()
    path = Path(folder) / f"packing_{digest[:16]}.json"
    by_squares = _read(path, histogram)
    if by_squares is None:
        by_squares = pack_least_squares(histogram, depth)
        _keep(path, by_squares)
        by_squares = _read(path, histogram) or by_squares  # another process may have been first
    return min(packing, by_squares, key=_count_rows)


def _read(path, histogram):
    """A kept packing, or None where there is none of this histogram."""
    try:
        packing = {tuple(pattern): count for pattern, count in json.loads(path.read_text("utf-8"))}
        is_whole = np.array_equal(_lengths_used(packing, len(histogram)), histogram)
    except (OSError, ValueError, TypeError, IndexError):
        return None
    return packing if is_whole else None


def _keep(path, packing):
    """Write a packing whole; the first of several processes to do so is the one that counts."""
    partial = path.with_suffix(f".partial{os.getpid()}")
    with suppress(OSError):  # it is there already, or the folder is read-only
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(list(packing.items())), "utf-8")
        os.link(partial, path)
    with suppress(OSError):
        partial.unlink()


def pack_longest_first(histogram, depth, begun=None):
    """Longest-pack-first histogram packing (LPFHP, Krell et al. 2021).

    From the longest length to the shortest, sequences go where they leave the fewest free
    slots, into a new row where none has room: best-fit decreasing, for all rows of one
    pattern at once.

    Args:
        histogram: int ``[row_length + 1]``.
        depth: most sequences a row.
        begun: a packing to start from, whose rows may have free slots.

    Returns:
        dict of patterns to rows.
    """
    row_length = len(histogram) - 1
    done, open_rows = Counter(), [Counter() for _ in range(row_length + 1)]

    def put(pattern, count):
        free = row_length - sum(pattern)
        (open_rows[free] if free and len(pattern) < depth else done)[pattern] += count

    for pattern, count in (begun or {}).items():
        put(pattern, count)
    for length in range(row_length, 0, -1):
        left = int(histogram[length])
        while left:
            free = next((free for free in range(length, row_length) if open_rows[free]), None)
            pattern, count = ((), left) if free is None else open_rows[free].popitem()
            copies = min((free or row_length) // length, depth - len(pattern), left)
            filled = min(count, left // copies)
            put(pattern + (length,) * copies, filled)
            left -= copies * filled
            if pattern and count > filled:
                put(pattern, count - filled)
    for rows in open_rows:
        done.update(rows)
    return _in_order(done)


def pack_least_squares(histogram, depth):
    """Non-negative least-squares histogram packing (NNLSHP, Krell et al. 2021).

    How often to use each pattern that fills a row exactly, so that the lengths used are
    those of the histogram; rounded to whole rows. Where rounding asks for sequences that
    are not there, their slots are freed; what it leaves over goes into such slots and into
    new rows by longest-pack-first (the paper pads the former and puts the latter alone).

    Args:
        histogram: int ``[row_length + 1]``.
        depth: most sequences a row, at most ``MOST_BY_LEAST_SQUARES``.

    Returns:
        dict of patterns to rows.

    Raises:
        ValueError: ``depth`` is larger.
    """
    if depth > MOST_BY_LEAST_SQUARES:
        raise ValueError(f"least squares packs at most {MOST_BY_LEAST_SQUARES} sequences a row")
    histogram = np.asarray(histogram, np.int64)
    if not histogram.any():
        return {}
    patterns, repeats = _solve(_full_patterns(len(histogram) - 1, depth), histogram)
    rows = Counter({tuple(pattern[pattern > 0].tolist()): int(count)
                    for pattern, count in zip(patterns, np.rint(repeats)) if count})
    left = histogram - _lengths_used(rows, len(histogram))
    _free_slots(rows, -left)
    return pack_longest_first(np.maximum(left, 0), depth, rows)


def _full_patterns(row_length, depth):
    """Every way to fill a row with at most ``depth`` lengths: ``[patterns, 3]``, 0 for none."""
    second, third = np.indices((row_length // 2 + 1,) * 2)
    first = row_length - second - third
    patterns = np.stack([first, second, third], axis=-1)[(first >= second) & (second >= third)]
    return patterns[np.count_nonzero(patterns, axis=1) <= depth]


def _solve(patterns, histogram):
    """Minimise ``|w (A x - histogram)|`` over ``x >= 0``; a column of A counts a pattern's lengths.

    Of the tens of thousands of columns no more than one a length is used at the optimum. So
    ``nnls`` sees only those in use, at first all of two lengths, and those whose gradients
    promise most, until that lowers the residual no further.

    Returns:
        The patterns in use ``[n, 3]`` and their x, float ``[n]``.
    """
    weights = np.ones(len(histogram))
    weights[:_PADDING_LENGTH + 1] = _PADDING_WEIGHT
    weights[0] = 0
    target = weights * histogram / histogram.max()
    used, residual, error = np.flatnonzero(patterns[:, 2] == 0), target, np.inf
    while True:
        gradient = (weights * residual)[patterns].sum(axis=1)
        columns = np.union1d(used, _promising(patterns, gradient))
        matrix = np.zeros((len(histogram), len(columns)))
        np.add.at(matrix, (patterns[columns], np.arange(len(columns))[:, None]), 1)
        matrix *= weights[:, None]
        repeats, new_error = nnls(matrix, target, maxiter=100 * len(columns), atol=1e-9)
        used, residual = columns[repeats > 0], target - matrix @ repeats
        if new_error > (1 - _NEGLIGIBLE) * error or new_error * histogram.max() < _ROUNDING:
            return patterns[used], repeats[repeats > 0] * histogram.max()
        error = new_error


def _promising(patterns, gradient):
    """For each length in each place of a pattern, the one of the largest gradient, if positive."""
    order = np.argsort(gradient, kind="stable")
    rank = np.zeros((patterns.max() + 1, patterns.shape[1]), np.int64)
    rank[patterns[order], np.arange(patterns.shape[1])] = np.arange(len(order))[:, None]
    best = np.unique(order[rank])
    return best[gradient[best] > 0]


def _free_slots(rows, surplus):
    """Take ``surplus[length]`` sequences of each length out of the rows, in place."""
    for length in np.flatnonzero(surplus > 0).tolist():
        left = int(surplus[length])
        while left:
            pattern = next(pattern for pattern in rows if length in pattern)
            count = min(left, rows[pattern])
            rows[pattern] -= count
            if not rows[pattern]:
                del rows[pattern]
            place = pattern.index(length)
            shorter = pattern[:place] + pattern[place + 1:]
            if shorter:
                rows[shorter] += count
            left -= count


def _lengths_used(packing, size):
    used = np.zeros(size, np.int64)
    for pattern, count in packing.items():
        np.add.at(used, list(pattern), count)
    return used


def _count_rows(packing):
    return sum(packing.values())


def _in_order(packing):
    """Lengths from the longest, patterns likewise, whatever order they were found in."""
    ordered = Counter()
    for pattern, count in packing.items():
        ordered[tuple(sorted(pattern, reverse=True))] += count
    return dict(sorted(ordered.items(), reverse=True))


def assign_samples(packing, lengths, depth, seed, epoch):
    """Put samples into the rows of a packing; samples of one length are alike to it.

    Args:
        packing: of the histogram of ``lengths``.
        lengths: int ``[samples]``.
        depth: most sequences a row.
        seed, epoch: which of the samples of one length goes where.

    Returns:
        int64 ``[rows, depth]`` of sample numbers, -1 where a row has fewer; each sample
        stands in it once.
    """
    patterns = np.array([pattern + (0,) * (depth - len(pattern)) for pattern in packing])
    slots = np.repeat(patterns.reshape(-1, depth), list(packing.values()), axis=0)
    draws = uniform(seed, epoch, np.arange(len(lengths)), _ASSIGN, 1)[:, 0]
    rows = np.full(slots.size, -1, np.int64)
    by_length = np.argsort(slots, axis=None, kind="stable")
    rows[by_length[slots.size - len(lengths):]] = np.lexsort((draws, lengths))
    return rows.reshape(slots.shape)


def share_predictions(wanted, budget):
    """Cut the predictions of a row's sequences, in proportion, to what the row has slots for.

    Args:
        wanted: int ``[rows, depth]``, predictions of each sequence, 0 where there is none.
        budget: prediction slots of a row.

    Returns:
        int ``[rows, depth]``: ``wanted`` where a row's sum is within the budget; elsewhere
        less, with the budget as sum.
    """
    until = np.cumsum(wanted, axis=1)
    total = np.maximum(until[:, -1:], 1)
    shares = np.diff(until * budget // total, axis=1, prepend=0)
    return np.where(total > budget, shares, wanted)


@dataclass(frozen=True)
class PackingReport:
    """How well a packing fills its rows, and how well any could."""

    row_length: int
    depth: int
    """Most sequences a row."""
    sequences: int
    tokens: int
    rows: int
    rows_for_tokens: int
    """No packing has fewer rows: tokens / row length."""
    rows_for_lengths: int
    """No packing has fewer rows: sequences too long to share a row, the rest's tokens."""
    rows_for_depth: int
    """No packing has fewer rows: sequences too long to share a row, the rest's number / depth."""

    @property
    def fewest_rows(self):
        """The largest of the bounds."""
        return max(self.rows_for_tokens, self.rows_for_lengths, self.rows_for_depth)

    @property
    def mean_depth(self):
        """Sequences a row."""
        return self.sequences / max(self.rows, 1)

    @property
    def efficiency(self):
        """Real tokens a slot."""
        return self.tokens / max(self.rows * self.row_length, 1)

    @property
    def best_efficiency(self):
        """The efficiency that no packing exceeds."""
        return self.tokens / max(self.fewest_rows * self.row_length, 1)

    def lines(self):
        """The figures as text."""
        return [
            f"packing: {self.sequences:,} sequences in {self.rows:,} rows of {self.row_length}, "
            f"{self.mean_depth:.3f} a row (at most {self.depth}), "
            f"efficiency {self.efficiency:.2%}",
            f"  no packing has fewer than {self.fewest_rows:,} rows, efficiency "
            f"{self.best_efficiency:.2%} (by tokens {self.rows_for_tokens:,}, by lengths "
            f"{self.rows_for_lengths:,}, by depth {self.rows_for_depth:,})"]


def packing_report(packing, histogram, depth):
    """Measure a packing.

    Args:
        packing: dict of patterns to rows.
        histogram: int ``[row_length + 1]`` that it packs.
        depth: most sequences a row.

    Returns:
        PackingReport.
    """
    row_length = len(histogram) - 1
    tokens = int(histogram @ np.arange(row_length + 1))
    rows_for_lengths, rows_for_depth = _bounds(histogram, depth)
    return PackingReport(
        row_length=row_length, depth=depth, sequences=int(histogram.sum()), tokens=tokens,
        rows=_count_rows(packing), rows_for_tokens=-(-tokens // row_length),
        rows_for_lengths=rows_for_lengths, rows_for_depth=rows_for_depth)


def _bounds(histogram, depth):
    """Rows that lengths, and rows that lengths and depth, make necessary.

    The first is L2 of Martello and Toth 1990, "Lower bounds and reduction procedures for the
    bin packing problem". Leave sequences shorter than some ``shortest`` out. Those that leave
    fewer slots than that have a row each. Of the others, those of more than half a row have
    a row each too, and what exceeds the room beside them needs further rows; or, the second,
    they are at most ``depth`` a row. The bounds are the largest over ``shortest``.
    """
    row_length = len(histogram) - 1
    half = row_length // 2 + 1
    below = np.concatenate([[0], np.cumsum(histogram)])  # sequences shorter than each length
    tokens = np.concatenate([[0], np.cumsum(histogram * np.arange(row_length + 1))])
    shortest = np.arange(1, half)
    alone = row_length - shortest + 1  # the least length that has a row for itself
    room = (below[alone] - below[half]) * row_length - (tokens[alone] - tokens[half])
    surplus = np.maximum(tokens[half] - tokens[shortest] - room, 0)
    for_lengths = below[-1] - below[half] - (-surplus // row_length)
    for_depth = below[-1] - below[alone] - (-(below[alone] - below[shortest]) // depth)
    return int(for_lengths.max(initial=0)), int(for_depth.max(initial=0))
