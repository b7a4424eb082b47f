"""Curves of a run as a picture."""


def draw_curves(metrics, evaluations, path):
    """Draw losses and accuracies over steps.

    Args:
        metrics: lines of ``metrics.jsonl``.
        evaluations: lines of ``evaluations.jsonl``.
        path: PNG file to write.
    """
    # Drawing is rare and its import slow.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    losses, accuracies = figure.subplots(1, 2)
    _draw(losses, metrics, evaluations, "loss", "loss (nats)")
    if evaluations:
        losses.axhline(evaluations[-1]["word_frequency_loss"], color="gray", linestyle="--",
                       label="word frequencies")
    _draw(accuracies, metrics, evaluations, "accuracy", "accuracy")
    losses.legend()
    accuracies.legend()
    figure.savefig(path, dpi=110)


def _draw(axes, metrics, evaluations, kind, label):
    for objective, color in (("mlm", "tab:blue"), ("nsp", "tab:orange")):
        key = f"{objective}_{kind}"
        if metrics and key in metrics[0]:
            axes.plot(*_series(metrics, key), color=color, alpha=0.4,
                      label=f"{objective}, training")
        if evaluations and key in evaluations[0]:
            axes.plot(*_series(evaluations, key), color=color, marker="o",
                      label=f"{objective}, held out")
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)


def _series(lines, key):
    return [line["step"] for line in lines], [line[key] for line in lines]
