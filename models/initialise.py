"""Starting values of the weights."""

import zlib

import numpy as np


def initialise(network, seed, initializer_range):
    """Give every parameter its starting value, from the seed and its own name alone.

    So a network starts from the same numbers on every device and in every split:
    matrices from a normal truncated at two standard deviations (BERT's initialiser),
    biases 0, layer-norm scales 1.
    """
    for name, parameter in network.named_parameters():
        if len(parameter.shape) < 2:
            is_scale = name.endswith("norm.weight")
            value = np.full(parameter.shape, 1.0 if is_scale else 0.0, "float32")
        else:
            value = initializer_range * _truncated_normal(parameter.shape, seed, name)
        parameter.set_value(value)


def _truncated_normal(shape, seed, name):
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    values = random.standard_normal(shape, dtype=np.float32)
    outside = np.abs(values) > 2
    while outside.any():
        values[outside] = random.standard_normal(int(outside.sum()), dtype=np.float32)
        outside = np.abs(values) > 2
    return values
