"""Compare runs: curves together, a table, one HTML page.

``python -m training.report RUN [RUN …]`` reads run folders, finished or not, prints the table
and writes ``report.html``, which needs no other file, and its picture ``report.png``.
"""

import base64
import html
import io
import sys
from pathlib import Path

import numpy as np

from configs.command_line import Parser, run
from configs.errors import InputError
from training.curves import draw_runs, metric_keys
from training.metrics import show_count, show_seconds
from training.runs import POSITIONS, Run, is_number, read_runs

_MISSING = "–"
_WIDEST = 36  # characters of a cell on a terminal
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid #ccc; padding: .25rem .8rem; text-align: right }
th:first-child, td:first-child { text-align: left }
img { max-width: 100% }
div { overflow-x: auto }
"""


def main(argv=None):
    """Print the table, write page and picture; returns the rows of the table."""
    parser = Parser(prog="python -m training.report", description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run")
    parser.add_argument("--output", metavar="FOLDER",
                        help="where report.html and report.png go (default: the first run)")
    parser.add_argument("--x", choices=POSITIONS, default="step",
                        help="what the curves are drawn over; seconds are those of training")
    arguments = parser.parse_args(argv)
    runs, picture = read_runs(arguments.runs), io.BytesIO()
    rows, differences = table(runs), config_differences(runs)
    draw_runs(runs, picture, arguments.x)
    page = write_page(runs, rows, differences, picture.getvalue())
    output = Path(arguments.output or arguments.runs[0])
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / "report.png").write_bytes(picture.getvalue())
        (output / "report.html").write_text(page, "utf-8")
    except OSError as error:
        raise InputError(output, f"cannot be written ({error.strerror})",
                         "choose another --output") from None
    print(as_text([["run", *(run.name for run in runs)], *rows, *differences]))
    print(f"page: {output / 'report.html'}, picture: {output / 'report.png'}")
    return rows


def draw_curves(metrics, evaluations, path):
    """Draw the curves of one run while it goes on.

    Args:
        metrics: lines of ``metrics.jsonl``.
        evaluations: lines of ``evaluations.jsonl``.
        path: PNG file to write.
    """
    folder = Path(path).resolve().parent
    draw_runs([Run(folder, folder.name, {}, metrics, evaluations, {})], path)


def table(runs):
    """Rows of text, a property first and then a cell for each run."""
    chance = [_last(run, "evaluations", "word_frequency_loss") for run in runs]
    rows = [["steps", *map(_steps, runs)],
            ["samples", *(_cell(_last(run, "metrics", "samples"), "{:,}") for run in runs)],
            ["training time", *map(_training_time, runs)],
            ["sequences/s", *(_cell(_mean_rate(run, "sequences_per_second")) for run in runs)],
            ["tokens/s", *(_cell(_mean_rate(run, "tokens_per_second")) for run in runs)],
            ["MFU", *(_cell(_mean_rate(run, "mfu"), "{:.1%}") for run in runs)]]
    for key in metric_keys(runs):
        rows += _rows_of_metric(runs, key)
    rows.append(["word frequency loss", *(_cell(value, "{:.4f}") for value in chance)])
    return [row for row in rows if set(row[1:]) != {_MISSING}]


def _rows_of_metric(runs, key):
    """Held out: at the end and at best; else what the last line of training tells."""
    name = key.replace("_", " ")
    if not any(run.series("evaluations", key)[1] for run in runs):
        last = [_last(run, "metrics", key) for run in runs]
        return [[f"{name}, training", *(_cell(value, "{:.4g}") for value in last)]]
    last = [_last(run, "evaluations", key) for run in runs]
    return [[f"{name}, held out", *(_cell(value, "{:.4f}") for value in last)],
            [f"{name}, held out, best", *(_best(run, key) for run in runs)]]


def _steps(run):
    done, wanted = _last(run, "metrics", "step") or 0, run.config.get("train.steps")
    return f"{done:,} of {wanted:,}" if is_number(wanted) and done < wanted else f"{done:,}"


def _training_time(run):
    seconds = run.result.get("train_seconds")
    if is_number(seconds):
        return show_seconds(seconds)
    if run.metrics and "step_seconds" in run.metrics[-1]:
        return show_seconds(run.positions("seconds", [run.metrics[-1]["step"]])[0])
    return _MISSING


def _mean_rate(run, key):
    """The mean over time: what was done in all, by the seconds that it took."""
    if not run.metrics or not {key, "step_seconds"} <= run.metrics[-1].keys():
        return None
    steps = np.diff([0, *(line["step"] for line in run.metrics)])
    seconds = steps * run.column("step_seconds")
    return float(np.average(run.column(key), weights=seconds)) if seconds.sum() else None


def _last(run, split, key):
    values = run.series(split, key)[1]
    return values[-1] if values else None


def _best(run, key):
    """The lowest loss, the highest of anything else, and when."""
    steps, values = run.series("evaluations", key)
    if not values:
        return _MISSING
    sign = -1 if key.endswith(("loss", "perplexity")) else 1
    step, value = max(zip(steps, values), key=lambda pair: (pair[1] == pair[1], sign * pair[1]))
    return f"{value:.4f} at {step:,}"


def _cell(value, form=None):
    if value is None:
        return _MISSING
    return form.format(value) if form else show_count(value)


def config_differences(runs):
    """Rows of the config's keys that are not the same in all runs."""
    keys = dict.fromkeys(key for run in runs for key in run.config)
    rows = [[key, *(str(run.config[key]) if key in run.config else _MISSING for run in runs)]
            for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def as_text(rows):
    """Rows as aligned text, the first column to the left; of a long cell the end."""
    rows = [[cell if len(cell) <= _WIDEST else "…" + cell[1 - _WIDEST:] for cell in row]
            for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *(
        cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]) for row in rows)


def write_page(runs, rows, differences, picture):
    """The report as one HTML page without anything outside it.

    Args:
        runs, rows, differences: what to tell.
        picture: bytes of a PNG file.
    """
    names = [run.name for run in runs]
    title = html.escape("Runs " + ", ".join(names) if len(names) > 1 else f"Run {names[0]}")
    source = "data:image/png;base64," + base64.b64encode(picture).decode()
    parts = [f"<h1>{title}</h1>", _html_table([["", *names], *rows]),
             f'<img alt="curves of the runs" src="{source}">']
    if differences:
        parts += ["<h2>Where the recipes differ</h2>", _html_table([["", *names], *differences])]
    if len(runs) == 1:
        config = [[key, str(value)] for key, value in runs[0].config.items()]
        parts += ["<h2>The recipe</h2>", _html_table([["", names[0]], *config])]
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n")


def _html_table(rows):
    lines = []
    for number, row in enumerate(rows):
        tag = "td" if number else "th"
        lines.append("<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
                     + "</tr>")
    return "<div><table>\n" + "\n".join(lines) + "\n</table></div>"


if __name__ == "__main__":
    sys.exit(run(main))
