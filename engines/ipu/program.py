"""A network as the legacy static Program that the IPU backend compiles."""

import contextlib
from typing import Dict, NamedTuple, Optional, Tuple

import paddle
from paddle import static
from paddle.common_ops_import import LayerHelper
from paddle.utils import unique_name

from engines.ipu.half import convert_to_half, core
from engines.ipu.tuning import tune
from engines.ipu.update import append_update


LABELS = "labels."
"""Begins the names of feeds that the loss reads, which may be named as inputs are"""


class BuiltProgram(NamedTuple):
    """A Program, and how its variables are found."""

    main: static.Program
    startup: static.Program
    """Gives the optimizer's variables their first values; weights are put in by name"""
    feeds: Dict[str, Tuple[int, ...]]
    """Names of the inputs and labels, with their shapes for one micro batch"""
    fetches: Dict[str, str]
    """Names of the results, and of the variables that hold them"""
    learning_rate: Optional[str]
    """Variable whose value is sent to the IPUs at each step; None in inference"""


def build_program(network, example, placement, run, train=None):
    """Append the network, its loss and its update to a new Program.

    A parameter's variable is named as the parameter. Where a replica is several IPUs, every
    operator is made under the shard guard of its part's stage; each bears the part's name in
    its ``op_namescope``, in training and in inference.

    Args:
        network: whose ``training`` mode decides whether dropout drops.
        example: a ``Batch`` of one micro batch, which says shapes and types; without labels
            the Program returns what the heads return.
        placement: from ``engines.placement.resolve``.
        run: the ``run`` section.
        train: the ``train`` section; None builds no update.
    """
    main, startup = static.Program(), static.Program()
    with legacy_static_mode(), unique_name.guard(), static.program_guard(main, startup), \
            _variables_for(network):
        inputs, labels = _feeds(example.inputs), _feeds(example.labels, LABELS)
        has_operators = bool(train and run.ipu_operators)
        results = _append_network(network, inputs, labels, placement, has_operators)
        tune(main.global_block(), placement, run, train)
        learning_rate = append_update(results["loss"], train) if train else None
        if run.precision == "fp16":
            convert_to_half(main)
    feeds = {variable.name: tuple(variable.shape)
             for variable in (*inputs.values(), *labels.values())}
    fetches = {name: variable.name for name, variable in results.items()}
    return BuiltProgram(main, startup, feeds, fetches, learning_rate)


@contextlib.contextmanager
def legacy_static_mode():
    """Append operators to legacy Programs, with IPU shard guards on every build of Paddle.

    Raises:
        RuntimeError: Paddle was started in its new mode.
    """
    asked, was_eager = core.is_compiled_with_ipu, paddle.in_dynamic_mode()
    paddle.enable_static()
    # Guards refuse on a build without IPUs, where the Program is only checked or emulated.
    core.is_compiled_with_ipu = lambda: True
    try:
        if getattr(paddle.framework, "in_pir_mode", lambda: False)():
            raise RuntimeError("engines.startup.prepare() must be told of IPUs before Paddle "
                               "starts")
        yield
    finally:
        core.is_compiled_with_ipu = asked
        if was_eager:
            paddle.disable_static()


@contextlib.contextmanager
def _variables_for(network):
    """Put variables of the current Program in the place of the network's parameters."""
    block = static.default_main_program().global_block()
    variables, stores = {}, []
    for name, parameter in network.named_parameters():
        variables[id(parameter)] = block.create_parameter(
            name=name, shape=list(parameter.shape), dtype="float32")
    for layer in network.sublayers(include_self=True):
        stores.append((layer._parameters, dict(layer._parameters)))
    try:
        for store, values in stores:
            store.update({key: variables[id(value)] for key, value in values.items()
                          if value is not None})
        yield
    finally:
        for store, values in stores:
            store.update(values)


def _feeds(arrays, prefix=""):
    return {name: static.data(prefix + name, array.shape, str(array.dtype))
            for name, array in arrays.items()}


def _append_network(network, inputs, labels, placement, has_operators):
    stream, block = inputs, static.default_main_program().global_block()
    checkpoints = _checkpoints(placement) if has_operators else ()
    for part in network.parts():
        start, stage = len(block.ops), placement.stage_of(part.name)
        with _shard_guard(placement, stage):
            stream = part.run(stream)
            if part.name == "embeddings" and has_operators:
                stream = {**stream, "membership": _append("detach", stream["membership"])}
            if part.name in checkpoints:
                stream = {**stream, "hidden": _append("checkpointoutput", stream["hidden"])}
            if part.name == "heads" and labels:
                stream = network.heads.loss(stream, labels)
        for operator in block.ops[start:]:
            operator._set_attr("op_namescope", f"/{part.name}/")
    return stream


def _checkpoints(placement):
    """Parts whose output is kept: layers, but for the last of a stage, which is kept anyway."""
    return {part for stage in placement.stages for part in stage.parts[:-1]
            if part.endswith("feed_forward")}


def _append(kind, variable):
    """An operator of our own library, which changes no number."""
    helper = LayerHelper(kind)
    output = helper.create_variable_for_type_inference(variable.dtype)
    helper.append_op(type=kind, inputs={"X": [variable]}, outputs={"Out": [output]})
    output.stop_gradient = variable.stop_gradient
    return output


def _shard_guard(placement, stage):
    """The guard of a stage; one IPU takes no shards."""
    if placement.ipus_per_replica == 1:
        return contextlib.nullcontext()
    return static.ipu_shard_guard(index=stage.ipu, stage=stage.number)
