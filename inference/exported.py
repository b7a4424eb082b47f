"""The folder of an exported model: what lies in it, and how it is read."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Mapping, Optional

from configs.errors import InputError
from data.tokenizer import WordPieceTokenizer
from inference.batching import Shape
from inference.tasks import TASKS
from models.weights.files import VOCABULARY, read_json, read_vocabulary_values, write_json

SETTINGS = "export.json"
LAYOUT = 1
PADDLE_FILES = ("model.json", "model.pdiparams")
PROGRAM_FILES = ("model.pdmodel", "model.pdiparams")
"""Of a model for IPUs, in the format that the Paddle of their builds reads"""
ONNX_FILE = "model.onnx"


@dataclass(frozen=True)
class Exported:
    """What ``export.json`` holds."""

    task: str
    max_tokens: int
    """Of a row, special tokens included"""
    settings: Mapping[str, Any]
    """Of the task: ``labels`` of classify"""
    outputs: tuple
    """Names of the graph's outputs, in order"""
    largest_difference: Mapping[str, float]
    """Between each format and the trained model, over all outputs of the self-check"""
    shape: Optional[Shape] = None
    """Of every batch, in a model for IPUs; None where a batch may have any"""
    layout: int = LAYOUT

    def write(self, folder):
        """Write ``export.json``."""
        write_json(Path(folder) / SETTINGS, asdict(self))


def is_exported(folder):
    """Whether a folder was exported; else it may be a checkpoint."""
    return (Path(folder) / SETTINGS).is_file()


def read_exported(folder):
    """The ``Exported`` of a folder and the ``Task`` that reads its texts.

    Raises:
        InputError: a file is missing, damaged, or of another layout.
    """
    folder = Path(folder)
    path = folder / SETTINGS
    values = read_json(path)
    if values.get("layout") != LAYOUT:
        raise InputError(path, f"has layout {values.get('layout')!r}, not {LAYOUT}",
                         "export the checkpoint anew")
    try:
        shape = values.pop("shape", None)
        exported = Exported(**values, shape=Shape(*shape) if shape else None)
        task = TASKS[exported.task]
    except (TypeError, KeyError):
        raise InputError(path, "is damaged", "export the checkpoint anew") from None
    values = read_vocabulary_values(folder)
    if not values:
        raise InputError(folder / VOCABULARY, "no such file", "export the checkpoint anew")
    tokenizer = WordPieceTokenizer(values["vocabulary"], values["lower_case"])
    return exported, task(tokenizer, exported.max_tokens, exported.settings)
