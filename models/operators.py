"""Operators whose best form depends on the device or on Paddle's mode."""

import paddle
import paddle.nn.functional as F
from paddle import nn

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate=True),
    "relu": F.relu,
}


class Linear(nn.Linear):
    """``x @ weight + bias`` with ``weight`` ``[in, out]``."""

    def forward(self, x):
        return linear(x, self.weight, self.bias)


def linear(x, weight, bias, transpose_weight=False):
    """``x @ weight + bias``.

    Args:
        x: ``[..., in]``.
        weight: ``[in, out]``, or ``[out, in]`` with ``transpose_weight``.
        bias: ``[out]``.
    """
    if paddle.in_dynamic_mode() and x.place.is_cpu_place():
        return _CpuLinear.apply(x, weight, bias, transpose_weight)
    return paddle.matmul(x, weight, transpose_y=transpose_weight) + bias


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
