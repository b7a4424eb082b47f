"""The interface of every engine: the training loop cannot tell them apart."""

from abc import ABC, abstractmethod


class Engine(ABC):
    """Computes steps of a network somewhere, in one process or in several of which each
    calls everything in the same order."""

    is_main = True
    """Whether this process is the one that prints and writes files"""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        """Leave the run; several processes leave together where it ended for all."""

    @abstractmethod
    def build(self, network, make_optimizer=None):
        """Take the network in.

        Args:
            network: from ``models.tasks``, with its first weights.
            make_optimizer: called with the network; None for inference.
        """

    def read(self, data, consumed, count):
        """The rows of a global batch that this process computes: all of them.

        Args:
            data: has ``batch(consumed, count)``.
            consumed: rows before the batch.
            count: rows of the global batch.
        """
        return data.batch(consumed, count)

    @abstractmethod
    def step(self, batch, learning_rate, step):
        """One weight update from one global batch, or none where a number is not finite.

        Args:
            batch: what ``read`` returned; weights sum to 1 over the global batch.
            learning_rate: of this update.
            step: its number, which seeds dropout together with ``train.seed``.

        Returns:
            dict of floats: the sums of the heads' ``loss``, and ``gradient_norm``, which is
            not finite if the update was skipped; IPUs do not tell it.
        """

    @abstractmethod
    def evaluate(self, batch):
        """The sums of the heads' ``loss`` on a batch, without dropout or update."""

    @abstractmethod
    def predict(self, batch):
        """What the heads tell of a batch, without dropout, by the weights that ``collect`` got.

        Returns:
            arrays by name, as the heads' ``forward``; an empty dict but in the main process.
        """

    def share(self, value):
        """A value of the main process, in every process."""
        return value

    def agree(self, flag):
        """Whether any process says so; in one process, whether it does."""
        return flag

    def collect(self):
        """Bring the parameters of ``network`` up to date in the main process: they are."""

    @abstractmethod
    def state(self):
        """The optimizer's state as numpy arrays by name, independent of the engine."""

    @abstractmethod
    def load_state(self, arrays):
        """Take over what ``state`` returned, here or on another engine."""

    @abstractmethod
    def peak_flops(self):
        """FLOP/s that the machine reaches at best."""

    def check(self, batch, output):
        """Hold what would be computed against the rules of the device, without the device.

        Args:
            batch: rows of one micro batch.
            output: folder to write into what would be computed.

        Returns:
            Lines for a reader; none where every computation is allowed.

        Raises:
            InputError: the device would refuse it.
        """
        return []

    @abstractmethod
    def describe(self):
        """Lines for a reader: where each block sits and how a global batch is split."""
