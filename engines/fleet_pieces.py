"""What Fleet and the optimizer are given of a network and a batch: pieces of them."""

import dataclasses

import numpy as np
from paddle import nn

from engines.parts import STREAM


class PartLayer(nn.Layer):
    """A part as Paddle's pipeline wants it: a layer that takes and gives a tuple of tensors."""

    def __init__(self, engine, number, part):
        super().__init__()
        self.run_part, self.number = engine.run_part, number
        self.weight_of_network = engine.layout.shared_weight
        self.held = nn.LayerList(part.layers)

    @property
    def shared_weight(self):
        """The word embedding, in the stages that hold it."""
        return self.weight_of_network()

    def forward(self, stream):
        if isinstance(stream, tuple):
            stream = dict(zip(STREAM, stream))
        stream = self.run_part(self.number, stream)
        if "hidden" not in stream:
            return stream
        # Paddle frees what was sent, so what came in must not go out as the same tensor.
        return tuple(stream[name] if not stream[name].stop_gradient else stream[name].detach()
                     for name in STREAM if name in stream)


class Share:
    """The parameters that an optimizer is made for."""

    def __init__(self, parameters):
        self.parameters = parameters

    def named_parameters(self):
        return self.parameters.items()


def append_weightless(batch, count):
    """A batch with ``count`` more rows, the first ones again, that weigh 0."""
    rows = np.arange(len(batch) + count) % len(batch)
    labels = {name: array[rows] for name, array in batch.labels.items()}
    for name, array in labels.items():
        if name.endswith("_weights"):
            array[len(batch):] = 0
    inputs = {name: array[rows] for name, array in batch.inputs.items()}
    return dataclasses.replace(batch, **inputs, labels=labels)
