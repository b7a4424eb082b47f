"""The transformer layer (Vaswani et al. 2017, post-norm as in BERT) and the pooler."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from models.operators import ACTIVATIONS, LayerNorm, Linear, tanh

# Far below any score, yet finite in float16, so that masked attention is exactly 0.
MASKED_SCORE = -10000.0


class SelfAttention(nn.Layer):
    """Multi-head attention inside each sequence of a row, with its output projection."""

    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.head_size = config.hidden_size // config.num_attention_heads
        self.query = Linear(config.hidden_size, config.hidden_size)
        self.key = Linear(config.hidden_size, config.hidden_size)
        self.value = Linear(config.hidden_size, config.hidden_size)
        self.output = Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, hidden, membership):
        """Attend among equal sequence ids.

        Args:
            hidden: ``[batch, sequence, hidden]``.
            membership: ``[batch, k, sequence]``, see ``Embeddings``.

        Returns:
            ``[batch, sequence, hidden]``.

        The mask rides inside the product of queries and keys: a query of sequence j has a
        1 in extra column j, and a key has there 0 if it belongs to j and MASKED_SCORE if not.
        Equal ids add exactly 0, others MASKED_SCORE, and no mask is broadcast over heads.
        """
        query = self._heads(self.query(hidden) * self.head_size ** -0.5)
        key, value = self._heads(self.key(hidden)), self._heads(self.value(hidden))
        query = paddle.concat([query, self._extra_columns(membership)], axis=-1)
        outside = (1.0 - membership) * MASKED_SCORE
        key = paddle.concat([key, self._extra_columns(outside)], axis=-1)
        scores = query @ key.transpose([0, 1, 3, 2])
        context = self.dropout(F.softmax(scores)) @ value
        batch, _, sequence, _ = context.shape
        context = context.transpose([0, 2, 1, 3]).reshape(
            [batch, sequence, self.num_heads * self.head_size])
        return self.output(context)

    def _heads(self, x):
        batch, sequence, _ = x.shape
        x = x.reshape([batch, sequence, self.num_heads, self.head_size])
        return x.transpose([0, 2, 1, 3])

    def _extra_columns(self, columns):
        batch, sequences, length = columns.shape
        columns = columns.transpose([0, 2, 1]).unsqueeze(1)
        return columns.expand([batch, self.num_heads, length, sequences])


class EncoderLayer(nn.Layer):
    """Attention and feed-forward, each with dropout, residual and layer norm."""

    def __init__(self, config):
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_norm = LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.intermediate = Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.output = Linear(config.intermediate_size, config.hidden_size)
        self.output_norm = LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, stream):
        """Replace ``hidden`` ``[batch, sequence, hidden]`` of the stream."""
        return self.feed_forward(self.attend(stream))

    def attend(self, stream):
        """The first half of the layer: attention, residual and norm."""
        hidden = stream["hidden"]
        attended = self.dropout(self.attention(hidden, stream["membership"]))
        return {**stream, "hidden": self.attention_norm(hidden + attended)}

    def feed_forward(self, stream):
        """The second half of the layer: feed-forward, residual and norm."""
        hidden = stream["hidden"]
        transformed = self.output(self.activation(self.intermediate(hidden)))
        return {**stream, "hidden": self.output_norm(hidden + self.dropout(transformed))}


class Pooler(nn.Layer):
    """A vector for each sequence of a row, from its [CLS] token through a tanh layer.

    [CLS] of sequence i stands in slot ``first_slot + i``: behind the predictions in a
    pretraining row, in front elsewhere. So pooling is a slice on every device.
    """

    def __init__(self, config, first_slot=0, sequences_per_row=1):
        super().__init__()
        self.slots = slice(first_slot, first_slot + sequences_per_row)
        self.dense = Linear(config.hidden_size, config.hidden_size)

    def forward(self, stream):
        """Add ``pooled`` ``[batch, k, hidden]`` to the stream."""
        pooled = tanh(self.dense(stream["hidden"][:, self.slots]))
        return {**stream, "pooled": pooled}
