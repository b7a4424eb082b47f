"""Operators of our own for IPUs, in C++: optional, since plain ones compute the same.

``python -m engines.ipu.custom_ops FOLDER`` compiles them into FOLDER for the Paddle that runs
it; ``run.ipu_operators`` then names the library. Tying the look-up of the word embedding takes
none: PopART has the patterns (``engines/ipu/patterns.py``).
"""

import shutil
from importlib.util import find_spec
from pathlib import Path

from configs.errors import InputError

SOURCES = [str(path) for path in sorted(Path(__file__).parent.glob("*.cc"))]
NAME = "ipu_operators"


def build(folder):
    """Compile the operators with the system's C++ compiler; returns the path of the library.

    Raises:
        InputError: what compiles is missing.
    """
    for name, is_there in (("setuptools", find_spec("setuptools")), ("g++", shutil.which("g++"))):
        if not is_there:
            raise InputError(name, "is not installed, but compiles the operators", "install it")
    from paddle.utils import cpp_extension

    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    cpp_extension.load(name=NAME, sources=SOURCES, build_directory=str(folder))
    return next(folder.rglob(f"{NAME}*.so"))


def load(library):
    """Make Paddle know the operators of a library.

    Raises:
        InputError: it cannot be loaded.
    """
    from paddle.utils.cpp_extension import load_op_meta_info_and_register_op

    try:
        load_op_meta_info_and_register_op(str(Path(library).absolute()))
    except (OSError, RuntimeError) as error:
        raise InputError("run.ipu_operators", f"{library} cannot be loaded ({error})",
                         "compile it for this Paddle: python -m engines.ipu.custom_ops "
                         f"{Path(library).parent}") from None
