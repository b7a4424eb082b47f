"""``pytorch_model.bin`` without torch: the zip layout of torch 1.6, and the one before."""

import io
import math
import zipfile

import numpy as np

from configs.errors import InputError
from models.weights.bfloat16 import widen
from models.weights.files import read_bytes
from models.weights.restricted_pickle import WeightsUnpickler

# torch/serialization.py: what a file of before the zip layout starts with, as a pickle.
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C

DTYPES = {
    "FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2",
    "BFloat16Storage": "bfloat16", "LongStorage": "<i8", "IntStorage": "<i4",
    "ShortStorage": "<i2", "CharStorage": "<i1", "ByteStorage": "<u1", "BoolStorage": "|b1",
}


def read_torch_file(path):
    """Names and arrays of a state dict.

    Args:
        path: file that ``torch.save`` wrote.

    Returns:
        dict of name to numpy array.

    Raises:
        InputError: damaged, no state dict, or a pickle that asks for more than tensors.
    """
    data = read_bytes(path)
    state = _read_zip(path, data) if data[:2] == b"PK" else _read_legacy(path, data)
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict):
        raise InputError(path, "holds no state dict")
    return {str(name): value.to_array() for name, value in state.items()
            if isinstance(value, _Tensor)}


class _Storage:
    """The flat numbers behind tensors; in the old layout ``data`` follows them in the file."""

    def __init__(self, dtype, length):
        if dtype not in DTYPES.values():
            raise ValueError(f"a storage of '{dtype}'")
        self.dtype, self.length, self.data = dtype, length, None

    def fill(self, file):
        """Take the storage's bytes from a binary file."""
        size = self.length * (2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize)
        self.data = file.read(size)
        if len(self.data) < size:
            raise ValueError("the file is cut short")

    def to_array(self):
        """The numbers, bfloat16 as float32."""
        if self.dtype == "bfloat16":
            return widen(np.frombuffer(self.data, "<u2"))
        return np.frombuffer(self.data, self.dtype)


class _Tensor:
    """Stands in for ``torch._utils._rebuild_tensor_v2``: a view of a storage."""

    def __init__(self, storage, offset, shape, strides, *_):
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides))
        if min((offset, *shape, *strides)) < 0 or len(shape) != len(strides):
            raise ValueError("a tensor of negative size")
        if math.prod(shape) and last >= storage.length:
            raise ValueError("a tensor reaches beyond its storage")

    def __setstate__(self, state):
        raise ValueError("a tensor with a state")

    def to_array(self):
        """``shape`` numbers of the storage."""
        flat = self.storage.to_array()[self.offset:]
        strides = [stride * flat.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides)


class _TorchUnpickler(WeightsUnpickler):
    """Reads tensors; ``storage_of`` turns a persistent id into a ``_Storage``."""

    def __init__(self, file, place, storage_of):
        storages = {("torch", name): dtype for name, dtype in DTYPES.items()}
        super().__init__(file, place, {
            ("torch._utils", "_rebuild_tensor_v2"): _Tensor,
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
            **storages})
        self.storage_of = storage_of

    def persistent_load(self, persistent_id):
        """The storage that ``("storage", dtype, key, device, length, view)`` names."""
        _, dtype, key, _, length, *view = persistent_id
        if view and view[0] is not None:
            raise ValueError("a view of a storage")
        return self.storage_of(dtype, key, length)


def _read_zip(path, data):
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        pickled = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        program = io.BytesIO(archive.read(pickled))
    # A damaged archive can raise nearly anything, as a damaged pickle.
    except Exception as error:
        raise InputError(path, f"damaged, or not written by torch.save: {error}") from None
    folder = pickled.removesuffix("data.pkl")

    def storage_of(dtype, key, length):
        storage = _Storage(dtype, length)
        storage.fill(io.BytesIO(archive.read(f"{folder}data/{key}")))
        return storage

    return _TorchUnpickler(program, path, storage_of).load()


def _read_legacy(path, data):
    """A pickle each of magic number, version, system, object and the storages' keys; then
    each storage, its length as an int64 and its numbers."""
    file, storages = io.BytesIO(data), {}

    def storage_of(dtype, key, length):
        return storages.setdefault(key, _Storage(dtype, length))

    def read_object():
        return _TorchUnpickler(file, path, storage_of).load()

    if read_object() != LEGACY_MAGIC:
        raise InputError(path, "not written by torch.save")
    _version, _system, state, keys = (read_object() for _ in range(4))
    try:
        for key in keys:
            file.seek(8, io.SEEK_CUR)
            storages.pop(key).fill(file)
        if storages:
            raise ValueError("numbers of tensors are missing")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(path, f"damaged: {error}") from None
    return state
