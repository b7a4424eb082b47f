"""What must be set before Paddle is imported: threads, the MKL path, memory reuse, versions.

Every entry point calls ``prepare`` once, before anything that imports Paddle.
"""

import ctypes
import os
import sys
import zlib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from configs.errors import InputError

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements.txt"
LOCK = "requirements.lock"
# Paddle's builds by the names of their packages; the last is another version (2.3 to 2.4).
PADDLE_BUILDS = ("paddlepaddle", "paddlepaddle-gpu", "paddlepaddle-ipu")
_NEW_MODE = "FLAGS_enable_pir_api"

# glibc's mallopt parameters (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4

_prepared = None


def prepare(threads=None, on_ipus=False):
    """Set this process up for Paddle on a CPU and print one line about it.

    Args:
        threads: CPU threads; None takes every core that the process may run on, or its share
            where several were launched together, unless OMP_NUM_THREADS is set already.
        on_ipus: whether IPUs, real or emulated, compute: their backend reads legacy Programs
            only, and comes with another version of Paddle.

    Raises:
        InputError: a package of another version than requirements.txt allows, or another
            thread count asked for after Paddle was started.
    """
    global _prepared
    if _prepared is not None:
        if threads not in (None, _prepared):
            raise InputError("run.threads", f"{threads} asked for, but Paddle already runs with "
                             f"{_prepared}", "start a new process")
        if on_ipus and os.environ.get(_NEW_MODE) != "0":
            raise InputError("run.device", "IPUs need Paddle in its legacy mode, but it already "
                             "runs in its new one", "start a new process")
        return
    if "paddle" in sys.modules:
        raise RuntimeError("engines.startup.prepare() must come before the import of paddle")
    _check_versions(on_ipus)
    if on_ipus:
        os.environ[_NEW_MODE] = "0"
        # Paddle 2.6 carries a zlib of its own, which crashes Python's unless that came first.
        zlib.compress(b"")
    threads = threads or int(os.environ.get("OMP_NUM_THREADS", 0)) or _share_of_cores()
    os.environ["OMP_NUM_THREADS"] = str(threads)
    path = _choose_mkl_path()
    # With views, Paddle copies each transposed tensor by a kernel several times slower than
    # its transpose; attention takes twice as long.
    os.environ.setdefault("FLAGS_use_stride_kernel", "0")
    # Fleet's processes would note each of their connections.
    os.environ.setdefault("GLOG_minloglevel", "1")
    _keep_freed_memory()
    _prepared = threads
    print(f"cpu: {threads} threads, MKL path {path}, paddle {_find_installed('paddlepaddle')[1]}",
          flush=True)


def is_first_process():
    """Whether this process writes and prints, of those that a launcher started together."""
    return os.environ.get("PADDLE_TRAINER_ID", "0") == "0"


def _share_of_cores():
    """Cores for each of the processes that Paddle's launcher started on this machine."""
    processes = os.environ.get("PADDLE_LOCAL_SIZE") or os.environ.get("PADDLE_TRAINERS_NUM", 1)
    return max(1, len(os.sched_getaffinity(0)) // int(processes))


def _check_versions(on_ipus):
    """IPU machines have Paddle, and what builds on it, in other versions or not at all."""
    for line in REQUIREMENTS.read_text("utf-8").splitlines():
        line = line.partition("#")[0].strip()
        if line and not (on_ipus and line.startswith("paddle")):
            _check_version(Requirement(line))


def _check_version(requirement):
    if requirement.marker and not requirement.marker.evaluate():
        return
    mend = f"run: pip install -r {LOCK}"
    name, version = _find_installed(requirement.name)
    if not version:
        raise InputError("requirements.txt", f"{name} is not installed", mend)
    fits = requirement.specifier.contains(version, prereleases=True)
    if not fits and name != "paddlepaddle-ipu":
        raise InputError("requirements.txt", f"{name} {version} is installed, but "
                         f"{requirement.specifier} is needed", mend)


def _find_installed(name):
    """A package and its version, None where it is missing; Paddle is found under any name."""
    for build in PADDLE_BUILDS if name == PADDLE_BUILDS[0] else (name,):
        try:
            return build, metadata.version(build)
        except metadata.PackageNotFoundError:
            continue
    return name, None


def _choose_mkl_path():
    """Paddle's wheel carries an MKL of 2019 that takes a slow path on AMD processors.

    Its debug variable picks the fast one: 7 is AVX-512, 5 is AVX2. On a processor without
    the instructions the wrong one crashes, so it is set by what the processor lists.
    """
    if "MKL_DEBUG_CPU_TYPE" not in os.environ:
        vendor, flags = processor()
        if vendor == "AuthenticAMD" and "avx512f" in flags:
            os.environ["MKL_DEBUG_CPU_TYPE"] = "7"
        elif vendor == "AuthenticAMD" and "avx2" in flags:
            os.environ["MKL_DEBUG_CPU_TYPE"] = "5"
    return os.environ.get("MKL_DEBUG_CPU_TYPE", "automatic")


def processor():
    """Vendor and instruction sets of the first processor; empty where /proc is missing."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "", []
    fields = {}
    for line in text.split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    return fields.get("vendor_id", ""), fields.get("flags", "").split()


def _keep_freed_memory():
    """Let glibc reuse the memory of freed tensors instead of giving it back at once.

    By default each tensor above some megabytes is mapped anew and its pages are zeroed on
    first touch, which costs several times the arithmetic of an elementwise operator.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2 ** 31 - 1)
