"""Parts of a network computed in turn, alike in every split: dropout, recomputation, precision."""

import numpy as np
import paddle

# What a stage hands to the next one, in this order.
STREAM = ("hidden", "membership", "pooled")

_AMP_TYPES = {"fp16": "float16", "bf16": "bfloat16"}


class Parts:
    """The parts of a network, each with its own dropout seed."""

    def __init__(self, config, network):
        self.config, self.network = config, network
        self.parts = network.parts()

    def run(self, number, stream, step, micro_batch):
        """One part.

        Args:
            number: of the part in the network.
            stream: a dict of tensors, see the blocks.
            step: of the update.
            micro_batch: its number within the global batch, whatever replica computes it.

        Returns:
            What the part returns: the stream, or the heads' logits.

        Dropout follows from the seed of the run and these numbers, so it is the same in
        every split into stages and replicas, and in a run that was resumed.
        """
        part, is_training = self.parts[number], self.network.training
        if not is_training:
            return part.run(stream)
        seed = dropout_seed(self.config.train.seed, step, micro_batch, number)
        if self.config.run.recompute and part.name.startswith("layer."):
            return _recompute(part, stream, seed)
        paddle.seed(seed)
        return part.run(stream)

    def forward(self, stream, step=0, micro_batch=0):
        """All parts, from the inputs to the logits."""
        for number in range(len(self.parts)):
            stream = self.run(number, stream, step, micro_batch)
        return stream

    def precision(self):
        """A context in which forward passes compute as ``run.precision`` says."""
        name = _AMP_TYPES.get(self.config.run.precision)
        return paddle.amp.auto_cast(enable=name is not None, dtype=name or "float16")


def dropout_seed(*numbers):
    """A seed that depends on the numbers alone and differs between any two lists of them."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _recompute(part, stream, seed):
    """Keep a part's input alone, and compute the rest again in the backward pass."""
    from paddle.distributed.fleet.utils import recompute

    def run(hidden, membership):
        paddle.seed(seed)
        return part.run({**stream, "hidden": hidden, "membership": membership})["hidden"]

    # The seed is set in both passes, so no random state need be kept.
    hidden = recompute(run, stream["hidden"], stream["membership"], preserve_rng_state=False)
    return {**stream, "hidden": hidden}
