"""Text in, answers out: batches of like length, computed as fast as the machine can."""

import dataclasses
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from configs.errors import InputError
from configs.inference_schema import InferenceConfig
from inference.batching import BATCH_COST, batches_by_length, make_arrays, split_outputs
from inference.exported import is_exported, read_exported
from inference.processes import RunnerProcesses
from inference.tasks import TASKS, Piece, asked_as

_KEPT_LATENCIES = 10_000
_WARM_UP_LENGTHS = (8, 32, 128)
_LEAST_SHARE = 8 * BATCH_COST
"""Slots of a batch; smaller ones are not made so that every process has one"""


class Predictor:
    """A model that answers records; where processes compute, for several threads at once."""

    def __init__(self, task, runner, settings, shape=None):
        """
        Args:
            task: a ``Task``.
            runner: with ``run(arrays)`` and ``rounded_to``, as ``inference.runners``, or
                ``RunnerProcesses``.
            settings: ``InferenceConfig``.
            shape: ``Shape`` of the model, if it has but one.
        """
        self.task, self.runner, self.settings, self.shape = task, runner, settings, shape
        self.processes = settings.processes or 0
        """That compute; 0 where this one does"""
        self._threads = ThreadPoolExecutor(self.processes) if self.processes else None
        self.seconds = deque(maxlen=_KEPT_LATENCIES)
        """Of the latest batches"""
        self.tokens = self.slots = 0
        self._counts = threading.Lock()

    def answers(self, records):
        """An answer for each record, in order; ``{"error": …}`` where it cannot be answered."""
        readings = [self.read(record) for record in records]
        found = iter(self.answer([reading for reading in readings
                                  if not isinstance(reading, InputError)]))
        return [{"error": str(reading)} if isinstance(reading, InputError) else next(found)
                for reading in readings]

    def answer(self, readings):
        """The answers to readings, in order. What was computed for one is given back as soon as
        it is answered: it may be a score for every word of the vocabulary."""
        places = [(owner, place) for owner, reading in enumerate(readings)
                  for place in range(len(reading.pieces))]
        outputs = [[None] * len(reading.pieces) for reading in readings]
        missing, answers = [len(found) for found in outputs], [None] * len(readings)
        for number, found in self._computed([piece for reading in readings
                                             for piece in reading.pieces]):
            owner, place = places[number]
            outputs[owner][place] = found
            missing[owner] -= 1
            if not missing[owner]:
                answers[owner] = self.task.answer(readings[owner], outputs[owner])
                outputs[owner] = None
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
        for number, found in self._computed(pieces):
            outputs[number] = found
        return outputs

    def _computed(self, pieces):
        """``(number, outputs)`` of each piece, a batch after the other."""
        batches = self._batches([len(piece.tokens) for piece in pieces])
        computed = self._map(lambda batch: self._compute_batch(
            [pieces[number] for number in batch[0]], batch[1]), batches)
        for (numbers, _), found in zip(batches, computed):
            yield from zip(numbers, found)

    def warm_up(self):
        """Compute some made-up rows, so that the first answer is as fast as the others."""
        tokenizer = self.task.tokenizer
        for length in _WARM_UP_LENGTHS:
            length = min(length, self.settings.fixed_length or self.task.max_tokens)
            row = Piece((tokenizer.cls, *[tokenizer.mask] * (length - 2), tokenizer.sep),
                        length, (1,))
            (_, slots), = self._batches([length])
            # As many at once as there are processes: each gets one.
            for _ in self._map(lambda _: self._compute_batch([row], slots),
                               range(max(1, self.processes))):
                pass
        self.seconds.clear()
        self.tokens = self.slots = 0

    def close(self):
        """End the processes that compute, if there are any."""
        if self.processes:
            self.runner.close()

    def latency(self):
        """dict of ``p50``, ``p90`` and ``p99``, milliseconds of the latest batches."""
        if not self.seconds:
            return {}
        return {f"p{share}": float(np.percentile(self.seconds, share)) * 1e3
                for share in (50, 90, 99)}

    def padding(self):
        """Share of the computed slots that were padding."""
        return 1 - self.tokens / max(self.slots, 1)

    def _map(self, compute, items):
        """As ``map``, by all processes at once; what is computed ahead keeps them busy, no more."""
        if not self.processes:
            yield from map(compute, items)
            return
        ahead = deque()
        try:
            for item in items:
                ahead.append(self._threads.submit(compute, item))
                if len(ahead) > 2 * self.processes:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()

    def _batches(self, lengths):
        settings = self.settings
        if settings.fixed_rows:
            return batches_by_length(lengths, settings.fixed_rows * settings.fixed_length,
                                     settings.fixed_rows, rounded_to=settings.fixed_length)
        batch_tokens = settings.batch_tokens
        if self.processes:  # all that have nothing to do take part
            share = sum(lengths) // max(1, self.runner.idle()) + BATCH_COST
            batch_tokens = min(batch_tokens, max(_LEAST_SHARE, share))
        return batches_by_length(lengths, batch_tokens, settings.most_rows,
                                 self.task.max_tokens, self.runner.rounded_to)

    def _compute_batch(self, pieces, slots):
        arrays = make_arrays(pieces, slots, self.task.tokenizer.pad, self.settings.fixed_rows,
                             self.shape)
        start = time.perf_counter()
        outputs = self.runner.run(arrays)
        with self._counts:
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
    open_here = partial(_open_runner, model, exported)
    runner = (RunnerProcesses(open_here, settings) if settings.processes
              else open_here(settings))
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
    if settings.device != "cpu" or settings.precision != "fp32" or (
            settings.processes or settings.onednn):
        raise InputError("inference", "a checkpoint is run on the CPU in fp32 by this process "
                         "alone", "export it first: export_model.py")
    task = resolve_task(model, task)
    graph, tokenizer, found = open_graph(model, task)
    reader = TASKS[task](tokenizer, graph.network.embeddings.max_positions, {**found, **options})
    return Predictor(reader, graph, settings)
