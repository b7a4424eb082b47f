"""Requests of many clients, answered together, by a thread for each process that computes."""

import threading
from collections import deque
from concurrent.futures import Future
from typing import NamedTuple


class QueueFull(Exception):
    """More records wait than the queue holds."""


class _Waiting(NamedTuple):
    readings: list
    future: Future


class DynamicBatcher:
    """What waits while a batch is computed becomes the next one: nothing waits for company."""

    def __init__(self, predictor, most_waiting, most_together=64, on_batch=None):
        """
        Args:
            predictor: a ``Predictor``; its ``answer`` is called by as many threads as it has
                processes, by one if it has none.
            most_waiting: pieces that may wait.
            most_together: pieces that are computed before others get their turn.
            on_batch: called with the number of pieces computed together.
        """
        self.predictor, self.most_waiting = predictor, most_waiting
        self.most_together = most_together
        self.on_batch = on_batch or (lambda count: None)
        self.waiting = 0
        """Pieces in the queue"""
        self._queue, self._changed, self._is_open = deque(), threading.Condition(), True
        self._threads = [threading.Thread(target=self._work, name="predictor", daemon=True)
                         for _ in range(max(1, predictor.processes))]
        for thread in self._threads:
            thread.start()

    def submit(self, readings):
        """Queue the readings of a request.

        Args:
            readings: ``Reading``s.

        Returns:
            A Future of the list of answers. Cancel it where nobody waits any more: what was
            not begun is not computed then.

        Raises:
            QueueFull: they do not fit, or the batcher was closed.
        """
        count = sum(len(reading.pieces) for reading in readings)
        future = Future()
        with self._changed:
            if not self._is_open or (self.waiting and self.waiting + count > self.most_waiting):
                raise QueueFull
            self.waiting += count
            self._queue.append(_Waiting(readings, future))
            self._changed.notify()
        return future

    def is_alive(self):
        """Whether all threads run that let something compute."""
        return self._is_open and all(thread.is_alive() for thread in self._threads)

    def close(self):
        """Answer what waits, then end the threads."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or not self._is_open)
                if not self._queue:
                    return
                taken = self._take()
            taken = [one for one in taken if one.future.set_running_or_notify_cancel()]
            if taken:
                self._answer(taken)

    def _take(self):
        """Requests from the front of the queue, as many as are computed together."""
        taken, count = [], 0
        while self._queue and (not taken or count + _size(self._queue[0]) <= self.most_together):
            count += _size(self._queue[0])
            taken.append(self._queue.popleft())
        self.waiting -= count
        return taken

    def _answer(self, taken):
        try:
            self.on_batch(sum(map(_size, taken)))
            answers = iter(self.predictor.answer([reading for one in taken
                                                  for reading in one.readings]))
        except Exception as error:  # whatever it is, the clients must hear of it
            for one in taken:
                one.future.set_exception(error)
            return
        for one in taken:
            one.future.set_result([next(answers) for _ in one.readings])


def _size(one):
    return sum(len(reading.pieces) for reading in one.readings)
