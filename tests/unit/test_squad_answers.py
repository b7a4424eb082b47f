"""From logits to answers: n-best, probabilities, windows, null odds; and the oracle."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks import squad_oracle
from configs.command_line import run
from configs.data_schema import SquadConfig
from data.squad.answers import find_answers
from data.squad.features import make_features
from data.squad.questions import Answer, Question, QuestionFile, read_questions

FIXTURES = Path("tests/fixtures/squad")
ENGLISH = "data/vocabularies/bert_base_uncased.txt"
OPTIONS = SquadConfig(sequence_length=16, document_stride=4, max_query_length=4,
                       max_answer_length=3, n_best=5, cache="")


def ask(*contexts, impossible=False, options=OPTIONS):
    """A file of a question of two tokens on each context, and its features."""
    answers = () if impossible else (Answer(contexts[0].split()[0], 0),)
    questions = QuestionFile("made", contexts, tuple(
        Question(f"q{n}", "what ?", n, answers, impossible) for n in range(len(contexts))))
    return questions, make_features(questions, ENGLISH, True, options)


def zeros(features, length=16):
    return np.zeros((2, len(features.lengths), length), np.float32)


def test_best_answers_with_their_probabilities():
    questions, features = ask("one two three four")  # tokens in slots 4 to 7
    start, end = zeros(features)
    start[0, [4, 5, 6, 7]], end[0, [4, 5, 6, 7]] = [0.5, 3, 0, 0], [0, 0, 2, 4]
    start[0, :4] = end[0, :4] = 99  # question and special tokens are no answer
    answers = find_answers(questions, features, start, end, OPTIONS)
    assert answers.predictions == {"q0": "two three four"} and answers.null_odds == {}
    entries = answers.nbest["q0"]
    assert [entry["text"] for entry in entries] == [
        "two three four", "two three", "three four", "four", "two"]
    scores = np.array([7.0, 5, 4, 4, 3])
    assert [entry["probability"] for entry in entries] == pytest.approx(
        np.exp(scores) / np.exp(scores).sum())
    assert sum(entry["probability"] for entry in entries) == pytest.approx(1)
    assert entries[0] == {"text": "two three four", "start": 4, "end": 18, "start_logit": 3.0,
                          "end_logit": 4.0, "probability": pytest.approx(entries[0]["probability"])}


@pytest.mark.parametrize("n_best", [1, 2, 6])
def test_the_best_spans_are_those_of_a_search_through_all(n_best):
    random = np.random.default_rng(0)
    questions, features = ask(" ".join(f"t{n}" for n in random.permutation(90)[:10]))
    options = replace(OPTIONS, n_best=n_best)
    assert len(features.lengths) > 2
    start, end = random.normal(size=(2, len(features.lengths), 16)).astype(np.float32)
    found = find_answers(questions, features, start, end, options).nbest["q0"]
    context, best = questions.contexts[0], {}
    size, offset = features.context_bounds[1], 4
    for first, last in product(range(size), range(size)):
        if not 0 <= last - first < 3:
            continue
        holding = [(min(first - f, f + s - 1 - last), -w)
                   for w, (f, s) in enumerate(zip(features.window_first, features.window_size))
                   if f <= first and last < f + s]
        window = -max(holding)[1]
        shift = offset - features.window_first[window]
        text = context[features.context_starts[first]:features.context_ends[last]]
        score = start[window, first + shift] + end[window, last + shift]
        best[text] = max(best.get(text, -np.inf), score)
    expected = sorted(best, key=best.get, reverse=True)
    assert [entry["text"] for entry in found] == expected[:n_best]
    for entry in found:
        assert entry["start_logit"] + entry["end_logit"] == pytest.approx(best[entry["text"]])


def test_a_token_counts_in_the_window_with_most_context():
    questions, features = ask("a b c d e f g h i j k l m n")  # windows of 11: 0-10 and 4-13
    assert features.window_first.tolist() == [0, 4]
    start, end = zeros(features)
    start[0, 4 + 9] = end[0, 4 + 9] = 9  # j has one token behind it here,
    start[1, 4 + 9 - 4] = end[1, 4 + 9 - 4] = 1  # and four there
    start[1, 4 + 8 - 4] = end[1, 4 + 8 - 4] = 2
    answers = find_answers(questions, features, start, end, OPTIONS)
    assert answers.predictions["q0"] == "i"
    j = [entry for entry in answers.nbest["q0"] if entry["text"] == "j"]
    assert [entry["start_logit"] for entry in j] == [1]


def test_equal_texts_are_told_once():
    questions, features = ask("yes no yes")
    start, end = zeros(features)
    start[0, [4, 6]] = end[0, [4, 6]] = [4, 5]
    entries = find_answers(questions, features, start, end,
                           replace(OPTIONS, max_answer_length=1)).nbest["q0"]
    assert [entry["text"] for entry in entries] == ["yes", "no"]
    assert (entries[0]["start"], entries[0]["start_logit"]) == (7, 5)  # the better of the two


def test_null_odds_and_their_threshold():
    questions, features = ask("a b c d e f g h i j k l m n", impossible=True)
    start, end = zeros(features)
    start[:, 0] = end[:, 0] = [3, 2]  # the least of the windows counts: 4
    start[0, 5] = end[0, 5] = 1.5  # b: 3
    answers = find_answers(questions, features, start, end, OPTIONS)
    assert answers.null_odds == {"q0": 1.0} and answers.predictions == {"q0": ""}
    texts = [entry["text"] for entry in answers.nbest["q0"]]
    assert texts[:2] == ["", "b"] and len(texts) == OPTIONS.n_best + 1
    assert answers.nbest["q0"][0]["start"] is None
    assert answers.best_texts() == {"q0": "b"}
    ratio = answers.nbest["q0"][0]["probability"] / answers.nbest["q0"][1]["probability"]
    assert ratio == pytest.approx(np.exp(1.0))
    for threshold, text in ((0.99, ""), (1.0, "b")):
        options = replace(OPTIONS, null_threshold=threshold)
        assert find_answers(questions, features, start, end, options).predictions["q0"] == text
    must = find_answers(questions, features, start, end, OPTIONS, with_impossible=False)
    assert must.predictions == {"q0": "b"} and must.null_odds == {}


@pytest.mark.parametrize("impossible", [True, False])
def test_one_answer_and_none_at_all_are_no_crash(impossible):
    questions, features = ask("one", "", "\u200b", impossible=impossible)
    answers = find_answers(questions, features, *zeros(features), OPTIONS)
    assert answers.nbest["q0"][0]["text"] == "one"
    assert [entry["text"] for entry in answers.nbest["q1"]] == [""]
    assert answers.predictions == {"q0": "one", "q1": "", "q2": ""}
    assert answers.nbest["q1"][0]["probability"] == 1
    assert answers.best_texts() == {"q0": "one", "q1": "", "q2": ""}


def test_windows_without_logits_are_told():
    questions, features = ask("one two", "three four")
    start, end = zeros(features)
    start[1, 3] = np.nan
    with pytest.raises(ValueError, match="1 of 2 windows have no finite start logits, first wind"):
        find_answers(questions, features, start, end, OPTIONS)
    start[1, 3], start[1, 15], end[0, 9:] = 0, np.nan, np.nan  # padding may be anything
    assert len(find_answers(questions, features, start, end, OPTIONS).predictions) == 2


def test_files(tmp_path):
    questions, features = ask("Ångström é", "two", impossible=True)
    answers = find_answers(questions, features, *zeros(features), OPTIONS)
    answers.write(tmp_path)
    for name in ("predictions", "nbest", "null_odds"):
        assert json.loads((tmp_path / f"{name}.json").read_text("utf-8")) == getattr(answers, name)
        assert len(getattr(answers, name)) == 2
    assert "Ångström" in (tmp_path / "nbest.json").read_text("utf-8")
    (tmp_path / "v1").mkdir()
    replace(answers, null_odds={}).write(tmp_path / "v1")
    assert sorted(path.name for path in (tmp_path / "v1").iterdir()) == ["nbest.json",
                                                                         "predictions.json"]


@pytest.mark.parametrize("name, vocabulary, reasons", [
    ("squad_v1.1", ENGLISH, {}), ("squad_v2.0", ENGLISH, {}),
    ("xquad_zh", "data/vocabularies/bert_base_chinese.txt", {}),
    ("cmrc2018_trial", "data/vocabularies/bert_base_chinese.txt", {}),
    ("cmrc2018_dev", "data/vocabularies/ernie_1.0_zh.txt", {}),
    ("oddities", ENGLISH, {"inside a token": 14})])
def test_true_answers_come_back(name, vocabulary, reasons, tmp_path, capsys):
    output = tmp_path / "oracle.json"
    assert run(squad_oracle.main, [str(FIXTURES / f"{name}.json"), "--vocabulary", vocabulary,
                                   "--sequence-length", "512", "--output", str(output)]) == 0
    result = json.loads(output.read_text("utf-8"))
    assert result["reasons"] == reasons
    if not reasons:
        assert result["all"]["exact_match"] == result["all"]["f1"] == 100
    # A piece of a word: the tokens around it are what there is.
    assert all(entry["references"][0] in entry["predicted"] for entry in result["exceptions"])


def test_the_oracle_tells_answers_that_cannot_come_back():
    questions = read_questions(FIXTURES / "cmrc2018_trial.json")
    result = squad_oracle.check(questions, "data/vocabularies/bert_base_chinese.txt", True,
                                SquadConfig(sequence_length=384, cache=""), None)
    assert [(entry["id"], entry["reason"]) for entry in result["exceptions"]] == [
        ("TRIAL_422_QUERY_0", "no window")]
    assert result["has_text"]["exact_match"] == pytest.approx(100 * 15 / 16)
    lost = replace(questions, questions=(replace(
        questions.questions[0], answers=(Answer("nowhere", 0),)),))
    result = squad_oracle.check(lost, "data/vocabularies/bert_base_chinese.txt", True,
                                SquadConfig(cache=""), None)
    assert result["reasons"] == {"absent": 1} and result["has_text"]["questions"] == 0
