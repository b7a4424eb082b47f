"""Which parts of a network stand in which pipeline stage, and on which device of a replica.

``run.pipeline`` lists the stages in order, each ``PART, PART on DEVICE``; see
``configs/schema.py``. An engine takes the resolved ``Placement``, whatever its devices are.
"""

from typing import NamedTuple, Tuple

from configs.errors import InputError
from engines.stage_text import REST, StageText, shorten
from models.cost import HALVES, forward_flops_by_part, parameters_by_part, part_names


class Stage(NamedTuple):
    """A contiguous group of parts that is computed at one time on one device."""

    number: int
    ipu: int
    """Within the replica, from 0; a process or a GPU where there are no IPUs"""
    parts: Tuple[str, ...]
    """Names as ``models.cost.part_names`` gives them, in the network's order"""


class Placement(NamedTuple):
    """The stages of a replica in order."""

    stages: Tuple[Stage, ...]

    @property
    def ipus_per_replica(self):
        return 1 + max(stage.ipu for stage in self.stages)

    def stage_of(self, part):
        """The stage that holds a part."""
        return next(stage for stage in self.stages if part in stage.parts)


def resolve(config, with_pooler=None, tied=None):
    """Parse ``run.pipeline`` and check it against the model, the machine and the batch.

    Args:
        config: a whole ``Config``; an empty pipeline is one stage on device 0.
        with_pooler: whether the network has a pooler; None goes by the task.
        tied: whether the heads compute with the word embedding; None if they predict tokens.

    Returns:
        The ``Placement``.

    Raises:
        InputError: naming the stage and the mend; its place ``run.pipeline[2]`` is stage 2.
    """
    names = part_names(config.model,
                       config.data.has_pooler if with_pooler is None else with_pooler)
    tied = config.data.max_predictions > 0 if tied is None else tied
    stages = [Stage(0, 0, names)]
    if config.run.pipeline:
        stages = _read_stages(config.run.pipeline, names, one_table=tied and config.run.on_ipus)
    placement = Placement(tuple(stages))
    _check_pod(config.run, placement)
    _check_accumulation(config, placement)
    return placement


def _read_stages(texts, names, one_table):
    stages = [StageText(number, text, names) for number, text in enumerate(texts)]
    _share_out_the_rest(stages, names)
    _check_parts(stages, names)
    _check_devices(stages)
    if one_table:
        _check_tied_embedding(stages)
    return [Stage(stage.number, stage.ipu, tuple(sorted(stage.parts, key=names.index)))
            for stage in stages]


def _share_out_the_rest(stages, names):
    """Give the layers of which no half is named to the stages that say -1, evenly and in order."""
    takers = [stage for stage in stages if stage.takes_rest]
    if not takers:
        return
    named = {part.rpartition(".")[0] for stage in stages for part in stage.parts}
    rest = [name for name in dict.fromkeys(name.rpartition(".")[0] for name in names)
            if name and name not in named]
    for number, stage in enumerate(takers):
        start, stop = (len(rest) * edge // len(takers) for edge in (number, number + 1))
        stage.parts += [f"{layer}.{half}" for layer in rest[start:stop] for half in HALVES]
        if not rest or not stage.parts:
            stage.refuse(f"gets no layer by {REST}: {len(rest)} left for {len(takers)} such "
                         f"stage{'s' * (len(takers) > 1)}", "remove it, or take fewer stages")


def _check_parts(stages, names):
    """Every part once, and stages in the network's order."""
    holders = {}
    for stage in stages:
        twice = [part for part in dict.fromkeys(stage.parts)
                 if part in holders or stage.parts.count(part) > 1]
        if twice:
            other = holders.get(twice[0], stage)
            stage.refuse(f"holds {shorten(twice)}, which {'it' if other is stage else other} "
                         "holds already", "name each part once")
        holders.update(dict.fromkeys(stage.parts, stage))
    missing = [name for name in names if name not in holders]
    if missing:
        before = names[:names.index(missing[0])]
        holder = holders[before[-1]] if before else stages[0]
        raise InputError(f"run.pipeline[{holder.number}]", f"no stage holds {shorten(missing)}",
                         f"add it to {holder} or to a stage beside it")
    for earlier, later in zip(stages, stages[1:]):
        last = max(earlier.parts, key=names.index)
        first = min(later.parts, key=names.index)
        if names.index(first) < names.index(last):
            later.refuse(f"holds {first}, but {earlier} before it holds {last}",
                         "list the stages in the order of the network: embeddings, layers, "
                         "pooler, heads")


def _check_devices(stages):
    """Devices numbered from 0 without a gap, and another one at each step."""
    for earlier, later in zip(stages, stages[1:]):
        if earlier.ipu == later.ipu:
            later.refuse(f"sits on {later.ipu}, as {earlier} before it", "write the two as one")
    used = {stage.ipu for stage in stages}
    for stage in stages:
        unused = next((number for number in range(stage.ipu) if number not in used), None)
        if unused is not None:
            stage.refuse(f"sits on {stage.ipu}, but no stage sits on {unused}",
                         "number the devices of a replica from 0 without a gap")


def _check_tied_embedding(stages):
    table = next(stage for stage in stages if "embeddings" in stage.parts)
    heads = next(stage for stage in stages if "heads" in stage.parts)
    if heads.ipu != table.ipu:
        heads.refuse(f"puts heads on IPU {heads.ipu}, but the word embedding that they use lies "
                     f"on IPU {table.ipu} with embeddings, and pipelined IPUs cannot share a "
                     "weight", f"write a last stage 'heads on {table.ipu}'")


def _check_pod(run, placement):
    """Replicas x devices a replica against the pod and what IPUs can be partitioned into."""
    each = placement.ipus_per_replica
    total = run.replicas * each
    if run.ipus is not None and total > run.ipus:
        raise InputError("run.replicas", f"{run.replicas} x {each} IPUs a replica = {total}, but "
                         f"run.ipus is {run.ipus}", f"write at most {run.ipus // each}"
                         if each <= run.ipus else "take fewer IPUs in run.pipeline")
    if not run.on_ipus:
        return
    shares = len(run.available_memory_proportion)
    if shares > 1 and shares != each:
        raise InputError("run.available_memory_proportion", f"{shares} values for {each} IPUs a "
                         "replica", "write one value, or one for each IPU")
    for key, number, mend in (
            ("run.ipus", run.ipus or 1, "write e.g. 4, 16 or 64"),
            ("run.pipeline", each, "take 1, 2, 4, 8 … IPUs a replica"),
            ("run.replicas", run.replicas, "write 1, 2, 4, 8 …")):
        if number & (number - 1):
            raise InputError(key, f"{number} is no power of two, but IPUs are taken in powers of "
                             "two", mend)


def _check_accumulation(config, placement):
    """PopART fills the pipeline, backward stages included, before it empties it."""
    stages, steps = len(placement.stages), config.accumulation_steps
    needed = 2 * stages - 1
    if config.run.on_ipus and stages > 1 and steps < needed:
        raise InputError(
            "run.pipeline", f"{stages} stages forward and back need {needed} micro batches an "
            f"update, but global batch {config.train.global_batch_size} / (micro batch "
            f"{config.run.micro_batch_size} x replicas {config.run.replicas}) is {steps}",
            "raise train.global_batch_size, or lower one of the others")


def describe(config, placement):
    """Lines for a reader: device, parts, parameters and share of the FLOPs of each stage."""
    run, stages = config.run, placement.stages
    unit, total = "IPU" if run.on_ipus else "device", run.replicas * placement.ipus_per_replica
    head = (f"pipeline: {_count(len(stages), 'stage')} x {_count(run.replicas, 'replica')}, "
            f"{_count(total, unit)}" + (f" of {run.ipus}" if run.ipus else ""))
    if len(stages) == 1:
        return [head]
    parameters, flops = stage_costs(config, placement)
    texts = [shorten(stage.parts) for stage in stages]
    width = max(map(len, texts))
    lines = [f"{head}; heaviest stage {max(flops) * len(flops) / sum(flops):.2f} x the mean FLOPs",
             f"  stage  {unit}  {'parts':{width}}   parameters   FLOPs"]
    for stage, text, numbers, work in zip(stages, texts, parameters, flops):
        lines.append(f"  {stage.number:5}  {stage.ipu:{len(unit)}}  {text:{width}}  {numbers:11,}"
                     f"  {work / sum(flops):6.1%}")
    if not run.on_ipus and config.accumulation_steps < len(stages):
        lines.append(f"  note: {config.accumulation_steps} micro batches an update cannot keep "
                     f"{len(stages)} stages busy")
    return lines


def _count(number, thing):
    return f"{number} {thing}{'s' * (number != 1)}"


def stage_costs(config, placement):
    """Parameters, and forward FLOPs of a row, of each stage: two lists.

    The word embedding counts where the embeddings are.
    """
    parameters = parameters_by_part(config.model, config.data.has_pooler,
                                    config.data.max_predictions > 0)
    flops = forward_flops_by_part(config.model, config.data.sequence_length,
                                  config.data.max_predictions)
    return tuple([sum(costs[part] for part in stage.parts) for stage in placement.stages]
                 for costs in (parameters, flops))
