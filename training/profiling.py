"""A trace of chosen steps: which operators ran when, and which cost most."""

import contextlib
import io
from pathlib import Path


class Profile:
    """Records the steps from the first to the last of ``train.profile`` with Paddle's profiler.

    Entered around a run, and told when a step begins and ends. It writes ``profile.json``
    (chrome://tracing and ui.perfetto.dev show it) and ``profile.txt``, a table of the costliest
    operators, after the last of the steps or when the run ends before. What comes between two
    of them, an evaluation or a checkpoint, is recorded too.
    """

    def __init__(self, steps, folder):
        """
        Args:
            steps: ``[first, last]``; empty records nothing.
            folder: to write to.
        """
        self.first, self.last = steps or (1, 0)
        self.folder = Path(folder)
        self._profiler = self._event = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def begin(self, step):
        """Start recording where a chosen step begins."""
        if not self.first <= step <= self.last:
            return
        # Rare, and a run without it is spared the import.
        from paddle import profiler

        if self._profiler is None:
            # By default it writes to ./profiler_log when it stops.
            self._profiler = profiler.Profiler(on_trace_ready=lambda _: None)
            self._profiler.start()
        self._event = profiler.RecordEvent(f"step {step}")
        self._event.begin()

    def end(self, step):
        """Stop after the last chosen step."""
        if self._event:
            self._event.end()
            self._event = None
        if step == self.last:
            self.close()

    def close(self):
        """Write what is recorded, if anything is."""
        if self._profiler is None:
            return
        recorded, self._profiler = self._profiler, None
        if self._event:  # the step failed
            self._event.end()
            self._event = None
        recorded.stop()
        recorded.export(str(self.folder / "profile.json"), format="json")
        (self.folder / "profile.txt").write_text(_table(recorded), "utf-8")


def _table(recorded):
    """Operators by the time that they took in all, costliest first."""
    from paddle.profiler import SortedKeys, SummaryView

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        recorded.summary(SortedKeys.CPUTotal, op_detail=False,
                         views=[SummaryView.ModelView, SummaryView.OperatorView,
                                SummaryView.UDFView])
    return text.getvalue()
