"""Text in, answers out: batches of like length, computed as fast as the machine can."""

import dataclasses
import time
from collections import deque

import numpy as np

from configs.errors import InputError
from configs.inference_schema import InferenceConfig
from inference.batching import batches_by_length, make_arrays, split_outputs
from inference.exported import is_exported, read_exported
from inference.tasks import TASKS, Piece, asked_as

_KEPT_LATENCIES = 10_000
_WARM_UP_LENGTHS = (8, 32, 128)


class Predictor:
    """A model that answers records. Not for several threads at once."""

    def __init__(self, task, runner, settings, shape=None):
        """
        Args:
            task: a ``Task``.
            runner: with ``run(arrays)`` and ``rounded_to``, as ``inference.runners``.
            settings: ``InferenceConfig``.
            shape: ``Shape`` of the model, if it has but one.
        """
        self.task, self.runner, self.settings, self.shape = task, runner, settings, shape
        self.seconds = deque(maxlen=_KEPT_LATENCIES)
        """Of the latest batches"""
        self.tokens = self.slots = 0

    def answers(self, records):
        """An answer for each record, in order; ``{"error": …}`` where it cannot be answered."""
        readings = [self.read(record) for record in records]
        pieces = [piece for reading in readings if not isinstance(reading, InputError)
                  for piece in reading.pieces]
        outputs, answers = iter(self.compute(pieces)), []
        for reading in readings:
            if isinstance(reading, InputError):
                answers.append({"error": str(reading)})
            else:
                answers.append(self.task.answer(reading, [next(outputs)
                                                          for _ in reading.pieces]))
        return answers

    def read(self, record):
        """The ``Reading`` of a record, or the InputError that tells why there is none."""
        try:
            self.task.check(record)
            reading = self.task.read(record)
            longest = max(len(piece.tokens) for piece in reading.pieces)
            if longest > (self.settings.fixed_length or longest):
                raise InputError("text", f"{longest} tokens, but rows are fixed at "
                                 f"{self.settings.fixed_length}", "shorten it")
            most = max(len(piece.masked) for piece in reading.pieces)
            if self.shape and most > (self.shape.masks or most):
                raise InputError("text", f"{most} [MASK]s, but the model was exported for "
                                 f"{self.shape.masks} a row", "mask fewer words")
            return reading
        except InputError as error:
            return error

    def compute(self, pieces):
        """The outputs of each piece, in order: dicts of arrays."""
        outputs = [None] * len(pieces)
        for numbers, slots in self._batches([len(piece.tokens) for piece in pieces]):
            batch = [pieces[number] for number in numbers]
            for number, found in zip(numbers, self._compute_batch(batch, slots)):
                outputs[number] = found
        return outputs

    def warm_up(self):
        """Compute some made-up rows, so that the first answer is as fast as the others."""
        tokenizer = self.task.tokenizer
        for length in _WARM_UP_LENGTHS:
            length = min(length, self.settings.fixed_length or self.task.max_tokens)
            self.compute([Piece((tokenizer.cls, *[tokenizer.mask] * (length - 2), tokenizer.sep),
                                length, (1,))])
        self.seconds.clear()
        self.tokens = self.slots = 0

    def latency(self):
        """dict of ``p50``, ``p90`` and ``p99``, milliseconds of the latest batches."""
        if not self.seconds:
            return {}
        return {f"p{share}": float(np.percentile(self.seconds, share)) * 1e3
                for share in (50, 90, 99)}

    def padding(self):
        """Share of the computed slots that were padding."""
        return 1 - self.tokens / max(self.slots, 1)

    def _batches(self, lengths):
        settings = self.settings
        if settings.fixed_rows:
            return batches_by_length(lengths, settings.fixed_rows * settings.fixed_length,
                                     settings.fixed_rows, rounded_to=settings.fixed_length)
        return batches_by_length(lengths, settings.batch_tokens, settings.most_rows,
                                 self.task.max_tokens, self.runner.rounded_to)

    def _compute_batch(self, pieces, slots):
        arrays = make_arrays(pieces, slots, self.task.tokenizer.pad, self.settings.fixed_rows,
                             self.shape)
        start = time.perf_counter()
        outputs = self.runner.run(arrays)
        self.seconds.append(time.perf_counter() - start)
        self.tokens += sum(len(piece.tokens) for piece in pieces)
        self.slots += arrays["input_ids"].size
        return split_outputs(outputs, pieces, self.shape)


def open_predictor(model, task=None, settings=None, options=None):
    """A ``Predictor`` of an exported folder, or of a checkpoint, which is run as it is.

    Args:
        model: the folder.
        task: that it must be for; None takes the exported folder's.
        settings: ``InferenceConfig``.
        options: of the task, added to the folder's: ``count``, ``may_have_no_answer``.

    Raises:
        InputError: the folder cannot be read, is of another task, or cannot be run so.
    """
    settings, options = settings or InferenceConfig(), options or {}
    if not is_exported(model):
        return _open_checkpoint(model, task, settings, options)
    exported, reader = read_exported(model)
    if task not in (None, asked_as(exported.task)):
        raise InputError(model, f"was exported for {exported.task}, not {task}",
                         "export the checkpoint for it")
    reader.settings = {**exported.settings, **options}
    settings = _with_shape(settings, exported.shape)
    runner = _open_runner(model, exported, settings)
    return Predictor(reader, runner, settings, exported.shape)


def _with_shape(settings, shape):
    """The settings with the shape of a model that has but one, unless they name theirs."""
    if shape is None:
        return settings
    if settings.fixed_rows is None:
        return dataclasses.replace(settings, fixed_rows=shape.rows, fixed_length=shape.slots)
    if settings.fixed_length != shape.slots or settings.fixed_rows % shape.rows:
        raise InputError("inference.fixed_rows", f"{settings.fixed_rows} rows of "
                         f"{settings.fixed_length} slots, but the model was exported for "
                         f"{shape.rows} of {shape.slots}", "write a multiple of its rows, and its "
                         "slots")
    return settings


def _open_runner(model, exported, settings):
    if settings.on_ipus:
        from inference.ipu import EmulatedRunner, check_folder

        if settings.device == "ipu_model":
            return EmulatedRunner(model, exported.outputs, settings, exported.shape)
        check_folder(model, settings, exported.shape)
    from inference.runners import PaddleRunner

    return PaddleRunner(model, exported.outputs, settings, exported.shape)


def _open_checkpoint(model, task, settings, options):
    from inference.graphs import open_graph, resolve_task

    if task is None:
        raise InputError(model, "has no export.json", "name a folder of export_model.py")
    if settings.device != "cpu" or settings.precision != "fp32":
        raise InputError("inference.device", "a checkpoint is run on the CPU in fp32 alone",
                         "export it first: export_model.py")
    task = resolve_task(model, task)
    graph, tokenizer, found = open_graph(model, task)
    reader = TASKS[task](tokenizer, graph.network.embeddings.max_positions, {**found, **options})
    return Predictor(reader, graph, settings)
