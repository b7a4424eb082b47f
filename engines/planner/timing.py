"""How long an update takes: the pipeline cycle by cycle, and what surrounds it."""

from typing import NamedTuple

from engines.planner.memory import recomputes


class Constants(NamedTuple):
    """What no datasheet says; fitted by benchmarks/planner.py, which tells on which figures."""

    efficiency: float = 0.542
    """Share of the peak at which matrix products run"""
    part_cycles: float = 142_300
    """Clock cycles that half a layer takes beside its products, at any batch size: program
    steps, each with its synchronisation"""
    host_seconds: float = 0.131
    """Of each call of the device: feeds, fetches, learning rate"""


FITTED = Constants()

# Parts that take as many program steps as several halves of a layer: gathering and scattering
# the word embedding, the product with it in pieces and its softmax. Judged from MLPerf's splits,
# which were tuned by hand and give IPU 0 two to three layers less than the others.
STEPS = {"embeddings": 4, "heads": 4}


class Timing(NamedTuple):
    """Seconds of an update and where they go."""

    forward: tuple
    """Of each stage for one micro batch"""
    loads: tuple
    """Of each IPU for one full cycle: forward, recomputation and backward of its stages"""
    fixed_loads: tuple
    """What of the loads does not depend on the micro batch"""
    exchange: float
    """Of a cycle: activations and gradients between neighbours"""
    pipeline: float
    """All cycles of an update"""
    reduction: float
    """Sum of the gradients over the replicas"""
    state_traffic: float
    """Optimizer state from off the chip and back"""
    host: float
    """An update's share of the device's call"""
    accumulation: int
    bubble_share: float
    """Of the pipeline's time: what filling and draining costs"""

    @property
    def cycle(self):
        """Seconds of a cycle with every stage at work."""
        return max(self.loads) + self.exchange

    @property
    def step(self):
        """Seconds of an update."""
        return self.pipeline + self.reduction + self.state_traffic + self.host

    @property
    def balance(self):
        """Mean load of the IPUs over the highest one."""
        return sum(self.loads) / len(self.loads) / max(self.loads)

    def shares(self):
        """Where an update's seconds go, as shares by ``SPENT``."""
        mean = sum(self.loads) / len(self.loads)
        fixed = sum(self.fixed_loads) / len(self.loads)
        full = self.accumulation * self.cycle
        seconds = {
            "products": self.accumulation * (mean - fixed),
            "program_steps": self.accumulation * fixed,
            "imbalance": self.accumulation * (max(self.loads) - mean),
            "exchange": self.accumulation * self.exchange, "bubble": self.pipeline - full,
            "reduction": self.reduction, "state": self.state_traffic, "host": self.host}
        return {name: value / self.step for name, value in seconds.items()}


SPENT = {
    "products": "matrix products, which faster IPUs or more of them spread",
    "program_steps": "fixed costs of the program's steps, which larger micro batches spread",
    "imbalance": "waiting for the busiest IPU, which a better split shortens",
    "exchange": "activations and gradients between IPUs",
    "bubble": "filling and draining the pipeline, which more accumulation spreads",
    "reduction": "summing gradients over the replicas, which more accumulation spreads",
    "state": "moving the optimizer's state from off chip and back",
    "host": "the call of the device, which run.batches_per_step and larger batches spread",
}


def estimate(config, placement, costs, memory, ipu, constants=FITTED):
    """The ``Timing`` of an update.

    Args:
        config: a whole ``Config``.
        placement: of its parts.
        costs: from ``part_costs``.
        memory: from ``memory_per_ipu``.
        ipu: an ``Ipu``.
        constants: the ``Constants``.
    """
    run, accumulation = config.run, config.accumulation_steps
    rate = constants.efficiency * ipu.peak_flops(run.precision, run.half_partials)
    fixed = constants.part_cycles / ipu.clock
    steps = [fixed * sum(STEPS.get(name, 1) for name in stage.parts)
             for stage in placement.stages]
    forward = [run.micro_batch_size * sum(costs[name].flops for name in stage.parts) / rate + more
               for stage, more in zip(placement.stages, steps)]
    exchange = _exchange_seconds(config, placement, ipu)
    cycles = _Cycles(config, placement, forward)
    loads = cycles.loads(range(cycles.count))
    steady = max(loads) + exchange
    pipeline = cycles.ramp(exchange) + (accumulation - cycles.count + 1) * steady
    return Timing(
        tuple(forward), tuple(loads),
        tuple(_Cycles(config, placement, steps).loads(range(cycles.count))), exchange, pipeline,
        _reduction_seconds(run.replicas, memory, ipu),
        2 * max(kinds["off_chip"] for kinds in memory) / ipu.off_chip_bandwidth,
        constants.host_seconds / run.batches_per_step, accumulation,
        1 - accumulation * steady / pipeline)


class _Cycles:
    """What each IPU computes in a cycle; step q of 0 to 2L is stage q forward, or 2L - q back."""

    def __init__(self, config, placement, forward):
        self.ipus = placement.ipus_per_replica
        self.count = 2 * len(placement.stages) - 1
        self.work = step_work(config, placement, forward)

    def loads(self, active):
        """Seconds of each IPU in a cycle with these steps at work."""
        loads = [0.0] * self.ipus
        for step in active:
            ipu, seconds = self.work[step]
            loads[ipu] += seconds
        return loads

    def ramp(self, exchange):
        """Seconds of the cycles that fill and drain the pipeline."""
        fills = [range(last + 1) for last in range(self.count - 1)]
        drains = [range(first, self.count) for first in range(1, self.count)]
        return sum(max(self.loads(active)) + exchange for active in fills + drains)


def step_work(config, placement, forward):
    """IPU and seconds of each step through the pipeline and back.

    The backward pass takes two products for each of the forward pass, and a recomputed stage
    one more. The last stage goes forward and back in one step.
    """
    stages, last = placement.stages, len(placement.stages) - 1
    passes = [3 if recomputes(config, placement, stage) else 2 for stage in stages]
    there = [(stage.ipu, forward[stage.number]) for stage in stages[:-1]]
    turn = [(stages[last].ipu, (1 + passes[last]) * forward[last])]
    back = [(stage.ipu, passes[stage.number] * forward[stage.number])
            for stage in reversed(stages[:-1])]
    return there + turn + back


def _exchange_seconds(config, placement, ipu):
    """An IPU receives an activation and a gradient for each stage that follows another."""
    if len(placement.stages) == 1:
        return 0.0
    data, size = config.data, {"fp32": 4, "fp16": 2}[config.run.precision]
    hidden = config.run.micro_batch_size * data.sequence_length * config.model.hidden_size
    received = [0] * placement.ipus_per_replica
    for before, after in zip(placement.stages, placement.stages[1:]):
        received[after.ipu] += hidden * size
        received[before.ipu] += hidden * size
    return max(received) / ipu.link_bandwidth


def _reduction_seconds(replicas, memory, ipu):
    """A ring: each IPU sends its gradients twice, but for its own share."""
    size = max(kinds["weights"] for kinds in memory)
    return 2 * size * (replicas - 1) / replicas / ipu.link_bandwidth
