"""The kinds of ending that an entry point tells in one line."""


class InputError(Exception):
    """Bad input, told in one line: where it is, what is wrong, and the mend.

    Entry points print it and leave with exit code 2; ``--debug`` shows the traceback.
    """

    def __init__(self, place, problem, mend=None):
        self.place, self.problem, self.mend = str(place), problem, mend
        message = f"{place}: {problem}"
        if mend:
            message += f"; {mend}"
        super().__init__(" ".join(message.split()))

    def __reduce__(self):
        # So that one raised in a worker process arrives whole.
        return InputError, (self.place, self.problem, self.mend)


class Stopped(Exception):
    """A run that a signal asked to stop, and that saved its state first."""
