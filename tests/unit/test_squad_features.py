"""Windows of questions: offsets, places of answers, strides, notices, and what is kept."""

import os
import re
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from configs.data_schema import SquadConfig
from configs.errors import InputError
from data.squad import features as module
from data.squad.features import UNKNOWN, Features, make_features, open_features
from data.squad.questions import Answer, Question, QuestionFile, read_questions
from data.tokenizer import WordPieceTokenizer

FIXTURES = Path("tests/fixtures/squad")
ENGLISH = "data/vocabularies/bert_base_uncased.txt"
CHINESE = "data/vocabularies/bert_base_chinese.txt"
PLAIN = SquadConfig(cache="")


def one(context, answer="", start=0, question="what ?", impossible=False):
    """A file of one question."""
    answers = () if impossible else (Answer(answer, start),)
    return QuestionFile("made", (context,), (Question("q", question, 0, answers, impossible),))


def windows_of(context, options=PLAIN, vocabulary=ENGLISH, lower_case=True, **question):
    return make_features(one(context, **question), vocabulary, lower_case, options)


def same(first, second):
    return all(np.array_equal(getattr(first, field.name), getattr(second, field.name))
               and getattr(first, field.name).dtype == getattr(second, field.name).dtype
               for field in fields(Features))


def plain(text, lower_case):
    """What BERT's tokenizer keeps of a text, in its own words (Devlin et al., tokenization.py)."""
    if lower_case:
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(c for c in text if unicodedata.category(c) != "Mn")
    return "".join(c for c in text if c not in "\0\ufffd" and not c.isspace()
                   and unicodedata.category(c)[0] != "C")


@pytest.mark.parametrize("name, vocabulary, lower_case", [
    ("oddities", ENGLISH, True), ("oddities", ENGLISH, False), ("oddities", CHINESE, True),
    ("xquad_zh", CHINESE, True), ("cmrc2018_dev", "data/vocabularies/ernie_1.0_zh.txt", True),
    ("squad_v1.1", ENGLISH, True)])
def test_tokens_stand_where_their_text_stands(name, vocabulary, lower_case):
    questions = read_questions(FIXTURES / f"{name}.json")
    found = make_features(questions, vocabulary, lower_case, PLAIN)
    tokenizer = WordPieceTokenizer(vocabulary)
    checked = 0
    for number, context in enumerate(questions.contexts):
        part = slice(*found.context_bounds[number:number + 2])
        starts, ends = found.context_starts[part], found.context_ends[part]
        assert (starts < ends).all() and (ends[:-1] <= starts[1:]).all()
        for token, start, end in zip(found.context_tokens[part], starts, ends):
            if token != tokenizer.unknown:
                piece = tokenizer.tokens[token]
                piece = piece[2:] if piece.startswith("##") and len(piece) > 2 else piece
                assert plain(context[start:end], lower_case) == piece, (context[start:end], piece)
                checked += 1
        gaps = np.ones(len(context) + 1, bool)
        for start, end in zip(starts, ends):
            gaps[start:end] = False
        # What no token covers is nothing to the tokenizer.
        assert not plain("".join(np.array(list(context))[gaps[:-1]]), lower_case)
    assert checked > 1000


@pytest.mark.parametrize("answer", [
    "Beyoncé", "Alpe\u0301", "İstanbul", "ΣΑΣ", "ﬁne", "Ａ１（二）", "two  spaces", "a\nb", "🎉x",
    "naïve\u200bword", "x\ufe0f", "中国", "½", "U.S.", "\u05e9\u05b8\u05c1\u05dc"])
@pytest.mark.parametrize("lower_case", [True, False])
def test_answers_of_odd_characters_are_cut_out_exactly(answer, lower_case):
    contexts = (f"so {answer} is", answer, f"\u200b é  {answer}, 😀 {answer}", f"(“{answer}”)\u3000é")
    questions = QuestionFile("made", contexts, tuple(
        Question(str(n), "what ?", n, (Answer(answer, context.rfind(answer)),), False)
        for n, context in enumerate(contexts)))
    for vocabulary in (ENGLISH, CHINESE):
        found = make_features(questions, vocabulary, lower_case, PLAIN)
        for n, context in enumerate(contexts):
            start, end = found.characters(n, found.window_start[n], found.window_end[n])
            assert context[start:end] == answer


def test_layout_of_a_window():
    found = windows_of("It was Ann who came.", answer="Ann", start=7, question="Who came?")
    tokenizer = WordPieceTokenizer(ENGLISH)
    question, context = found.tokens(0)
    assert tokenizer.decode(question) == "who came ?"
    assert tokenizer.decode(context) == "it was ann who came ."
    # [CLS] who came ? [SEP] it was ann
    assert (found.context_offset[0], found.window_start[0], found.window_end[0]) == (5, 7, 7)
    assert found.lengths.tolist() == [3 + 3 + 6]
    assert found.characters(0, 5, 7) == (0, 10)


def test_windows_slide_by_the_stride_and_know_their_answer():
    words = [f"w{n}" for n in range(10)]  # each of two tokens
    options = SquadConfig(sequence_length=17, document_stride=4, max_query_length=4, cache="")
    found = windows_of(" ".join(words), options, answer="w5 w6", start=15, question="a b")
    assert found.window_first.tolist() == [0, 4, 8]
    assert found.window_size.tolist() == [12, 12, 12]
    assert found.lengths.tolist() == [17, 17, 17]
    # Tokens 10 to 13; the first window holds only half of the answer.
    assert found.window_start.tolist() == [0, 10 - 4 + 4, 10 - 8 + 4]
    assert found.window_end.tolist() == [0, 13 - 4 + 4, 13 - 8 + 4]
    for window, start, end in zip((1, 2), found.window_start[1:], found.window_end[1:]):
        assert found.characters(window, start, end) == (15, 20)


def test_long_questions_are_cut_with_a_notice():
    question = "why " * 5000 + " " * 20000
    questions = one("because", "because", question=question)
    found = make_features(questions, ENGLISH, True, PLAIN)
    assert found.lengths.tolist() == [64 + 1 + 3]
    assert found.notice_counts()["questions_cut"] == 1
    assert "1 questions are longer than data.max_query_length" in found.lines(questions)[1]


def test_wrong_lost_and_blank_answers_are_told_and_decided():
    found = windows_of("one two one", answer="two", start=-1)
    assert found.notice_counts()["answers_repaired"] == 1
    assert found.characters(0, found.window_start[0], found.window_end[0]) == (4, 7)
    for text, notice in (("three", "answers_lost"), (" ", "answers_blank"),
                         ("\u200b", "answers_lost")):
        found = windows_of("one \u200b two", answer=text, start=4)
        counts = found.notice_counts()
        assert counts.pop(notice) == 1 and not any(counts.values())
        assert found.window_start.tolist() == found.window_end.tolist() == [UNKNOWN]


def test_the_first_answer_that_can_be_found_is_learnt():
    answers = (Answer("three", 0), Answer("two", 4), Answer("one", 0))
    questions = QuestionFile("made", ("one two",), (Question("q", "?", 0, answers, False),))
    found = make_features(questions, ENGLISH, True, PLAIN)
    assert found.characters(0, found.window_start[0], found.window_end[0]) == (4, 7)
    assert found.notice_counts()["answers_lost"] == 1


def test_no_answer_blank_question_and_empty_context():
    found = windows_of("one two", impossible=True, question=" ")
    assert found.window_start.tolist() == found.window_end.tolist() == [0]
    assert found.notice_counts()["questions_blank"] == 1
    found = windows_of("", impossible=True)
    assert found.window_size.tolist() == [0] and found.lengths.tolist() == [2 + 2]


@pytest.mark.parametrize("name, notices", [
    ("cmrc2018_dev", {"answers_repaired": 7, "answers_lost": 6}),
    ("cmrc2018_trial", {"answers_repaired": 5, "questions_blank": 2})])
def test_faults_of_cmrc_are_counted(name, notices):
    counts = make_features(read_questions(FIXTURES / f"{name}.json"), CHINESE, True,
                           PLAIN).notice_counts()
    assert {key: count for key, count in counts.items() if count} == notices


def test_workers_change_nothing(monkeypatch):
    questions = read_questions(FIXTURES / "oddities.json")
    alone = make_features(questions, ENGLISH, True, PLAIN, workers=1)
    monkeypatch.setattr(module, "CONTEXTS_A_TASK", 23)
    assert same(alone, make_features(questions, ENGLISH, True, PLAIN, workers=1))
    assert same(alone, make_features(questions, ENGLISH, True, PLAIN, workers=2))


def test_features_are_kept_by_what_they_are_made_of(tmp_path, monkeypatch):
    options = SquadConfig(cache=str(tmp_path / "cache"))
    questions = read_questions(FIXTURES / "squad_v1.1.json")
    first = open_features(questions, ENGLISH, True, options)
    files = os.listdir(options.cache)
    assert len(files) == 1 and re.fullmatch(r"features_[0-9a-f]{24}\.npz", files[0])
    made = []
    monkeypatch.setattr(module, "make_features",
                        lambda *arguments: made.append(1) or make_features(*arguments))
    assert same(open_features(questions, ENGLISH, True, options), first) and not made
    # Neither the file's name nor how answers are chosen matters.
    open_features(replace(questions, path="elsewhere"), ENGLISH, True,
                  replace(options, n_best=3, sequences_per_row=2))
    assert not made
    question = replace(questions.questions[0], text="else?")
    for arguments in [(questions, CHINESE, True, options), (questions, ENGLISH, False, options),
                      (questions, ENGLISH, True, replace(options, document_stride=64)),
                      (replace(questions, questions=(question, *questions.questions[1:])),
                       ENGLISH, True, options)]:
        open_features(*arguments)
    assert len(made) == 4 and len(os.listdir(options.cache)) == 5


def test_a_broken_cache_is_made_anew_and_one_that_cannot_be_written_does_without(tmp_path):
    options = SquadConfig(cache=str(tmp_path))
    questions = one("one two", "two", 4)
    first = open_features(questions, ENGLISH, True, options)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for broken in (whole[:len(whole) // 2], b"", b"not an archive"):
        path.write_bytes(broken)
        assert same(open_features(questions, ENGLISH, True, options), first)
        assert path.read_bytes() == whole and len(list(tmp_path.iterdir())) == 1
    nowhere = replace(options, cache=str(path / "below a file"))
    assert same(open_features(questions, ENGLISH, True, nowhere), first)


def test_several_may_write_the_cache_at_once(tmp_path):
    options = SquadConfig(cache=str(tmp_path))
    questions = read_questions(FIXTURES / "squad_v2.0.json")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: open_features(questions, ENGLISH, True, options),
                              range(8)))
    assert all(same(found[0], other) for other in found[1:])
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]


@pytest.mark.parametrize("changes, problem", [
    ({"max_query_length": 381}, "data.max_query_length"),
    ({"document_stride": 318}, "data.document_stride: 318 tokens, but a window has room for 317"),
    ({"document_stride": 0}, "data.document_stride: 0 is not positive"),
    ({"n_best": 0}, "data.n_best"), ({"max_answer_length": 0}, "data.max_answer_length")])
def test_contradicting_options_are_refused(changes, problem):
    with pytest.raises(InputError) as error:
        open_features(one("one", "one"), ENGLISH, True, replace(PLAIN, **changes))
    assert problem in str(error.value)
