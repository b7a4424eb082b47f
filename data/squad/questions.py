"""Files in the layout of SQuAD: v1.1, v2.0, XQuAD, CMRC 2018 and DRCD, plain or compressed.

CMRC 2018 also comes in a layout of its own, a list of passages, whose answers are texts alone.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Tuple

from configs.errors import InputError
from data.characters import has_half_a_pair
from data.sources.streams import read_blocks

LAYOUT = 'give a file {"version": …, "data": [{"paragraphs": [{"context": …, "qas": […]}]}]}'


@dataclass(frozen=True)
class Answer:
    """A stretch of a context."""

    text: str
    start: int
    """Offset in characters as the file has it; it may be wrong."""

    def find(self, context):
        """The characters ``(start, end)`` that the answer stands at, without white space around.

        Where the offset is wrong, the nearest place of the text; None where it stands nowhere
        or is blank.
        """
        text = self.text.strip()
        start = self.start + len(self.text) - len(self.text.lstrip())
        if not text:
            return None
        if start < 0 or context[start:start + len(text)] != text:
            after = context.find(text, max(start, 0))
            before = context.rfind(text, 0, max(start, 0) + len(text))
            places = [place for place in (before, after) if place >= 0]
            if not places:
                return None
            start = min(places, key=lambda place: abs(place - start))
        return start, start + len(text)


@dataclass(frozen=True)
class Question:
    """A question about a context."""

    id: str
    text: str
    context: int
    """Number of its context in the file"""
    answers: Tuple[Answer, ...]
    """All references; none for a question without an answer or of unknown answer"""
    is_impossible: Optional[bool]
    """True if the context has no answer, None if the file does not tell the answer"""


@dataclass(frozen=True)
class QuestionFile:
    """What a file holds, in its order."""

    path: str
    contexts: Tuple[str, ...]
    questions: Tuple[Question, ...]

    @property
    def has_impossible(self):
        """Whether some question has no answer, as in SQuAD v2.0."""
        return any(question.is_impossible for question in self.questions)

    def check_version(self, with_impossible):
        """Refuse a setting that contradicts the file.

        Args:
            with_impossible: whether the user says that questions may have no answer; None
                takes it from the file.

        Returns:
            What holds.

        Raises:
            InputError: the user says no, but there are questions without an answer; or says
                yes, but the answers are told and every question has one.
        """
        found = self.has_impossible
        told = all(question.is_impossible is not None for question in self.questions)
        if with_impossible is None or with_impossible == found or (with_impossible and not told):
            return found if with_impossible is None else with_impossible
        has = "questions without an answer (as SQuAD v2.0)" if found else \
            "an answer to every question (as SQuAD v1.1)"
        raise InputError(self.path, f"holds {has}, but the setting says otherwise",
                         "leave the setting out, or take the other file")

    def check_answers(self):
        """Raise InputError if the file does not tell some answer, as training and scoring need."""
        for question in self.questions:
            if question.is_impossible is None:
                raise InputError(
                    self.path, f"question {question.id} has no answer and is not marked as "
                    "impossible", 'write "is_impossible": true, or leave it out')


def read_questions(path):
    """Read a file.

    A question is impossible if it says so, or if it has no answer in a file of version 2.

    Args:
        path: JSON, UTF-8 with or without byte order mark; ``.gz``, ``.bz2``, ``.xz`` and
            ``.zst`` are unpacked.

    Returns:
        QuestionFile.

    Raises:
        InputError: the file cannot be read or is no such file, with the place; an id stands
            twice; a question has answers and says that it has none.
    """
    tree = read_json(path)
    is_version_2 = isinstance(tree, dict) and (
        str(tree.get("version", "")).lstrip("vV").startswith("2"))
    contexts, questions, ids = [], [], set()
    for place, paragraph in _paragraphs(path, tree):
        for number, entry in enumerate(_field(place, paragraph, "qas", list)):
            question = _question(f"{place}.qas[{number}]", entry, len(contexts), is_version_2)
            if question.id in ids:
                raise InputError(f"{place}.qas[{number}]", f"the id {question.id} stands twice",
                                 "give every question an id of its own")
            ids.add(question.id)
            questions.append(question)
        contexts.append(_field(place, paragraph, "context", str))
    if not questions:
        raise InputError(path, "no question in it", LAYOUT)
    return QuestionFile(str(path), tuple(contexts), tuple(questions))


def read_json(path):
    """The tree of a JSON file, unpacked if its suffix says so.

    Raises:
        InputError: no such file, not UTF-8, or broken JSON, with line and column.
    """
    try:
        text = b"".join(read_blocks(Path(path))).decode("utf-8-sig")
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise InputError(path, f"byte {error.start} is not UTF-8", "convert it to UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}:{error.colno}", f"broken JSON ({error.msg})",
                         "copy the file again or mend it") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, deep nesting
        raise InputError(path, f"broken JSON ({error})", "copy the file again or mend it") from None


def _paragraphs(path, tree):
    if isinstance(tree, list) and any(
            isinstance(passage, dict) and "context_text" in passage for passage in tree):
        for number, passage in enumerate(tree):
            yield f"{path}: [{number}]", _of_cmrc(f"{path}: [{number}]", passage)
        return
    if not isinstance(tree, dict) or not isinstance(tree.get("data"), list):
        raise InputError(path, 'no list "data" at the top', LAYOUT)
    for number, article in enumerate(tree["data"]):
        place = f"{path}: data[{number}]"
        for inner, paragraph in enumerate(_field(place, article, "paragraphs", list)):
            yield f"{place}.paragraphs[{inner}]", paragraph


def _of_cmrc(place, passage):
    """The paragraph that a passage of CMRC 2018's first layout is, whose answers have no place."""
    return {"context": _field(place, passage, "context_text", str),
            "qas": [{"id": _field(f"{place}.qas[{number}]", entry, "query_id", (str, int)),
                     "question": _field(f"{place}.qas[{number}]", entry, "query_text", str),
                     "answers": [{"text": text, "answer_start": -1} for text in
                                 _field(f"{place}.qas[{number}]", entry, "answers", list)]}
                    for number, entry in enumerate(_field(place, passage, "qas", list))]}


def _question(place, entry, context, is_version_2):
    answers = tuple(
        Answer(_field(f"{place}.answers[{number}]", answer, "text", str),
               _field(f"{place}.answers[{number}]", answer, "answer_start", int))
        for number, answer in enumerate(_field(place, entry, "answers", list, [])))
    is_impossible = _field(place, entry, "is_impossible", bool, False)
    if is_impossible and answers:
        raise InputError(place, "is marked as impossible and has an answer",
                         "remove the mark or the answer")
    if not answers and not is_impossible:
        is_impossible = True if is_version_2 and "answers" in entry else None
    # DRCD numbers its questions, so an id may be a number.
    identity = _field(place, entry, "id", (str, int))
    return Question(str(identity), _field(place, entry, "question", str), context, answers,
                    is_impossible)


def _field(place, entry, name, kind, *default):
    if isinstance(entry, dict) and default and name not in entry:
        return default[0]
    if not isinstance(entry, dict) or not isinstance(entry.get(name), kind):
        problem = f'no "{name}"' if not isinstance(entry, dict) or name not in entry else \
            f'"{name}" is of the wrong kind'
        raise InputError(place, problem, LAYOUT)
    if isinstance(entry[name], str) and has_half_a_pair(entry[name]):
        raise InputError(place, f'"{name}" holds half of a surrogate pair', "write whole characters")
    return entry[name]
