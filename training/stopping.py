"""SIGTERM and SIGINT as a request to stop between two steps."""

import signal
import threading


class StopRequest:
    """While entered, a signal sets ``name``; a second SIGINT does what it always does.

    Not a second SIGTERM, for Paddle's launcher sends several within a second.
    """

    SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self):
        self.name = None
        self._before = {}

    def __enter__(self):
        # Only the main thread may set handlers; elsewhere nothing is caught.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self.SIGNALS}
            for number in self.SIGNALS:
                # Paddle's store takes a system call that a signal interrupts for a lost connection.
                signal.siginterrupt(number, False)
        return self

    def __exit__(self, *exception):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        self.name = signal.Signals(number).name
        if self._before:
            signal.signal(signal.SIGINT, self._before[signal.SIGINT])
