"""A Program in float16, weights and activations alike, as IPUs train.

Paddle's own ``cast_model_to_fp16`` keeps other operators in float32 in each release; this is
what it did in the releases that had IPU builds, with nothing kept.
"""

import paddle

core = paddle.base.core if hasattr(paddle, "base") else paddle.fluid.core
FLOAT, HALF = core.VarDesc.VarType.FP32, core.VarDesc.VarType.FP16

BACKWARD, UPDATE = 1, 2
"""Bits of an operator's ``op_role``"""

DTYPE_ATTRIBUTES = ("dtype", "out_dtype", "in_dtype")


def is_forward(operator):
    """Whether an operator is neither of the backward pass nor of the update."""
    return not operator.attr("op_role") & (BACKWARD | UPDATE)


def convert_to_half(program):
    """Make every float32 variable of the forward pass float16, feeds and parameters too.

    The moments stay float32 on the host; options say what they are on the IPUs. There are no
    float32 copies of the weights.
    """
    block = program.global_block()
    for operator in filter(is_forward, block.ops):
        for name in (*operator.input_arg_names, *operator.output_arg_names):
            variable = block.var(name)
            if variable.desc.dtype() == FLOAT:
                variable.desc.set_dtype(HALF)
        replace_dtypes(operator, FLOAT, HALF)


def replace_dtypes(operator, old, new):
    """Replace a type in the attributes of an operator that makes or casts tensors."""
    for name in DTYPE_ATTRIBUTES:
        if operator.has_attr(name) and operator.attr(name) == int(old):
            operator._set_attr(name, int(new))
