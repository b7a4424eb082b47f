"""The forward operators of a Program as a CPU computes them, with a backward pass of their own.

So does the IPU backend: it keeps the forward pass and derives the rest anew. On Paddle 2.6 the
emulated float16 is too small by up to half a step, for its CPU's cast drops digits.
"""

from typing import Dict, NamedTuple

from paddle import static

from engines.ipu.half import BACKWARD, FLOAT, HALF, is_forward, replace_dtypes

LOSS = 256
"""Bit of ``op_role`` that marks the operator of the loss"""

# They pass numbers on as they are, so nothing has to be rounded behind them.
MOVING = {"reshape2", "transpose2", "squeeze2", "unsqueeze2", "slice", "concat", "stack", "split",
          "expand_v2", "tile", "gather", "lookup_table_v2", "share_data", "assign",
          "flatten_contiguous_range", "fill_constant", "checkpointoutput", "detach"}

RESHAPING = {"reshape2_grad", "squeeze2_grad", "unsqueeze2_grad", "flatten_contiguous_range_grad"}


class Lowered(NamedTuple):
    """Operators for a CPU, in the order of their computation."""

    program: static.Program
    gradients: Dict[str, str]
    """Names of the parameters, and of the variables with their gradients"""
    names: Dict[str, str]
    """Names of variables of the original, and of those that hold their rounded values"""


def lower(program, loss=None, loss_scale=1.0):
    """Copy the forward operators, in float32 rounded to float16 where they are in float16.

    Args:
        program: legacy Program.
        loss: name of its loss; None in inference.
        loss_scale: factor of the gradients.
    """
    lowered = static.Program()
    source, block = program.global_block(), lowered.global_block()
    names, halves = {}, set()
    for operator in filter(is_forward, source.ops):
        _copy_operator(operator, source, block, names, halves)
    _sync(block)
    gradients = {}
    if loss is not None:
        scaled = _append(block, "scale", block.var(names[loss]), f"{loss}.scaled",
                         _place_of(source, loss), scale=loss_scale)
        _sync(block)
        with static.program_guard(lowered):
            pairs = static.append_backward(scaled)
        gradients = {parameter.name: gradient.name for parameter, gradient in pairs
                     if gradient is not None}
        _take_shapes_as_known(block)
    return Lowered(lowered, gradients, names)


def _copy_operator(operator, source, block, names, halves):
    for name in (*operator.input_arg_names, *operator.output_arg_names):
        if not block.has_var(name):
            _copy_variable(source.var(name), block, halves)
    description = block.desc.append_op()
    description.copy_from(operator.desc)
    for name in operator.input_arg_names:
        description._rename_input(name, names.setdefault(name, name))
    description._set_attr("op_role", operator.attr("op_role") & ~LOSS)
    if halves:
        replace_dtypes(_Attributes(description), HALF, FLOAT)
    for name in operator.output_arg_names:
        names[name] = name
        if name in halves and operator.type not in MOVING:
            names[name] = _append_rounding(block, block.var(name), description)


def _copy_variable(variable, block, halves):
    is_half = variable.desc.dtype() == HALF
    if is_half:
        halves.add(variable.name)
    kind = FLOAT if is_half else variable.desc.dtype()
    if variable.is_parameter:
        block.create_parameter(name=variable.name, shape=variable.shape, dtype=kind)
    else:
        block.create_var(name=variable.name, shape=variable.shape, dtype=kind,
                         persistable=variable.persistable, need_check_feed=False,
                         stop_gradient=variable.stop_gradient)


def _append_rounding(block, variable, place):
    """To float16 and back; so, by the rules of differentiation, the gradient is rounded too."""
    half = _append(block, "cast", variable, f"{variable.name}.half", place, dtype=HALF,
                   in_dtype=int(FLOAT), out_dtype=int(HALF))
    return _append(block, "cast", half, f"{variable.name}.rounded", place,
                   in_dtype=int(HALF), out_dtype=int(FLOAT)).name


def _append(block, kind, variable, name, place, dtype=FLOAT, **attributes):
    """Append an operator of one input at the place of another one; returns its output."""
    output = block.create_var(name=name, shape=variable.shape, dtype=dtype,
                              stop_gradient=variable.stop_gradient)
    description = block.desc.append_op()
    description.set_type(kind)
    description.set_input("X", [variable.name])
    description.set_output("Out", [name])
    for key, value in {"op_role": 0, **attributes}.items():
        description._set_attr(key, value)
    for key in ("ipu_index", "ipu_stage", "op_namescope", "op_device"):
        if place.has_attr(key):
            description._set_attr(key, place.attr(key))
    description.check_attrs()  # fills in what has a default
    return output


def _place_of(block, name):
    return next(operator for operator in block.ops if name in operator.output_arg_names)


def _take_shapes_as_known(block):
    """Let gradients of reshapes read no shape of the forward pass: it is static anyway.

    That shape rides in a variable without memory, which cannot be handed to another stage.
    """
    for operator in block.ops:
        if not operator.attr("op_role") & BACKWARD:
            continue
        if operator.type in RESHAPING:
            shape = list(block.var(operator.output("X@GRAD")[0]).shape)
            _replace(operator, block, "reshape2", shape=shape)
        elif operator.type == "transpose2_grad":
            axes = operator.attr("axis")
            inverse = sorted(range(len(axes)), key=axes.__getitem__)
            _replace(operator, block, "transpose2", axis=inverse)


def _replace(operator, block, kind, **attributes):
    description = operator.desc
    source, target = operator.input("Out@GRAD"), operator.output("X@GRAD")
    shape = block.create_var(name=f"{target[0]}.shape", dtype=FLOAT).name
    for name in description.input_names():
        description.remove_input(name)
    for name in description.output_names():
        description.remove_output(name)
    description.set_type(kind)
    description.set_input("X", source)
    description.set_output("Out", target)
    description.set_output("XShape", [shape])
    for key, value in attributes.items():
        description._set_attr(key, value)


def _sync(block):
    block.program._sync_with_cpp()


class _Attributes:
    """An operator's description with the methods of the operator."""

    def __init__(self, description):
        self.has_attr, self.attr = description.has_attr, description.attr
        self._set_attr = description._set_attr
