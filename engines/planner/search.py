"""Better ways to lay a recipe on the same IPUs, and the same way on other pods."""

import dataclasses
from typing import NamedTuple

from configs.errors import InputError
from engines.placement import resolve
from engines.planner.memory import KINDS, memory_per_ipu
from engines.planner.plan import Plan, evaluate
from engines.stage_text import shorten
from models.cost import HALVES

WORTH_IT = 0.02  # share of speed below which a change is not advised
HEADROOM = 0.05  # share of an IPU's memory that advice leaves free, as memory is estimated


class Change(NamedTuple):
    """A plan and the keys of ``run`` in which it differs from the recipe's."""

    plan: Plan
    keys: dict


def search(plan):
    """Faster ways to spend the recipe's IPUs on the same global batch.

    Tries 1, 2, 4 … IPUs a replica, splits of the layers (some with embeddings or heads, the
    rest shared out evenly in work, by whole or by half layers), micro batches and
    recomputation.

    Args:
        plan: of the recipe as it is.

    Returns:
        A list of ``Change``s from the least to the most: what the split as it is allows, and
        the best of all, each if it is faster by ``WORTH_IT`` than what is before it, or fits
        where the recipe does not.
    """
    changes, reached = [], plan if plan.fits else None
    for configs in ([plan.config], _placed(plan)):
        best = _best(plan, configs)
        if best and (reached is None
                     or best.timing.step * (1 + WORTH_IT) <= reached.timing.step):
            changes.append(Change(best, _difference(plan.config.run, best.config.run)))
            reached = best
    return changes


def _best(plan, configs):
    """The fastest plan of several recipes that fits, or None."""
    best = None
    for config in configs:
        try:
            placement = resolve(config)
        except InputError:
            continue  # e.g. too few micro batches to fill so many stages
        for recompute in (True, False):
            other = _fastest(plan, config, placement, recompute)
            if other and (best is None or other.timing.step < best.timing.step):
                best = other
    return best


def _fastest(plan, config, placement, recompute):
    """The plan with the micro batch that is fastest; time has one minimum over it."""
    best = None
    for size in _micro_batches(config, len(placement.stages)):
        run = dataclasses.replace(config.run, micro_batch_size=size, recompute=recompute,
                                  accumulation_steps=None)
        other = dataclasses.replace(config, run=run)
        memory = memory_per_ipu(other, placement, plan.costs, plan.ipu)
        if not _roomy(memory, plan.ipu):
            continue
        other = evaluate(other, placement, plan.costs, plan.ipu, plan.sequences_per_row)
        if best and other.timing.step >= best.timing.step:
            break
        best = other
    return best


def _roomy(memory, ipu):
    return all(sum(kinds[kind] for kind in KINDS) <= (1 - HEADROOM) * ipu.memory
               and kinds["off_chip"] <= ipu.off_chip_bytes for kinds in memory)


def scale(plan):
    """The plan on every pod of its generation, with the same replica and global batch.

    Returns:
        A list of (name of the pod, its IPUs, ``Plan`` or the reason why there is none).
    """
    points = []
    for ipus, name in plan.ipu.pods.items():
        replicas, run = ipus // plan.placement.ipus_per_replica, plan.config.run
        config = dataclasses.replace(plan.config, run=dataclasses.replace(
            run, replicas=replicas, ipus=ipus, accumulation_steps=None))
        try:
            if not replicas:
                raise InputError(name, "is smaller than a replica")
            config.check()
            placement = resolve(config)
        except InputError as error:
            points.append((name, ipus, error.problem))
            continue
        points.append((name, ipus, evaluate(config, placement, plan.costs, plan.ipu,
                                            plan.sequences_per_row)))
    return points


def _placed(plan):
    """The recipe with every split, each in the smallest micro batch."""
    size, ipus = 1, plan.pod_ipus
    while size <= ipus:
        for pipeline in _pipelines(plan, size):
            shares = plan.config.run.available_memory_proportion
            run = dataclasses.replace(
                plan.config.run, pipeline=pipeline, replicas=ipus // size,
                micro_batch_size=1, accumulation_steps=None,
                available_memory_proportion=shares if len(shares) in (0, 1, size)
                else [min(shares)])
            yield dataclasses.replace(plan.config, run=run)
        size *= 2


def _pipelines(plan, ipus):
    """Splits of the network over so many IPUs, as ``run.pipeline``."""
    if ipus == 1:
        yield []
        return
    layers = plan.config.model.num_hidden_layers
    halves = [f"layer.{number}.{half}" for number in range(layers) for half in HALVES]
    # Heads that predict tokens go back to the IPU of the word embedding.
    tied = plan.config.data.max_predictions > 0
    for first in range(2 * -(-layers // ipus) + 1):
        for last in range(min(3, 2 * layers - first + 1) if tied else 1):
            middle = halves[first:len(halves) - last]
            for parts in (middle, _whole_layers(middle)):
                if len(parts) >= ipus - 1:
                    groups = _share_out(parts, [_work(plan, part) for part in parts], ipus - 1)
                    yield _write(plan, halves[:first], groups, halves[len(halves) - last:], tied)


def _whole_layers(halves):
    """Pairs of halves as one item each; nothing if the list begins or ends within a layer."""
    if len(halves) % 2 or halves[:1] and halves[0].endswith(HALVES[1]):
        return []
    return [" ".join(halves[start:start + 2]) for start in range(0, len(halves), 2)]


def _work(plan, part):
    return sum(plan.costs[name].flops for name in part.split())


def _share_out(parts, work, count):
    """Cut a list into ``count`` runs whose heaviest is as light as can be."""
    low, high = max(work), sum(work)
    while low < high:
        limit = (low + high) // 2
        low, high = (low, limit) if _runs(work, limit) <= count else (limit + 1, high)
    groups, weight = [[]], 0
    for number, (part, more) in enumerate(zip(parts, work)):
        left = count - len(groups)
        if groups[-1] and left and (weight + more > low or len(parts) - number <= left):
            groups.append([])
            weight = 0
        groups[-1].append(part)
        weight += more
    return groups


def _runs(work, limit):
    """Runs that a greedy cut makes if none may weigh more than ``limit``."""
    runs, weight = 1, 0
    for more in work:
        runs, weight = (runs, weight + more) if weight + more <= limit else (runs + 1, more)
    return runs


def _write(plan, first, groups, last, tied):
    """The stages as the YAML has them."""
    placed = [part for stage in plan.placement.stages for part in stage.parts]
    tail = [*last, *(name for name in ("pooler", "heads") if name in placed)]
    groups = [[name for item in group for name in item.split()] for group in groups]
    stages = [["embeddings", *first], *groups]
    if tied:
        stages.append(tail)
    else:
        stages[-1] += tail
    ipus = [*range(len(groups) + 1), 0]
    return [f"{shorten(names)} on {ipu}" for names, ipu in zip(stages, ipus)]


def _micro_batches(config, stages):
    """Those that divide the global batch and fill the pipeline, from the largest."""
    rows, replicas = config.train.global_batch_size, config.run.replicas
    sizes = [2 ** power for power in range(rows.bit_length())]
    return [size for size in reversed(sizes) if rows % (size * replicas) == 0
            and rows // (size * replicas) >= 2 * stages - 1]


def _difference(before, after):
    """Keys of ``run`` that changed, with their new values."""
    return {field.name: getattr(after, field.name) for field in dataclasses.fields(after)
            if getattr(after, field.name) != getattr(before, field.name)}
