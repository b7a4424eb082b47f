"""The arithmetic of a predictor in processes of its own, while this one reads and answers.

Paddle lets no other thread of Python run while it computes, and several of its operators on a CPU
use one thread whatever they are given, so that two processes of a thread each compute more texts
than one process of two threads does.
"""

import dataclasses
import multiprocessing
import os
import queue
import signal
from contextlib import contextmanager, redirect_stdout
from multiprocessing import resource_tracker
from multiprocessing.util import Finalize

from configs.errors import InputError
from inference.runners import threads_of

MOST_PROCESSES = 4
"""That are chosen where nobody says how many: each holds a copy of the model"""


def settings_for_many(settings):
    """The settings for many texts: with as many processes as the machine has use for, unless they
    say how many."""
    if settings.processes is not None:
        return settings
    count = min(threads_of(settings), MOST_PROCESSES) if settings.device == "cpu" else 1
    return dataclasses.replace(settings, processes=count)


def share_threads(settings):
    """Threads of each process: the first ones have one more where they cannot be shared evenly."""
    threads, count = threads_of(settings), settings.processes
    return [max(1, threads // count + (number < threads % count)) for number in range(count)]


class RunnerProcesses:
    """Runs batches in ``settings.processes`` processes; as a runner, but for several threads."""

    def __init__(self, open_runner, settings):
        """
        Args:
            open_runner: called with ``settings`` in each process, returns its runner; it must be
                a function that can be pickled.
            settings: ``InferenceConfig``; the threads are shared out.

        Raises:
            InputError: what opening the runner raised, or a process was killed meanwhile.
            RuntimeError: opening the runner raised something else.
        """
        self.workers = [_Worker(open_runner, dataclasses.replace(settings, threads=threads))
                        for threads in share_threads(settings)]
        self._idle = queue.Queue()
        try:
            for worker in self.workers:  # which all open theirs meanwhile
                self.rounded_to = worker.wait_until_open()
                self._idle.put(worker)
        except BaseException:
            for worker in self.workers:
                worker.kill()
            raise

    def idle(self):
        """How many batches could be computed beside one another now."""
        return self._idle.qsize()

    def run(self, arrays):
        """Takes a dict of arrays, returns the outputs by name, from the first idle process.

        Raises:
            RuntimeError: it could not be computed.
            InputError: its process was killed, e.g. for want of memory; the next batch gets a new
                one.
        """
        worker = self._idle.get()
        try:
            if worker is None:
                raise RuntimeError("the processes were closed")
            return worker.ask(arrays)
        finally:
            self._idle.put(worker)

    def close(self):
        """End the processes, when each has computed what it was asked for."""
        workers, self.workers = self.workers, []
        for _ in workers:
            self._idle.get().close()
        self._idle.put(None)


class _Worker:
    """A process at the other end of a pipe. It ends when the pipe is closed, so that it does not
    outlive whoever started it."""

    def __init__(self, open_runner, settings):
        self._arguments = open_runner, settings
        self._start()

    def _start(self):
        context = multiprocessing.get_context("spawn")  # a forked Paddle may hang
        connection, others = context.Pipe()
        with others, _signals_blocked():
            process = context.Process(target=_work, args=(others, *self._arguments),
                                      name="predictor", daemon=True)
            process.start()
        self.process, self._connection = process, connection
        # Before Python waits for its processes at the end, for this one waits for the pipe.
        self._close_pipe = Finalize(self, connection.close, exitpriority=10)

    def wait_until_open(self):
        """What its runner's rows are ``rounded_to``."""
        return self._exchange()

    def ask(self, arrays):
        """The outputs of a batch."""
        if not self.process.is_alive():
            self.close()
            self._start()
            self.wait_until_open()
        return self._exchange(arrays)

    def _exchange(self, arrays=None):
        """What it tells next, of arrays if it is sent some."""
        try:
            if arrays:
                self._connection.send(arrays)
            found = self._connection.recv()
        except (EOFError, OSError):
            self.close()
            raise InputError("inference.processes", "one that computes has ended with code "
                             f"{self.process.exitcode}", "write fewer, or give them more memory"
                             ) from None
        except BaseException:  # what it still tells must not be taken for the next answer
            self.kill()
            raise
        if isinstance(found, Exception):
            raise found
        return found

    def close(self):
        """Let it end."""
        self._close_pipe()
        self.process.join()

    def kill(self):
        """End it in the middle of what it does."""
        self.process.kill()
        self.close()


@contextmanager
def _signals_blocked():
    """What is started inside gets no SIGINT or SIGTERM, which ask whoever starts it: Ctrl-C is
    sent to all processes of a terminal, and what is open is to be answered all the same."""
    resource_tracker.ensure_running()  # else it is started inside, and lets them through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection, open_runner, settings):
    """Compute what comes until the other end is closed."""
    os.dup2(2, 1)  # standard output is for answers alone
    try:
        runner = _try(_open, open_runner, settings)
        if isinstance(runner, Exception):
            connection.send(runner)
            return
        connection.send(runner.rounded_to)
        while True:
            connection.send(_try(runner.run, connection.recv()))
    except (EOFError, OSError):
        return


def _open(open_runner, settings):
    from engines import startup

    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        startup.prepare(settings.threads, settings.on_ipus)  # whoever started this told the same
    return open_runner(settings)


def _try(function, *arguments):
    """What a function returns or raises; one of Paddle's own exceptions might not be pickled."""
    try:
        return function(*arguments)
    except InputError as error:
        return error
    except Exception as error:
        return RuntimeError(f"{type(error).__name__}: {error}")
