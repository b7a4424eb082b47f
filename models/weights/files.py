"""The small files beside the weights: JSON configs, the vocabulary and its case."""

import json
import re
from pathlib import Path

from configs.errors import InputError

VOCABULARY = "vocab.txt"
TOKENIZER_CONFIG = "tokenizer_config.json"


def read_bytes(path):
    """A file's bytes, or InputError."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(path, "no such file") from None
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from None


def read_json(path):
    """A JSON object, or InputError."""
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(path, "must hold a JSON object")
    return value


def write_json(path, value):
    """Write an object as indented JSON."""
    Path(path).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n",
                          encoding="utf-8")


def read_vocabulary_values(folder):
    """``vocabulary`` and ``lower_case`` of a model's folder; empty without a vocab.txt.

    Google's folders and files say nothing of case but in their names (``cased_L-12_…``).
    """
    folder = Path(folder)
    if not (folder / VOCABULARY).is_file():
        return {}
    lower_case = not re.search(r"(?<!un)cased", folder.resolve().name)
    if (folder / TOKENIZER_CONFIG).is_file():
        tokenizer = read_json(folder / TOKENIZER_CONFIG)
        lower_case = tokenizer.get("do_lower_case", lower_case) is not False
    return {"vocabulary": str(folder / VOCABULARY), "lower_case": lower_case}


def check_case(folder, model_config):
    """Refuse weights of another case: no size shows it, and a Chinese vocabulary serves either.

    Raises:
        InputError: tokenizer_config.json says something else than the ``model`` section.
    """
    file, ours = Path(folder) / TOKENIZER_CONFIG, model_config.lower_case
    theirs = read_json(file).get("do_lower_case") if file.is_file() else None
    if theirs not in (None, ours):
        words = [json.dumps(value) for value in (theirs, ours)]
        raise InputError(file, f"says do_lower_case {words[0]}, but model.lower_case is {words[1]}",
                         f"write model.lower_case: {words[0]}, or correct the file")


def write_vocabulary(directory, model_config, vocabulary_path, tokenizer_class):
    """Write vocab.txt, a token a line, and tokenizer_config.json.

    Args:
        directory: the model's folder.
        model_config: the ``model`` section.
        vocabulary_path: a file of ours: a token a line, or token<TAB>id in order.
        tokenizer_class: what reads it there, e.g. ``BertTokenizer``.
    """
    lines = read_bytes(vocabulary_path).rstrip(b"\r\n").split(b"\n")
    tokens = [line.rstrip(b"\r").partition(b"\t")[0] for line in lines]
    directory = Path(directory)
    (directory / VOCABULARY).write_bytes(b"".join(token + b"\n" for token in tokens))
    write_json(directory / TOKENIZER_CONFIG, {
        "tokenizer_class": tokenizer_class,
        "do_lower_case": model_config.lower_case,
        "model_max_length": model_config.max_position_embeddings})
