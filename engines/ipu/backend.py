"""Paddle's IPU classes, or the emulated ones in their place."""

from typing import Any, Callable, NamedTuple

import paddle
from paddle import static

from configs.errors import InputError
from engines.ipu.half import core


class Backend(NamedTuple):
    """What a compiled Program is made and run with."""

    strategy: Callable
    compiled_program: Callable
    executor: Any


def open_backend(device):
    """The classes for ``run.device``.

    Raises:
        InputError: ipu is asked for, and this Paddle or this machine has none.
    """
    if device == "ipu_model":
        from engines.ipu.emulator import EmulatedExecutor, EmulatedProgram, EmulatedStrategy

        return Backend(EmulatedStrategy, EmulatedProgram, EmulatedExecutor())
    check_hardware()
    return Backend(static.IpuStrategy, static.IpuCompiledProgram,
                   static.Executor(paddle.IPUPlace()))


def check_hardware():
    """Refuse where no IPU can be used."""
    mend = "write run.device: ipu_model to emulate them on the CPU, or add --dry-run to check only"
    if not paddle.is_compiled_with_ipu():
        raise InputError("run.device", "ipu asked for, but the installed Paddle was built without "
                         "IPUs", mend)
    if not core.get_ipu_device_count():
        raise InputError("run.device", "ipu asked for, but no IPU is attached", mend)
