"""A Program as text: what would be compiled, an operator a line, in stages."""

import re

from engines.ipu.half import is_forward

# What Paddle notes on every operator, and what says the same in each.
_LEFT_OUT = re.compile(r"op_(callstack|namescope|device|role|role_var)|ipu_(index|stage)|"
                       r"with_quant_attr|use_(mkldnn|cudnn)|mkldnn_data_type")


def listing(built, options):
    """The text.

    Args:
        built: the ``BuiltProgram``.
        options: of the strategy, by name.
    """
    block = built.main.global_block()
    lines = ["options", *(f"  {name}: {value}" for name, value in sorted(options.items())),
             "feeds", *(f"  {_variable(block, name)}" for name in built.feeds),
             "fetches", *(f"  {name}: {_variable(block, variable)}"
                          for name, variable in built.fetches.items()),
             "weights", *(f"  {_variable(block, p.name)}" for p in block.all_parameters())]
    title = None
    for operator in block.ops:
        if title != (title := _title(operator)):
            lines.append(title)
        lines.append(f"  {_operator(block, operator)}")
    return "\n".join(lines) + "\n"


def _title(operator):
    if not is_forward(operator):
        return "backward and update (the backend keeps of them what the optimizer is)"
    where = ""
    if operator.has_attr("ipu_stage"):
        where = f"stage {operator.attr('ipu_stage')} on IPU {operator.attr('ipu_index')}: "
    return where + operator.attr("op_namescope").strip("/")


def _operator(block, operator):
    outputs = ", ".join(_variable(block, name) for name in operator.output_arg_names
                        if name and not _is_shape_only(operator, name))
    inputs = ", ".join(operator.input_arg_names)
    attributes = {name: operator.attr(name) for name in sorted(operator.attr_names)
                  if not _LEFT_OUT.fullmatch(name)}
    shown = ", ".join(f"{name}={value!r}" for name, value in attributes.items()
                      if value not in (False, "", None, [], -1) or name == "dropout_prob")
    return f"{outputs} = {operator.type}({inputs})" + (f"  {{{shown}}}" if shown else "")


def _is_shape_only(operator, name):
    return "XShape" in operator.output_names and name in operator.output("XShape")


def _variable(block, name):
    if not block.has_var(name):
        return name
    variable = block.var(name)
    kind = str(variable.dtype).rpartition(".")[2].lower()
    return f"{name} {kind}{list(variable.shape)}"
