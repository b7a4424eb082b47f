"""Lines of metrics: appended to a JSON lines file and shown while a run goes on."""

import json
import os
import sys
from pathlib import Path

from tqdm import tqdm


class JsonLines:
    """A file with a JSON object a line, whose lines after a resume point can be dropped."""

    def __init__(self, path):
        self.path = Path(path)

    def append(self, line):
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")

    def read(self):
        """All whole lines; one cut short by a kill is left out."""
        if not self.path.exists():
            return []
        lines = []
        for text in self.path.read_text("utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                break
        return lines

    def keep_up_to(self, step):
        """Drop what a run wrote after the checkpoint that it is resumed from."""
        lines = [line for line in self.read() if line["step"] <= step]
        # Whole or not at all, for a kill may come at any moment.
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        os.replace(partial, self.path)


class Progress:
    """A bar on a terminal, plain lines elsewhere."""

    def __init__(self, steps, done):
        self.steps = steps
        self.bar = tqdm(total=steps, initial=done, unit="step",
                        disable=not sys.stderr.isatty())

    def advance(self):
        self.bar.update()

    def say(self, name, metrics):
        """Show a line of metrics."""
        shown = [f"{key} {_short(value)}" for key, value in metrics.items() if key != "step"]
        text = f"{name} {metrics['step']}/{self.steps}: " + ", ".join(shown)
        if self.bar.disable:
            print(text, flush=True)
        else:
            self.bar.write(text)

    def close(self):
        self.bar.close()


def _short(value):
    return f"{value:.4g}" if isinstance(value, float) else value
