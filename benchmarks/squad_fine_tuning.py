"""SQuAD fine-tuning beside Hugging Face's: the same weights, data, recipe; time and scores.

``python -m benchmarks.squad_fine_tuning --train FILE --evaluation FILE --weights DIR --output DIR``
chooses some training questions by a seed, trains on them with ``run_squad.py`` (packed windows,
the rows of an update shared out over a process for each core) and with
``BertForQuestionAnswering`` in a plain torch loop (a padded window a row, as many windows an
update), and scores both with the same code; writes ``figures.json``, and losses over
time as ``curves.png``. Needs requirements-parity.txt.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.launching import ROOT, environment, launcher
from configs.command_line import Parser, run, tell
from configs.errors import InputError
from configs.load import load_config
from data.randomness import permutation
from engines import startup

RECIPE = "configs/squad/minilm_l6.yaml"
WINDOWS_PER_ROW = 2
"""About what three a row and 384 slots give; so many windows make an update of either side."""


def main(argv=None):
    """Train both, print the figures as JSON and return them."""
    parser = Parser(prog="python -m benchmarks.squad_fine_tuning", description=__doc__)
    for name, meaning in (("train", "questions to train on"), ("evaluation", "questions to score"),
                          ("weights", "folder of an encoder, e.g. all-MiniLM-L6-v2"),
                          ("output", "folder to write to")):
        parser.add_argument(f"--{name}", required=True, help=meaning)
    parser.add_argument("--questions", type=int, default=4000, help="training questions taken")
    parser.add_argument("--seed", type=int, default=42, help="of the choice and of both trainings")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)),
                        help="that ours runs in, by default one a core")
    parser.add_argument("--sides", default="ours,torch",
                        help="which of ours, torch to run; figures of the other, measured before "
                        "into the same folder, are kept")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[],
                        dest="overrides", help="change the recipe of both")
    arguments = parser.parse_args(argv)
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    chosen = choose_questions(arguments.train, arguments.questions, arguments.seed,
                              output / "train.json")
    overrides = [f"data.train_file={chosen}", f"data.evaluation_file={arguments.evaluation}",
                 f"data.cache={output / 'cache'}", f"train.initial_weights={arguments.weights}",
                 f"train.seed={arguments.seed}", *arguments.overrides]
    figures = {"questions": arguments.questions, "seed": arguments.seed,
               "overrides": arguments.overrides,
               **read_earlier(output / "figures.json", arguments)}
    for side in arguments.sides.split(","):
        figures[side] = (run_ours(overrides, output, arguments.processes) if side == "ours"
                         else run_torch(overrides, output))
    if "ours" in figures and "torch" in figures:
        figures["time_ratio"] = figures["ours"]["train_seconds"] / figures["torch"]["train_seconds"]
        draw(figures, output)
    tell(figures, output / "figures.json")
    return figures


def read_earlier(path, arguments):
    """The figures of sides that an earlier call with the same questions measured."""
    earlier = json.loads(path.read_text("utf-8")) if path.exists() else {}
    is_same = all(earlier.get(key) == getattr(arguments, key)
                  for key in ("questions", "seed", "overrides"))
    return {side: earlier[side] for side in ("ours", "torch") if is_same and side in earlier}


def draw(figures, output):
    """Losses over seconds of training, of both."""
    from training.curves import draw_runs
    from training.runs import Run, read_run

    ours = read_run(output / "ours").metrics
    losses = {"ours": {line["step"]: line["loss"] for line in ours}}
    losses["torch"] = {step: loss for step, loss in enumerate(
        json.loads((output / "torch_losses.json").read_text("utf-8")), 1)
        if step % ours[0]["step"] == 0}
    runs = []
    for side, values in losses.items():
        found = figures[side]
        seconds = found["train_seconds"] / found["updates"]
        runs.append(Run(output / side, side, {}, [
            {"step": step, "loss": loss, "step_seconds": seconds}
            for step, loss in values.items()], [], {}))
    draw_runs(runs, output / "curves.png", "seconds")


def choose_questions(path, count, seed, target):
    """Write a file of ``count`` questions of another, in their order there; returns its path."""
    from data.squad.questions import read_json

    tree = read_json(path)
    paragraphs = [paragraph for article in tree["data"] for paragraph in article["paragraphs"]]
    places = [(number, inner) for number, paragraph in enumerate(paragraphs)
              for inner in range(len(paragraph["qas"]))]
    if count > len(places):
        raise InputError(path, f"has {len(places)} questions, not {count}", "ask for fewer")
    chosen = {places[number] for number in permutation(seed, 0, len(places))[:count]}
    kept = []
    for number, paragraph in enumerate(paragraphs):
        questions = [question for inner, question in enumerate(paragraph["qas"])
                     if (number, inner) in chosen]
        if questions:
            kept.append({**paragraph, "qas": questions})
    tree["data"] = [{"title": "chosen", "paragraphs": kept}]
    target.write_text(json.dumps(tree, ensure_ascii=False), "utf-8")
    return target


def run_ours(overrides, output, processes):
    """Train with run_squad.py; returns scores and seconds."""
    rows = load_config(RECIPE, overrides, task="squad").run.micro_batch_size
    overrides = [*overrides, f"run.replicas={processes}",
                 f"run.micro_batch_size={rows // processes}"]
    words = [word for override in overrides for word in ("--set", override)]
    command = launcher(processes, output / "log") if processes > 1 else [sys.executable]
    start = time.perf_counter()
    done = subprocess.run([*command, "run_squad.py", "--config", RECIPE, "--output",
                           str(output / "ours"), *words], cwd=ROOT, env=environment())
    if done.returncode:
        raise InputError("run_squad.py", f"left with {done.returncode}", "see what it printed")
    seconds = time.perf_counter() - start
    result = json.loads((output / "ours" / "result.json").read_text("utf-8"))
    return {"processes": processes, "train_seconds": result["train_seconds"],
            "whole_seconds": seconds, "updates": result["step"],
            "exact_match": result["held_out"]["exact_match"], "f1": result["held_out"]["f1"]}


def run_torch(overrides, output):
    """Train with the plain torch loop; returns scores and seconds."""
    startup.prepare()  # here, for ours is started with what it leaves in the environment
    from run_squad import open_evaluation, open_training

    config = load_config(RECIPE, [*overrides, "data.sequences_per_row=1"], task="squad")
    config = load_config(RECIPE, [
        *overrides, "data.sequences_per_row=1",
        f"train.global_batch_size={config.train.global_batch_size * WINDOWS_PER_ROW}",
        f"run.micro_batch_size={config.run.micro_batch_size * WINDOWS_PER_ROW}"], task="squad")
    data = open_training(config)
    config = config.with_steps(len(data))
    loop = TorchLoop(config)
    start = time.perf_counter()
    losses = []
    for step in range(1, config.train.steps + 1):
        count = config.train.global_batch_size
        losses.append(loop.step(data.batch((step - 1) * count, count), step))
        if step % config.train.log_every == 0:
            print(f"torch: step {step}/{config.train.steps}  loss {losses[-1]:.3f}", flush=True)
    train_seconds = time.perf_counter() - start
    (output / "torch_losses.json").write_text(json.dumps(losses), "utf-8")
    folder = output / "torch"
    folder.mkdir(exist_ok=True)
    scores = open_evaluation(config, folder)(loop)
    return {"train_seconds": train_seconds, "whole_seconds": time.perf_counter() - start,
            "updates": config.train.steps, "exact_match": scores["exact_match"],
            "f1": scores["f1"]}


class TorchLoop:
    """``BertForQuestionAnswering`` with AdamW; takes the place of an engine in an evaluation."""

    is_main = True

    def __init__(self, config):
        """
        Args:
            config: a resolved squad ``Config``; its recipe and ``train.initial_weights`` are
                taken, and the head's first weights are those of our network.
        """
        import torch
        import transformers

        from training.run import open_network

        torch.manual_seed(config.train.seed)
        self.config = config
        self.model = transformers.BertForQuestionAnswering.from_pretrained(
            config.train.initial_weights,
            hidden_dropout_prob=config.model.hidden_dropout_prob,
            attention_probs_dropout_prob=config.model.attention_probs_dropout_prob)
        span = open_network(config).heads.span
        with torch.no_grad():
            self.model.qa_outputs.weight.copy_(torch.from_numpy(span.weight.numpy().T))
            self.model.qa_outputs.bias.copy_(torch.from_numpy(span.bias.numpy()))
        self.optimizer = self._make_optimizer(torch)

    def _make_optimizer(self, torch):
        train, groups = self.config.train, {True: [], False: []}
        for name, parameter in self.model.named_parameters():
            groups[not ("LayerNorm" in name or name.endswith("bias"))].append(parameter)
        return torch.optim.AdamW(
            [{"params": groups[True], "weight_decay": train.weight_decay},
             {"params": groups[False], "weight_decay": 0.0}],
            lr=train.learning_rate, betas=(train.beta1, train.beta2), eps=train.epsilon)

    def step(self, batch, step):
        """One update from a batch of a window a row; returns the loss."""
        import torch

        from training.schedules import learning_rate

        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, self.config.train)
        logits, labels = self._logits(batch), batch.labels
        loss = sum(torch.nn.functional.cross_entropy(
            scores, torch.from_numpy(labels[f"{end}_positions"][:, 0].astype(np.int64)))
            for end, scores in logits.items()) / 2
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.train.max_gradient_norm)
        self.optimizer.step()
        return loss.item()

    def _logits(self, batch):
        """Start and end scores, padding out of the question: the model's own loss takes it in."""
        import torch

        mask = torch.from_numpy(batch.sequence_id.astype(np.int64))
        found = self.model(torch.from_numpy(batch.input_ids.astype(np.int64)), mask,
                           torch.from_numpy(batch.token_type_ids.astype(np.int64)))
        outside = (1.0 - mask) * -1e4
        return {"start": found.start_logits + outside, "end": found.end_logits + outside}

    def collect(self):
        """As an engine's: the weights are at hand."""

    def share(self, value):
        """As an engine's, in one process."""
        return value

    def predict(self, batch):
        """As an engine's: arrays ``start_logits`` and ``end_logits``."""
        import torch

        self.model.eval()
        with torch.no_grad():
            return {f"{end}_logits": scores.numpy()
                    for end, scores in self._logits(batch).items()}


if __name__ == "__main__":
    sys.exit(run(main))
