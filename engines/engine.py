"""The interface of every engine: the training loop cannot tell them apart."""

from abc import ABC, abstractmethod


class Engine(ABC):
    """Computes steps of a network somewhere."""

    @abstractmethod
    def build(self, network, make_optimizer=None):
        """Take the network in.

        Args:
            network: from ``models.tasks``.
            make_optimizer: called with the network; None for inference.
        """

    @abstractmethod
    def step(self, batch, learning_rate, step):
        """One weight update from one global batch.

        Args:
            batch: a ``Batch`` whose weights sum to 1.
            learning_rate: of this update.
            step: its number, which seeds dropout together with ``train.seed``.

        Returns:
            dict of floats: the sums of the heads' ``loss`` and ``gradient_norm``.
        """

    @abstractmethod
    def evaluate(self, batch):
        """The sums of the heads' ``loss`` on a batch, without dropout or update."""

    @abstractmethod
    def state(self):
        """The optimizer's state as numpy arrays by name, independent of the engine."""

    @abstractmethod
    def load_state(self, arrays):
        """Take over what ``state`` returned, here or on another engine."""

    @abstractmethod
    def peak_flops(self):
        """FLOP/s that the machine reaches at best."""

    @abstractmethod
    def describe(self):
        """Lines for a reader: where each block sits and how a global batch is split."""
