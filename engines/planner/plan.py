"""The plan of a recipe: memory of each IPU, time of an update, what limits it."""

import dataclasses
from typing import NamedTuple, Tuple

from configs.schema import Config
from engines.placement import Placement, resolve
from engines.planner.hardware import MIB, Ipu
from engines.planner.memory import KINDS, memory_per_ipu
from engines.planner.timing import FITTED, SPENT, Timing, estimate
from engines.planner.workload import part_costs

# Mean sequences of a packed row of English Wikipedia, at most three in a row, by the row's
# length (graphcore/examples, nlp/bert/pytorch/configs_pretraining.yml: packing_factor).
PACKED = ((128, 1.17), (384, 1.7), (512, 2.0))


class Plan(NamedTuple):
    """What a recipe costs on IPUs."""

    config: Config
    placement: Placement
    ipu: Ipu
    costs: dict
    memory: Tuple[dict, ...]
    """Bytes by kind and ``off_chip`` of each IPU of a replica"""
    timing: Timing
    sequences_per_row: float

    @property
    def ipus(self):
        """IPUs of all replicas."""
        return self.config.run.replicas * self.placement.ipus_per_replica

    @property
    def pod_ipus(self):
        """IPUs that the recipe may use."""
        return self.config.run.ipus or self.ipus

    @property
    def used(self):
        """Bytes on each IPU."""
        return [sum(kinds[kind] for kind in KINDS) for kinds in self.memory]

    @property
    def fits(self):
        """Whether every IPU holds its share, on the chip and off it."""
        return all(used <= self.ipu.memory for used in self.used) and all(
            kinds["off_chip"] <= self.ipu.off_chip_bytes for kinds in self.memory)

    @property
    def sequences_per_second(self):
        rows = self.config.train.global_batch_size
        return rows * self.sequences_per_row / self.timing.step

    @property
    def hours(self):
        """Of the whole run, compilation, evaluation and saving left out; None where the data
        decides how many updates it has (``train.epochs``)."""
        steps = self.config.train.steps
        return steps * self.timing.step / 3600 if steps else None

    @property
    def limit(self):
        """What stands in the way, or takes most of the time, in words."""
        for number, (kinds, used) in enumerate(zip(self.memory, self.used)):
            if used > self.ipu.memory:
                most = max(KINDS, key=kinds.get)
                return (f"memory of IPU {number}: {used / MIB:,.0f} MiB of "
                        f"{self.ipu.memory / MIB:,.0f}, most of it {KINDS[most]}")
            if kinds["off_chip"] > self.ipu.off_chip_bytes:
                return (f"memory off chip of IPU {number}: the optimizer's state takes "
                        f"{kinds['off_chip'] / MIB:,.0f} MiB of "
                        f"{self.ipu.off_chip_bytes / MIB:,.0f}; see run.optimizer_state_on_chip")
        shares = self.timing.shares()
        most = max(shares, key=shares.get)
        return f"{SPENT[most]}: {shares[most]:.0%} of the time"

    @property
    def peak_share(self):
        """FLOPs of forward and backward over what the IPUs could do meanwhile."""
        flops = 3 * sum(part.flops for part in self.costs.values())
        rate = flops * self.config.train.global_batch_size / self.timing.step
        run = self.config.run
        return rate / (self.ipus * self.ipu.peak_flops(run.precision, run.half_partials))


def for_ipus(config):
    """The recipe as IPUs would run it, whatever its ``run.device`` says.

    Raises:
        InputError: IPUs cannot run it.
    """
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, device="ipu"))
    config.check()
    return config


def check_for_ipus(config):
    """Raise InputError where IPUs cannot run a recipe."""
    resolve(for_ipus(config))


def make_plan(config, ipu, sequences_per_row=None, constants=FITTED):
    """Plan a recipe.

    Args:
        config: a whole ``Config``.
        ipu: an ``Ipu``.
        sequences_per_row: mean of a packed row; None takes what was published.
        constants: of the timing.

    Raises:
        InputError: IPUs cannot run it.
    """
    config = for_ipus(config)
    return evaluate(config, resolve(config), part_costs(config), ipu,
                    sequences_per_row or mean_sequences(config.data), constants)


def evaluate(config, placement, costs, ipu, sequences_per_row, constants=FITTED):
    """The plan of a recipe whose placement is known."""
    memory = tuple(memory_per_ipu(config, placement, costs, ipu))
    timing = estimate(config, placement, costs, memory, ipu, constants)
    return Plan(config, placement, ipu, costs, memory, timing, sequences_per_row)


def mean_sequences(data):
    """Mean sequences of a row: between the published points, and 1 where nothing is known."""
    if not data.max_predictions:
        return 1.0
    length = min(max(data.sequence_length, PACKED[0][0]), PACKED[-1][0])
    for (start, low), (end, high) in zip(PACKED, PACKED[1:]):
        if start <= length <= end:
            mean = low + (high - low) * (length - start) / (end - start)
    return min(mean, float(data.sequences_per_row))
