"""The training loop: one for every engine and every task."""

import time

from configs.errors import Stopped
from configs.load import to_yaml
from models.cost import training_flops
from models.weights.huggingface import read_pretrained, save_pretrained
from models.weights.load import load_weights
from training.checkpoint import read_optimizer, read_state, save_checkpoint
from training.metrics import Progress
from training.schedules import linear_schedule
from training.stopping import StopRequest


class Trainer:
    """Feeds global batches to an engine, writes metrics and checkpoints, evaluates."""

    def __init__(self, config, engine, data, evaluate, folder):
        """
        Args:
            config: the resolved ``Config``.
            engine: built, with network and optimizer.
            data: has ``batch(consumed, count)``.
            evaluate: called without arguments, returns a dict of floats; or None.
            folder: the ``RunFolder``.
        """
        self.config, self.engine, self.data = config, engine, data
        self.evaluate, self.folder = evaluate, folder
        self.step, self.samples, self.seconds = 0, 0, 0.0
        self.peak_flops = engine.peak_flops()
        self.flops_per_row = training_flops(config.model, config.data.sequence_length,
                                            config.data.max_predictions)

    def resume(self, checkpoint):
        """Take over weights, moments and counters of a checkpoint."""
        state = read_state(checkpoint)
        arrays, _ = read_pretrained(checkpoint)
        load_weights(self.engine.network, arrays)
        self.engine.load_state(read_optimizer(checkpoint))
        self.step, self.samples = state["step"], state["samples"]
        self.seconds = state["seconds"]
        print(f"resumed from {checkpoint}: step {self.step}, {self.samples} samples", flush=True)

    def run(self):
        """Train to the last step.

        Returns:
            The result: the last metrics, the last evaluation and the cost figures.

        Raises:
            Stopped: SIGTERM or SIGINT came; the state is saved.
        """
        progress = Progress(self.config.train.steps, self.step)
        with StopRequest() as stop:
            self._run_steps(progress, stop)
        progress.close()
        return self._finish()

    def _run_steps(self, progress, stop):
        train, timer = self.config.train, _Timer()
        while self.step < train.steps:
            sums, learning_rate = self._update(timer)
            progress.advance()
            if self.step % train.log_every == 0 or self.step == train.steps:
                line = self._metrics_line(sums, learning_rate, timer)
                self.folder.metrics.append(line)
                progress.say("step", line)
                timer = _Timer()
            if self.evaluate and self._is_due(train.evaluate_every):
                self._evaluate(progress)
            if stop.name or self._is_due(train.save_every):
                self._save()
            if stop.name and self.step < train.steps:
                raise Stopped(f"{stop.name} at step {self.step}, which is saved; go on with "
                              "--resume")

    def _update(self, timer):
        train = self.config.train
        start = time.perf_counter()
        batch = self.data.batch(self.samples, train.global_batch_size)
        read = time.perf_counter()
        self.step += 1
        learning_rate = linear_schedule(self.step, train.learning_rate, train.warmup_steps,
                                        train.steps)
        sums = self.engine.step(batch, learning_rate, self.step)
        done = time.perf_counter()
        self.samples += len(batch)
        self.seconds += done - start
        timer.add(len(batch), batch.token_count, read - start, done - read)
        return sums, learning_rate

    def _metrics_line(self, sums, learning_rate, timer):
        rate = timer.rows / timer.seconds
        return {"step": self.step, "samples": self.samples, **sums,
                "learning_rate": learning_rate, "sequences_per_second": rate,
                "tokens_per_second": timer.tokens / timer.seconds,
                "mfu": rate * self.flops_per_row / self.peak_flops,
                "data_seconds": timer.data_seconds / timer.steps,
                "step_seconds": timer.seconds / timer.steps}

    def _is_due(self, every):
        return self.step == self.config.train.steps or (every and self.step % every == 0)

    def _evaluate(self, progress):
        line = {"step": self.step, "samples": self.samples, **self.evaluate()}
        self.folder.evaluations.append(line)
        progress.say("held out", line)
        self.folder.draw_curves()

    def _save(self):
        model = self.config.model
        state = {"step": self.step, "samples": self.samples, "seconds": self.seconds,
                 "config": to_yaml(self.config)}
        save_checkpoint(
            self.folder.checkpoints,
            lambda path: save_pretrained(path, self.engine.network, model, model.vocabulary),
            self.engine.state(), state)

    def _finish(self):
        metrics, evaluations = self.folder.metrics.read(), self.folder.evaluations.read()
        if not self.evaluate:
            self.folder.draw_curves()
        result = {"step": self.step, "samples": self.samples, "train_seconds": self.seconds,
                  "parameters": count_parameters(self.engine.network),
                  "flops_per_sequence": self.flops_per_row, "peak_flops": self.peak_flops,
                  "training": metrics[-1] if metrics else None,
                  "held_out": evaluations[-1] if evaluations else None}
        self.folder.write_result(result)
        return result


def count_parameters(network):
    """Numbers in all parameters, a shared one once."""
    return sum(parameter.size for parameter in network.parameters())


class _Timer:
    """Adds up rows, tokens and seconds between two lines of metrics."""

    def __init__(self):
        self.steps, self.rows, self.tokens, self.data_seconds, self.seconds = 0, 0, 0, 0.0, 0.0

    def add(self, rows, tokens, data_seconds, compute_seconds):
        self.steps += 1
        self.rows += rows
        self.tokens += tokens
        self.data_seconds += data_seconds
        self.seconds += data_seconds + compute_seconds
