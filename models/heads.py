"""What is read off the encoder: a head for each task, and the pretraining loss."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from models.encoder import MASKED_SCORE
from models.operators import ACTIVATIONS, LayerNorm, Linear, best_index, linear, total


class MaskedLanguageModelHead(nn.Layer):
    """Scores of every vocabulary entry; the decoder is the word embedding itself."""

    def __init__(self, config, word_embeddings):
        super().__init__()
        self.transform = Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.layer_norm = LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.decoder_weight = word_embeddings.weight
        self.decoder_bias = self.create_parameter([config.vocab_size], is_bias=True)

    def forward(self, hidden):
        """``[..., hidden]`` to logits ``[..., vocabulary]``."""
        hidden = self.layer_norm(self.activation(self.transform(hidden)))
        return linear(hidden, self.decoder_weight, self.decoder_bias, transpose_weight=True)


class PretrainingHeads(nn.Layer):
    """Masked language model on the first slots, and a two-way pair objective (NSP or SOP)."""

    def __init__(self, config, word_embeddings, max_predictions, with_pairs=True):
        super().__init__()
        self.max_predictions = max_predictions
        self.masked_lm = MaskedLanguageModelHead(config, word_embeddings)
        self.pair = Linear(config.hidden_size, 2) if with_pairs else None

    def forward(self, stream):
        """Logits.

        Returns:
            dict with ``masked_lm_logits`` ``[batch, max_predictions, vocabulary]`` and, with
            a pair objective, ``pair_logits`` ``[batch, k, 2]``.
        """
        logits = {"masked_lm_logits": self.masked_lm(stream["hidden"][:, :self.max_predictions])}
        if self.pair is not None:
            logits["pair_logits"] = self.pair(stream["pooled"])
        return logits

    def loss(self, logits, labels):
        """Weighted sums of the micro batch.

        Args:
            logits: what ``forward`` returned.
            labels: dict of ``masked_lm_labels`` and ``masked_lm_weights``
                ``[batch, max_predictions]``, ``pair_labels`` and ``pair_weights``
                ``[batch, k]``. The weights of the global batch sum to 1 for each
                objective, so losses of micro batches add up to the global mean however
                it was split, and empty prediction slots weigh 0.

        Returns:
            dict of scalars: ``loss`` to minimise, and for the metrics ``mlm_loss``,
            ``mlm_accuracy``, ``nsp_loss``, ``nsp_accuracy``.
        """
        mlm_loss, mlm_accuracy = _weighted(logits["masked_lm_logits"], labels["masked_lm_labels"],
                                           labels["masked_lm_weights"])
        sums = {"loss": mlm_loss, "mlm_loss": mlm_loss, "mlm_accuracy": mlm_accuracy}
        if self.pair is not None:
            nsp_loss, nsp_accuracy = _weighted(logits["pair_logits"], labels["pair_labels"],
                                               labels["pair_weights"])
            sums.update(loss=mlm_loss + nsp_loss, nsp_loss=nsp_loss, nsp_accuracy=nsp_accuracy)
        return sums


def _weighted(logits, labels, weights):
    """Weighted sums of cross entropy and of correct answers over ``[batch, slots]``."""
    entropy = F.cross_entropy(logits, labels.unsqueeze(-1), reduction="none").squeeze(-1)
    correct = (best_index(logits).astype(labels.dtype) == labels).astype("float32")
    return total(entropy * weights), total(correct * weights)


class QuestionAnsweringHead(nn.Layer):
    """Start and end scores of an answer span (Devlin et al. 2018, section 4.2)."""

    def __init__(self, config):
        super().__init__()
        self.span = Linear(config.hidden_size, 2)

    def forward(self, stream):
        """``start_logits`` and ``end_logits``, each ``[batch, sequence]``."""
        scores = self.span(stream["hidden"])
        return {"start_logits": scores[:, :, 0], "end_logits": scores[:, :, 1]}

    def loss(self, logits, labels):
        """Weighted sums of the micro batch.

        The softmax over the slots of a row is taken within each window of the row, so that a
        packed row has the loss of its windows in rows of their own. Where a row is one window
        without padding, that is the loss of Hugging Face's ``BertForQuestionAnswering``; theirs
        takes padding for possible answers.

        Args:
            logits: what ``forward`` returned.
            labels: dict of ``sequence_id`` ``[batch, sequence]``, i + 1 in the slots of a row's
                i-th window; ``start_positions``, ``end_positions`` ``[batch, k]``, slots of the
                row; and ``window_weights`` ``[batch, k]``, which sum to 1 over the global batch
                and are 0 where there is no window.

        Returns:
            dict of scalars: ``loss`` to minimise, the mean of both ends' cross entropies, and
            for the metrics ``start_accuracy`` and ``end_accuracy``.
        """
        weights, sums = labels["window_weights"], {}
        for end in ("start", "end"):
            scores = _within_windows(logits[f"{end}_logits"], labels["sequence_id"],
                                     weights.shape[1])
            entropy, sums[f"{end}_accuracy"] = _weighted(scores, labels[f"{end}_positions"],
                                                         weights)
            sums["loss"] = entropy if end == "start" else (sums["loss"] + entropy) * 0.5
        return sums


def _within_windows(logits, sequence_id, count):
    """``[batch, sequence]`` as ``[batch, count, sequence]``, MASKED_SCORE outside each window."""
    members = [(sequence_id == number + 1).astype(logits.dtype) for number in range(count)]
    return paddle.stack([logits * member + (1.0 - member) * MASKED_SCORE for member in members],
                        axis=1)


class _LabelHead(nn.Layer):
    """A label for whatever has a vector."""

    label_names = None
    """What the labels are called, in their order, where that is known"""

    def __init__(self, config, num_labels):
        super().__init__()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = Linear(config.hidden_size, num_labels)


class SequenceClassificationHead(_LabelHead):
    """A label for each sequence of a row; one label is a regression."""

    def forward(self, stream):
        """``logits`` ``[batch, k, num_labels]``."""
        return {"logits": self.classifier(self.dropout(stream["pooled"]))}

    def loss(self, logits, labels):
        """Weighted sums of the micro batch, as in Hugging Face's ``BertForSequenceClassification``.

        Args:
            logits: what ``forward`` returned.
            labels: dict of ``labels`` ``[batch, k]``, ints, or floats in a regression, and
                ``label_weights`` ``[batch, k]``, which sum to 1 over the global batch and are 0
                where there is no sequence.

        Returns:
            dict of scalars: ``loss`` to minimise, the mean cross entropy, and for the metrics
            ``accuracy``; of a regression the mean squared error alone.
        """
        weights = labels["label_weights"]
        if self.classifier.weight.shape[1] > 1:
            loss, accuracy = _weighted(logits["logits"], labels["labels"], weights)
            return {"loss": loss, "accuracy": accuracy}
        difference = logits["logits"].squeeze(-1) - labels["labels"]
        return {"loss": total(difference * difference * weights)}


class TokenClassificationHead(_LabelHead):
    """A label for each token."""

    def forward(self, stream):
        """``logits`` ``[batch, sequence, num_labels]``."""
        return {"logits": self.classifier(self.dropout(stream["hidden"]))}

    def loss(self, logits, labels):
        """Weighted sums of the micro batch, as in Hugging Face's ``BertForTokenClassification``.

        Args:
            logits: what ``forward`` returned.
            labels: dict of ``labels`` ``[batch, sequence]`` and ``label_weights`` ``[batch,
                sequence]``, which sum to 1 over the global batch and are 0 where a token has no
                label: at special tokens, padding and all but the first piece of a word.

        Returns:
            dict of scalars: ``loss`` to minimise, the mean cross entropy, and for the metrics
            ``accuracy``.
        """
        loss, accuracy = _weighted(logits["logits"], labels["labels"], labels["label_weights"])
        return {"loss": loss, "accuracy": accuracy}


class MultipleChoiceHead(nn.Layer):
    """One score for each candidate; the rows of a batch are ``question x choice``."""

    def __init__(self, config, num_choices):
        super().__init__()
        self.num_choices = num_choices
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = Linear(config.hidden_size, 1)

    def forward(self, stream):
        """``logits`` ``[batch / num_choices, num_choices]``."""
        scores = self.classifier(self.dropout(stream["pooled"]))
        return {"logits": scores.reshape([-1, self.num_choices])}
