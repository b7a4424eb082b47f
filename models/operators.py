"""Operators whose best form depends on the device or on Paddle's mode."""

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.common_ops_import import LayerHelper

# IPUs read legacy Programs, which Paddle 3 builds with the new mode switched off.
_in_new_static_mode = getattr(paddle.framework, "in_pir_mode", lambda: False)


def gelu(x, approximate=False):
    """``x Phi(x)`` (Hendrycks and Gimpel 2016), or its approximation by tanh."""
    if _in_legacy_static_mode():
        return _append("gelu", {"X": x}, x.dtype, approximate=approximate)
    return F.gelu(x, approximate=approximate)


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_new": lambda x: gelu(x, approximate=True),
    "relu": F.relu,
}


def tanh(x):
    """Hyperbolic tangent."""
    if _in_legacy_static_mode():
        return _append("tanh", {"X": x}, x.dtype)
    return paddle.tanh(x)


def total(x):
    """The sum of all numbers, a scalar."""
    if _in_legacy_static_mode():
        return _append("reduce_sum", {"X": x}, x.dtype, dim=[0], reduce_all=True)
    return x.sum()


def length(vectors):
    """Of each row of ``[rows, size]``: ``[rows, 1]``."""
    squares = (vectors.unsqueeze(1) @ vectors.unsqueeze(2)).squeeze(-1)
    return _append("sqrt", {"X": squares}, squares.dtype) if _in_legacy_static_mode() else (
        squares.sqrt())


def best_index(scores):
    """Where the last axis is largest, without a gradient."""
    if _in_legacy_static_mode():
        index = _append("arg_max", {"X": scores}, "int64", axis=-1)
        index.stop_gradient = True
        return index
    return scores.detach().argmax(-1)


class Linear(nn.Linear):
    """``x @ weight + bias`` with ``weight`` ``[in, out]``."""

    def forward(self, x):
        return linear(x, self.weight, self.bias)


class LayerNorm(nn.LayerNorm):
    """Normalisation over the last axis with scale and shift (Ba et al. 2016)."""

    def __init__(self, size, epsilon):
        super().__init__(size, epsilon=epsilon)
        self.epsilon = epsilon

    def forward(self, x):
        if _is_eager_on_cpu(x):
            return _CpuLayerNorm.apply(x, self.weight, self.bias, self.epsilon)
        return super().forward(x)


def linear(x, weight, bias, transpose_weight=False):
    """``x @ weight + bias``.

    Args:
        x: ``[..., in]``.
        weight: ``[in, out]``, or ``[out, in]`` with ``transpose_weight``.
        bias: ``[out]``.
    """
    if _is_eager_on_cpu(x):
        return _CpuLinear.apply(x, weight, bias, transpose_weight)
    if _in_legacy_static_mode():
        return _append("matmul_v2", {"X": x, "Y": weight}, x.dtype,
                       trans_y=transpose_weight) + bias
    return paddle.matmul(x, weight, transpose_y=transpose_weight) + bias


def _in_legacy_static_mode():
    return not paddle.in_dynamic_mode() and not _in_new_static_mode()


def _append(kind, inputs, dtype, **attributes):
    """Append an operator whose Python function Paddle 3 keeps for its other modes."""
    helper = LayerHelper(kind)
    output = helper.create_variable_for_type_inference(dtype)
    helper.append_op(type=kind, inputs=inputs, outputs={"Out": output}, attrs=attributes)
    return output


def _is_eager_on_cpu(x):
    return paddle.in_dynamic_mode() and x.place.is_cpu_place()


class _CpuLinear(paddle.autograd.PyLayer):
    """Adds the bias in place and sums its gradient by a product with ones.

    Paddle's broadcast add and its backward reduction take as long on a CPU as the matrix
    products of a small model; BLAS does the same sum in a tenth of the time.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, transpose_weight):
        ctx.save_for_backward(x, weight)
        ctx.transpose_weight = transpose_weight
        return paddle.matmul(x, weight, transpose_y=transpose_weight).add_(bias)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensor()
        rows = x.reshape([-1, x.shape[-1]])
        row_gradients = gradient.reshape([-1, gradient.shape[-1]])
        if ctx.transpose_weight:
            weight_gradient = paddle.matmul(row_gradients, rows, transpose_x=True)
        else:
            weight_gradient = paddle.matmul(rows, row_gradients, transpose_x=True)
        bias_gradient = paddle.ones([1, rows.shape[0]]) @ row_gradients
        input_gradient = paddle.matmul(gradient, weight, transpose_y=not ctx.transpose_weight)
        return input_gradient, weight_gradient, bias_gradient.reshape([-1])


class _CpuLayerNorm(paddle.autograd.PyLayer):
    """Layer norm whose backward pass means and repeats by products with ones.

    Paddle's own backward kernel takes twice as long on a CPU, and so would broadcasting: a
    product that repeats a column over a row, then a same-shape operator, is several times
    faster than the operator that broadcasts.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, epsilon):
        ctx.save_for_backward(x, weight)
        ctx.epsilon = epsilon
        return F.layer_norm(x, [x.shape[-1]], weight, bias, epsilon)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensor()
        size = x.shape[-1]
        x_rows, rows = x.reshape([-1, size]), gradient.reshape([-1, size])
        down, average = paddle.ones([1, rows.shape[0]]), paddle.full([size, 1], 1 / size)
        across = paddle.ones([1, size])
        centred = x_rows - (x_rows @ average) @ across
        variance = paddle.square(centred) @ average
        scale = paddle.rsqrt(variance + ctx.epsilon) @ across
        normal = centred.multiply_(scale)
        weight_gradient, bias_gradient = down @ (rows * normal), down @ rows
        rows = rows * (down.t() @ weight.unsqueeze(0))
        projected = normal * (((rows * normal) @ average) @ across)
        input_gradient = (rows - (rows @ average) @ across).subtract_(projected).multiply_(scale)
        return (input_gradient.reshape(x.shape), weight_gradient.reshape([-1]),
                bias_gradient.reshape([-1]))
