"""Tokens to vectors: the first block of every network."""

import paddle
from paddle import nn

from models.operators import LayerNorm


class Embeddings(nn.Layer):
    """Word, position and token-type vectors, added and normalised (Devlin et al. 2018, 3)."""

    def __init__(self, config, sequences_per_row=1):
        super().__init__()
        self.max_positions = config.max_position_embeddings
        self.sequences_per_row = sequences_per_row
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.layer_norm = LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, inputs):
        """Start the stream of the other blocks.

        Args:
            inputs: dict of int tensors ``[batch, sequence]``: ``input_ids``,
                ``token_type_ids``, ``position_ids`` and ``sequence_id`` (1 to k for the
                sequences of a row, 0 for padding).

        Returns:
            dict with ``hidden`` ``[batch, sequence, hidden]`` and ``membership``
            ``[batch, k, sequence]``: 1 where a token belongs to sequence k.

        Raises:
            ValueError: a row is longer than the position table.
        """
        length = inputs["input_ids"].shape[1]
        if isinstance(length, int) and length > self.max_positions:  # an export leaves it open
            raise ValueError(f"{length} tokens in a row, but the model has "
                             f"{self.max_positions} positions")
        hidden = self.dropout(self.layer_norm(self.sum_of_embeddings(inputs)))
        return {"hidden": hidden, "membership": self._membership(inputs["sequence_id"])}

    def sum_of_embeddings(self, inputs):
        """``[batch, sequence, hidden]`` before layer norm."""
        return (self.word_embeddings(inputs["input_ids"])
                + self.position_embeddings(inputs["position_ids"])
                + self.token_type_embeddings(inputs["token_type_ids"]))

    def _membership(self, sequence_id):
        members = [(sequence_id == number + 1).astype("float32")
                   for number in range(self.sequences_per_row)]
        membership = paddle.stack(members, axis=1)
        membership.stop_gradient = True  # in a static Program it would not go without saying
        return membership
