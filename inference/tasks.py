"""Text to rows and back, for each task; nothing here computes."""

import re
import threading
from typing import NamedTuple, Tuple

import numpy as np

from configs.data_schema import ClassifyConfig, SquadConfig
from configs.errors import InputError
from data.characters import has_half_a_pair
from data.classify.examples import Examples
from data.classify.features import make_features
from data.classify.predictions import describe_rows, softmax
from data.squad.answers import find_answers
from data.squad.features import features_of
from data.squad.questions import Question, QuestionFile

MASK = "[MASK]"
# As BERT's tokenizer parts them: a Chinese character is a word.
_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{_CHINESE}]|[^\\s{_CHINESE}]+")


class Piece(NamedTuple):
    """What stands in a row: a text, a pair of texts, or a window of one."""

    tokens: Tuple[int, ...]
    """Special tokens included"""
    first_size: int
    """Tokens of the first segment, the others are of the second"""
    masked: Tuple[int, ...] = ()
    """Places that are guessed"""


class Reading(NamedTuple):
    """One input, ready to be computed."""

    pieces: Tuple[Piece, ...]
    context: object = None
    """What ``answer`` needs to know of it"""


class Task:
    """From a record (a dict of texts) to pieces, and from their outputs to an answer."""

    fields = ("text",)
    """What a record must hold"""
    optional = ()
    """What it may hold"""
    bytes_at_once = 1 << 20
    """Of a long input, so that what is computed and not yet written stays small"""

    def __init__(self, tokenizer, max_tokens, settings=None):
        """
        Args:
            tokenizer: of the model.
            max_tokens: of a row, special tokens included.
            settings: of the task, as the exported folder keeps them: ``labels``, and
                ``segments``: 1 where the model cannot tell a second text from the first.
        """
        self.tokenizer, self.max_tokens, self.settings = tokenizer, max_tokens, settings or {}

    def check(self, record):
        """Raise InputError where a record is not what the task reads."""
        known = (*self.fields, *self.optional)
        if not isinstance(record, dict):
            raise InputError("record", "is no object", f"write {{\"{self.fields[0]}\": …}}")
        for name in self.fields:
            if name not in record:
                raise InputError(name, "is missing", f"a record holds {', '.join(known)}")
        for name in known:
            if name in record and not isinstance(record[name], str):
                raise InputError(name, "is no text", f"write \"{name}\": \"…\"")
            if has_half_a_pair(record.get(name, "")):
                raise InputError(name, "holds half of a surrogate pair", "write whole characters")

    def read(self, record):
        """The ``Reading`` of a record; raises InputError where it cannot be answered."""
        raise NotImplementedError

    def answer(self, reading, outputs):
        """The answer, a dict for JSON.

        Args:
            reading: what ``read`` returned.
            outputs: for each of its pieces, the arrays of the graph by name.
        """
        raise NotImplementedError

    def _read_texts(self, record):
        """A text, or a pair."""
        texts = [record["text"], record["pair"]] if "pair" in record else [record["text"]]
        return self._join(*self.tokenizer.encode(texts))

    def _join(self, first, second=()):
        """``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]``, cut to ``max_tokens``.

        Of a pair the longer text is cut first, as in BERT's ``run_classifier.py``.
        """
        if second and self.settings.get("segments") == 1:
            raise InputError("pair", "the model has one segment", "give single texts")
        room = self.max_tokens - (3 if second else 2)
        if not second:
            first = first[:room]
        elif len(first) + len(second) > room:
            half = room // 2
            keep = max(half, room - len(second)), max(room - half, room - len(first))
            first, second = first[:keep[0]], second[:keep[1]]
        tokens = (self.tokenizer.cls, *first, self.tokenizer.sep)
        more = (*second, self.tokenizer.sep) if second else ()
        return Piece((*tokens, *more), len(tokens))


class Embed(Task):
    """``embedding``: a unit vector; longer texts are cut."""

    def read(self, record):
        return Reading((self._join(self.tokenizer.encode([record["text"]])[0]),))

    def answer(self, reading, outputs):
        return {"embedding": outputs[0]["embedding"].tolist()}


class Encode(Task):
    """``tokens`` and ``hidden_states``, the encoder's vector for each; longer texts are cut."""

    optional = ("pair",)
    bytes_at_once = 1 << 16  # a few bytes become a vector

    def read(self, record):
        return Reading((self._read_texts(record),))

    def answer(self, reading, outputs):
        # An array, for lists of so many numbers take ten times its memory.
        return {"tokens": [self.tokenizer.tokens[token] for token in reading.pieces[0].tokens],
                "hidden_states": outputs[0]["hidden_states"]}


class Classify(Task):
    """``label`` and ``probabilities``, or ``score`` where the model tells a number."""

    optional = ("pair",)

    def read(self, record):
        return Reading((self._read_texts(record),))

    def answer(self, reading, outputs):
        logits, labels = outputs[0]["logits"], self.settings.get("labels")
        if not labels:
            return {"score": float(logits[0])}
        shares = softmax(logits)
        return {"label": labels[int(np.argmax(shares))],
                "probabilities": dict(zip(labels, shares.tolist()))}


class LabelWords(Task):
    """``words``, and for each its label in ``labels`` and its probability in ``probabilities``;
    white space parts words, and each Chinese character is one. Long texts are read in parts."""

    def __init__(self, tokenizer, max_tokens, settings=None):
        super().__init__(tokenizer, max_tokens, settings)
        self.options = ClassifyConfig(objective="tokens", labels=self.settings["labels"],
                                      sequence_length=max_tokens, cache="")
        self._lock = threading.Lock()  # the table of pieces that the tokenizer learns

    def read(self, record):
        words = split_words(record["text"])
        with self._lock:
            features = make_features(Examples("record", (words,), None, None), self.tokenizer,
                                     self.options)
        return Reading(tuple(self._join(tokens.tolist()) for tokens in features.first),
                       (words, features))

    def answer(self, reading, outputs):
        words, features = reading.context
        logits = [found["word_logits"][places]
                  for found, places in zip(outputs, features.word_places)]
        entry, = describe_rows(features, logits, self.options)
        return {"words": words, "labels": entry["labels"],
                "probabilities": entry["probabilities"]}


class FillMask(Task):
    """``tokens`` and ``probabilities``: for each [MASK] the likeliest words, best first."""

    def read(self, record):
        parts = self.tokenizer.encode(record["text"].split(MASK))
        if len(parts) == 1:
            raise InputError("text", f"no {MASK} in it", f"write {MASK} for the word to guess")
        tokens, masked = [self.tokenizer.cls, *parts[0]], []
        for part in parts[1:]:
            masked.append(len(tokens))
            tokens += [self.tokenizer.mask, *part]
        tokens.append(self.tokenizer.sep)
        if len(tokens) > self.max_tokens:
            raise InputError("text", f"{len(tokens)} tokens, but the model has "
                             f"{self.max_tokens} positions", "shorten the text")
        return Reading((Piece(tuple(tokens), len(tokens), tuple(masked)),))

    def answer(self, reading, outputs):
        # Rows beyond the vocabulary are padding of the table, not words.
        logits = outputs[0]["masked_lm_logits"][:, :len(self.tokenizer)]
        count = self.settings.get("count", 5)
        best = np.argsort(-logits, axis=1, kind="stable")[:, :count]
        shares = np.take_along_axis(softmax(logits), best, axis=1)
        return {"tokens": [[self.tokenizer.tokens[token] for token in row] for row in best],
                "probabilities": shares.tolist()}


class Answer(Task):
    """``answer`` with its ``score`` (probability among the best) and its place in the context,
    characters ``start`` to ``end``; a long context is read in overlapping windows."""

    fields = ("question", "context")

    def __init__(self, tokenizer, max_tokens, settings=None):
        super().__init__(tokenizer, max_tokens, settings)
        length = min(384, max_tokens)
        question = min(64, length // 4)
        self.options = SquadConfig(
            sequence_length=length, max_query_length=question,
            document_stride=min(128, length - question - 3), cache="")

    def read(self, record):
        for name in self.fields:
            if not record[name].strip():
                raise InputError(name, "is blank", "write some text")
        questions = QuestionFile("record", (record["context"],), (
            Question("0", record["question"], 0, (), None),))
        features = features_of(questions, self.tokenizer, self.options)
        pieces = tuple(self._window(*features.tokens(window))
                       for window in range(len(features.lengths)))
        return Reading(pieces, (questions, features))

    def _window(self, question, context):
        first = (self.tokenizer.cls, *question.tolist(), self.tokenizer.sep)
        second = (*context.tolist(), self.tokenizer.sep) if len(context) else ()
        return Piece((*first, *second), len(first))

    def answer(self, reading, outputs):
        questions, features = reading.context
        logits = np.full((2, len(outputs), self.options.sequence_length), np.nan, np.float32)
        for window, found in enumerate(outputs):
            for number, name in enumerate(("start_logits", "end_logits")):
                logits[number, window, :len(found[name])] = found[name]
        best = find_answers(questions, features, *logits, self.options,
                            self.settings.get("may_have_no_answer", False)).nbest["0"]
        if not best:
            return {"answer": "", "score": 1.0, "start": None, "end": None}
        return {"answer": best[0]["text"], "score": best[0]["probability"],
                "start": best[0]["start"], "end": best[0]["end"]}


TASKS = {"fill_mask": FillMask, "answer": Answer, "classify": Classify,
         "label_words": LabelWords, "embed": Embed, "encode": Encode}


def asked_as(task):
    """The task that a user names; which kind of label there is the checkpoint knows."""
    return "classify" if task == "label_words" else task


def split_words(text):
    """The words of a text, as a model that labels them reads it."""
    return _WORD.findall(text)
