"""What Paddle's Fleet needs to run on CPU processes over gloo, each with its reason.

Found with Paddle 3.3.1. On GPUs, over NCCL, none of it is needed or used.
"""

import os
import socket
import time

PIPELINE_OPTIONS = {"use_batch_p2p_comm": False}
"""Stages exchange tensors by plain sends and receives. The default groups several into one
call on a CUDA stream (``send_on_calc_stream``), which gloo's process group does not have."""


def prepare_fleet():
    """Make ``fleet.init`` work in this process; call it before."""
    from paddle.distributed import collective, parallel

    # The launcher leaves the choice to Paddle, which takes NCCL where it finds a GPU.
    os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    # PipelineLayer asks for the number of this process's device, which a CPU build never sets.
    parallel.ParallelEnv._device_id = 0
    if not hasattr(collective._new_process_group_impl, "is_ours"):
        make = _with_own_store(collective._new_process_group_impl)
        collective._new_process_group_impl = parallel._new_process_group_impl = make


def _with_own_store(make_group):
    """Groups that each meet in a store of their own.

    Gloo's processes find one another by keys that are their numbers within the group. In the
    one store of the run a group would read the addresses that the group before it left there,
    and fail with "connection refused".
    """
    from paddle.base import core

    def make(backend, store, rank, size, name, *arguments, **options):
        if rank == 0:
            host = os.environ["PADDLE_CURRENT_ENDPOINT"].rpartition(":")[0]
            port = _free_port()
            own = core.TCPStore(host, port, True, 1)
            store.set(f"{name}/store", f"{host}:{port}")
        else:
            host, _, port = store.get(f"{name}/store").decode().rpartition(":")
            own = core.TCPStore(host, int(port), False, 1)
        return make_group(backend, own, rank, size, name, *arguments, **options)

    make.is_ours = True
    return make


def _free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def connect_stages(pipelines, rank):
    """Give each two neighbouring stages a group of their own for what they send each other.

    Gloo tells messages apart by how many operations a process has done in a group. A stage
    between two others does more of them in the group of all stages than its neighbours do,
    and each would wait for a message that the other counts differently.

    Args:
        pipelines: lists of ranks, a list for each replica.
        rank: of this process.
    """
    import paddle.distributed as dist

    groups = {}
    for ranks in pipelines:
        for pair in zip(ranks, ranks[1:]):
            group = dist.new_group(list(pair))
            if rank in pair:
                groups[sum(pair) - rank] = group
    for name in ("send", "recv", "isend", "irecv"):
        operation = getattr(dist, name)
        operation = getattr(operation, "of_paddle", operation)
        setattr(dist, name, _in_pair(operation, groups))


def _in_pair(operation, groups):
    def call(tensor, peer=None, group=None, src=None, dst=None):
        peer = next(rank for rank in (peer, src, dst) if rank is not None)
        return operation(tensor, peer, groups.get(peer, group))

    call.of_paddle = operation
    return call


class Meeting:
    """Lets processes wait for one another as long as it takes.

    A process that waits 30 seconds within an operation of gloo gives up, and nothing can
    change that number: so none may begin one while another still reads, saves or adds up.
    """

    made = 0

    def __init__(self, processes):
        from paddle.distributed import collective

        Meeting.made += 1
        self.store, self.name = collective._default_store, f"meeting/{Meeting.made}"
        self.processes, self.expected = processes, 0

    def wait(self):
        """Go on when every process is here."""
        self.expected += self.processes
        pause = 0.0005
        arrived = self.store.add(self.name, 1)
        while arrived < self.expected:
            time.sleep(pause)
            pause = min(2 * pause, 0.005)
            arrived = self.store.add(self.name, 0)
