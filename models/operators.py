"""Activations by the name that a config gives them."""

import paddle.nn.functional as F

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate=True),
    "relu": F.relu,
}
