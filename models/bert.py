"""BERT as an ordered list of named blocks; the forward pass is a loop over them."""

from paddle import nn

from models.embeddings import Embeddings
from models.encoder import EncoderLayer, Pooler


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
