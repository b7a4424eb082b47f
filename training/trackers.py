"""Metrics shown by other programs: VisualDL, TensorBoard, Weights & Biases.

The JSON lines of the run folder are the record. Opening a tracker tells it every line written
so far, so a resumed run is one series, without the steps that a kill undid.
"""

import dataclasses
import shutil
from pathlib import Path

from configs.errors import InputError
from training.metrics import JsonLines

INSTALL = "pip install -r requirements-trackers.txt"
SPLITS = {"training": "metrics.jsonl", "held_out": "evaluations.jsonl"}


def open_trackers(names, folder, config):
    """The trackers of a run, each told what the folder's JSON lines hold.

    Args:
        names: keys of ``TRACKERS``.
        folder: the run's, whose JSON lines end at the step that the run goes on from.
        config: the resolved ``Config``.

    Raises:
        InputError: an unknown name, a package that is missing or that refuses to start.
    """
    trackers = []
    try:
        for name in names:
            trackers.append(_open(name, Path(folder), config))
    except BaseException:
        for tracker in trackers:
            tracker.close()
        raise
    return trackers


def _open(name, folder, config):
    if name not in TRACKERS:
        raise InputError("train.trackers", f"unknown tracker '{name}'",
                         f"known are {', '.join(TRACKERS)}")
    try:
        tracker = TRACKERS[name](folder, config)
    except ImportError as error:
        raise InputError("train.trackers", f"{name} cannot be imported ({error})",
                         f"run: {INSTALL}") from None
    for line, split in _written_lines(folder):
        tracker.log(line["step"], line, split)
    return tracker


def _written_lines(folder):
    """``(line, split)`` of both files in the order of their steps."""
    lines = [(line, split) for split, file in SPLITS.items()
             for line in JsonLines(folder / file).read()]
    return sorted(lines, key=lambda pair: pair[0]["step"])


def _named_numbers(metrics, split):
    """``{"training/loss": 7.1}``: numbers only, without the step itself."""
    return {f"{split}/{key}": float(value) for key, value in metrics.items()
            if key != "step" and isinstance(value, (int, float))}


class _Files:
    """A tracker of files in a folder of its own, which are written anew by every process."""

    def __init__(self, folder, config):
        writer_class = self._import()
        shutil.rmtree(folder / self.FOLDER, ignore_errors=True)
        self.writer = writer_class(logdir=str(folder / self.FOLDER))

    def log(self, step, metrics, split="training"):
        """Add the numbers of a line.

        Args:
            step: the update that they belong to.
            metrics: by name; what is no number is left out.
            split: ``training`` or ``held_out``, the group that a name is shown in.
        """
        for name, value in _named_numbers(metrics, split).items():
            self.writer.add_scalar(name, value, step)

    def close(self):
        """Write what is buffered."""
        self.writer.close()


class VisualDL(_Files):
    """``visualdl --logdir RUN/visualdl`` shows it."""

    FOLDER = "visualdl"

    @staticmethod
    def _import():
        from visualdl import LogWriter
        return LogWriter


class TensorBoard(_Files):
    """``tensorboard --logdir RUN/tensorboard`` shows it; written by tensorboardX."""

    FOLDER = "tensorboard"

    @staticmethod
    def _import():
        from tensorboardX import SummaryWriter
        return SummaryWriter


class WandB:
    """A run of Weights & Biases with its files in ``RUN/wandb``.

    Its own variables choose the rest: WANDB_MODE=offline (then ``wandb sync``), WANDB_PROJECT,
    WANDB_API_KEY. A resumed run goes on under the same id.
    """

    def __init__(self, folder, config):
        import wandb

        self._directory = folder / "wandb"
        self._directory.mkdir(exist_ok=True)
        online = wandb.setup().settings.mode == "online"
        try:
            self.run = wandb.init(dir=str(folder), id=self._id(wandb),
                                  resume="allow" if online else None,
                                  name=folder.resolve().name, config=dataclasses.asdict(config),
                                  settings=wandb.Settings(console="off", silent=True))
        except wandb.Error as error:
            raise InputError("train.trackers", f"wandb does not start ({error})",
                             "run wandb login, or set WANDB_MODE=offline") from None
        self._drop_older_offline_files()

    def _id(self, wandb):
        """The run's id, drawn once and kept in its folder."""
        file = self._directory / "run_id"
        if not file.is_file():
            file.write_text(wandb.util.generate_id() + "\n", "utf-8")
        return file.read_text("utf-8").strip()

    def _drop_older_offline_files(self):
        # All lines are told anew, so those of an earlier process would be there twice.
        if self.run.offline:
            for path in self._directory.glob(f"offline-run-*-{self.run.id}"):
                if path.resolve() != Path(self.run.dir).resolve().parent:
                    shutil.rmtree(path, ignore_errors=True)

    def log(self, step, metrics, split="training"):
        """As ``_Files.log``; a step that the server has already is left as it is there."""
        if step >= self.run.step:
            self.run.log(_named_numbers(metrics, split), step=step)

    def close(self):
        """Send or write what is buffered."""
        self.run.finish()


TRACKERS = {"visualdl": VisualDL, "tensorboard": TensorBoard, "wandb": WandB}
