"""Questions and contexts as tokens, cut into windows: ``[CLS] question [SEP] context [SEP]``.

A context that is longer than its room is cut into overlapping windows (Devlin et al. 2018,
section 4.2; Google's ``run_squad.py``). Tokens are kept once for each context and question;
a window is a place in them.
"""

import hashlib
import os
import threading
import unicodedata
import zipfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from configs.errors import InputError
from data.tokenizer import WordPieceTokenizer

LAYOUT_VERSION = 1
"""Of the kept arrays; raise it when their meaning changes."""
UNKNOWN = -1
"""Label of a window whose answer is not known: it is not trained on."""
CONTEXTS_A_TASK = 1000

NOTICES = {
    "questions_cut": "questions are longer than data.max_query_length and were cut",
    "questions_blank": "questions are blank",
    "answers_repaired": "answers had a wrong offset; the text's nearest place was taken",
    "answers_lost": "answers do not occur in their context and cannot be learnt",
    "answers_blank": "answers are blank",
}


@dataclass(frozen=True)
class Features:
    """All windows of a file. Flat arrays of several parts come with ``bounds`` ``[parts + 1]``."""

    question_tokens: np.ndarray
    """int32, flat: ids of each question, cut to ``max_query_length``"""
    question_bounds: np.ndarray
    context_tokens: np.ndarray
    """int32, flat: ids of each context"""
    context_starts: np.ndarray
    """int32, flat: the character of the context that each token starts with"""
    context_ends: np.ndarray
    """int32, flat: the character behind each token and the marks that belong to it"""
    context_bounds: np.ndarray
    question_context: np.ndarray
    """int32 ``[questions]``"""
    window_question: np.ndarray
    """int32 ``[windows]``, ascending"""
    window_first: np.ndarray
    """int32 ``[windows]``: first token of the context in the window"""
    window_size: np.ndarray
    """int32 ``[windows]``: tokens of the context in the window"""
    window_start: np.ndarray
    """int32 ``[windows]``: place in the window of the answer's first token, 0 ([CLS]) where the
    window holds no whole answer, UNKNOWN where no answer is known"""
    window_end: np.ndarray
    """int32 ``[windows]``: likewise of its last token"""
    notices: np.ndarray
    """int32 ``[notices, 2]``: which of NOTICES, and the question"""

    @cached_property
    def context_offset(self):
        """int ``[windows]``: place in the window of its first context token."""
        return np.diff(self.question_bounds)[self.window_question] + 2

    @cached_property
    def lengths(self):
        """int ``[windows]``: tokens, special ones included."""
        return self.context_offset + self.window_size + (self.window_size > 0)

    def tokens(self, window):
        """Ids of the question and of the context's part, without special tokens."""
        question = self.window_question[window]
        first = self.context_bounds[self.question_context[question]] + self.window_first[window]
        begin, end = self.question_bounds[question:question + 2]
        return (self.question_tokens[begin:end],
                self.context_tokens[first:first + self.window_size[window]])

    def characters(self, window, first, last):
        """Where tokens ``first`` to ``last`` of a window stand in the context, ``(start, end)``."""
        question = self.window_question[window]
        base = (self.context_bounds[self.question_context[question]] + self.window_first[window]
                - self.context_offset[window])
        return int(self.context_starts[base + first]), int(self.context_ends[base + last])

    def lines(self, questions):
        """What a user should know about a file, a line for each kind of notice."""
        lines = [f"{questions.path}: {len(questions.questions):,} questions, "
                 f"{len(self.window_question):,} windows"]
        for number, text in enumerate(NOTICES.values()):
            which = self.notices[self.notices[:, 0] == number, 1]
            if len(which):
                lines.append(f"  {len(which):,} {text}, first at question "
                             f"{questions.questions[which[0]].id}")
        return lines

    def notice_counts(self):
        """How many there are of each of NOTICES, by name."""
        counts = np.bincount(self.notices[:, 0], minlength=len(NOTICES)).tolist()
        return dict(zip(NOTICES, counts))


def open_features(questions, vocabulary, lower_case, options, workers=None):
    """The features of a file, from ``options.cache`` if they are kept there, or made and kept.

    Args:
        questions: a ``QuestionFile``.
        vocabulary, lower_case: of the tokenizer.
        options: ``SquadConfig``.
        workers: processes that make them, None for every core; the result does not depend
            on it.

    Returns:
        Features.

    Raises:
        InputError: ``options`` contradict themselves, or the vocabulary cannot be read.
    """
    options.check()
    if not options.cache:
        return make_features(questions, vocabulary, lower_case, options, workers)
    digest = _digest(questions, vocabulary, lower_case, options)
    path = Path(options.cache) / f"features_{digest[:24]}.npz"
    features = _read(path)
    if features is None:
        features = make_features(questions, vocabulary, lower_case, options, workers)
        _keep(path, features)
    return features


def make_features(questions, vocabulary, lower_case, options, workers=None):
    """As ``open_features``, always made anew."""
    tasks = _tasks(questions, options)
    workers = min(workers or len(os.sched_getaffinity(0)), len(tasks))
    if workers == 1:
        return features_of(questions, WordPieceTokenizer(vocabulary, lower_case), options)
    WordPieceTokenizer(vocabulary, lower_case)  # so that a bad one is told here
    # Spawned, for a forked process would share the state of Paddle's threads.
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker,
                             (vocabulary, lower_case)) as pool:
        try:
            return _join(list(pool.map(_run_worker, tasks)))
        except BrokenProcessPool:
            raise InputError(questions.path, "a worker process was killed, perhaps for memory",
                             "free some, or give it fewer cores: taskset -c 0") from None


def features_of(questions, tokenizer, options):
    """As ``make_features``, in this process and with a tokenizer that is open."""
    return _join([_make_part(tokenizer, *task) for task in _tasks(questions, options)])


def _tasks(questions, options):
    """Contexts with their numbered questions and ``options``, some thousand at once."""
    by_context = [[] for _ in questions.contexts]
    for number, question in enumerate(questions.questions):
        by_context[question.context].append((number, question))
    return [(questions.contexts[start:start + CONTEXTS_A_TASK],
             by_context[start:start + CONTEXTS_A_TASK], options)
            for start in range(0, len(by_context), CONTEXTS_A_TASK)]


def _start_worker(vocabulary, lower_case):
    global _tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a process has one core
    _tokenizer = WordPieceTokenizer(vocabulary, lower_case)


def _run_worker(task):
    return _make_part(_tokenizer, *task)


def _make_part(tokenizer, contexts, questions_of_contexts, options):
    """Some contexts with their questions, as a dict of lists by the names of ``Features``."""
    part = {field.name: [] for field in fields(Features)}
    part["question_sizes"], part["context_sizes"] = [], []
    flat = [entry for entries in questions_of_contexts for entry in entries]
    encoded_questions = iter(tokenizer.encode_with_offsets(q.text for _, q in flat))
    encoded_contexts = tokenizer.encode_with_offsets(contexts)
    for context, (ids, offsets), entries in zip(contexts, encoded_contexts,
                                                questions_of_contexts):
        starts, ends = _token_bounds(context, offsets)
        _extend(part, context_tokens=ids, context_starts=starts, context_ends=ends,
                context_sizes=[len(ids)])
        for number, question in entries:
            tokens = next(encoded_questions)[0]
            _notice(part, number, questions_cut=len(tokens) > options.max_query_length,
                    questions_blank=not tokens)
            tokens = tokens[:options.max_query_length]
            _extend(part, question_tokens=tokens, question_sizes=[len(tokens)],
                    question_context=[question.context])
            answer = _answer_tokens(part, number, question, context, starts, ends)
            _add_windows(part, number, len(tokens), len(ids), answer, options)
    return {name: np.array(values, np.int32) for name, values in part.items()}


def _extend(part, **values):
    for name, more in values.items():
        part[name].extend(more)


def _notice(part, question, **found):
    for name, is_found in found.items():
        if is_found:
            part["notices"].append((list(NOTICES).index(name), question))


def _token_bounds(context, offsets):
    """int arrays ``[tokens]``: first character, and the one behind the last.

    The tokenizer drops accents that are characters of their own; they belong to the letter
    before them.
    """
    bounds = np.array(offsets, np.int64).reshape(-1, 2)
    starts, ends = bounds[:, 0], bounds[:, 1]
    if not context.isascii():
        for token in np.flatnonzero(ends < np.append(starts[1:], len(context))):
            end = ends[token]
            while end < len(context) and unicodedata.category(context[end]) in ("Mn", "Me", "Mc"):
                end += 1
            ends[token] = end
    return starts, ends


def _answer_tokens(part, number, question, context, starts, ends):
    """First and last token that hold some character of the first answer that can be found.

    Returns:
        ``(first, last)``, None for a question without an answer, or UNKNOWN.
    """
    found = []
    for answer in question.answers:
        place = answer.find(context)
        is_blank = not answer.text.strip()
        tokens = place and _tokens_between(starts, ends, *place)
        stripped = answer.text.strip()
        given = answer.start + len(answer.text) - len(answer.text.lstrip())
        _notice(part, number, answers_blank=is_blank, answers_lost=not is_blank and not tokens,
                answers_repaired=bool(tokens) and place != (given, given + len(stripped)))
        if tokens:
            found.append(tokens)
    if found:
        return found[0]
    return None if question.is_impossible else UNKNOWN


def _tokens_between(starts, ends, start, end):
    """First and last token with a character in ``start`` to ``end``; None if there is none."""
    first = int(np.searchsorted(ends, start, side="right"))
    last = int(np.searchsorted(starts, end, side="left")) - 1
    return (first, last) if first <= last else None


def _add_windows(part, number, question_size, context_size, answer, options):
    """All windows of a question, with the places of its answer in each."""
    room = options.sequence_length - options.SPECIAL_TOKENS - question_size
    count = 1 + max(0, -(-(context_size - room) // options.document_stride))
    for first in range(0, count * options.document_stride, options.document_stride):
        size = min(room, context_size - first)
        label = (0, 0)
        if answer == UNKNOWN:
            label = (UNKNOWN, UNKNOWN)
        elif answer and first <= answer[0] and answer[1] < first + size:
            label = [question_size + 2 + token - first for token in answer]
        _extend(part, window_question=[number], window_first=[first], window_size=[size],
                window_start=[label[0]], window_end=[label[1]])


def _join(parts):
    """The parts of a file as Features."""
    arrays = {name: np.concatenate([part[name].reshape(-1, 2) if name == "notices" else part[name]
                                    for part in parts]) for name in parts[0]}
    for name in ("question", "context"):
        sizes = arrays.pop(f"{name}_sizes")
        arrays[f"{name}_bounds"] = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return Features(**arrays)


def _digest(questions, vocabulary, lower_case, options):
    """Of all that decides the features."""
    digest = hashlib.sha256(Path(vocabulary).read_bytes())
    settings = (LAYOUT_VERSION, metadata.version("tokenizers"), lower_case,
                options.sequence_length, options.document_stride, options.max_query_length)
    digest.update(repr(settings).encode())
    for context in questions.contexts:
        digest.update(repr(context).encode("utf-8"))
    for question in questions.questions:
        digest.update(repr((question.text, question.context, question.answers,
                            question.is_impossible)).encode("utf-8"))
    return digest.hexdigest()


def _read(path):
    """Kept features, or None where there are none or they are broken."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return Features(**{field.name: arrays[field.name] for field in fields(Features)})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _keep(path, features):
    """Write features under a name of one's own, then let them appear whole.

    Several processes may do so at once: all have the same bytes to write.
    """
    partial = path.with_name(f"{path.name}.partial{os.getpid()}_{threading.get_ident()}")
    with suppress(OSError):  # a read-only or full disk keeps nothing
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as stream:
            np.savez(stream, **{field.name: getattr(features, field.name)
                                for field in fields(Features)})
        os.replace(partial, path)
    with suppress(OSError):
        partial.unlink()
