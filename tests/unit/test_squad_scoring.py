"""Scores of predicted answers, against values of the official scripts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import score_squad
from configs.command_line import run
from configs.errors import InputError
from data.squad import scoring
from data.squad.questions import Answer, Question, QuestionFile, read_questions

FIXTURES = Path("tests/fixtures/squad")


def load(name):
    return json.loads((FIXTURES / name).read_text("utf-8"))


def one(*references, impossible=False):
    """A file of one question."""
    answers = tuple(Answer(text, 0) for text in references)
    return QuestionFile("made", ("",), (Question("q", "?", 0, answers, impossible),))


def pair(prediction, *references, rules="squad"):
    result = scoring.score(one(*references), {"q": prediction}, rules)
    return result["exact_match"], result["f1"]


# evaluate-v1.1.py on the fixtures.
@pytest.mark.parametrize("system, exact, f1, missing", [
    ("bert_ensemble", 87.75510204081633, 93.51997209140067, 0),
    ("match_lstm", 71.42857142857143, 79.02668759811617, 0),
    ("logistic_regression", 42.857142857142854, 60.267374349007, 1)])
def test_published_predictions_score_as_the_script_of_v1_says(system, exact, f1, missing):
    result = scoring.score(read_questions(FIXTURES / "squad_v1.1.json"),
                           load("predictions_v1.1.json")[system])
    assert result["exact_match"] == pytest.approx(exact)
    assert result["f1"] == pytest.approx(f1)
    assert (result["questions"], result["missing"], result["unknown"]) == (49, missing, 0)
    assert "has_answer" not in result


def test_published_predictions_score_as_the_script_of_v2_says():
    # transformers 4.44.2, squad_evaluate, which is evaluate-v2.0.py.
    result = scoring.score(read_questions(FIXTURES / "squad_v2.0.json"),
                           load("predictions_v2.0.json")["bidaf_elmo"])
    assert result["exact_match"] == pytest.approx(57.47126436781609)
    assert result["f1"] == pytest.approx(59.45083014048531)
    assert result["has_answer"] == {"exact_match": pytest.approx(59.523809523809526),
                                    "f1": pytest.approx(63.62433862433862), "questions": 42}
    assert result["no_answer"] == {"exact_match": pytest.approx(55.55555555555556),
                                   "f1": pytest.approx(55.55555555555556), "questions": 45}
    assert "best" not in result and "predicted" not in result


def test_best_thresholds_are_those_of_the_script_of_v2():
    predictions = load("predictions_v2.0.json")
    result = scoring.score(read_questions(FIXTURES / "squad_v2.0.json"),
                           predictions["always_answered"], null_odds=predictions["null_odds"])
    assert result["best"] == {
        "exact_match": pytest.approx(57.47126436781609), "exact_match_threshold": -2.82,
        "f1": pytest.approx(57.66283524904214), "f1_threshold": -2.82}


def test_questions_of_equal_odds_fall_on_one_side():
    # Answering both of odds 1 gains nothing; answering a alone is no threshold.
    best = scoring.best_threshold({"a": 1.0, "b": 0.0, "c": 1.0}, {"a": 1.0, "b": 1.0, "c": 0.5},
                                  {"b"}, "f1")
    assert best == {"f1": pytest.approx(100 * 2 / 3), "f1_threshold": 0.5}
    never = scoring.best_threshold({"a": 0.0, "b": 0.0}, {"a": 3.0, "b": 2.0}, {"b"}, "f1")
    assert never == {"f1": 50.0, "f1_threshold": 1.0}


def test_a_missing_prediction_of_v2_scores_0_and_is_told():
    questions = read_questions(FIXTURES / "squad_v2.0.json")
    predictions = load("predictions_v2.0.json")["bidaf_elmo"]
    left_out = [question.id for question in questions.questions if question.is_impossible
                and not predictions[question.id]][:5]
    fewer = {i: text for i, text in predictions.items() if i not in left_out}
    result = scoring.score(questions, {**fewer, "stranger": "x"})
    assert (result["missing"], result["unknown"]) == (5, 1)
    assert result["exact_match"] == pytest.approx((57.47126436781609 * 87 - 500) / 87)
    # The script of v2.0 leaves them out.
    assert result["predicted"]["exact_match"] == pytest.approx(
        (57.47126436781609 * 87 - 500) / 82)
    assert result["predicted"]["questions"] == 82


# The script of CMRC 2018, words of other scripts by nltk 3.10.4 (NLTKWordTokenizer).
@pytest.mark.parametrize("name, exact, f1", [
    ("cmrc2018_dev", 32.0, 81.40951164480576), ("cmrc2018_trial", 37.5, 89.51173985860686)])
def test_chinese_scores_are_those_of_the_script_of_cmrc(name, exact, f1):
    questions = read_questions(FIXTURES / f"{name}.json")
    assert scoring.guess_rules(questions) == "cmrc2018"
    result = scoring.score(questions, load("predictions_cmrc2018.json")[name], "cmrc2018")
    assert result["exact_match"] == pytest.approx(exact)
    assert result["f1"] == pytest.approx(f1)
    assert result["average"] == pytest.approx((exact + f1) / 2)


@pytest.mark.parametrize("prediction, references, expected", [
    ("the Panthers!", ["Panthers", "Carolina"], (100, 100)),
    ("Carolina  Panthers", ["Carolina"], (0, 100 * 2 / 3)),
    ("a b b", ["b b c"], (0, 100 * 0.8)),  # an article, and words as often as they stand
    ("U.S.", ["US"], (100, 100)),
    ("“US”", ["US"], (0, 0)),  # ASCII punctuation alone is stripped
    ("the", ["a"], (100, 0)),  # as the script of v1.1: nothing is left, nothing in common
    ("", ["x"], (0, 0)),
])
def test_rules_of_squad(prediction, references, expected):
    assert pair(prediction, *references) == pytest.approx(expected)


@pytest.mark.parametrize("prediction, reference, expected", [
    ("踢爆。", "《踢爆》", (100, 100)),
    ("光荣和", "光荣和ω-force", (0, 100 * 6 / 7)),  # ω and force are one word without the mark
    ("生命数耗完", "数生命耗完", (0, 40)),  # the longest run, not all that is common
    ("1,000人", "1,000 人", (0, 100)),
    ("", "踢", (0, 0)),
])
def test_rules_of_cmrc(prediction, reference, expected):
    assert pair(prediction, reference, rules="cmrc2018") == pytest.approx(expected)


def test_latin_words_are_cut_as_in_the_penn_treebank():
    # nltk 3.10.4, NLTKWordTokenizer, on the same text without CMRC's marks.
    text = 'no.1 u.s. 3,000 "x" it\'s can\'t a&b 5% f(x) end.'
    assert scoring.cmrc_units(text) == [
        "no.1", "u.s.", "3,000", "``", "x", "''", "it", "'s", "ca", "n't", "a", "&", "b", "5",
        "%", "f", "(", "x", ")", "end", "."]


def test_no_answer_is_right_only_where_there_is_none():
    questions = one(impossible=True)
    for text, right in (("", 100), ("the", 100), ("x", 0)):
        result = scoring.score(questions, {"q": text})
        assert (result["exact_match"], result["f1"]) == (right, right)


def test_version_2_takes_a_reference_without_words_for_no_answer():
    questions = replace(one(), questions=(Question("q", "?", 0, (), True),
                                          Question("r", "?", 0, (Answer("the", 0),), False)))
    result = scoring.score(questions, {"q": "", "r": ""})
    assert (result["exact_match"], result["no_answer"]["questions"]) == (100, 2)


def test_questions_whose_answer_is_not_told_are_not_scored():
    questions = replace(one(), questions=(Question("q", "?", 0, (), None),))
    with pytest.raises(InputError, match="question q has no answer and is not marked"):
        scoring.score(questions, {"q": ""})


def test_command_prints_json(tmp_path, capsys):
    predictions = tmp_path / "predictions.json"
    predictions.write_text(json.dumps(load("predictions_v2.0.json")["always_answered"]))
    odds = tmp_path / "odds.json"
    odds.write_text(json.dumps(load("predictions_v2.0.json")["null_odds"]))
    arguments = [str(FIXTURES / "squad_v2.0.json"), str(predictions), "--null-odds", str(odds),
                 "--output", str(tmp_path / "out.json")]
    assert run(score_squad.main, arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out.json").read_text())
    assert printed["rules"] == "squad" and printed["questions"] == 87
    assert printed["best"]["f1"] == pytest.approx(57.66283524904214)


@pytest.mark.parametrize("content, problem", [
    ('{"q": ["text"]}', "the value of q is no text"), ("[]", "no object at the top"),
    ("{", "broken JSON")])
def test_broken_predictions_are_told_in_one_line(content, problem, tmp_path, capsys):
    path = tmp_path / "predictions.json"
    path.write_text(content)
    assert run(score_squad.main, [str(FIXTURES / "squad_v1.1.json"), str(path)]) == 2
    error = capsys.readouterr().err
    assert problem in error and str(path) in error and error.count("\n") == 1
