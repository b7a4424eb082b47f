#!/usr/bin/env python3
"""Convert weights of Hugging Face, PaddleNLP or Google into a folder of the other libraries.

The source is a folder or a file; its config is taken from the folder, or from --config.
Afterwards the libraries that are installed and this project compute the same random tokens.
"""

import contextlib
import importlib
import os
import shutil
import sys
from pathlib import Path

from configs.command_line import build_parser, run
from configs.errors import InputError
from configs.load import load_section, override_section
from configs.schema import ModelConfig
from engines import startup

# What a source of each format is known by: endings of its file, or of files in its folder.
ENDINGS = {"huggingface": (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json"),
           "paddlenlp": (".pdparams",),
           "tensorflow": (".index",)}
TARGETS = ("huggingface", "paddlenlp")

COMPARED_TOKENS = 16


def main(argv=None):
    """Convert and return ``report`` and ``differences`` (library and folder to a number)."""
    parser = build_parser(__doc__)
    parser.add_argument("--input", metavar="PATH", required=True,
                        help="folder or file of weights; of Google's also bert_model.ckpt")
    parser.add_argument("--from", choices=ENDINGS, dest="source_format",
                        help="format of --input; found by the files' names if left out")
    parser.add_argument("--to", choices=TARGETS, required=True, help="format to write")
    parser.add_argument("--pad-vocabulary", metavar="ROWS", type=int, nargs="?", const=0,
                        help="lengthen the word embedding with zeros, to ROWS or else to "
                             "model.vocab_size")
    arguments = parser.parse_args(argv)
    if not arguments.output:
        parser.error("--output is required, the folder to write")
    startup.prepare()
    source_format = arguments.source_format or detect_format(Path(arguments.input))
    return convert(Path(arguments.input), source_format, Path(arguments.output), arguments.to,
                   arguments.config, arguments.overrides, arguments.pad_vocabulary)


def convert(source, source_format, output, target_format, config_path=None, overrides=(),
            pad_vocabulary=None):
    """Read ``source``, write the folder ``output``; see ``main`` for the rest."""
    from models.initialise import initialise
    from models.weights.load import build_network_for, load_weights
    from models.weights.model_configs import declared_task, label_names

    arrays, values = _library(source_format).read_pretrained(source)
    if pad_vocabulary:
        overrides = [*overrides, f"model.vocab_size={pad_vocabulary}"]
    model = read_model_config(source, values, config_path, overrides)
    written = read_written_config(source)
    network = build_network_for(arrays, model, declared_task(written))
    if hasattr(network.heads, "label_names"):
        network.heads.label_names = label_names(written)
    initialise(network, 0, model.initializer_range)
    report = load_weights(network, arrays, pad_vocabulary is not None)
    print("\n".join(report.lines()), flush=True)
    network.eval()
    tokens = len(arrays["embeddings.word_embeddings.weight"])
    with whole_folder(output) as partial:
        _library(target_format).save_pretrained(partial, network, model, model.vocabulary)
        differences = {}
        for name, folder in ((source_format, source), (target_format, partial)):
            differences.update(compare(name, folder, network, model.architecture, tokens))
    print(f"written: {output}", flush=True)
    return {"report": report, "differences": differences}


def detect_format(source):
    """``huggingface``, ``paddlenlp`` or ``tensorflow``, by the names of files."""
    names = [path.name for path in source.iterdir()] if source.is_dir() else [source.name]
    if Path(f"{source}.index").is_file():
        return "tensorflow"
    for name, endings in ENDINGS.items():
        if any(file.endswith(endings) for file in names):
            return name
    if not source.exists():
        raise InputError(source, "no such file or folder")
    raise InputError(source, "holds no weights of a known kind "
                     f"({', '.join(sum(ENDINGS.values(), ()))})", "say which with --from")


def read_model_config(source, values, config_path, overrides):
    """The ``model`` section: of ``--config``, or else the source's own, with ``--set``."""
    from data.tokenizer import read_vocabulary

    if config_path:
        model = load_section("model", config_path, overrides)
    elif "architecture" not in values:
        raise InputError(source, "has no config beside it", "add --config, a model's YAML")
    elif "vocabulary" not in values and not any(o.startswith("model.vocabulary=")
                                                for o in overrides):
        raise InputError(source, "has no vocab.txt beside it",
                         "add --set model.vocabulary=FILE")
    else:
        model = override_section(ModelConfig(**{"vocabulary": None, **values}), overrides, source)
    tokens = len(read_vocabulary(model.vocabulary))
    if tokens > model.vocab_size:
        raise InputError(model.vocabulary, f"has {tokens} tokens, but model.vocab_size is "
                         f"{model.vocab_size}", "take the vocabulary of the weights")
    return model


def read_written_config(source):
    """The config beside the weights, which tells their task and labels; empty if there is none."""
    from models.weights.files import read_json

    folder = source if source.is_dir() else source.parent
    for name in ("config.json", "model_config.json"):
        if (folder / name).is_file():
            return read_json(folder / name)
    return {}


@contextlib.contextmanager
def whole_folder(output):
    """A folder that becomes ``output`` when the block ends well, and vanishes otherwise."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(output, "is there already", "remove it or name another folder")
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        os.replace(partial, output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def compare(library, folder, network, architecture, tokens):
    """Compute the same random tokens with this project and with the library of a folder.

    Args:
        library: format of the folder.
        folder: what the library is to open.
        network: ours.
        architecture: ``bert`` or ``ernie``.
        tokens: ids to draw from, 1 to ``tokens`` - 1; PaddleNLP takes 0 for padding.

    Returns:
        dict of library and folder's name to the largest difference of hidden states; empty
        where the library is not installed, cannot open it, or, as Google's, computes nothing.
    """
    import numpy as np

    runners = {"huggingface": _run_transformers, "paddlenlp": _run_paddlenlp}
    if library not in runners or not folder.is_dir():
        return {}
    label = f"{library}, folder {folder.name.removesuffix('.partial')}"
    length = min(COMPARED_TOKENS, network.embeddings.max_positions)
    ids = np.random.default_rng(0).integers(1, tokens, [2, length])
    try:
        theirs = runners[library](folder, architecture, ids)
    # What the libraries raise where they are not installed or cannot open a folder.
    except (ImportError, OSError, ValueError) as error:
        print(f"not compared with {label}: {error}", flush=True)
        return {}
    difference = float(np.abs(theirs - _run_ours(network, ids)).max())
    print(f"largest difference of hidden states, ours against {label}: {difference:.1e}",
          flush=True)
    return {label: difference}


def _run_ours(network, ids):
    import numpy as np
    import paddle

    ids = paddle.to_tensor(ids, "int32")
    positions = paddle.to_tensor(np.tile(np.arange(ids.shape[1], dtype="int32"), (2, 1)))
    stream = network.embeddings({"input_ids": ids, "token_type_ids": paddle.zeros_like(ids),
                                 "position_ids": positions, "sequence_id": paddle.ones_like(ids)})
    for layer in network.layer:
        stream = layer(stream)
    return stream["hidden"].numpy()


def _run_transformers(folder, architecture, ids):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    model_class = getattr(transformers, f"{architecture.capitalize()}Model")
    model = model_class.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(torch.tensor(ids)).last_hidden_state.numpy()


def _run_paddlenlp(folder, architecture, ids):
    import paddle
    import paddlenlp
    from paddlenlp.utils.log import logger

    logger.set_level("ERROR")
    model_class = getattr(paddlenlp.transformers, f"{architecture.capitalize()}Model")
    model = model_class.from_pretrained(str(folder))
    model.eval()
    return model(paddle.to_tensor(ids))[0].numpy()


def _library(name):
    return importlib.import_module(f"models.weights.{name}")


if __name__ == "__main__":
    sys.exit(run(main))
