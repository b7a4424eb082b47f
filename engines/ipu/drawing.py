"""The stages of a Program as a picture: who holds what, and what passes between IPUs."""

from engines.ipu.half import HALF, core, is_forward

_SIZES = {core.VarDesc.VarType.FP32: 4, HALF: 2, core.VarDesc.VarType.INT32: 4,
          core.VarDesc.VarType.BOOL: 1}
_MIB = 2 ** 20


def draw_stages(built, placement, path):
    """Draw forward stages from the left to the loss and backward stages to the right of it.

    A row is an IPU of one replica; a box tells parts, operators and weights, an arrow what one
    micro batch carries on.

    Args:
        built: the ``BuiltProgram``.
        placement: its ``Placement``.
        path: PNG file to write.
    """
    # Drawing is rare and its import slow.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    stages = placement.stages
    count = 2 * len(stages) - 1 if built.learning_rate else len(stages)
    figure = Figure(figsize=(2.1 * count + 1, 1.3 * placement.ipus_per_replica + 1.2),
                    layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    facts = stage_facts(built, placement)
    for position in range(count):
        stage = stages[min(position, 2 * len(stages) - 2 - position)]
        is_loss = position == len(stages) - 1
        _draw_box(axes, position, stage, facts[stage.number], position >= len(stages), is_loss)
        if position:
            before = stages[min(position - 1, 2 * len(stages) - 1 - position)]
            carried = facts[min(before.number, stage.number)]["carried"]
            axes.annotate("", (position - 0.42, stage.ipu), (position - 0.58, before.ipu),
                          arrowprops={"arrowstyle": "->", "color": "tab:red"})
            axes.text(position - 0.5, (stage.ipu + before.ipu) / 2, f"{carried / _MIB:.3g} MiB ",
                      fontsize=6, color="tab:red", ha="center", va="bottom")
    axes.set_xlim(-0.6, count - 0.4)
    axes.set_ylim(placement.ipus_per_replica - 0.4, -0.6)
    axes.set_yticks(range(placement.ipus_per_replica),
                    [f"IPU {number}" for number in range(placement.ipus_per_replica)])
    axes.set_xticks(range(count), [f"stage {number}" for number in range(count)])
    axes.set_title("one micro batch through the stages of a replica", fontsize=9)
    figure.savefig(path, dpi=110)


def stage_facts(built, placement):
    """For each stage: operators, bytes of weights, and bytes that go on to later stages."""
    block = built.main.global_block()
    facts = [{"operators": 0, "weights": 0, "carried": 0} for _ in placement.stages]
    weights, made, read = {p.name for p in block.all_parameters()}, {}, {}
    for operator in filter(is_forward, block.ops):
        stage = placement.stage_of(operator.attr("op_namescope").strip("/")).number
        facts[stage]["operators"] += 1
        for name in operator.input_arg_names:
            if name in weights:
                facts[stage]["weights"] += _bytes(block.var(name))
                weights.discard(name)
            read[name] = stage
        made.update(dict.fromkeys(operator.output_arg_names, stage))
    for name, first in made.items():
        for stage in range(first, read.get(name, first)):
            facts[stage]["carried"] += _bytes(block.var(name))
    return facts


def _bytes(variable):
    size = _SIZES.get(variable.desc.dtype(), 4)
    for length in variable.shape:
        size *= length
    return size


def _draw_box(axes, position, stage, facts, is_backward, is_loss):
    from matplotlib.patches import Rectangle

    from engines.stage_text import shorten

    color = "moccasin" if is_backward else "lightgreen" if is_loss else "lightblue"
    axes.add_patch(Rectangle((position - 0.42, stage.ipu - 0.38), 0.84, 0.76, facecolor=color,
                             edgecolor="black"))
    lines = [shorten(stage.parts).replace(", ", ",\n")]
    if is_backward:
        lines.append("backward")
    else:
        lines += [f"{facts['operators']} operators", f"{facts['weights'] / _MIB:.4g} MiB weights"]
        lines += ["and backward"] if is_loss else []
    axes.text(position, stage.ipu, "\n".join(lines), ha="center", va="center", fontsize=7)
