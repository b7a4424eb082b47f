"""One process's eye on the others: when one dies, all end, and one line says which and why.

A process that waits for a message from a dead one would wait for minutes, or fail with a
message about a socket. The kernel tells at once when a process ends (``pidfd_open``).
"""

import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import paddle.distributed as dist

from configs.command_line import EXIT_BAD_INPUT, EXIT_STOPPED

EXIT_PEER_DIED = 1
_SECONDS_FOR_THE_LAUNCHER = 6
"""Paddle's launcher looks every 1 to 3 seconds and names the first rank that it finds dead:
nobody else may leave before it has seen the one that died."""
_SECONDS_FOR_THE_KERNEL = 2
"""A closed connection may be noticed a moment before the end of the process behind it."""


class Peers:
    """Watches the processes of this run on this machine, and the launcher."""

    def __init__(self, rank):
        self.rank = rank
        self.is_leaving, self.verdict = False, threading.Event()
        everyone = []
        dist.all_gather_object(everyone, (rank, os.getpid(), _machine()))
        try:
            self.watched = {os.pidfd_open(pid): (other, pid) for other, pid, machine in everyone
                            if machine == _machine() and other != rank}
            self.launcher = os.pidfd_open(os.getppid())
        except (AttributeError, OSError):  # not Linux 5.3: messages about sockets it will be
            return
        # A daemon, so that it keeps no process alive.
        threading.Thread(target=self._watch, daemon=True).start()
        self._excepthook, sys.excepthook = sys.excepthook, self._on_exception

    def leave(self):
        """Mind the others no more, for all are about to leave."""
        self.is_leaving = True
        # The launcher sends SIGTERM to those that are slower to leave than the first one,
        # which must not change their exit code.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def _watch(self):
        poll = select.poll()
        for descriptor in (*self.watched, self.launcher):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if self.is_leaving:
                    return
                if descriptor == self.launcher:
                    # Nobody would end this process any more: as if it had been told to stop.
                    poll.unregister(descriptor)
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    self._end(*self.watched[descriptor])

    def _end(self, other, pid):
        status = _exit_status(pid)
        if status in (None, 0, EXIT_BAD_INPUT << 8, EXIT_STOPPED << 8):
            time.sleep(1)  # what made it leave may be about to end this process just so
            if self.is_leaving:
                return
        self.verdict.set()
        print(f"error: rank {other} (process {pid}) {_how_it_ended(status)}; all ranks end, go on "
              "with --resume", file=sys.stderr, flush=True)
        time.sleep(_SECONDS_FOR_THE_LAUNCHER)
        os._exit(EXIT_PEER_DIED)

    def _on_exception(self, kind, error, trace):
        """A lost connection is no news of its own where the process behind it has ended."""
        if self.verdict.wait(_SECONDS_FOR_THE_KERNEL):
            time.sleep(2 * _SECONDS_FOR_THE_LAUNCHER)
        self._excepthook(kind, error, trace)


def _machine():
    """What processes have in common that know one another by their process ids."""
    if not os.path.exists("/proc/self/ns/pid"):
        return socket.gethostname()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return boot, os.readlink("/proc/self/ns/pid")


def _exit_status(pid):
    """How a process ended, as ``os.wait`` tells it; None once the launcher has taken note."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def _how_it_ended(status):
    if status is None:
        return "ended; its log may tell why"
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return f"was killed by {name}" + ", perhaps for memory" * (name == "SIGKILL")
    return f"left with exit code {os.WEXITSTATUS(status)}; its log tells why"
