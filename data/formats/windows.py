"""A random order that reads neighbours together: windows in turn, rows mixed within each."""

import numpy as np

from data.formats.stored_rows import StoredRows
from data.randomness import permutation


class WindowOrder:
    """Visits each row of an epoch once, window after window, both in random order.

    Rows that fit one window are visited in ``permutation(seed, epoch, count)``.
    """

    def __init__(self, seed, count, size):
        """
        Args:
            seed: of the order.
            count: rows of an epoch.
            size: rows of a window, which lie side by side and are mixed with one another.
        """
        self.seed, self.count, self.size = seed, count, size
        self.windows = -(-count // size)

    def bounds(self, window):
        """First row of a window, and the row behind its last."""
        return window * self.size, min((window + 1) * self.size, self.count)

    def visits(self, consumed, count):
        """Where the ``count`` rows lie that follow after ``consumed`` rows.

        Returns:
            Iterator of ``(window, int array of rows, counted from its first)``.
        """
        while count:
            epoch, position = divmod(consumed, self.count)
            window, begin = self._locate(epoch, position)
            first, end = self.bounds(window)
            order = permutation(self.seed, epoch * self.windows + window, end - first)
            taken = order[begin:begin + count]
            yield window, taken
            consumed, count = consumed + len(taken), count - len(taken)

    def _locate(self, epoch, position):
        """The window that an epoch has reached, and how many of its rows were visited."""
        windows = permutation(self.seed, epoch, self.windows)
        ends = np.cumsum([end - first for first, end in map(self.bounds, windows.tolist())])
        place = int(np.searchsorted(ends, position, side="right"))
        return int(windows[place]), position - int(ends[place - 1] if place else 0)


class JoinedShards:
    """The rows of several files, numbered through."""

    def __init__(self, shards, check):
        """
        Args:
            shards: of any format, with ``len`` and ``load(start, stop)``.
            check: function of ``(StoredRows, path, their numbers in the file)`` that refuses.
        """
        self.shards, self.check = shards, check
        self.starts = np.cumsum([0, *map(len, shards)]).tolist()

    def __len__(self):
        return self.starts[-1]

    def load(self, start, stop):
        """Bring neighbours into memory, as they lie in their files.

        Returns:
            Window.
        """
        parts = []
        for shard, begin, end in zip(self.shards, self.starts, self.starts[1:]):
            first, last = max(start, begin), min(stop, end)
            if first < last:
                parts.append((first - start, first - begin, shard.path,
                              shard.load(first - begin, last - begin)))
        return Window(parts, self.check)


class Window:
    """Rows that lie side by side, in one file or in several."""

    def __init__(self, parts, check):
        self.parts, self.check = parts, check
        self.firsts = [first for first, *_ in parts]

    def take(self, numbers):
        """Some of the rows, decoded and checked.

        Args:
            numbers: int array, counted from the window's first row.

        Returns:
            StoredRows, in the order of ``numbers``.

        Raises:
            InputError: a row is damaged or not what the config says.
        """
        of_part = np.searchsorted(self.firsts, numbers, side="right") - 1
        taken = [self._take(part, numbers[of_part == part]) for part in np.unique(of_part)]
        by_part = np.argsort(of_part, kind="stable")
        return StoredRows.join(taken).take(np.argsort(by_part))

    def _take(self, part, numbers):
        first, first_in_file, path, loaded = self.parts[part]
        rows = loaded.take(numbers - first)
        self.check(rows, path, numbers - first + first_in_file)
        return rows
