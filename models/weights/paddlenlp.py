"""Folders that PaddleNLP reads and writes."""

import io
from pathlib import Path

import numpy as np
import paddle

from configs.errors import InputError
from models.weights import bfloat16, model_configs
from models.weights.files import (read_bytes, read_json, read_vocabulary_values, write_json,
                                  write_vocabulary)
from models.weights.names import PADDLENLP
from models.weights.restricted_pickle import WeightsUnpickler, array_of

WEIGHTS = "model_state.pdparams"
# PaddleNLP wrote model_config.json until version 2.4.
CONFIGS = ("config.json", "model_config.json")

# Tied parameters that its own files hold under these names once more.
WRITTEN_ALIASES = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")

# Its ERNIE sets this epsilon in every layer norm whatever its config says; BERT follows it.
ERNIE_LAYER_NORM_EPS = 1e-12
# Its BertConfig and ErnieConfig default to this where ours defaults to 2.
TYPE_VOCAB_SIZE = 16


def read_pretrained(path):
    """Read a model's folder, or one ``.pdparams`` with the config beside it.

    Returns:
        as ``models.weights.huggingface.read_pretrained``.

    Raises:
        InputError: naming the file, also where its pickle asks for more than arrays.
    """
    weights = find_weights(path)
    config_path = next((weights.parent / name for name in CONFIGS
                        if (weights.parent / name).is_file()), None)
    config = flatten(read_json(config_path)) if config_path else {}
    arrays = PADDLENLP.to_ours(read_pdparams(weights), weights)
    if model_configs.declared_task(config) == "ForQuestionAnswering":
        arrays = {name.replace("heads.classifier.", "heads.span."): array
                  for name, array in arrays.items()}
    values = _model_values(config, config_path) if config_path else {}
    return arrays, {**values, **read_vocabulary_values(weights.parent)}


def save_pretrained(directory, network, model_config, vocabulary_path):
    """Write a folder that PaddleNLP opens as it is.

    Args: as of ``models.weights.huggingface.save_pretrained``.

    Raises:
        InputError: PaddleNLP has no such activation.
    """
    if model_config.hidden_act == "gelu_new":
        raise InputError("model.hidden_act", "PaddleNLP has no gelu_new for BERT and ERNIE")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    task = model_configs.task_of(network)
    arrays = {name: parameter.numpy() for name, parameter in network.named_parameters()}
    base = "" if task == "Model" else f"{model_config.architecture}."
    entries = PADDLENLP.from_ours(arrays, base)
    if "heads.masked_lm.decoder_bias" in arrays:
        for alias in WRITTEN_ALIASES:
            entries[alias] = arrays[PADDLENLP.aliases[alias]]
    paddle.save({name: paddle.to_tensor(array) for name, array in entries.items()},
                str(directory / WEIGHTS))
    architecture = model_config.architecture.capitalize()
    values = {"architectures": [architecture + task.replace("PreTraining", "Pretraining")],
              **model_configs.to_json(model_config, network)}
    if task == "ForMultipleChoice":
        values["num_choices"] = network.heads.num_choices
    write_json(directory / CONFIGS[0], values)
    write_vocabulary(directory, model_config, vocabulary_path, f"{architecture}Tokenizer")


def find_weights(path):
    """The ``.pdparams`` that a path means."""
    path = Path(path)
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.pdparams"))
    if (path / WEIGHTS) in found:
        return path / WEIGHTS
    if len(found) != 1:
        raise InputError(path, f"holds {len(found)} .pdparams files", "name the file")
    return found[0]


def read_pdparams(path):
    """Names and arrays of a file that ``paddle.save`` wrote, without running its pickle."""
    state = WeightsUnpickler(io.BytesIO(read_bytes(path)), path).load()
    if not isinstance(state, dict):
        raise InputError(path, "holds no state dict")
    arrays = {}
    for name, value in state.items():
        # Paddle 2.0 and later may pickle a tensor as the pair of its inner name and array.
        array = array_of(value[1] if isinstance(value, tuple) and len(value) == 2 else value)
        if array is not None:
            # A bfloat16 tensor becomes an array of uint16 in Paddle's files.
            arrays[str(name)] = bfloat16.widen(array) if array.dtype == np.uint16 else array
    if not arrays:
        raise InputError(path, "holds no arrays")
    return arrays


def flatten(config):
    """model_config.json nests the encoder's values in ``init_args``; bring them to the top."""
    values = dict(config)
    for inner in values.pop("init_args", ()):
        if isinstance(inner, dict):
            values = {**flatten(inner), **values}
    return values


def _model_values(config, place):
    values = model_configs.from_json({"type_vocab_size": TYPE_VOCAB_SIZE, **config}, place)
    if values["architecture"] == "ernie":
        values["layer_norm_eps"] = ERNIE_LAYER_NORM_EPS
    return values
