"""Our ``model`` section and the config.json of other libraries, both ways.

They agree on most names, as all descend from Google's bert_config.json.
"""

import re

from configs.errors import InputError
from models.heads import (MultipleChoiceHead, PretrainingHeads, QuestionAnsweringHead,
                          SequenceClassificationHead, TokenClassificationHead)
from models.operators import ACTIVATIONS

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
         "intermediate_size", "max_position_embeddings", "type_vocab_size")
NUMBERS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps",
           "initializer_range")

TASKS = {QuestionAnsweringHead: "ForQuestionAnswering",
         SequenceClassificationHead: "ForSequenceClassification",
         TokenClassificationHead: "ForTokenClassification",
         MultipleChoiceHead: "ForMultipleChoice",
         type(None): "Model"}


def task_of(network):
    """The end of the class name that Hugging Face has for a network, e.g. ``ForMaskedLM``."""
    if isinstance(network.heads, PretrainingHeads):
        return "ForMaskedLM" if network.heads.pair is None else "ForPreTraining"
    return TASKS[type(network.heads)]


def to_json(model_config, network):
    """What config.json holds for Hugging Face and PaddleNLP alike, but ``architectures``."""
    values = {"model_type": model_config.architecture, "pad_token_id": 0,
              "hidden_act": model_config.hidden_act}
    for key in (*SIZES, *NUMBERS):
        values[key] = getattr(model_config, key)
    if model_config.architecture == "ernie":
        values["use_task_id"] = model_config.task_type_vocab_size > 0
        if values["use_task_id"]:
            values["task_type_vocab_size"] = model_config.task_type_vocab_size
    if isinstance(network.heads, (SequenceClassificationHead, TokenClassificationHead)):
        count = network.heads.classifier.weight.shape[1]
        labels = network.heads.label_names or [f"LABEL_{number}" for number in range(count)]
        values["id2label"] = dict(enumerate(labels))
        values["label2id"] = {label: number for number, label in enumerate(labels)}
    return values


def label_names(values):
    """The labels that a config.json names, in their order; None where it names none.

    ``LABEL_0`` and the like, which ``transformers`` writes by default, are no names.
    """
    try:
        by_number = {int(number): str(name) for number, name in values["id2label"].items()}
        names = [by_number[number] for number in range(len(by_number))]
    except (KeyError, ValueError, AttributeError):
        return None
    is_default = all(re.fullmatch("LABEL_[0-9]+", name) for name in names)
    return None if is_default else names


def from_json(values, place):
    """Values of our ``model`` section, without vocabulary; keys that are absent stay absent.

    Args:
        values: a config.json or bert_config.json.
        place: the file, for errors.

    Raises:
        InputError: no BERT or ERNIE, or a variant that these networks do not compute.
    """
    result = {"architecture": _architecture(values, place)}
    for key in SIZES:
        if key in values:
            result[key] = _number(values, key, int, place)
    for key in NUMBERS:
        if key in values:
            result[key] = float(_number(values, key, (int, float), place))
    if "vocab_size" not in result:
        raise InputError(place, "'vocab_size' is missing")
    if "hidden_act" in values:
        result["hidden_act"] = values["hidden_act"]
    if result.get("hidden_act", "gelu") not in ACTIVATIONS:
        raise InputError(place, f"hidden_act '{result['hidden_act']}' is none of "
                         f"{', '.join(ACTIVATIONS)}")
    for key, only in (("position_embedding_type", "absolute"), ("is_decoder", False)):
        if values.get(key, only) != only:
            raise InputError(place, f"{key} '{values[key]}' is not offered, only '{only}'")
    if result["architecture"] == "ernie" and values.get("use_task_id"):
        result["task_type_vocab_size"] = _number(
            {"task_type_vocab_size": 3, **values}, "task_type_vocab_size", int, place)
    return result


def declared_task(values):
    """``ForTokenClassification`` and the like, as config.json names its class, or None."""
    names = values.get("architectures") or [values.get("init_class")]
    found = re.fullmatch(r"(?:Bert|Ernie)(Model|For\w+)", str(names[0]))
    return found[1].replace("ForPretraining", "ForPreTraining") if found else None


def _architecture(values, place):
    """``bert`` or ``ernie``; Google's files and old ones do not say, and are BERT."""
    name = values.get("model_type")
    if name is None:
        classes = values.get("architectures") or [values.get("init_class") or "BertModel"]
        found = re.fullmatch(r"(Bert|Ernie)(Model|For\w+)", str(classes[0]))
        name = found[1].lower() if found else classes[0]
    if name not in ("bert", "ernie"):
        raise InputError(place, f"model type '{name}' is neither bert nor ernie")
    return name


def _number(values, key, kind, place):
    value = values[key]
    if not isinstance(value, kind) or isinstance(value, bool) or value < 0:
        raise InputError(place, f"'{key}' is {value!r} where a number is due")
    return value
