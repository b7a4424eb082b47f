"""Arrays into a network, with a report of what came from where."""

from dataclasses import dataclass, field

import numpy as np

from configs.errors import InputError
from models import tasks

WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"

# The sizes that a config sets, for the mend of an error.
CONFIG_KEYS = {
    WORD_EMBEDDINGS: "vocab_size",
    "heads.masked_lm.decoder_bias": "vocab_size",
    "embeddings.position_embeddings.weight": "max_position_embeddings",
    "embeddings.token_type_embeddings.weight": "type_vocab_size",
    "embeddings.task_type_embeddings.weight": "task_type_vocab_size",
}


# What changes every result and yet no size, so that only the config tells.
UNSEEN_KEYS = ("num_attention_heads", "hidden_act", "layer_norm_eps")


def check_unseen(values, model_config, place):
    """Refuse weights that were trained with what their sizes do not show.

    Args:
        values: model config values that came with the weights.
        model_config: of the network.
        place: of the weights, for the error.

    Raises:
        InputError: heads, activation or layer-norm epsilon differ.
    """
    for key in UNSEEN_KEYS:
        ours = getattr(model_config, key)
        if key in values and values[key] != ours:
            raise InputError(place, f"the weights were trained with {key} {values[key]}, but "
                             f"model.{key} is {ours}", f"write model.{key}: {values[key]}")


@dataclass
class Report:
    """What ``load_weights`` did, each a list of parameter names.

    ``padded`` holds triples of name, old and new number of rows.
    """

    loaded: list = field(default_factory=list)
    missing: list = field(default_factory=list)
    unexpected: list = field(default_factory=list)
    padded: list = field(default_factory=list)

    def lines(self):
        """The report as lines of text, for printing."""
        lines = [f"loaded {len(self.loaded)} parameters"]
        for name, old, new in self.padded:
            lines.append(f"padded {name} with zeros from {old} to {new} rows")
        if self.missing:
            lines.append(f"NEWLY INITIALISED, not in the weights: {', '.join(self.missing)}")
        if self.unexpected:
            lines.append(f"left out, not in the network: {', '.join(self.unexpected)}")
        return lines


def load_weights(network, arrays, pad_vocabulary=False):
    """Set the parameters of a network that was initialised before.

    Args:
        network: a network of ``models.tasks``. Heads and pooler may be missing in the
            weights and keep their values then; an encoder may not.
        arrays: our parameter names to arrays.
        pad_vocabulary: lengthen the word embedding and its output bias with zeros to the
            network's ``vocab_size``.

    Returns:
        Report.

    Raises:
        InputError: an entry is missing in the encoder or has another size; the network is
            untouched then.
    """
    parameters = dict(network.named_parameters())
    report = Report(unexpected=sorted(set(arrays) - set(parameters)))
    values = {}
    for name, parameter in parameters.items():
        if name in arrays:
            values[name] = _fit(name, arrays[name], parameter.shape, pad_vocabulary, report)
        elif name.startswith(("heads.", "pooler.")):
            report.missing.append(name)
        else:
            raise InputError(name, "is not in the weights",
                             "set model.num_hidden_layers and the rest of the model section to "
                             "what the weights were trained with")
    for name, value in values.items():
        parameters[name].set_value(value)
    report.loaded = list(values)
    return report


def build_network_for(arrays, model_config, task=None):
    """The network that arrays are the parameters of, uninitialised.

    Args:
        arrays: our parameter names to arrays.
        model_config: the ``model`` section.
        task: ``ForTokenClassification`` and the like, where it is known; a classifier's
            arrays alone do not tell what it classifies.
    """
    if any(name.startswith(("heads.masked_lm.", "heads.pair.")) for name in arrays):
        return tasks.build_for_pretraining(model_config, max_predictions=1,
                                           with_pairs="heads.pair.weight" in arrays)
    if "heads.span.weight" in arrays:
        return tasks.build_for_question_answering(model_config)
    if "heads.classifier.weight" not in arrays:
        return tasks.build_encoder(model_config, with_pooler="pooler.dense.weight" in arrays)
    if task == "ForMultipleChoice":
        return tasks.build_for_multiple_choice(model_config, num_choices=2)
    build = (tasks.build_for_token_classification if task == "ForTokenClassification"
             else tasks.build_for_sequence_classification)
    return build(model_config, arrays["heads.classifier.weight"].shape[-1])


def _fit(name, array, shape, pad_vocabulary, report):
    """The array as float32, padded where that is asked for, or InputError."""
    array = np.asarray(array, dtype=np.float32)
    if list(array.shape) == list(shape):
        return array
    key = CONFIG_KEYS.get(name)
    if key == "vocab_size" and array.shape[1:] == tuple(shape[1:]) and array.shape[0] < shape[0]:
        if pad_vocabulary:
            report.padded.append((name, array.shape[0], shape[0]))
            return np.pad(array, [(0, shape[0] - array.shape[0])] + [(0, 0)] * (array.ndim - 1))
        mend = f"write model.vocab_size: {array.shape[0]}, or pad the vocabulary"
    elif key and array.shape[1:] == tuple(shape[1:]):
        mend = f"write model.{key}: {array.shape[0]}"
    elif name.startswith("heads.classifier."):
        mend = "name the labels that the weights were trained with in data.labels"
    else:
        mend = "take the model section that the weights were trained with"
    raise InputError(name, f"is {list(array.shape)} in the weights, but {list(shape)} in the "
                     "network", mend)
