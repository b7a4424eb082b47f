"""A factor on the loss, so that small gradients survive float16 (Micikevicius et al. 2018)."""

import numpy as np


class LossScale:
    """One factor for the whole run, or one that follows overflows.

    A power of two changes no bit of a float32 gradient that is multiplied by it and then
    divided by it again.
    """

    FIRST, LARGEST = 2.0 ** 15, 2.0 ** 24
    GROWS_AFTER = 2000
    """Finite updates after which a dynamic scale doubles, as in the paper's section 3.2."""

    def __init__(self, value=None):
        """
        Args:
            value: the static factor; None follows overflows.
        """
        self.is_dynamic = value is None
        self.value = self.FIRST if self.is_dynamic else float(value)
        self.finite_updates = 0

    def update(self, is_finite):
        """Take note of an update that was done, or skipped because it was not finite."""
        if not self.is_dynamic:
            return
        if not is_finite:
            self.value, self.finite_updates = max(self.value / 2, 1.0), 0
            return
        self.finite_updates += 1
        if self.finite_updates % self.GROWS_AFTER == 0:
            self.value = min(self.value * 2, self.LARGEST)

    def state(self):
        """Arrays by name, for a checkpoint; a static factor has none."""
        if not self.is_dynamic:
            return {}
        return {"loss_scale": np.array([self.value, self.finite_updates])}

    def load_state(self, array):
        """Take over the array of ``state``; None, from a run with a static factor, is nothing."""
        if self.is_dynamic and array is not None:
            self.value, updates = array.tolist()
            self.finite_updates = int(updates)


def open_loss_scale(run):
    """The factor that ``run.precision`` and ``run.loss_scale`` ask for."""
    if run.loss_scale is None and run.precision != "fp16":
        return LossScale(1.0)
    return LossScale(run.loss_scale)
