"""An emulated pod: takes the place of Paddle's IPU classes behind the same engine code.

It computes the Program that IPUs would be given on the CPU, stage by stage and micro batch by
micro batch, with weights and moments of its own until they are fetched back; it wants feeds
and gives fetches as the backend lays them out, and refuses what the contract refuses.
"""

import numpy as np
import paddle

from configs.errors import InputError
from engines.ipu.contract import check_program
from engines.ipu.device_update import DeviceUpdate
from engines.ipu.half import HALF, core
from engines.ipu.instances import open_instances
from engines.ipu.lowering import lower
from engines.ipu.option_rules import check_option
from engines.ipu.options import DEFAULTS
from engines.ipu.patterns import KNOWN
from engines.ipu.pipeline import cut, run_pipeline, to_numpy
from engines.ipu.rounding import Rounding, keep
from engines.ipu.weights import weights


class EmulatedStrategy:
    """As ``paddle.static.IpuStrategy``."""

    def __init__(self):
        self.options = dict(DEFAULTS)
        self.custom_op_names = []

    def set_graph_config(self, num_ipus=1, is_training=True, micro_batch_size=1,
                         enable_manual_shard=False):
        if num_ipus == 1 and enable_manual_shard:
            raise RuntimeError("Only if num_ipus > 1, enable_manual_shard is able to be set True.")
        self.set_options({"num_ipus": num_ipus, "is_training": is_training,
                          "micro_batch_size": micro_batch_size,
                          "enable_manual_shard": enable_manual_shard})

    def set_pipelining_config(self, enable_pipelining=False, batches_per_step=1,
                              enable_gradient_accumulation=False, accumulation_factor=1):
        if enable_pipelining and not self.options["enable_manual_shard"]:
            raise RuntimeError("Only if enable_manual_shard=True, enable_pipelining is able to be "
                               "set True.")
        self.set_options({"enable_pipelining": enable_pipelining,
                          "batches_per_step": batches_per_step,
                          "enable_gradient_accumulation": enable_gradient_accumulation,
                          "accumulation_factor": accumulation_factor})

    def set_options(self, options):
        for name, value in options.items():
            check_option(name, value)
        self.options.update(options)

    def get_option(self, name):
        return self.options[name]

    def enable_pattern(self, name):
        """Changes layouts on IPUs, and no number."""
        if name not in KNOWN:
            raise InputError("IPU pattern", f"'{name}' is unknown", f"known are {', '.join(KNOWN)}")

    def add_custom_op(self, paddle_op, popart_op=None, domain="custom.ops", version=1):
        self.custom_op_names.append(paddle_op)


class EmulatedProgram:
    """As ``paddle.static.IpuCompiledProgram``, and as the Program that its ``compile`` returns."""

    def __init__(self, program, scope=None, ipu_strategy=None):
        self.org_program, self.scope = program, scope or paddle.static.global_scope()
        self.strategy, self.options = ipu_strategy, ipu_strategy.options
        self._backend = self

    def compile(self, feed_list, fetch_list):
        """Check the Program, cut it into stages and load the weights from the scope."""
        program, options = self.org_program, self.options
        loss = check_program(program, options, feed_list, fetch_list,
                             self.strategy.custom_op_names)
        self.feeds, self.fetches = list(feed_list), list(fetch_list)
        block = program.global_block()
        self.shapes = {name: tuple(block.var(name).shape) for name in (*feed_list, *fetch_list)}
        self.lowered = lower(program, loss, options["loss_scaling"])
        self.wanted = [self.lowered.names[name] for name in fetch_list]
        self.positions = cut(self.lowered.program,
                             [*self.wanted, *self.lowered.gradients.values()])
        self.known = weights(program, options["is_training"])
        self.halves = {name for name, variable in self.known.items()
                       if variable.desc.dtype() == HALF}
        self.rounding = Rounding(options["enable_stochastic_rounding"], options["random_seed"])
        paddle.seed(options["random_seed"])
        self.update = DeviceUpdate(program, options) if loss else None
        self._load()
        return self

    def run(self, feed):
        """The values of the fetches, labelled as the backend labels them."""
        options, results = self.options, []
        counts = [options[name] for name in ("batches_per_step", "accumulation_factor",
                                             "replicated_graph_count")]
        feeds = {name: self._arrange(name, array, counts) for name, array in feed.items()}
        for batch in range(counts[0]):
            totals = []
            for replica in range(counts[2]):
                values, total = self._run_replica({name: array[batch, :, replica]
                                                   for name, array in feeds.items()})
                results.append(values)
                totals.append(total)
            if self.update:
                self._update(totals)
        return [self._label(number, [micro_batch[number] for replica in results
                                     for micro_batch in replica], counts)
                for number in range(len(self.fetches))]

    def weights_to_host(self):
        """Copy weights and moments into the scope."""
        for name, array in self.weights.items():
            self._write(name, array)
        if self.update:
            self.update.store(self._write)

    def detach(self):
        """Give the IPUs back."""

    def reset(self):
        """Forget the compiled Program and what is on the IPUs."""
        self.__dict__.pop("weights", None)

    def _load(self):
        self.weights = {name: self._read(name).astype(np.float32) for name in self.known}
        if self.update:
            self.update.load(self._read)
        self.memory = core.Scope()
        self._place_weights()

    def _place_weights(self):
        for name, array in self.weights.items():
            self.memory.var(name).get_tensor().set(array, paddle.CPUPlace())

    def _arrange(self, name, array, counts):
        """A feed as ``[batches, accumulation, replicas, *shape of a micro batch]``."""
        shape = (*counts, *self.shapes[name])
        if array.size != np.prod(shape):
            raise InputError(f"feed {name}", f"has {array.size} elements, not "
                             f"{' x '.join(map(str, shape))} (batches a step, accumulation, "
                             "replicas, micro batch)", "feed all micro batches of a step")
        # Weights of float16 feeds were rounded by the host.
        array = array.astype(np.float32) if array.dtype == np.float16 else array
        return array.reshape(shape)

    def _run_replica(self, feeds):
        """One replica's micro batches through the pipeline: fetches, and gradients added up."""
        count = self.options["accumulation_factor"]
        micro_batches = [{name: array[number] for name, array in feeds.items()}
                         for number in range(count)]
        results, total = [], {}
        for _, values in run_pipeline(self.positions, micro_batches, self.memory):
            for name, gradient in self.lowered.gradients.items():
                self._add(total, name, to_numpy(values[gradient]))
            results.append([to_numpy(values[name]) for name in self.wanted])
        return results, total

    def _add(self, total, name, gradient):
        """Accumulators have the type of their weight."""
        value = total[name] + gradient if name in total else gradient
        total[name] = self.rounding(value) if name in self.halves else value

    def _update(self, totals):
        """One update from the mean over micro batches and replicas."""
        rate = float(self._read(self._rate_name()).ravel()[0])
        reduced = {}
        for total in totals:
            for name, gradient in total.items():
                self._add(reduced, name, gradient)
        replicas = len(totals)
        if self.options["enable_distribution"]:
            replicas = self.options["global_replication_factor"]
            reduced = {name: open_instances().sum(array) for name, array in reduced.items()}
        scale = np.float32(replicas * self.options["accumulation_factor"]
                           * self.options["loss_scaling"])
        gradients = {name: array / scale for name, array in reduced.items()}
        self.update.apply(self.weights, gradients, np.float32(rate),
                          self.rounding if self.halves else keep)
        self._place_weights()

    def _rate_name(self):
        return next(op.input("LearningRate")[0] for op in self.org_program.global_block().ops
                    if "LearningRate" in op.input_names)

    def _label(self, number, values, counts):
        """As the backend: filled in the order batches, accumulation, replicas, labelled replicas,
        accumulation, batches, each axis only where its option is on."""
        batches, steps, replicas = counts
        filled = np.stack(values).reshape([batches, replicas, steps, *values[0].shape])
        filled = filled.swapaxes(1, 2)
        axes = []
        if self.options["enable_replicated_graphs"]:
            axes.append(replicas)
        if self.options["enable_gradient_accumulation"]:
            axes.append(steps)
        if batches > 1:
            axes.append(batches)
        return np.ascontiguousarray(filled).reshape([*axes, *values[0].shape])

    def _read(self, name):
        return np.array(self.scope.find_var(name).get_tensor())

    def _write(self, name, array):
        tensor = self.scope.var(name).get_tensor()
        kind = np.float16 if name in self.halves else np.float32
        tensor.set(array.astype(kind), paddle.CPUPlace())


class EmulatedExecutor:
    """As ``paddle.static.Executor(paddle.IPUPlace())``."""

    def run(self, program, feed, fetch_list):
        if list(fetch_list) != program.fetches:
            raise InputError("fetch_list", "is not what was compiled", "fetch the same again")
        if set(feed) != set(program.feeds):
            raise InputError("feed", "is not what was compiled", "feed the same names again")
        return program.run(feed)
