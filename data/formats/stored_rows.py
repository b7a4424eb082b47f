"""Ready-masked rows as files store them, their checks, and their order of text."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from configs.errors import InputError


@dataclass(frozen=True)
class StoredRows:
    """Rows of any format. A plain row is a packed one that holds one sequence.

    Tokens may stand in any order: ``sequence_id`` and ``position_ids`` tell that of the text.
    ``masked_positions`` count slots of the row as it is stored.
    """

    input_ids: np.ndarray
    """int ``[rows, sequence]``, masked already"""
    token_type_ids: np.ndarray
    """int ``[rows, sequence]``"""
    position_ids: np.ndarray
    """int ``[rows, sequence]``, from 0 in each sequence of a row"""
    sequence_id: np.ndarray
    """int ``[rows, sequence]``: 1 to k, 0 for padding"""
    masked_positions: np.ndarray
    """int ``[rows, predictions]``"""
    masked_ids: np.ndarray
    """int ``[rows, predictions]``: what stood there before it was masked"""
    is_prediction: np.ndarray
    """bool ``[rows, predictions]``, false where a row has fewer masked tokens"""
    pair_labels: np.ndarray
    """int ``[rows, k]``, by sequence"""
    has_sequence: np.ndarray
    """bool ``[rows, k]``, false where a row has fewer sequences"""

    def __len__(self):
        return len(self.input_ids)

    @property
    def widths(self):
        """Slots, predictions and sequences of a row.

        Raises:
            ValueError: the arrays do not agree about them.
        """
        arrays = self._arrays()
        widths = [{array.shape[1] for array in group}
                  for group in (arrays[:4], arrays[4:7], arrays[7:])]
        if max(map(len, widths)) > 1:
            raise ValueError(f"fields of {max(widths, key=len)} values where one number is due")
        return tuple(width for width, in widths)

    def take(self, numbers):
        """Some of the rows, in the order of ``numbers``."""
        return StoredRows(*(array[numbers] for array in self._arrays()))

    @classmethod
    def join(cls, parts):
        """The rows of several ``StoredRows`` of the same widths, end to end."""
        columns = zip(*(part._arrays() for part in parts))
        return cls(*(np.concatenate(column) for column in columns))

    def _arrays(self):
        return [getattr(self, field.name) for field in dataclasses.fields(self)]


@dataclass(frozen=True)
class MaskedText:
    """Rows in the order of the text, all ``[rows, sequence]``."""

    tokens: np.ndarray
    """int, masked; padding stands last"""
    labels: np.ndarray
    """int: what stood in place of each masked token, 0 elsewhere"""
    token_type_ids: np.ndarray
    position_ids: np.ndarray
    sequence_id: np.ndarray
    masked: np.ndarray
    """bool"""
    is_cls: np.ndarray
    """bool: the first token of each sequence"""

    @property
    def is_token(self):
        """bool, false for padding."""
        return self.sequence_id > 0

    @property
    def unmasked_tokens(self):
        """The tokens as they were before any was masked."""
        return np.where(self.masked, self.labels, self.tokens)


def in_text_order(rows):
    """Sequence after sequence, each from its [CLS] on, then padding.

    Args:
        rows: ``StoredRows`` that were checked.

    Returns:
        MaskedText.
    """
    length = rows.input_ids.shape[1]
    masked, labels = _spread_predictions(rows)
    key = rows.sequence_id.astype(np.int64) * length + rows.position_ids
    behind_all = length * (rows.has_sequence.shape[1] + 1)
    order = np.argsort(np.where(rows.sequence_id > 0, key, behind_all), axis=1, kind="stable")
    arrays = (rows.input_ids, labels, rows.token_type_ids, rows.position_ids, rows.sequence_id,
              masked, _is_cls(rows))
    return MaskedText(*(np.take_along_axis(array, order, axis=1) for array in arrays))


def check_rows(rows, path, numbers, tokenizer, vocabulary, type_vocab_size):
    """Refuse rows that are not what the config says, or whose fields contradict one another.

    Args:
        rows: ``StoredRows`` of one file.
        path: the file, to be named.
        numbers: int ``[rows]``, which rows of the file they are, from 0.
        tokenizer: of the config's vocabulary.
        vocabulary: its path, to be named.
        type_vocab_size: token types that the network knows.

    Raises:
        InputError: naming the file, the row and what is wrong.
    """
    def refuse(is_bad, problem, mend):
        if is_bad.any():
            raise InputError(f"{path}, row {numbers[is_bad.argmax()]}", problem, mend)

    other_vocabulary = f"set model.vocabulary to the one that the files were made with, " \
                       f"{vocabulary} is another"
    damaged = "make the file again"
    predicted = np.where(rows.is_prediction, rows.masked_ids, 0)
    refuse(_outside(rows.input_ids, len(tokenizer)) | _outside(predicted, len(tokenizer)),
           f"an id outside the vocabulary's {len(tokenizer)} tokens", other_vocabulary)
    refuse((_is_cls(rows) & (rows.input_ids != tokenizer.cls)).any(axis=1),
           f"a sequence that does not start with [CLS], {tokenizer.cls}", other_vocabulary)
    refuse(_outside(rows.token_type_ids, type_vocab_size),
           f"a segment id outside model.type_vocab_size, {type_vocab_size}",
           "raise model.type_vocab_size")
    refuse(_outside(rows.position_ids, rows.input_ids.shape[1]),
           "a position beyond the row", damaged)
    refuse(_numbered_wrongly(rows), "sequences that are not numbered from 1, each with one "
           "position 0", damaged)
    refuse(_outside(rows.pair_labels, 2), "a next-sentence label that is not 0 or 1", damaged)
    refuse(_predicted_wrongly(rows), "a masked position twice, on [CLS] or on padding", damaged)


def _outside(array, limit):
    return ((array < 0) | (array >= limit)).any(axis=1)


def _is_cls(rows):
    return (rows.sequence_id > 0) & (rows.position_ids == 0)


def _numbered_wrongly(rows):
    depth = rows.has_sequence.shape[1]
    is_cls, has_sequence = _is_cls(rows), rows.has_sequence
    wrong = _outside(rows.sequence_id, depth + 1) | ~has_sequence[:, 0]
    for index in range(depth):
        is_own = rows.sequence_id == index + 1
        wrong |= is_own.any(axis=1) != has_sequence[:, index]
        wrong |= (is_own & is_cls).sum(axis=1) != has_sequence[:, index]
        # The i-th [CLS] goes to the i-th slot: a number left out would shift the labels.
        wrong |= has_sequence[:, index] & ~has_sequence[:, :index].all(axis=1)
    return wrong


def _predicted_wrongly(rows):
    length = rows.input_ids.shape[1]
    positions = rows.masked_positions
    wrong = (rows.is_prediction & ((positions < 0) | (positions >= length))).any(axis=1)
    masked, _ = _spread_predictions(rows)
    may_be_masked = (rows.sequence_id > 0) & ~_is_cls(rows)
    return (wrong | (masked & ~may_be_masked).any(axis=1)
            | (masked.sum(axis=1) != rows.is_prediction.sum(axis=1)))


def _spread_predictions(rows):
    """``masked`` and ``labels`` ``[rows, sequence]`` of the stored slots."""
    count, length = rows.input_ids.shape
    # Slots of no prediction, which point anywhere, go to a column that is cut off.
    slots = np.where(rows.is_prediction, rows.masked_positions.clip(0, length - 1), length)
    masked = np.zeros((count, length + 1), bool)
    labels = np.zeros((count, length + 1), rows.masked_ids.dtype)
    np.put_along_axis(masked, slots, True, axis=1)
    np.put_along_axis(labels, slots, rows.masked_ids, axis=1)
    return masked[:, :length], labels[:, :length]
