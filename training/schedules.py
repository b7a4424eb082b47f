"""Learning rate of an update, as a function of its number alone."""

import math


def learning_rate(step, train):
    """Rise linearly to the peak, then go to the final rate as ``train.schedule`` says.

    Args:
        step: number of the update, from 1. Update ``train.warmup`` runs at the peak (Devlin
            et al. 2018, A.2), and the first one after the last of the schedule would run at
            ``train.final_learning_rate``, as every later one does.
        train: the ``train`` section.
    """
    peak, final = train.learning_rate, train.final_learning_rate
    if step <= train.warmup:
        return peak * step / train.warmup
    if train.schedule == "constant":
        return peak
    end = train.decay_steps or train.steps
    left, whole = max(end - step + 1, 0), end - train.warmup + 1
    if train.schedule == "linear":
        return (peak - final) * left / whole + final
    if train.schedule == "polynomial":
        return (peak - final) * (left / whole) ** train.decay_power + final
    # Half a cosine (Loshchilov and Hutter 2017, equation 5, one cycle).
    return (peak - final) * (1 + math.cos(math.pi * (1 - left / whole))) / 2 + final
