"""What each task computes, from arrays to arrays: run as it is, or exported."""

import json
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.static import InputSpec

from configs.errors import InputError
from inference.checkpoint import open_checkpoint
from models import tasks

INPUTS = ("input_ids", "token_type_ids", "position_ids", "sequence_id")


class Graph(nn.Layer):
    """A network with what its task reads off it.

    ``forward`` takes ``INPUTS``, int32 ``[batch, sequence]``, in order, then ``more_inputs``.
    """

    more_inputs = ()
    outputs = ()
    rounded_to = 1

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.eval()

    def specs(self):
        """The inputs as ``paddle.jit`` wants them, batch and sequence of any size."""
        return ([InputSpec([None, None], "int32", name) for name in INPUTS]
                + [InputSpec([None], "int32", name) for name in self.more_inputs])

    @paddle.no_grad()
    def run(self, arrays):
        """Compute as it is; takes a dict of arrays and returns one of ``outputs``."""
        tensors = [paddle.to_tensor(arrays[name]) for name in (*INPUTS, *self.more_inputs)]
        found = self(*tensors)
        found = found if isinstance(found, (list, tuple)) else [found]
        return {name: tensor.numpy() for name, tensor in zip(self.outputs, found)}

    def encode(self, input_ids, token_type_ids, position_ids, sequence_id):
        """The stream behind the encoder."""
        return self.network.encode({"input_ids": input_ids, "token_type_ids": token_type_ids,
                                    "position_ids": position_ids, "sequence_id": sequence_id})


class FillMaskGraph(Graph):
    """Scores of every word at chosen slots alone: the projection is a third of the work."""

    more_inputs = ("masked",)
    outputs = ("masked_lm_logits",)

    def forward(self, input_ids, token_type_ids, position_ids, sequence_id, masked):
        """``[masks, vocabulary]``; ``masked`` int32 ``[masks]`` counts slots row after row."""
        hidden = self.encode(input_ids, token_type_ids, position_ids, sequence_id)["hidden"]
        flat = hidden.reshape([-1, self.network.heads.masked_lm.decoder_weight.shape[1]])
        return self.network.heads.masked_lm(flat.index_select(masked))


class AnswerGraph(Graph):
    """Scores of each slot as an answer's start and end."""

    outputs = ("start_logits", "end_logits")

    def forward(self, input_ids, token_type_ids, position_ids, sequence_id):
        """Two of ``[batch, sequence]``."""
        logits = self.network.heads(self.encode(input_ids, token_type_ids, position_ids,
                                                sequence_id))
        return logits["start_logits"], logits["end_logits"]


class ClassifyGraph(Graph):
    """Scores of each label."""

    outputs = ("logits",)

    def forward(self, input_ids, token_type_ids, position_ids, sequence_id):
        """``[batch, labels]``."""
        stream = self.encode(input_ids, token_type_ids, position_ids, sequence_id)
        return self.network.heads(stream)["logits"][:, 0]


class EmbedGraph(Graph):
    """The mean over a text's tokens, normalised (Reimers and Gurevych 2019)."""

    outputs = ("embedding",)

    def forward(self, input_ids, token_type_ids, position_ids, sequence_id):
        """``[batch, hidden]``."""
        stream = self.encode(input_ids, token_type_ids, position_ids, sequence_id)
        # The sum points where the mean does, and its length goes.
        total = (stream["membership"] @ stream["hidden"])[:, 0]
        return total / (total * total).sum(axis=-1, keepdim=True).sqrt()


GRAPHS = {"fill_mask": FillMaskGraph, "answer": AnswerGraph, "classify": ClassifyGraph,
          "embed": EmbedGraph}


def open_graph(directory, task):
    """A checkpoint as the graph of a task.

    Returns:
        The graph, the tokenizer, and the settings that its ``Task`` needs: ``labels`` of
        classify, where it does not tell a number, and ``segments`` where it is 1.

    Raises:
        InputError: the checkpoint cannot be read, or lacks what the task needs.
    """
    labels = _labels(directory) if task == "classify" else None
    builders = {
        "fill_mask": lambda config: tasks.build_for_pretraining(config, 1, with_pairs=False),
        "answer": tasks.build_for_question_answering,
        "classify": lambda config: tasks.build_for_sequence_classification(config, len(labels)),
        "embed": lambda config: tasks.build_encoder(config, with_pooler=False)}
    network, tokenizer, report = open_checkpoint(directory, builders[task])
    if report.missing:
        raise InputError(directory, f"lacks {', '.join(report.missing)}, which {task} needs",
                         "take a checkpoint that was trained for it")
    settings = {"labels": labels} if labels and len(labels) > 1 else {}
    if network.embeddings.token_type_embeddings.weight.shape[0] == 1:
        settings["segments"] = 1
        if task == "answer":
            raise InputError(directory, "has one segment, but a question and its context are two",
                             "take another checkpoint")
    return GRAPHS[task](network), tokenizer, settings


def _labels(directory):
    """Names of the labels in config.json, LABEL_0 and LABEL_1 where it has none."""
    path = Path(directory) / "config.json"
    try:
        values = json.loads(path.read_bytes())
        if str((values.get("architectures") or [""])[0]).endswith("TokenClassification"):
            raise InputError(directory, "labels words, not texts", "take run_classify.py for it")
        names = values.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
        return [names[str(number)] for number in range(len(names))]
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise InputError(path, f"tells no labels ({error!r})", "take a whole checkpoint") from None


def largest_difference(expected, found):
    """Over all outputs of the same names; infinite where one is not finite."""
    largest = 0.0
    for name, array in expected.items():
        difference = np.abs(array - found[name]).max(initial=0.0)
        largest = max(largest, float(difference) if np.isfinite(difference) else np.inf)
    return largest
