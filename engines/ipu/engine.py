"""IPUs, real or emulated, behind the engine interface."""

from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np
import paddle
from paddle import static

from data.batch import Batch
from engines import placement as placements
from engines.engine import Engine
from engines.ipu import custom_ops
from engines.ipu.backend import check_hardware, open_backend
from engines.ipu.contract import check_config, check_program
from engines.ipu.drawing import draw_stages
from engines.ipu.half import HALF, core, is_forward
from engines.ipu.instances import Instances, open_instances
from engines.ipu.listing import listing
from engines.ipu.patterns import check_patterns, patterns_of
from engines.ipu.options import (DEFAULTS, apply_options, inference_options, training_options)
from engines.ipu.program import LABELS, BuiltProgram, build_program, legacy_static_mode
from engines.local import measure_peak_flops

# FLOP/s of a Mk2 IPU's matrix units, by what they multiply (Graphcore's data sheet of the GC200).
PEAK_FLOPS = {"fp16": 250e12, "fp32": 62.5e12}

_TINY = float(np.finfo(np.float32).tiny)


class _Compiled(NamedTuple):
    """What is on the device."""

    kind: str
    """training, evaluation (without dropout or update) or prediction (without labels)"""
    batches: Optional[int]
    """Micro batches of each replica in a call, in inference"""
    built: BuiltProgram
    handle: Any
    """Paddle's ``IpuCompiledProgram`` or the emulated one"""
    program: Any
    """What its ``compile`` returned"""
    executor: Any


class IpuEngine(Engine):
    """Compiles a Program at the first step and hands it whole global batches.

    The device has one Program at a time: an evaluation fetches the weights, compiles the
    Program without dropout and update, and the next step compiles the training Program again.
    ``run.engine_cache`` makes that short.
    """

    def __init__(self, config, is_dry=False):
        """
        Raises:
            InputError: the recipe asks for what IPUs lack, or there are none and ``is_dry`` is
                false.
        """
        check_config(config)
        if not is_dry and config.run.device == "ipu":
            check_hardware()
        if config.run.ipu_operators:
            custom_ops.load(config.run.ipu_operators)
        self.config, self.updates, self.moments = config, 0, {}
        self.instances = Instances() if is_dry else open_instances()
        self.instances.check(config.run)
        self.is_main = self.instances.is_main
        self._ahead, self._results = [], []
        self._compiled, self._is_dry = None, is_dry

    def build(self, network, make_optimizer=None):
        self.network = network
        self.placement = placements.resolve(self.config, network.pooler is not None)
        self.scope = core.Scope()
        if not self._is_dry:  # a Program is checked by the shapes of weights
            self._put_weights()

    def read(self, data, consumed, count):
        """The rows of this process in the batch of this step; where a call of the device is
        several, all are read at once."""
        if not self._ahead:
            self._ahead = [self._own(data.batch(consumed + number * count, count))
                           for number in range(self.config.run.batches_per_step)]
            self._call = list(self._ahead)
        return self._ahead.pop(0)

    def step(self, batch, learning_rate, step):
        if not self._results:
            self._results = self._run_call(learning_rate)
        self.updates += 1
        return self._results.pop(0)

    def evaluate(self, batch):
        count = self._inference_batches("evaluation", batch)
        built = self._prepare("evaluation", batch, count)
        micro_batches = count * self.config.run.replicas
        rows = micro_batches * self.config.run.micro_batch_size
        batch = self._own(_pad(batch, rows))
        return self._means(self._run(built, _feeds(batch, micro_batches)), 1)[0]

    def predict(self, batch):
        batch = Batch(**batch.inputs, labels={})
        count = self._inference_batches("prediction", batch)
        built = self._prepare("prediction", batch, count)
        rows = count * self.config.run.replicas * self.config.run.micro_batch_size
        results = self._run(built, _feeds(self._own(_pad(batch, rows)), 1))
        found = {name: self._all_rows(array, [rows, *self._row_shape(built, name)])[:len(batch)]
                 for name, array in results.items()}
        return found if self.is_main else {}

    def share(self, value):
        return self.instances.share(value)

    def agree(self, flag):
        """Between the updates of one call the weights are not those of the step: nothing stops."""
        return bool(self.instances.sum(np.array([flag], np.int64))[0]) and not self._results

    def collect(self):
        self._fetch_weights()
        for name, parameter in self.network.named_parameters():
            parameter.set_value(self._read(name).astype(np.float32))

    def state(self):
        self._fetch_weights()
        train = self.config.train
        kinds = [np.float16 if precision == "fp16" else np.float32
                 for precision in (train.first_moment_precision, train.second_moment_precision)]
        arrays = {}
        for name, parameter in self.network.named_parameters():
            for number, kind in enumerate(kinds, 1):
                zeros = np.zeros(parameter.shape)
                arrays[f"{name}/moment{number}"] = self.moments.get(
                    _moment(name, number), zeros).astype(kind)
            if train.optimizer == "adamw":
                for number, beta in ((1, train.beta1), (2, train.beta2)):
                    arrays[f"{name}/beta{number}_pow_acc"] = _power(beta, self.updates)
        if train.optimizer == "lamb":
            arrays["updates"] = np.array([self.updates], np.int64)
        return arrays

    def load_state(self, arrays):
        self._fetch_weights()
        self._release()
        arrays = dict(arrays)
        if "updates" in arrays:
            self.updates = int(arrays.pop("updates")[0])
        else:
            self.updates = _count_updates(arrays, self.config.train)
        self.moments = {_moment(*key.rsplit("/moment", 1)): array.astype(np.float32)
                        for key, array in arrays.items() if "/moment" in key}

    def peak_flops(self):
        """The stated ``run.peak_flops``, or that of the IPUs; of an emulated pod, the CPU's."""
        run = self.config.run
        if run.peak_flops:
            return run.peak_flops
        if run.device == "ipu_model":
            return measure_peak_flops()
        return PEAK_FLOPS[run.precision] * run.replicas * self.placement.ipus_per_replica

    def describe(self):
        config, run = self.config, self.config.run
        kind = "IPUs" if run.device == "ipu" else "IPUs emulated on the CPU"
        return [f"engine: {kind}, {run.precision}", *placements.describe(config, self.placement),
                f"batch: global {config.train.global_batch_size} = micro {run.micro_batch_size} x "
                f"accumulation {config.accumulation_steps} x replicas {run.replicas}; "
                f"{run.batches_per_step} updates a call"
                + (f"; {self.instances.count} processes, each with "
                   f"{self.instances.replicas(run)} of the replicas"
                   if self.instances.count > 1 else "")]

    def check(self, batch, output):
        """Hold the training Program and its options against the contract, and write them as
        ``program.txt`` and as ``stages.png``."""
        built, options = self._build("training", batch)
        output = Path(output)
        output.mkdir(parents=True, exist_ok=True)
        (output / "program.txt").write_text(listing(built, options), "utf-8")
        draw_stages(built, self.placement, output / "stages.png")
        count = sum(map(is_forward, built.main.global_block().ops))
        return [f"contract: {count} operators, {len(options)} options and the update are such as "
                "Paddle's IPU backend takes",
                f"program: {output / 'program.txt'}, {output / 'stages.png'}"]

    def _build(self, kind, batch, batches=None):
        train = self.config.train if kind == "training" else None
        self.network.train() if train else self.network.eval()
        example = batch.rows(0, self.config.run.micro_batch_size)
        built = build_program(self.network, example, self.placement, self.config.run, train)
        options = (training_options(self.config, self.placement, self.instances) if train
                   else inference_options(self.config, self.placement, batches, self.instances))
        check_program(built.main, {**DEFAULTS, **options}, list(built.feeds),
                      list(built.fetches.values()))
        check_patterns(built.main, options, patterns_of(self.config.run, bool(train)))
        return built, options

    def _run_call(self, learning_rate):
        """As many updates as ``run.batches_per_step`` says, all at one learning rate."""
        built = self._prepare("training", self._call[0])
        count = self.config.accumulation_steps * self.config.run.replicas
        parts = [_feeds(batch, count) for batch in self._call]
        feeds = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        self._write(built.learning_rate, np.array([learning_rate], np.float32))
        return self._means(self._run(built, feeds), len(parts))

    def _own(self, batch):
        """The rows of this process, with their share of the weights."""
        if self.instances.count == 1:
            return batch
        rows = self.instances.rows(self.config.run, len(batch))
        return Batch(**{name: array[rows] for name, array in batch.inputs.items()},
                     labels={name: array[rows] for name, array in batch.labels.items()})

    def _all_rows(self, array, shape):
        """What all processes computed, float32 of ``shape``, from what this one did."""
        rows = np.zeros(shape, np.float32)
        rows[self.instances.rows(self.config.run, shape[0])] = array.reshape([-1, *shape[1:]])
        return self.instances.sum(rows)

    def _means(self, results, batches):
        """As ``_means``, over all processes."""
        means = _means(results, batches)
        names = sorted(means[0])
        values = np.array([[mean[name] for name in names] for mean in means])
        total = self.instances.sum(values) / self.instances.count
        return [dict(zip(names, row)) for row in total.tolist()]

    def _inference_batches(self, kind, batch):
        """Micro batches of each replica in a call: those of the Program on the device if they
        suffice, else as many as the batch needs, at least enough to fill the pipeline."""
        run = self.config.run
        needed = max(-(-len(batch) // (run.micro_batch_size * run.replicas)),
                     len(self.placement.stages))
        if self._compiled and self._compiled.kind == kind and self._compiled.batches >= needed:
            return self._compiled.batches
        return needed

    @staticmethod
    def _row_shape(built, name):
        return built.main.global_block().var(built.fetches[name]).shape[1:]

    def _prepare(self, kind, batch, batches=None):
        """Compile the Program unless it is the one that is on the device; returns it."""
        if self._compiled and (self._compiled.kind, self._compiled.batches) == (kind, batches):
            return self._compiled.built
        self._fetch_weights()
        self._release()
        built, options = self._build(kind, batch, batches)
        with legacy_static_mode(), static.scope_guard(self.scope):
            backend = open_backend(self.config.run.device)
            static.Executor(paddle.CPUPlace()).run(built.startup)
            self._put_moments(built)
            strategy = backend.strategy()
            apply_options(strategy, options)
            for name in patterns_of(self.config.run, kind == "training"):
                strategy.enable_pattern(name)
            compiled = backend.compiled_program(built.main, scope=self.scope,
                                                ipu_strategy=strategy)
            program = compiled.compile(list(built.feeds), list(built.fetches.values()))
        self._compiled = _Compiled(kind, batches, built, compiled, program, backend.executor)
        return built

    def _run(self, built, feeds):
        compiled = self._compiled
        with legacy_static_mode(), static.scope_guard(self.scope):
            results = compiled.executor.run(
                compiled.program, feed=_in_types_of(built.main, feeds),
                fetch_list=list(built.fetches.values()))
        return dict(zip(built.fetches, results))

    def _fetch_weights(self):
        """Copy weights and moments from the device into the scope."""
        if self._compiled and self._compiled.kind == "training":
            self._compiled.handle._backend.weights_to_host()
            self.moments = {name: self._read(name)
                            for name in _moment_names(self._compiled.built.main)}

    def _release(self):
        if self._compiled:
            backend = self._compiled.handle._backend
            backend.detach()
            backend.reset()
            self._compiled = None

    def _put_weights(self):
        kind = np.float16 if self.config.run.precision == "fp16" else np.float32
        for name, parameter in self.network.named_parameters():
            self._write(name, parameter.numpy().astype(kind))

    def _put_moments(self, built):
        """Moments and the number of updates so far, over the first values of the startup.

        The number goes where Paddle keeps beta1's power, which float32 cannot tell from 0 after
        some hundred updates; the backend takes one for the other, and does not look at beta2's.
        """
        for name, array in self.moments.items():
            self._write(name, array)
        for operator in built.main.global_block().ops:
            if "Beta1Pow" in operator.input_names and operator.input("Beta1Pow"):
                self._write(operator.input("Beta1Pow")[0], np.array([self.updates], np.float32))

    def _read(self, name):
        return np.array(self.scope.find_var(name).get_tensor())

    def _write(self, name, array):
        self.scope.var(name).get_tensor().set(array, paddle.CPUPlace())


def _feeds(batch, micro_batches):
    """What is fed for a batch: weights such that micro batches are averaged, not added up."""
    feeds = dict(batch.inputs)
    for name, array in batch.labels.items():
        scale = np.float32(micro_batches) if name.endswith("_weights") else 1
        feeds[LABELS + name] = array * scale if scale != 1 else array
    return feeds


def _pad(batch, count):
    """A batch of ``count`` rows, of which the added ones weigh nothing."""
    rows = np.minimum(np.arange(count), len(batch) - 1)
    labels = {name: array[rows] for name, array in batch.labels.items()}
    for name in labels:
        if name.endswith("_weights"):
            labels[name][len(batch):] = 0
    return Batch(**{name: array[rows] for name, array in batch.inputs.items()}, labels=labels)


def _in_types_of(program, feeds):
    """Feeds in the types of their variables."""
    block = program.global_block()
    return {name: array.astype(np.float16) if block.var(name).desc.dtype() == HALF else array
            for name, array in feeds.items()}


def _means(results, batches):
    """A dict of means for each update of a call.

    The backend fills a fetch in the order batches, accumulation, replicas, whatever the axes
    of the array say.
    """
    means = {name: np.asarray(array, np.float64).reshape([batches, -1]).mean(1)
             for name, array in results.items()}
    return [{name: float(values[number]) for name, values in means.items()}
            for number in range(batches)]


def _moment(name, number):
    """Variable of a parameter's first or second moment."""
    return f"{name}_moment{number}_0"


def _moment_names(program):
    return [operator.input(slot)[0] for operator in program.global_block().ops
            for slot in ("Moment1", "Moment2") if slot in operator.input_names]


def _power(beta, updates):
    """What Paddle keeps of the number of updates elsewhere, never 0, for its logarithm is taken.

    With beta2 0.999 that tells the number exactly up to 87,000 updates.
    """
    return np.maximum(np.array([beta ** (updates + 1)]), _TINY).astype(np.float32)


def _count_updates(arrays, train):
    """Updates that a state of AdamW has behind it, from the power of the slower moment."""
    power = next((float(array[0]) for name, array in arrays.items()
                  if name.endswith("/beta2_pow_acc")), train.beta2)
    return round(np.log(max(power, _TINY)) / np.log(train.beta2)) - 1 if train.beta2 else 0
