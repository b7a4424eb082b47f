"""HDF5 files in the layout of NVIDIA's BERT, which PaddleNLP reads too.

See DeepLearningExamples, ``PyTorch/LanguageModeling/BERT/create_pretraining_data.py``.
"""

import contextlib

import h5py
import numpy as np

from configs.errors import InputError
from data.formats.stored_rows import StoredRows

PATTERNS = ("*.hdf5", "*.h5")

_BY_SLOT = ("input_ids", "input_mask", "segment_ids")
_BY_PREDICTION = ("masked_lm_positions", "masked_lm_ids")
_LABELS = "next_sentence_labels"


class HDF5Shard:
    """One file. It is opened anew for each reading, so that worker processes may share it."""

    sequences_per_row = 1

    def __init__(self, path):
        """Read the shapes alone.

        Raises:
            InputError: the file is cut, is no HDF5, lacks a dataset, or their shapes
                contradict one another.
        """
        self.path = path
        with self._open() as file:
            shapes = self._shapes(file)
        self.count, self.sequence_length = shapes["input_ids"]
        self.max_predictions = shapes["masked_lm_ids"][1]
        if not self.count:
            raise InputError(path, "no rows in it", "remove it or make it again")

    def __len__(self):
        return self.count

    def load(self, start, stop):
        """Rows ``start`` to ``stop``, as ``StoredRows``.

        Raises:
            InputError: the file cannot be read.
        """
        with self._open() as file:
            fields = {name: file[name][start:stop]
                      for name in (*_BY_SLOT, *_BY_PREDICTION, _LABELS)}
        shape = fields["input_ids"].shape
        return StoredRows(
            fields["input_ids"], fields["segment_ids"],
            np.broadcast_to(np.arange(shape[1]), shape), fields["input_mask"],
            fields["masked_lm_positions"], fields["masked_lm_ids"],
            # There are no weights: a free slot holds position 0, which is [CLS].
            fields["masked_lm_positions"] != 0,
            fields[_LABELS].reshape(-1, 1), np.ones((shape[0], 1), bool))

    @contextlib.contextmanager
    def _open(self):
        try:
            with h5py.File(self.path, "r") as file:
                yield file
        except (OSError, RuntimeError, KeyError) as error:
            raise InputError(self.path, f"no whole HDF5 file ({error})",
                             "copy or make it again") from None

    def _shapes(self, file):
        names = (*_BY_SLOT, *_BY_PREDICTION, _LABELS)
        missing = [name for name in names if not isinstance(file.get(name), h5py.Dataset)]
        if missing:
            raise InputError(self.path, f"no dataset {', '.join(missing)}",
                             f"make files with {', '.join(names)}")
        shapes = {name: file[name].shape for name in names}
        tables = [shapes[name] for name in (*_BY_SLOT, *_BY_PREDICTION)]
        if ({len(shape) for shape in tables} != {2} or len(set(tables[:3])) > 1
                or len(set(tables[3:])) > 1 or tables[0][0] != tables[3][0]
                or np.prod(shapes[_LABELS]) != tables[0][0]):
            raise InputError(self.path, f"shapes that do not belong together: {shapes}",
                             "make the file again")
        return shapes
