"""Folders that ``transformers`` reads and writes."""

from pathlib import Path

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save_file

from configs.errors import InputError
from models.weights import bfloat16, model_configs
from models.weights.files import (read_bytes, read_json, read_vocabulary_values, write_json,
                                  write_vocabulary)
from models.weights.names import HUGGINGFACE
from models.weights.torch_file import read_torch_file

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
# In the order of preference; an index names the files that hold the shards.
WEIGHTS_FILES = (WEIGHTS, f"{WEIGHTS}.index.json",
                 "pytorch_model.bin", "pytorch_model.bin.index.json")

DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2", "I8": "i1", "U8": "u1",
          "I16": "<i2", "I32": "<i4", "I64": "<i8", "BOOL": "?"}


def read_pretrained(path):
    """Read a model's folder, or one file of weights with the config.json beside it.

    Args:
        path: folder with model.safetensors or pytorch_model.bin (whole or in shards), or
            such a file.

    Returns:
        our parameter names to float32 arrays, in our layouts (an entry that has no name of
        ours keeps its own), and the values of our ``model`` section that the folder knows:
        all with a config.json, ``vocabulary`` and ``lower_case`` with a vocab.txt.

    Raises:
        InputError: naming the file.
    """
    path = Path(path)
    weights = find_weights(path)
    arrays = HUGGINGFACE.to_ours(_read_weights(weights), weights)
    values = {}
    if (weights.parent / CONFIG).is_file():
        values = model_configs.from_json(read_json(weights.parent / CONFIG),
                                         weights.parent / CONFIG)
    return arrays, {**values, **read_vocabulary_values(weights.parent)}


def save_pretrained(directory, network, model_config, vocabulary_path):
    """Write a folder that ``transformers`` opens as it is.

    Args:
        directory: folder to write into; made if it is not there.
        network: a network of ``models.tasks``.
        model_config: its ``model`` section.
        vocabulary_path: the vocabulary, a token a line or token<TAB>id.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    task = model_configs.task_of(network)
    arrays = {name: parameter.numpy() for name, parameter in network.named_parameters()}
    base = "" if task == "Model" else f"{model_config.architecture}."
    # transformers refuses files that do not say which framework's layout they hold.
    save_file(HUGGINGFACE.from_ours(arrays, base), directory / WEIGHTS, {"format": "pt"})
    write_json(directory / CONFIG, {
        "architectures": [model_config.architecture.capitalize() + task],
        **model_configs.to_json(model_config, network)})
    write_vocabulary(directory, model_config, vocabulary_path, "BertTokenizer")


def find_weights(path):
    """The file of weights that a path means."""
    path = Path(path)
    if not path.is_dir():
        return path
    for name in WEIGHTS_FILES:
        if (path / name).is_file():
            return path / name
    raise InputError(path, f"holds none of {', '.join(WEIGHTS_FILES)}")


def _read_weights(path):
    if path.name.endswith(".index.json"):
        arrays = {}
        for name in _shards(path):
            arrays.update(_read_weights(path.parent / name))
        return arrays
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    return read_torch_file(path)


def _shards(path):
    """Names of the files that an index spreads its entries over."""
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict):
        raise InputError(path, "'weight_map' is missing")
    shards = sorted(set(map(str, weight_map.values())))
    for name in shards:
        if Path(name).name != name or name.endswith(".json"):
            raise InputError(path, f"'{name}' is no file name")
    return shards


def _read_safetensors(path):
    try:
        entries = deserialize(read_bytes(path))
    except SafetensorError as error:
        raise InputError(path, f"damaged: {error}") from None
    arrays = {}
    for name, entry in entries:
        if entry["dtype"] not in DTYPES:
            raise InputError(path, f"'{name}' holds {entry['dtype']}",
                             "save it as float32 first")
        array = np.frombuffer(entry["data"], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        arrays[name] = bfloat16.widen(array) if entry["dtype"] == "BF16" else array
    return arrays
