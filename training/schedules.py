"""Learning rate of an update, as a function of its number alone."""


def linear_schedule(step, peak, warmup_steps, steps):
    """Rise linearly to ``peak``, then fall linearly to 0 (Devlin et al. 2018, A.2).

    Args:
        step: number of the update, from 1.
        peak: learning rate at the end of the warm-up.
        warmup_steps: updates of the rise; update ``warmup_steps`` runs at the peak.
        steps: updates of the run.
    """
    if step <= warmup_steps:
        return peak * step / warmup_steps
    return peak * (steps - step + 1) / (steps - warmup_steps + 1)
