"""A plan as a picture: the pipeline over time, memory bars, and the speed of other pods."""

import io
from pathlib import Path

from configs.files import write_whole
from engines.planner.hardware import MIB
from engines.planner.memory import KINDS, recomputes

COLORS = {"forward": "tab:blue", "recomputation": "tab:cyan", "backward": "tab:orange"}
LEGIBLE = 0.007  # share of the width that a number needs


def draw(plan, pods, path):
    """Draw a plan.

    Args:
        plan: the ``Plan``.
        pods: from ``search.scale``.
        path: file to write; its ending says which kind of picture.

    Raises:
        InputError: it cannot be written.
    """
    # Slow to import.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplot_mosaic([["pipeline", "pipeline"], ["memory", "pods"]])
    hours = "" if plan.hours is None else f"{plan.hours:.1f} h, "
    figure.suptitle(f"{plan.ipus} IPUs ({plan.ipu.name}): {plan.sequences_per_second:,.0f} "
                    f"sequences/s, {hours}{'fits' if plan.fits else 'does not fit'}")
    _draw_pipeline(axes["pipeline"], plan)
    _draw_memory(axes["memory"], plan)
    _draw_pods(axes["pods"], plan, pods)
    picture = io.BytesIO()
    figure.savefig(picture, format=Path(path).suffix[1:].lower(), dpi=110)
    write_whole(path, picture.getvalue())


def blocks(plan, micro_batches):
    """What each IPU does when, in one update of so many micro batches.

    In a cycle each stage works forward on one micro batch and backward on another; the next
    cycle begins when the busiest IPU is done and activations have moved.

    Returns:
        A list of (IPU, micro batch, kind, start, seconds).
    """
    steps, done, start = _steps(plan), [], 0.0
    for cycle in range(micro_batches + len(steps) - 1):
        ends = [start] * plan.placement.ipus_per_replica
        for number, (ipu, works) in enumerate(steps):
            if not 0 <= cycle - number < micro_batches:
                continue
            for kind, seconds in works:
                done.append((ipu, cycle - number, kind, ends[ipu], seconds))
                ends[ipu] += seconds
        start = max(ends) + plan.timing.exchange
    return done


def _steps(plan):
    """IPU and (kind, seconds) of each step through the pipeline and back."""
    stages, forward = plan.placement.stages, plan.timing.forward

    def back(stage):
        again = ([("recomputation", forward[stage.number])]
                 if recomputes(plan.config, plan.placement, stage) else [])
        return [*again, ("backward", 2 * forward[stage.number])]

    there = [(stage.ipu, [("forward", forward[stage.number])]) for stage in stages]
    there[-1][1].extend(back(stages[-1]))
    return there + [(stage.ipu, back(stage)) for stage in reversed(stages[:-1])]


def _draw_pipeline(axes, plan):
    shown = min(plan.timing.accumulation, 2 * len(plan.placement.stages) + 2)
    done = blocks(plan, shown)
    end = max(start + seconds for *_, start, seconds in done)
    for kind, color in COLORS.items():
        these = [block for block in done if block[2] == kind]
        axes.barh([ipu for ipu, *_ in these], [1e3 * seconds for *_, seconds in these],
                  left=[1e3 * start for *_, start, _ in these], color=color, label=kind,
                  edgecolor="white", linewidth=0.5)
    for ipu, number, kind, start, seconds in done:
        if seconds > LEGIBLE * end and kind != "recomputation":
            axes.text(1e3 * (start + seconds / 2), ipu, str(number), ha="center", va="center",
                      fontsize=6, color="white", clip_on=True)
    axes.set_yticks(range(plan.placement.ipus_per_replica))
    axes.invert_yaxis()
    axes.set_ylabel("IPU of a replica")
    axes.set_xlim(0, 1e3 * end)
    axes.set_xlabel("milliseconds")
    axes.set_title(f"an update of {shown} micro batches, numbered; the recipe adds up "
                   f"{plan.timing.accumulation} of them, {plan.timing.bubble_share:.1%} bubble")
    axes.legend(loc="lower right", fontsize=8)


def _draw_memory(axes, plan):
    numbers, floor = range(len(plan.memory)), [0.0] * len(plan.memory)
    for kind in KINDS:
        sizes = [kinds[kind] / MIB for kinds in plan.memory]
        axes.bar(numbers, sizes, bottom=floor, label=kind)
        floor = [below + size for below, size in zip(floor, sizes)]
    axes.axhline(plan.ipu.memory / MIB, color="black", linestyle="--",
                 label=f"{plan.ipu.memory / MIB:,.0f} MiB")
    axes.set_ylim(0, 1.1 * max(*floor, plan.ipu.memory / MIB))
    axes.set_xticks(list(numbers))
    axes.set_xlabel("IPU of a replica")
    axes.set_ylabel("MiB on the chip")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)


def _draw_pods(axes, plan, pods):
    points = [(ipus, point) for _, ipus, point in pods if not isinstance(point, str)]
    speeds = [point.sequences_per_second for _, point in points]
    ideal = [plan.sequences_per_second * ipus / plan.ipus for ipus, _ in points]
    axes.plot([ipus for ipus, _ in points], ideal, color="gray", linestyle="--",
              label="as many times as fast as IPUs")
    axes.plot([ipus for ipus, _ in points], speeds, marker="o", label="planned")
    axes.plot([plan.ipus], [plan.sequences_per_second], marker="*", markersize=14,
              linestyle="none", label="this recipe")
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(plan.ipu.pods), [str(ipus) for ipus in plan.ipu.pods])
    axes.set_yscale("log")
    axes.set_xlabel("IPUs")
    axes.set_ylabel("sequences/s")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
