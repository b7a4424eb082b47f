"""Google's checkpoints: ``bert_model.ckpt.index``, ``.data-…`` and ``bert_config.json``."""

import re
from pathlib import Path

from configs.errors import InputError
from models.weights import model_configs
from models.weights.files import read_json, read_vocabulary_values
from models.weights.names import GOOGLE
from models.weights.tensor_bundle import read_bundle

CONFIG = "bert_config.json"

# Moments of the optimizers, and counters.
NOT_WEIGHTS = re.compile(
    r"/(adam_[mv]|lamb_[mv]|Adam(_1)?|LAMB(_1)?|m|v|Momentum)$"
    r"|global_step|save_counter|optimizer|\.OPTIMIZER_SLOT|^_CHECKPOINTABLE_OBJECT_GRAPH$"
    r"|^beta[12]_power$|good_steps|loss_scale")

# The TensorFlow 2 models of tensorflow/models number their layers: three tables, a norm,
# the encoder's layers, the pooler.
KERAS_LAYER = re.compile(
    r"^(?:model/)?layer_with_weights-(\d+)/(.+?)/\.ATTRIBUTES/VARIABLE_VALUE$")
KERAS_TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")
KERAS_PARTS = (("_attention_layer/_output_dense", "attention/output/dense"),
               ("_attention_output_dense", "attention/output/dense"),
               ("_attention_layer_norm", "attention/output/LayerNorm"),
               ("_attention_layer/_query_dense", "attention/self/query"),
               ("_attention_layer/_key_dense", "attention/self/key"),
               ("_attention_layer/_value_dense", "attention/self/value"),
               ("_intermediate_dense", "intermediate/dense"),
               ("_output_layer_norm", "output/LayerNorm"),
               ("_output_dense", "output/dense"))


def read_pretrained(path):
    """Read a checkpoint with the bert_config.json and vocab.txt beside it.

    Args:
        path: folder that holds one checkpoint, its ``.index`` file, or the path of both
            files without their endings.

    Returns:
        as ``models.weights.huggingface.read_pretrained``.

    Raises:
        InputError: naming the file.
    """
    prefix = find_checkpoint(path)
    variables = read_bundle(prefix, lambda name: not NOT_WEIGHTS.search(name))
    arrays = GOOGLE.to_ours(_as_original_names(variables), prefix)
    config = prefix.parent / CONFIG
    values = model_configs.from_json(read_json(config), config) if config.is_file() else {}
    return arrays, {**values, **read_vocabulary_values(prefix.parent)}


def find_checkpoint(path):
    """The path of a checkpoint without ``.index``."""
    path = Path(path)
    if path.is_dir():
        found = sorted(path.glob("*.index"))
        if len(found) != 1:
            raise InputError(path, f"holds {len(found)} .index files", "name the checkpoint")
        path = found[0]
    return path.with_suffix("") if path.suffix == ".index" else path


def _as_original_names(variables):
    """Names of TensorFlow 2 models as google-research/bert has them; others stay.

    Attention kernels there are ``[hidden, heads, head]`` and, at the output,
    ``[heads, head, hidden]``, their biases ``[heads, head]``.
    """
    result = {}
    for name, array in variables.items():
        found = KERAS_LAYER.match(name)
        if found:
            name = _original_name(int(found[1]), found[2])
            if name.endswith("output/dense/kernel") and array.ndim == 3:
                array = array.reshape(-1, array.shape[-1])
            elif name.endswith("kernel"):
                array = array.reshape(array.shape[0], -1)
            elif name.endswith("bias"):
                array = array.reshape(-1)
        result[name] = array
    return result


def _original_name(number, rest):
    if number < len(KERAS_TABLES):
        return f"bert/embeddings/{KERAS_TABLES[number]}"
    if number == len(KERAS_TABLES):
        return f"bert/embeddings/LayerNorm/{rest.split('/')[-1]}"
    if "/" not in rest:
        return f"bert/pooler/dense/{rest.split('/')[-1]}"
    for keras, original in KERAS_PARTS:
        if rest.startswith(f"{keras}/"):
            layer = number - len(KERAS_TABLES) - 1
            return f"bert/encoder/layer_{layer}/{original}/{rest.split('/')[-1]}"
    return rest
