"""Reading files of questions: what is taken, what is told, what is refused."""

import gzip
import json
from pathlib import Path

import pytest

from configs.errors import InputError
from data.squad.questions import Answer, Question, QuestionFile, read_questions

FIXTURES = Path("tests/fixtures/squad")


def entry(**changes):
    """A question as a file has it."""
    return {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 4}],
            **changes}


def tree(*entries, version="1.1"):
    paragraph = {"context": "Is it Ann?", "qas": list(entries)}
    return {"version": version, "data": [{"title": "t", "paragraphs": [paragraph]}]}


@pytest.fixture
def write(tmp_path):
    """Write bytes, text or a tree and return the path."""
    def write(content, name="data.json"):
        path = tmp_path / name
        if isinstance(content, dict) or isinstance(content, list):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path
    return write


@pytest.mark.parametrize("name, contexts, questions, impossible", [
    ("squad_v1.1", 10, 49, 0), ("squad_v2.0", 9, 87, 45), ("oddities", 60, 367, 0),
    ("xquad_zh", 5, 29, 0), ("cmrc2018_trial", 4, 16, 0), ("cmrc2018_dev", 6, 25, 0)])
def test_real_files(name, contexts, questions, impossible):
    file = read_questions(FIXTURES / f"{name}.json")
    assert (len(file.contexts), len(file.questions)) == (contexts, questions)
    assert sum(question.is_impossible for question in file.questions) == impossible
    assert file.has_impossible == (impossible > 0)
    file.check_answers()


def test_a_question_as_it_stands(write):
    path = write(tree(entry(), entry(id=2, answers=[], is_impossible=True), version="v2.0"))
    file = read_questions(path)
    assert file == QuestionFile(str(path), ("Is it Ann?",), (
        Question("q1", "Who?", 0, (Answer("Ann", 4),), False),
        Question("2", "Who?", 0, (), True)))


def test_the_first_layout_of_cmrc_has_answers_without_a_place(write):
    passage = {"context_id": "T_0", "title": "t", "context_text": "答案在这里，不在那里。",
               "qas": [{"query_id": "T_0_Q_0", "query_text": "在哪里？", "answers": ["这里", "那里"]}]}
    file = read_questions(write([passage]))
    assert file.contexts == (passage["context_text"],)
    assert file.questions == (
        Question("T_0_Q_0", "在哪里？", 0, (Answer("这里", -1), Answer("那里", -1)), False),)
    assert [answer.find(passage["context_text"])
            for answer in file.questions[0].answers] == [(3, 5), (8, 10)]
    del passage["qas"][0]["query_text"]
    with pytest.raises(InputError, match=r'\[0\]\.qas\[0\]: no "query_text"'):
        read_questions(write([passage]))


def test_byte_order_mark_windows_lines_and_compression_change_nothing(write):
    text = json.dumps(tree(entry()), indent=1)
    plain = read_questions(write(text)).questions
    marked = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode("utf-8")
    assert read_questions(write(marked)).questions == plain
    assert read_questions(write(gzip.compress(marked), "data.json.gz")).questions == plain


@pytest.mark.parametrize("content, problem", [
    ([tree()["data"][0]], 'data.json: no list "data" at the top'),
    ({"version": "1.1"}, 'data.json: no list "data" at the top'),
    ({"data": []}, "data.json: no question in it"),
    ("", "data.json:1:1: broken JSON"),
    ('{"data": [{"paragraphs": [{"context": "a', "data.json:1:39: broken JSON"),
    (b'{"data": "\xff"}', "byte 10 is not UTF-8"),
    ({"data": [{"title": "x"}]}, 'data[0]: no "paragraphs"'),
    ({"data": [{"paragraphs": [{"qas": [entry()]}]}]}, 'data[0].paragraphs[0]: no "context"'),
    (tree(entry(), entry()), "qas[1]: the id q1 stands twice"),
    (tree(entry(answers=[{"text": "Ann"}])), 'qas[0].answers[0]: no "answer_start"'),
    (tree(entry(question=None)), 'qas[0]: "question" is of the wrong kind'),
    (tree(entry(question="wh\ud83d")), 'qas[0]: "question" holds half of a surrogate pair'),
    (tree(entry(id="\udc00")), 'qas[0]: "id" holds half of a surrogate pair'),
    ("[" * 100_000, "data.json: broken JSON (maximum recursion depth"),
    ('{"data": [' + "1" * 5000 + "]}", "data.json: "),
    (tree(entry(is_impossible=True)), "qas[0]: is marked as impossible and has an answer"),
])
def test_faults_are_told_with_their_place(content, problem, write):
    with pytest.raises(InputError) as error:
        read_questions(write(content))
    assert problem in str(error.value) and "data.json" in str(error.value)


def test_missing_file_is_told(tmp_path):
    with pytest.raises(InputError, match="nowhere.json: cannot be read"):
        read_questions(tmp_path / "nowhere.json")


def test_no_answer_is_unknown_in_version_1_and_none_in_version_2(write):
    for version, expected in (("1.1", None), ("v2.0", True)):
        file = read_questions(write(tree(entry(answers=[]), version=version)))
        assert file.questions[0].is_impossible is expected
    unanswered = {name: value for name, value in entry().items() if name != "answers"}
    file = read_questions(write(tree(unanswered, version="v2.0")))  # a test set
    assert file.questions[0].is_impossible is None
    with pytest.raises(InputError, match="question q1 has no answer and is not marked"):
        file.check_answers()


def test_a_contradicting_version_is_refused():
    with_impossible = read_questions(FIXTURES / "squad_v2.0.json")
    without = read_questions(FIXTURES / "squad_v1.1.json")
    assert with_impossible.check_version(None) and with_impossible.check_version(True)
    assert not without.check_version(None) and not without.check_version(False)
    with pytest.raises(InputError, match="holds questions without an answer"):
        with_impossible.check_version(False)
    with pytest.raises(InputError, match="holds an answer to every question"):
        without.check_version(True)
    untold = QuestionFile("test set", ("c",), (Question("q", "?", 0, (), None),))
    assert untold.check_version(True) and not untold.check_version(False)


@pytest.mark.parametrize("text, start, place", [
    ("one", 0, (0, 3)),
    ("one", 8, (8, 11)),  # right, though it stands elsewhere too
    ("one", 9, (8, 11)), ("one", 3, (0, 3)), ("one", 6, (8, 11)),  # off: the nearest
    ("one", -1, (0, 3)), ("one", 5000, (8, 11)),
    ("two", -1, (4, 7)),
    (" two ", 3, (4, 7)), ("two\n", 4, (4, 7)),  # white space around belongs to no answer
    ("three", 0, None), ("", 0, None), (" ", 3, None)])
def test_answers_are_found(text, start, place):
    assert Answer(text, start).find("one two one") == place
