"""Batches made ahead by worker processes, the same as if they were made when asked for."""

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from configs.errors import InputError
from data.batch import join_batches
from data.open import open_pretraining_data

ROWS_A_TASK = 512
BATCHES_AHEAD = 2


class PrefetchedData:
    """Has the interface of the data it reads; a batch is made in parts of some hundred rows.

    Whoever asks for a batch is expected to ask next for the one behind it, so those are
    begun ahead. Any other batch is made when it is asked for.
    """

    def __init__(self, config, split, workers):
        """
        Args:
            config, split: of the data.
            workers: processes; each opens the data for itself.
        """
        self.data = open_pretraining_data(config, split)
        # Spawned, for a forked process would share the state of Paddle's threads.
        self.pool = ProcessPoolExecutor(workers, get_context("spawn"), _open, (config, split))
        self.waiting, self.stride = {}, config.train.global_batch_size

    def __len__(self):
        return len(self.data)

    def batch(self, consumed, count):
        """As ``PretrainingData.batch``."""
        # A replica reads its share of every global batch, so the next one begins that much later.
        wanted = [(consumed + number * self.stride, count) for number in range(BATCHES_AHEAD + 1)]
        self.waiting = {key: self.waiting.get(key) or self._begin(*key) for key in wanted}
        try:
            parts = [future.result() for future in self.waiting.pop(wanted[0])]
        except BrokenProcessPool:
            raise InputError("run.data_workers", "a worker process was killed, perhaps for memory",
                             "lower it, or write 0") from None
        return join_batches(parts)

    @property
    def token_counts(self):
        """As that of the data."""
        return self.data.token_counts

    def close(self):
        """End the workers."""
        self.pool.shutdown(cancel_futures=True)

    def _begin(self, consumed, count):
        end = consumed + count
        return [self.pool.submit(_make, start, min(ROWS_A_TASK, end - start))
                for start in range(consumed, end, ROWS_A_TASK)]


def _open(config, split):
    global _data
    _data = open_pretraining_data(config, split)


def _make(consumed, count):
    return _data.batch(consumed, count)
