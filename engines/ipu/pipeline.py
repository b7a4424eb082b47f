"""A lowered Program cut into the stages of a pipeline, and their order over micro batches.

With the loss in stage L there are 2 L + 1 positions: the forward stages 0 to L - 1, stage L with
its backward pass, then the backward passes of L - 1 to 0. In each cycle every position works
on another micro batch, the one that the position before it had in the cycle before.
"""

from typing import NamedTuple, Tuple

import numpy as np
import paddle
from paddle import static

from engines.ipu.half import BACKWARD


class Position(NamedTuple):
    """What is computed of one micro batch in one cycle."""

    program: static.Program
    executor: static.Executor
    """Its own, because one Executor keeps but eight programs ready"""
    inputs: Tuple[str, ...]
    """Variables from feeds and earlier positions"""
    outputs: Tuple[str, ...]
    """Variables for later positions, for gradients and for fetches"""


def cut(program, wanted):
    """The ``Position``s of a lowered Program.

    Args:
        program: whose operators carry ``ipu_stage``, or none does.
        wanted: names of variables that are needed at the end.
    """
    block = program.global_block()
    numbers = _positions(block)
    groups = [[op for op, number in zip(block.ops, numbers) if number == position]
              for position in range(max(numbers) + 1)]
    positions = []
    for number, operators in enumerate(groups):
        made = {name for op in operators for name in op.output_arg_names}
        later = {name for group in groups[number + 1:] for op in group
                 for name in op.input_arg_names}
        outputs = tuple(sorted(made & (later | set(wanted)) - {"@EMPTY@"}))
        positions.append(Position(_copy(operators, block), static.Executor(paddle.CPUPlace()),
                                  _inputs(operators, block), outputs))
    return positions


def schedule(positions, micro_batches):
    """``(cycle, position, micro batch)`` in the order in which a pipeline computes them."""
    for cycle in range(positions + micro_batches - 1):
        for position in range(positions):
            if 0 <= cycle - position < micro_batches:
                yield cycle, position, cycle - position


def run_pipeline(positions, feeds, scope):
    """Compute micro batches and yield the values of each one as it leaves the pipeline.

    Args:
        positions: from ``cut``.
        feeds: a dict of arrays by name for each micro batch.
        scope: which holds the weights.

    Yields:
        ``(micro batch, {name: tensor})``.
    """
    in_flight = {}
    for _, number, micro_batch in schedule(len(positions), len(feeds)):
        position = positions[number]
        values = in_flight.setdefault(micro_batch, feeds[micro_batch])
        results = position.executor.run(
            position.program, {name: values[name] for name in position.inputs},
            list(position.outputs), scope=scope, return_numpy=False)
        in_flight[micro_batch] = {**values, **dict(zip(position.outputs, results))}
        if number == len(positions) - 1:
            yield micro_batch, in_flight.pop(micro_batch)


def to_numpy(tensor):
    """A fetched tensor as an array."""
    return np.array(tensor)


def _positions(block):
    """The position of each operator; those that Paddle added itself follow their inputs."""
    stages = [op.attr("ipu_stage") if op.has_attr("ipu_stage") else None for op in block.ops]
    last = max((stage for stage in stages if stage is not None), default=0)
    positions, made = [], {}
    for op, stage in zip(block.ops, stages):
        is_backward = op.attr("op_role") & BACKWARD
        if stage is not None:
            position = 2 * last - stage if is_backward else stage
        else:
            position = max((made[name] for name in op.input_arg_names if name in made),
                           default=last if is_backward else 0)
        positions.append(position)
        made.update(dict.fromkeys(op.output_arg_names, position))
    return positions


def _inputs(operators, block):
    needed, made = set(), set()
    for op in operators:
        needed.update(name for name in op.input_arg_names if name not in made)
        made.update(op.output_arg_names)
    return tuple(sorted(name for name in needed - {"@EMPTY@"}
                        if not block.var(name).persistable))


def _copy(operators, source):
    program = static.Program()
    block = program.global_block()
    for op in operators:
        for name in (*op.input_arg_names, *op.output_arg_names):
            if name != "@EMPTY@" and not block.has_var(name):
                block._clone_variable(source.var(name), force_persistable=False)
        block.desc.append_op().copy_from(op.desc)
    program._sync_with_cpp()
    return program
