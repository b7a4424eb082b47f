"""The engine that a recipe and the way it was launched ask for."""

import os


def open_engine(config, is_dry=False):
    """An engine, not yet built.

    Args:
        config: the resolved ``Config``.
        is_dry: whether only to describe a run, for which IPUs need not be there.

    Several processes, as ``python -m paddle.distributed.launch`` starts them, are Fleet's; one
    process is the local engine, which computes the stages and replicas of a recipe in turn.

    Raises:
        InputError: the device is not there, or the processes do not fit the recipe.
    """
    if config.run.on_ipus:
        from engines.ipu.engine import IpuEngine

        return IpuEngine(config, is_dry)
    if processes() > 1:
        from engines.fleet import FleetEngine

        return FleetEngine(config)
    from engines.local import LocalEngine

    return LocalEngine(config)


def processes():
    """How many processes were launched together."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", 1))
