"""Pickled weights without running what a pickle says.

A pickle is a program that may call anything it names. Here it may name only the few
functions that weights need, and even these are stand-ins of ours: nothing of numpy, torch
or paddle is ever called with arguments from a file.
"""

import collections
import pickle

import numpy as np

from configs.errors import InputError


class WeightsUnpickler(pickle.Unpickler):
    """Reads what numpy pickled.

    Args:
        file: binary file at the start of a pickle.
        place: what an error names, usually the file's path.
        allowed: more ``(module, name)`` pairs and what stands in for them.
    """

    def __init__(self, file, place, allowed=None):
        super().__init__(file, encoding="latin1")
        self.place = place
        self.allowed = {**_STAND_INS, **(allowed or {})}

    def find_class(self, module, name):
        """The stand-in of what the pickle names, or InputError."""
        # numpy 2 moved numpy.core to numpy._core; Python 2 called builtins __builtin__.
        key = (module.replace("._core", ".core").replace("__builtin__", "builtins"), name)
        if key not in self.allowed:
            raise InputError(self.place, f"refused: the pickle asks for {module}.{name}, "
                             "which weights have no need of", "take the file from its source "
                             "again, or a model.safetensors")
        return self.allowed[key]

    def load(self):
        """The object, or InputError for a refused or damaged pickle."""
        try:
            return super().load()
        except InputError:
            raise
        # A damaged pickle can raise nearly anything (see the pickle module's documentation).
        except Exception as error:
            raise InputError(self.place, f"damaged: {type(error).__name__}: {error}") from None


class _Array:
    """Stands in for ``numpy.ndarray``; its state is version, shape, dtype, order, bytes."""

    def __setstate__(self, state):
        _, shape, dtype, fortran_order, data = state
        if isinstance(data, str):
            data = data.encode("latin1")
        flat = np.frombuffer(data, dtype.value)
        self.value = flat.reshape(shape, order="F" if fortran_order else "C")


class _Dtype:
    """Stands in for ``numpy.dtype``: a code such as ``f4``, and a state with the byte order."""

    def __init__(self, code, *_):
        if str(code).lstrip("<>|=") not in ("f2", "f4", "f8", "i1", "i2", "i4", "i8",
                                            "u1", "u2", "u4", "u8", "b1"):
            raise ValueError(f"arrays of '{code}' are no weights")
        self.value = np.dtype(code)

    def __setstate__(self, state):
        if state[1] in ("<", ">"):
            self.value = self.value.newbyteorder(state[1])


def _reconstruct(*_):
    return _Array()


def _encode(text, encoding):
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"bytes in the encoding {encoding!r}")
    return text.encode("latin1")


_STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("_codecs", "encode"): _encode,
    ("builtins", "tuple"): tuple,
}


def array_of(value):
    """The numpy array that a stand-in holds, or None for anything else."""
    return value.value if isinstance(value, _Array) and hasattr(value, "value") else None
