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
from models.bert import Part
from models.operators import length
from models.weights.files import read_json
from models.weights.model_configs import declared_task

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

    @property
    def inputs(self):
        """Names of what it takes, in order."""
        return (*INPUTS, *self.more_inputs)

    def specs(self):
        """The inputs as ``paddle.jit`` wants them, batch and sequence of any size."""
        return ([InputSpec([None, None], "int32", name) for name in INPUTS]
                + [InputSpec([None], "int32", name) for name in self.more_inputs])

    @paddle.no_grad()
    def run(self, arrays):
        """Compute as it is; takes a dict of arrays and returns one of ``outputs``."""
        found = self(*(paddle.to_tensor(arrays[name]) for name in self.inputs))
        found = found if isinstance(found, (list, tuple)) else [found]
        return {name: tensor.numpy() for name, tensor in zip(self.outputs, found)}

    def forward(self, input_ids, token_type_ids, position_ids, sequence_id, masked=None):
        """The outputs, a list where there are several."""
        stream = dict(zip(self.inputs, (input_ids, token_type_ids, position_ids, sequence_id,
                                        masked)))
        for part in self.parts():
            stream = part.run(stream)
        found = [stream[name] for name in self.outputs]
        return found if len(found) > 1 else found[0]

    def parts(self):
        """As ``Bert.parts``: those of the network, of which the last reads off ``outputs``."""
        first, *others = [part for part in self.network.parts() if part.name != "heads"]
        return [first._replace(run=self._begin), *others, Part("heads", self.read, ())]

    def _begin(self, inputs):
        more = {name: inputs[name] for name in self.more_inputs}
        return {**self.network.embeddings(inputs), **more}

    def read(self, stream):
        """``outputs`` by name, from the stream behind the encoder."""
        raise NotImplementedError


class FillMaskGraph(Graph):
    """Scores of every word at chosen slots alone: the projection is a third of the work."""

    more_inputs = ("masked",)
    outputs = ("masked_lm_logits",)

    def read(self, stream):
        """``[masks, vocabulary]``; ``masked`` int32 ``[masks]`` counts slots row after row."""
        flat = stream["hidden"].reshape(
            [-1, self.network.heads.masked_lm.decoder_weight.shape[1]])
        chosen = paddle.gather(flat, stream["masked"])
        return {"masked_lm_logits": self.network.heads.masked_lm(chosen)}


class AnswerGraph(Graph):
    """Scores of each slot as an answer's start and end."""

    outputs = ("start_logits", "end_logits")

    def read(self, stream):
        """Two of ``[batch, sequence]``."""
        return self.network.heads(stream)


class ClassifyGraph(Graph):
    """Scores of each label."""

    outputs = ("logits",)

    def read(self, stream):
        """``[batch, labels]``."""
        return {"logits": self.network.heads(stream)["logits"][:, 0]}


class LabelWordsGraph(Graph):
    """Scores of each token's label."""

    outputs = ("word_logits",)

    def read(self, stream):
        """``[batch, sequence, labels]``."""
        return {"word_logits": self.network.heads(stream)["logits"]}


class EmbedGraph(Graph):
    """The mean over a text's tokens, normalised (Reimers and Gurevych 2019)."""

    outputs = ("embedding",)

    def read(self, stream):
        """``[batch, hidden]``."""
        # The sum points where the mean does, and its length goes.
        total = (stream["membership"] @ stream["hidden"])[:, 0]
        return {"embedding": total / length(total)}


class EncodeGraph(Graph):
    """The encoder alone."""

    outputs = ("hidden_states",)

    def read(self, stream):
        """``[batch, sequence, hidden]``."""
        return {"hidden_states": stream["hidden"]}


GRAPHS = {"fill_mask": FillMaskGraph, "answer": AnswerGraph, "classify": ClassifyGraph,
          "label_words": LabelWordsGraph, "embed": EmbedGraph, "encode": EncodeGraph}


def resolve_task(directory, task):
    """``label_words`` where a checkpoint that is to classify labels words, else the task."""
    if task != "classify":
        return task
    kind = declared_task(read_json(Path(directory) / "config.json"))
    return "label_words" if kind == "ForTokenClassification" else task


def open_graph(directory, task):
    """A checkpoint as the graph of a task.

    Returns:
        The graph, the tokenizer, and the settings that its ``Task`` needs: ``labels`` of
        classify, where it does not tell a number, and of label_words; and ``segments`` where it
        is 1.

    Raises:
        InputError: the checkpoint cannot be read, or lacks what the task needs.
    """
    labels = _labels(directory) if task in ("classify", "label_words") else None
    builders = {
        "fill_mask": lambda config: tasks.build_for_pretraining(config, 1, with_pairs=False),
        "answer": tasks.build_for_question_answering,
        "classify": lambda config: tasks.build_for_sequence_classification(config, len(labels)),
        "label_words": lambda config: tasks.build_for_token_classification(config, len(labels)),
        **dict.fromkeys(("embed", "encode"),
                        lambda config: tasks.build_encoder(config, with_pooler=False))}
    network, tokenizer, report = open_checkpoint(directory, builders[task])
    if report.missing:
        raise InputError(directory, f"lacks {', '.join(report.missing)}, which {task} needs",
                         "take a checkpoint that was trained for it")
    settings = {"labels": labels} if labels and (len(labels) > 1 or task == "label_words") else {}
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
        names = json.loads(path.read_bytes()).get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
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
