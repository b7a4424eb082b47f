"""BERT as an ordered list of named blocks; the forward pass is a loop over them."""

from typing import Callable, NamedTuple, Tuple

from paddle import nn

from models.embeddings import Embeddings
from models.encoder import EncoderLayer, Pooler


class Part(NamedTuple):
    """The smallest thing that a pipeline stage can hold: a block, or half of a layer."""

    name: str
    """``embeddings``, ``layer.N.attention``, ``layer.N.feed_forward``, ``pooler``, ``heads``"""
    run: Callable
    """Takes the stream and returns it, changed"""
    layers: Tuple[nn.Layer, ...]
    """What holds its parameters"""


class Bert(nn.Layer):
    """``embeddings``, ``layer.0`` … ``layer.N-1``, ``pooler``, ``heads``: any contiguous
    group of these blocks can be a pipeline stage."""

    embeddings_type = Embeddings

    def __init__(self, config, first_slot=0, sequences_per_row=1, with_pooler=True):
        super().__init__()
        self.embeddings = self.embeddings_type(config, sequences_per_row)
        self.layer = nn.LayerList([EncoderLayer(config) for _ in range(config.num_hidden_layers)])
        self.pooler = Pooler(config, first_slot, sequences_per_row) if with_pooler else None
        self.heads = None

    def blocks(self):
        """Pairs of name and block, in order."""
        layers = [(f"layer.{number}", layer) for number, layer in enumerate(self.layer)]
        named = [("embeddings", self.embeddings), *layers,
                 ("pooler", self.pooler), ("heads", self.heads)]
        return [(name, block) for name, block in named if block is not None]

    def parts(self):
        """The blocks as ``Part``s, each transformer layer in its two halves, in order."""
        parts = []
        for name, block in self.blocks():
            if isinstance(block, EncoderLayer):
                parts.append(Part(f"{name}.attention", block.attend,
                                  (block.attention, block.attention_norm)))
                parts.append(Part(f"{name}.feed_forward", block.feed_forward,
                                  (block.intermediate, block.output, block.output_norm)))
            else:
                parts.append(Part(name, block, (block,)))
        return parts

    def forward(self, inputs):
        """Run every block.

        Args:
            inputs: dict of ``[batch, sequence]`` int tensors, see ``Embeddings.forward``.

        Returns:
            What the heads return, or without heads the stream with ``hidden``
            ``[batch, sequence, hidden]`` and ``pooled`` ``[batch, k, hidden]``.
        """
        stream = self.encode(inputs)
        return stream if self.heads is None else self.heads(stream)

    def encode(self, inputs):
        """Run every block but the heads and return the stream."""
        stream = inputs
        for _, block in self.blocks():
            if block is not self.heads:
                stream = block(stream)
        return stream
