"""The folder of a run: what lies where, and whether a new run or a resumed one may use it."""

from pathlib import Path

from configs.errors import InputError
from configs.files import write_json, write_whole
from configs.load import load_config, to_yaml
from configs.schema import SECTIONS
from training.checkpoint import newest_checkpoint, remove_partial_checkpoints
from training.metrics import JsonLines
from training.report import draw_curves

# What may differ between the two halves of a resumed run: the machine, and these.
_FREE_KEYS = {"train": {"log_every", "evaluate_every", "save_every", "initial_weights",
                        "max_skipped_steps", "keep_last", "keep_every", "keep_best", "trackers",
                        "profile"},
              "data": {"directory", "sources"}}


class RunFolder:
    """Paths and files of a run."""

    def __init__(self, path):
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.metrics = JsonLines(self.path / "metrics.jsonl")
        self.evaluations = JsonLines(self.path / "evaluations.jsonl")

    def find_checkpoint(self, config, resume):
        """The checkpoint that a run of ``config`` goes on from, or None for a new run.

        Args:
            config: the resolved config.
            resume: whether to go on from the newest whole checkpoint, if there is one.

        Raises:
            InputError: the folder holds a run and ``resume`` is false, or its recipe differs.
        """
        written = self.path / "config.yaml"
        if written.exists():
            if not resume:
                raise InputError(self.path, "holds a run already",
                                 "add --resume or choose another --output")
            _check_same_recipe(load_config(written), config, written)
        return newest_checkpoint(self.checkpoints)

    def open(self, config, checkpoint):
        """Write ``config.yaml`` and drop the metrics of steps after the checkpoint."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / "config.yaml", to_yaml(config))
        step = int(checkpoint.name.rpartition("_")[2]) if checkpoint else 0
        self.metrics.keep_up_to(step)
        self.evaluations.keep_up_to(step)
        remove_partial_checkpoints(self.checkpoints)

    def evaluations_up_to(self, step):
        """Lines of the evaluations that a checkpoint of this step knows."""
        return [line for line in self.evaluations.read() if line["step"] <= step]

    def draw_curves(self):
        """Draw ``curves.png`` from the lines written so far."""
        draw_curves(self.metrics.read(), self.evaluations.read(), self.path / "curves.png")

    def write_result(self, result):
        """Write ``result.json``."""
        write_json(self.path / "result.json", result)


def _check_same_recipe(old, new, place):
    for section in SECTIONS:
        if section == "run":
            continue
        before, after = vars(getattr(old, section)), vars(getattr(new, section))
        for key in before:
            if before[key] != after[key] and key not in _FREE_KEYS.get(section, ()):
                raise InputError(place, f"the run was started with {section}.{key} "
                                 f"{before[key]}, not {after[key]}",
                                 "resume it unchanged or choose another --output")
