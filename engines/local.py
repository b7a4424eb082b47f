"""One process, one device: Paddle's eager mode on a CPU or a GPU."""

import math
import time

import paddle

from configs.errors import InputError
from engines.engine import Engine
from engines.loss_scaling import open_loss_scale
from engines.parts import Parts
from engines.placement import describe, resolve


class LocalEngine(Engine):
    """Computes a global batch micro batch by micro batch and adds the gradients up."""

    def __init__(self, config):
        """
        Raises:
            InputError: ``run.device`` is gpu and this Paddle has no CUDA.
        """
        if config.run.device == "gpu" and not paddle.is_compiled_with_cuda():
            raise InputError("run.device", "gpu asked for, but the installed Paddle is a CPU build",
                             "install paddlepaddle-gpu or write cpu")
        paddle.set_device(config.run.device)
        self.config = config

    def build(self, network, make_optimizer=None):
        self.network = network
        self.optimizer = make_optimizer(network) if make_optimizer else None
        self.loss_scale = open_loss_scale(self.config.run)
        self.parts = Parts(self.config, network)

    def step(self, batch, learning_rate, step):
        totals = self.accumulate(batch, step)
        return {**totals, "gradient_norm": self._update(totals["loss"], learning_rate)}

    def accumulate(self, batch, step):
        """Add the gradients of a batch up; returns the sums of the heads' ``loss``."""
        self.network.train()
        totals = {}
        for number, micro_batch in enumerate(self._micro_batches(batch)):
            sums = self._forward(micro_batch, step, number)
            (sums["loss"] * self.loss_scale.value).backward()
            _add(totals, sums)
        return totals

    def _update(self, loss, learning_rate):
        """Move the weights; returns the gradient's norm, nan where the loss was not finite."""
        norm = math.nan
        if math.isfinite(loss):
            norm = self.optimizer.step(learning_rate, self.loss_scale.value)
        else:
            self.optimizer.clear_gradients()
        self.loss_scale.update(math.isfinite(norm))
        return norm

    @paddle.no_grad()
    def evaluate(self, batch):
        self.network.eval()
        totals = {}
        for micro_batch in self._micro_batches(batch):
            _add(totals, self._forward(micro_batch))
        return totals

    @paddle.no_grad()
    def predict(self, batch):
        self.network.eval()
        inputs = {name: paddle.to_tensor(array) for name, array in batch.inputs.items()}
        with self.parts.precision():
            logits = self.parts.forward(inputs)
        return {name: value.astype("float32").numpy() for name, value in logits.items()}

    def state(self):
        return {**self.optimizer.state(), **self.loss_scale.state()}

    def load_state(self, arrays):
        arrays = dict(arrays)
        self.loss_scale.load_state(arrays.pop("loss_scale", None))
        self.optimizer.load_state(arrays)

    def peak_flops(self):
        """The stated ``run.peak_flops``, or the best rate of a few square matrix products."""
        return self.config.run.peak_flops or measure_peak_flops()

    def describe(self):
        config, run = self.config, self.config.run
        micro_batches = config.train.global_batch_size // run.micro_batch_size
        has_pooler = "pooler" in dict(self.network.blocks())
        return [
            f"engine: local, {run.device}: one process computes every stage",
            *describe(config, resolve(config, has_pooler)),
            f"batch: global {config.train.global_batch_size} = micro {run.micro_batch_size} x "
            f"accumulation {config.accumulation_steps} x replicas {run.replicas}; "
            f"{micro_batches} micro batches in turn",
        ]

    def _micro_batches(self, batch):
        size = self.config.run.micro_batch_size
        for start in range(0, len(batch), size):
            yield batch.rows(start, start + size)

    def _forward(self, batch, step=0, number=0):
        inputs = {name: paddle.to_tensor(array) for name, array in batch.inputs.items()}
        labels = {name: paddle.to_tensor(array) for name, array in batch.labels.items()}
        with self.parts.precision():
            return self.network.heads.loss(self.parts.forward(inputs, step, number), labels)


def _add(totals, sums):
    for name, value in sums.items():
        totals[name] = totals.get(name, 0.0) + float(value)


def measure_peak_flops(size=2048, times=5):
    """The best rate of a few square matrix products, in FLOP/s."""
    matrix = paddle.rand([size, size])
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        float((matrix @ matrix)[0, 0])
        best = min(best, time.perf_counter() - start)
    return 2 * size ** 3 / best
