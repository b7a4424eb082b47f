"""The one table of what each format calls a parameter, and how it lays it out.

Ours are Paddle's own layouts: a linear weight is ``[in, out]``. Hugging Face keeps torch's
``[out, in]``, PaddleNLP keeps ours, Google's TensorFlow kernels are ``[in, out]`` but the
``output_weights`` of its heads ``[out, in]``.
"""

import re

import numpy as np

from configs.errors import InputError

# `~` stands for the encoder inside a task's model (`bert.` or `ernie.`; nothing in a bare
# encoder), `#` for the number of a layer. Google's names are those of google-research/bert.
MODULES = (
    # kind, ours, Hugging Face, PaddleNLP, Google
    ("table", "embeddings.word_embeddings", "~embeddings.word_embeddings",
     "~embeddings.word_embeddings", "~embeddings/word_embeddings"),
    ("table", "embeddings.position_embeddings", "~embeddings.position_embeddings",
     "~embeddings.position_embeddings", "~embeddings/position_embeddings"),
    ("table", "embeddings.token_type_embeddings", "~embeddings.token_type_embeddings",
     "~embeddings.token_type_embeddings", "~embeddings/token_type_embeddings"),
    ("table", "embeddings.task_type_embeddings", "~embeddings.task_type_embeddings",
     "~embeddings.task_type_embeddings", None),
    ("norm", "embeddings.layer_norm", "~embeddings.LayerNorm",
     "~embeddings.layer_norm", "~embeddings/LayerNorm"),
    ("linear", "layer.#.attention.query", "~encoder.layer.#.attention.self.query",
     "~encoder.layers.#.self_attn.q_proj", "~encoder/layer_#/attention/self/query"),
    ("linear", "layer.#.attention.key", "~encoder.layer.#.attention.self.key",
     "~encoder.layers.#.self_attn.k_proj", "~encoder/layer_#/attention/self/key"),
    ("linear", "layer.#.attention.value", "~encoder.layer.#.attention.self.value",
     "~encoder.layers.#.self_attn.v_proj", "~encoder/layer_#/attention/self/value"),
    ("linear", "layer.#.attention.output", "~encoder.layer.#.attention.output.dense",
     "~encoder.layers.#.self_attn.out_proj", "~encoder/layer_#/attention/output/dense"),
    ("norm", "layer.#.attention_norm", "~encoder.layer.#.attention.output.LayerNorm",
     "~encoder.layers.#.norm1", "~encoder/layer_#/attention/output/LayerNorm"),
    ("linear", "layer.#.intermediate", "~encoder.layer.#.intermediate.dense",
     "~encoder.layers.#.linear1", "~encoder/layer_#/intermediate/dense"),
    ("linear", "layer.#.output", "~encoder.layer.#.output.dense",
     "~encoder.layers.#.linear2", "~encoder/layer_#/output/dense"),
    ("norm", "layer.#.output_norm", "~encoder.layer.#.output.LayerNorm",
     "~encoder.layers.#.norm2", "~encoder/layer_#/output/LayerNorm"),
    ("linear", "pooler.dense", "~pooler.dense", "~pooler.dense", "~pooler/dense"),
    ("linear", "heads.masked_lm.transform", "cls.predictions.transform.dense",
     "cls.predictions.transform", "cls/predictions/transform/dense"),
    ("norm", "heads.masked_lm.layer_norm", "cls.predictions.transform.LayerNorm",
     "cls.predictions.layer_norm", "cls/predictions/transform/LayerNorm"),
    ("vector", "heads.masked_lm.decoder_bias", "cls.predictions.bias",
     "cls.predictions.decoder_bias", "cls/predictions/output_bias"),
    ("head", "heads.pair", "cls.seq_relationship", "cls.seq_relationship",
     "cls/seq_relationship/"),
    ("head", "heads.classifier", "classifier", "classifier", ""),
    # PaddleNLP calls this one `classifier` too: a reader that knows the task renames it.
    ("head", "heads.span", "qa_outputs", "classifier", "cls/squad/"),
)

# A parameter of a module: suffixes of ours, Hugging Face, PaddleNLP, Google.
# `^T` marks the transpose of ours.
PARAMETERS = {
    "table": ((".weight", ".weight", ".weight", ""),),
    "linear": ((".weight", ".weight^T", ".weight", "/kernel"),
               (".bias", ".bias", ".bias", "/bias")),
    "norm": ((".weight", ".weight", ".weight", "/gamma"),
             (".bias", ".bias", ".bias", "/beta")),
    "vector": (("", "", "", ""),),
    "head": ((".weight", ".weight^T", ".weight", "output_weights^T"),
             (".bias", ".bias", ".bias", "output_bias")),
}

# Checkpoints of before 2019 name layer norms as TensorFlow does.
OLD_NORM_SUFFIXES = {".weight": ".gamma", ".bias": ".beta"}

_NUMBER = re.compile(r"(?<=[._])\d+(?=[./])")


class Naming:
    """How one format names and lays out parameters.

    Args:
        column: the format's column in ``MODULES`` and ``PARAMETERS``, ours being 0.
        aliases: names under which a file may hold a tied parameter once more, and ours.
    """

    def __init__(self, column, aliases=None):
        self.aliases = aliases or {}
        self._foreign, self._ours = {}, {}
        for kind, *modules in MODULES:
            for parameter in PARAMETERS[kind]:
                if modules[column] is not None:
                    self._add(modules[0] + parameter[0], modules[column] + parameter[column])

    def _add(self, ours, foreign):
        transposed = foreign.endswith("^T")
        foreign = foreign.removesuffix("^T")
        self._foreign[ours] = foreign, transposed
        bare = foreign.replace("~", "")
        self._ours.setdefault(bare, (ours, transposed))
        for suffix, old_suffix in OLD_NORM_SUFFIXES.items():
            if ours.endswith(f"norm{suffix}"):
                self._ours.setdefault(bare.removesuffix(suffix) + old_suffix, (ours, transposed))

    def from_ours(self, arrays, base):
        """Our arrays under the format's names and in its layout.

        Args:
            arrays: our parameter names, e.g. ``layer.0.attention.query.weight``, to arrays.
            base: ``bert.`` or ``ernie.``, which a task's model puts before the names of its
                encoder, or empty for a bare encoder.
        """
        result = {}
        for name, array in arrays.items():
            foreign, transposed = self._foreign[_NUMBER.sub("#", name)]
            foreign = _with_number_of(name, foreign.replace("~", base))
            result[foreign] = np.ascontiguousarray(array.T if transposed else array)
        return result

    def to_ours(self, arrays, place):
        """Arrays of a file under our names, in our layout and as float32.

        What has no name of ours keeps its own. Integers are buffers such as
        ``position_ids``, never weights, and are left out.

        Raises:
            InputError: a tied parameter is in the file twice with different values.
        """
        result, tied = {}, {}
        for foreign, array in arrays.items():
            if not np.issubdtype(array.dtype, np.floating):
                continue
            array = array.astype(np.float32, copy=False)
            if foreign in self.aliases:
                tied[foreign] = array
                continue
            name, transposed = self._ours_of(foreign)
            result[name] = array.T if transposed else array
        for foreign, array in tied.items():
            ours = result.setdefault(self.aliases[foreign], array)
            if not np.array_equal(ours, array):
                raise InputError(place, f"'{foreign}' differs from '{self.aliases[foreign]}'",
                                 "only models that tie the two can be read")
        return result

    def _ours_of(self, foreign):
        bare = re.sub(r"^(bert|ernie)[./]", "", foreign)
        name, transposed = self._ours.get(_NUMBER.sub("#", bare), (foreign, False))
        return _with_number_of(bare, name), transposed


def _with_number_of(name, pattern):
    number = _NUMBER.search(name)
    return pattern.replace("#", number[0]) if number else pattern


HUGGINGFACE = Naming(1, {"cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
                         "cls.predictions.decoder.bias": "heads.masked_lm.decoder_bias"})
PADDLENLP = Naming(2, {"cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
                       "cls.predictions.decoder_weight": "embeddings.word_embeddings.weight",
                       "cls.predictions.decoder.bias": "heads.masked_lm.decoder_bias"})
GOOGLE = Naming(3)
