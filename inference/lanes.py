"""Many batches at once, each on a core of its own."""

import ctypes
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EVEN = 1.5
"""How much larger than a fair share the largest batch may be, for cores that compute a batch each
to be done before cores that compute every batch together"""


class Lanes:
    """A runner and copies of it, each with a thread that keeps to one core.

    Where several threads compute a batch, each operator ends when the last of them does: one
    that had to wait for its core, for anything else that runs, holds up all. Threads with batches
    of their own wait for nobody.
    """

    def __init__(self, runner, count):
        """
        Args:
            runner: with ``copy()``.
            count: of runners.
        """
        self.count, self._own = count, threading.local()
        runners = [runner, *(runner.copy() for _ in range(count - 1))]
        self._pool = ThreadPoolExecutor(count, "lane", self._open, (runners,))

    def are_slower(self, sizes):
        """Whether batches of these sizes are done later than if all cores computed each."""
        return max(sizes, default=0) * self.count > sum(sizes) * EVEN

    def map(self, compute, batches):
        """``compute(runner, *batch)`` of every batch, in order."""
        return list(self._pool.map(lambda batch: compute(self._own.runner, *batch), batches))

    def _open(self, runners):
        compute_alone()
        self._own.runner = runners.pop()


def compute_alone():
    """Let this thread compute OpenMP's parallel regions, MKL's and oneDNN's, by itself."""
    paddle = sys.modules.get("paddle")
    library = paddle and Path(paddle.__file__).parent / "libs" / "libiomp5.so"
    if library and library.exists():
        ctypes.CDLL(str(library)).omp_set_max_active_levels(0)
