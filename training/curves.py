"""Curves of runs as a picture: a panel for each metric, a colour for each run."""

from training.metrics import COST_KEYS
from training.runs import is_number

COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown",
          "tab:pink", "tab:olive", "tab:cyan", "black")
_COLUMNS = 2
_LABELS = {"samples": "samples", "seconds": "seconds of training", "tokens": "tokens",
           "step": "step"}
# A level to be compared with, drawn into the panel of the metric.
REFERENCES = {"mlm_loss": ("word_frequency_loss", "word frequencies")}


def metric_keys(runs):
    """Metrics that any of the runs tells, in a sensible order; of several losses not the sum."""
    hidden = {"step", "samples", *COST_KEYS, *(key for key, _ in REFERENCES.values())}
    found = dict.fromkeys(key for run in runs for split in (run.metrics, run.evaluations)
                          for line in split for key, value in line.items()
                          if key not in hidden and is_number(value)
                          and not (isinstance(value, int) and value == 0))  # an idle counter
    if any(key.endswith("_loss") for key in found):
        found.pop("loss", None)
    endings = ("loss", "accuracy")
    return sorted(found, key=lambda key: next(
        (place for place, ending in enumerate(endings) if key.endswith(ending)), len(endings)))


def draw_runs(runs, file, x="step"):
    """Draw runs together: training thin, held out thick, a level to compare with dashed.

    Args:
        runs: of ``training.runs``.
        file: path, or binary file, that a PNG is written to.
        x: of ``training.runs.POSITIONS``.
    """
    # Drawing is rare and its import slow.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = {}
    for key in metric_keys(runs):
        curves = [(run, color, split, *run.series(split, key)) for color, run in _colored(runs)
                  for split in ("metrics", "evaluations")]
        drawn[key] = [curve for curve in curves if curve[3]]
    drawn = {key: curves for key, curves in drawn.items() if curves}
    rows = max(1, -(-len(drawn) // _COLUMNS))
    figure = Figure(figsize=(11, 3.3 * rows + 0.3), layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(rows, _COLUMNS, squeeze=False).flat)
    for axes, (key, curves) in zip(panels, drawn.items()):
        _draw_panel(axes, key, curves, runs, x)
    for axes in panels[len(drawn):]:
        axes.set_axis_off()
    _draw_legend(figure, runs)
    figure.savefig(file, format="png", dpi=110)


def _colored(runs):
    return [(COLORS[number % len(COLORS)], run) for number, run in enumerate(runs)]


def _draw_panel(axes, key, curves, runs, x):
    for run, color, split, steps, values in curves:
        places = run.positions(x, steps)
        if split == "metrics":
            axes.plot(places, values, color=color, linewidth=0.8, alpha=0.6)
        else:
            axes.plot(places, values, color=color, linewidth=2.2, marker="o", markersize=4)
    _draw_reference(axes, key, runs)
    if key == "gradient_norm" and all(value > 0 for *_, values in curves for value in values):
        axes.set_yscale("log")
    axes.set_title(key.replace("_", " ") + (" (nats)" if key.endswith("loss") else ""),
                   fontsize="medium")
    axes.set_xlabel(_LABELS[x])
    axes.grid(alpha=0.3)


def _draw_reference(axes, key, runs):
    """The dashed level, once if it is the same for all runs."""
    reference, label = REFERENCES.get(key, (None, None))
    levels = {}
    for color, run in _colored(runs):
        for level in run.series("evaluations", reference)[1][-1:]:
            levels.setdefault(level, color)
    for number, (level, color) in enumerate(levels.items()):
        axes.axhline(level, color="gray" if len(levels) == 1 else color, linestyle="--",
                     linewidth=1, label=None if number else label)
    if levels:
        axes.legend(fontsize="small")


def _draw_legend(figure, runs):
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=color, label=run.name) for color, run in _colored(runs)]
    handles += [Line2D([], [], color="gray", linewidth=0.8, label="training"),
                Line2D([], [], color="gray", linewidth=2.2, marker="o", markersize=4,
                       label="held out")]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(6, len(handles)),
                  fontsize="small")
