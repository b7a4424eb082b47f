"""The training loop: one for every engine and every task."""

import math
import time

from configs.errors import InputError, Stopped
from configs.load import to_yaml
from models.weights.huggingface import save_pretrained
from training.checkpoint import (prune_checkpoints, read_optimizer, read_state, save_checkpoint)
from training.metrics import Progress
from training.profiling import Profile
from training.replay import save_batch
from training.schedules import learning_rate
from training.stopping import StopRequest
from training.trackers import open_trackers


class Trainer:
    """Feeds global batches to an engine, writes metrics and checkpoints, evaluates."""

    def __init__(self, config, engine, data, evaluate, folder, flops_per_row, better=min,
                 measure="loss"):
        """
        Args:
            config: the resolved ``Config``.
            engine: built, with network and optimizer.
            data: has ``batch(consumed, count)``.
            evaluate: called without arguments, returns a dict of floats; or None.
            folder: the ``RunFolder``.
            flops_per_row: of a forward and backward pass.
            better, measure: the best evaluation is the one with the ``min`` or ``max`` of what.
        """
        self.config, self.engine, self.data = config, engine, data
        self.evaluate, self.folder, self.flops_per_row = evaluate, folder, flops_per_row
        self.step, self.samples, self.seconds = 0, 0, 0.0
        self.skipped_steps, self.skipped_in_a_row = 0, 0
        self.better, self.measure, self.best = better, measure, None
        self.peak_flops = engine.peak_flops()

    def resume(self, checkpoint):
        """Take over moments and counters of a checkpoint; its weights are in the network."""
        state = read_state(checkpoint)
        self.engine.load_state(read_optimizer(checkpoint))
        self.step, self.samples = state["step"], state["samples"]
        self.seconds, self.skipped_steps = state["seconds"], state["skipped_steps"]
        self.best = self.better((line for line in self.folder.evaluations_up_to(self.step)
                                 if line.get(self.measure) is not None), default=None,
                                key=lambda line: line[self.measure])
        if self.engine.is_main:
            print(f"resumed from {checkpoint}: step {self.step}, {self.samples} samples",
                  flush=True)

    def run(self):
        """Train to the last step.

        Returns:
            The result: the last metrics, the last and best evaluation and the cost figures.

        Raises:
            Stopped: SIGTERM or SIGINT came; the state is saved.
            InputError: the disk is full, or too many updates in a row were not finite.
        """
        progress = Progress(self.config.train.steps, self.step, visible=self.engine.is_main)
        names = self.config.train.trackers if self.engine.is_main else []
        trackers = open_trackers(names, self.folder.path, self.config)
        try:
            with StopRequest() as stop, \
                    Profile(self._profiled_steps(), self.folder.path) as profile:
                self._run_steps(progress, trackers, profile, stop)
        finally:
            progress.close()
            for tracker in trackers:
                tracker.close()
        return self._finish()

    def _profiled_steps(self):
        return self.config.train.profile if self.engine.is_main else []

    def _run_steps(self, progress, trackers, profile, stop):
        train, timer = self.config.train, _Timer()
        while self.step < train.steps:
            profile.begin(self.step + 1)
            sums = self._update(timer)
            profile.end(self.step)
            progress.advance()
            self._count_skipped(sums)
            if self.step % train.log_every == 0 or self.step == train.steps:
                self._log("training", self._metrics_line(sums, timer), progress, trackers)
                timer = _Timer()
            is_stopped = self.engine.agree(stop.name is not None)
            with progress.aside():
                is_best = self._is_due(train.evaluate_every) and self._evaluate(progress, trackers)
                if is_stopped or is_best or self._is_due(train.save_every):
                    self._save()
            if is_stopped and self.step < train.steps:
                raise Stopped(f"{stop.name or 'a signal'} at step {self.step}, which is saved; "
                              "go on with --resume")

    def _update(self, timer):
        start = time.perf_counter()
        batch = self.engine.read(self.data, self.samples, self.config.train.global_batch_size)
        read = time.perf_counter()
        self.step += 1
        rate = learning_rate(self.step, self.config.train)
        sums = self.engine.step(batch, rate, self.step)
        done = time.perf_counter()
        self.samples += self.config.train.global_batch_size
        self.seconds += done - start
        timer.add(batch, read - start, done - read)
        return {**sums, "learning_rate": rate}

    def _count_skipped(self, sums):
        if math.isfinite(sums.get("gradient_norm", sums["loss"])):
            self.skipped_in_a_row = 0
            return
        self.skipped_steps += 1
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row > self.config.train.max_skipped_steps:
            self._give_up()

    def _give_up(self):
        """Leave what is needed to see why nothing is finite any more, and stop."""
        count = self.config.train.global_batch_size
        first = self.samples - count
        self.engine.collect()
        place = self.folder.path / "not_finite" / f"step_{self.step:08d}"
        if self.engine.is_main:
            save_batch(place, self.config, self.engine.network, self.data.batch(first, count),
                       self.step)
        self.engine.agree(True)  # no process leaves, and so ends the others, before it is written
        raise InputError(
            place, f"loss or gradient was not finite in {self.skipped_in_a_row} updates in a row, "
            f"the last is step {self.step}, rows {first} to {self.samples - 1}",
            f"python -m training.replay {place} shows where; lower train.learning_rate, or go on "
            "with --resume and a higher train.max_skipped_steps")

    def _metrics_line(self, sums, timer):
        rate = self.config.train.global_batch_size * timer.steps / timer.seconds
        return {"step": self.step, "samples": self.samples, **_finite(sums),
                "skipped_steps": self.skipped_steps, "sequences_per_second": rate,
                "tokens_per_second": rate * timer.tokens / timer.rows,
                "mfu": rate * self.flops_per_row / self.peak_flops,
                "data_seconds": timer.data_seconds / timer.steps,
                "step_seconds": timer.seconds / timer.steps}

    def _is_due(self, every):
        return self.step == self.config.train.steps or (every and self.step % every == 0)

    def _log(self, split, line, progress, trackers):
        """Write and show a line of ``training`` or ``held_out`` metrics."""
        if not self.engine.is_main:
            return
        file, name = {"training": (self.folder.metrics, "step"),
                      "held_out": (self.folder.evaluations, "held out")}[split]
        file.append(line)
        progress.say(name, line)
        for tracker in trackers:
            tracker.log(self.step, line, split)

    def _evaluate(self, progress, trackers):
        """Evaluate and log; whether a checkpoint of this step is wanted as the best so far."""
        if not self.evaluate:
            return False
        line = {"step": self.step, "samples": self.samples, **_finite(self.evaluate())}
        self._log("held_out", line, progress, trackers)
        if self.engine.is_main:
            self.folder.draw_curves()
        value = line.get(self.measure)
        if value is None:  # not finite, or the file does not tell what is right
            return False
        if self.best and self.better(self.best[self.measure], value) == self.best[self.measure]:
            return False
        self.best = line
        return self.config.train.keep_best

    def _save(self):
        model, train = self.config.model, self.config.train
        self.engine.collect()
        optimizer_arrays = self.engine.state()
        if not self.engine.is_main:
            return
        state = {"step": self.step, "samples": self.samples, "seconds": self.seconds,
                 "skipped_steps": self.skipped_steps, "config": to_yaml(self.config)}
        save_checkpoint(
            self.folder.checkpoints,
            lambda path: save_pretrained(path, self.engine.network, model, model.vocabulary),
            optimizer_arrays, state)
        prune_checkpoints(self.folder.checkpoints, train.keep_last, train.keep_every,
                          self.best["step"] if self.best and train.keep_best else None)

    def _finish(self):
        metrics, evaluations = self.folder.metrics.read(), self.folder.evaluations.read()
        result = {"step": self.step, "samples": self.samples, "train_seconds": self.seconds,
                  "skipped_steps": self.skipped_steps,
                  "parameters": count_parameters(self.engine.network),
                  "flops_per_sequence": self.flops_per_row, "peak_flops": self.peak_flops,
                  "training": metrics[-1] if metrics else None,
                  "held_out": evaluations[-1] if evaluations else None, "best": self.best}
        if self.engine.is_main:
            if not self.evaluate:
                self.folder.draw_curves()
            self.folder.write_result(result)
        return result


def _finite(values):
    """Numbers by name, None where one is not finite, for JSON knows neither nan nor inf."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def count_parameters(network):
    """Numbers in all parameters, a shared one once."""
    return sum(parameter.size for parameter in network.parameters())


class _Timer:
    """Adds up rows, tokens and seconds between two lines of metrics."""

    def __init__(self):
        self.steps, self.rows, self.tokens, self.data_seconds, self.seconds = 0, 0, 0, 0.0, 0.0

    def add(self, batch, data_seconds, compute_seconds):
        self.steps += 1
        self.rows += len(batch)
        self.tokens += batch.token_count
        self.data_seconds += data_seconds
        self.seconds += data_seconds + compute_seconds
