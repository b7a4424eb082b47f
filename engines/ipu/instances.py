"""Several processes that drive one pod together, as poprun starts them: each has its own replicas.

The IPUs add the gradients of all replicas up among themselves. What the processes tell one
another are numbers for the reader, answers and signals, over a socket of the first one; an
emulated pod adds its gradients up over it as well.
"""

import json
import os
import socket
import time
from functools import lru_cache

import numpy as np

from configs.errors import InputError

_SECONDS_TO_MEET = 300


class Instances:
    """One of the processes; alone, it is the whole."""

    def __init__(self, rank=0, count=1, address=None):
        """
        Args:
            rank: of this process.
            count: of all processes.
            address: host and port that rank 0 listens on; None tells the others nothing.
        """
        self.rank, self.count, self.is_main = rank, count, rank == 0
        self._others = []
        if address:
            self._others = _listen(address, count) if self.is_main else [_connect(address, rank)]

    def replicas(self, run):
        """Replicas of this process."""
        return run.replicas // self.count

    def first_replica(self, run):
        """The number of its first one among all."""
        return self.rank * self.replicas(run)

    def check(self, run):
        """Refuse replicas that the processes cannot share."""
        if run.replicas % self.count:
            raise InputError("run.replicas", f"{run.replicas} replicas cannot be shared by "
                             f"{self.count} processes", "start a number that divides them")

    def rows(self, run, count):
        """Numbers of the rows of this process among the ``count`` of all.

        The rows of all processes lie as in one: calls or accumulation, replicas, micro batch.
        """
        numbers = np.arange(count).reshape([-1, run.replicas, run.micro_batch_size])
        first = self.first_replica(run)
        return numbers[:, first:first + self.replicas(run)].ravel()

    def options(self, run, placement):
        """Options of the strategy, by name: this process's IPUs, and its place in the pod."""
        local = self.replicas(run)
        options = {"num_ipus": local * placement.ipus_per_replica,
                   "enable_replicated_graphs": local > 1, "replicated_graph_count": local}
        if self.count > 1:
            options.update(enable_distribution=True, enable_distributed_replicated_graphs=True,
                           global_replication_factor=run.replicas,
                           global_replica_offset=self.first_replica(run))
        return options

    def sum(self, array):
        """The sum of the arrays of all processes, in each."""
        array = np.ascontiguousarray(array)
        if self.count == 1:
            return array
        if not self.is_main:
            _send(self._others[0], array.tobytes())
            return np.frombuffer(_receive(self._others[0]), array.dtype).reshape(array.shape)
        total = array.copy()
        for other in self._others:
            total += np.frombuffer(_receive(other), array.dtype).reshape(array.shape)
        for other in self._others:
            _send(other, total.tobytes())
        return total

    def share(self, value):
        """A value of the main process, in each; whatever JSON holds."""
        if self.count == 1:
            return value
        if not self.is_main:
            return json.loads(_receive(self._others[0]))
        for other in self._others:
            _send(other, json.dumps(value).encode())
        return value


@lru_cache(maxsize=None)
def open_instances():
    """The ``Instances`` of this run, by what Paddle's launcher set.

    Raises:
        InputError: the others cannot be reached.
    """
    count = int(os.environ.get("PADDLE_TRAINERS_NUM", 1))
    if count == 1:
        return Instances()
    host, _, port = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[0].rpartition(":")
    return Instances(int(os.environ["PADDLE_TRAINER_ID"]), count, (host, int(port)))


def _listen(address, count):
    """Connections of ranks 1 to ``count - 1``, in their order."""
    others = {}
    try:
        with socket.create_server(("", address[1]), backlog=count) as server:
            server.settimeout(_SECONDS_TO_MEET)
            while len(others) < count - 1:
                connection, _ = server.accept()
                connection.settimeout(None)
                others[int.from_bytes(_read(connection, 8), "little")] = connection
    except OSError as error:
        raise InputError("PADDLE_TRAINER_ENDPOINTS", f"{count - 1 - len(others)} of the "
                         f"{count - 1} other processes did not come to port {address[1]} "
                         f"({error})", "see their logs, or free the port") from None
    return [others[rank] for rank in range(1, count)]


def _connect(address, rank):
    deadline = time.monotonic() + _SECONDS_TO_MEET
    while True:
        try:
            connection = socket.create_connection(address, timeout=10)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise InputError("PADDLE_TRAINER_ENDPOINTS", f"the process at {address[0]}:"
                                 f"{address[1]} cannot be reached ({error})",
                                 "see its log") from None
            time.sleep(0.2)
    connection.settimeout(None)
    connection.sendall(rank.to_bytes(8, "little"))
    return connection


def _send(connection, data):
    connection.sendall(len(data).to_bytes(8, "little") + data)


def _receive(connection):
    return _read(connection, int.from_bytes(_read(connection, 8), "little"))


def _read(connection, size):
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError("another process of this run has ended; its log tells why")
        data += part
    return bytes(data)
