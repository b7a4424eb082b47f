"""Whole development sets: published scores, the published number of windows, the oracle."""

from pathlib import Path

import pytest

from benchmarks import squad_oracle
from configs.data_schema import SquadConfig
from data.squad import scoring
from data.squad.features import open_features
from data.squad.questions import read_questions

REAL = Path("../shared/data/qa")
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="needs the whole SQuAD and CMRC 2018")
VOCABULARIES = "data/vocabularies"


@pytest.mark.parametrize("data, predictions, exact, f1, missing", [
    ("squad_dev_v1.1_rebuilt", "v1.1_BERT_ensemble_GoogleAI", 86.2062, 92.1956, 0),
    ("squad_dev_v1.1_rebuilt", "v1.1_MatchLSTM_AnsPtr_BoundaryEnsemble_SMU", 67.6348, 76.7556,
     0),
    ("squad_dev_v1.1_rebuilt", "v1.1_LogisticRegressionBaseline_Stanford", 40.1419, 50.9815, 13),
    ("squad_dev_v2.0_rebuilt", "v2.0_BiDAF_SA_ELMo", 65.7037, 67.8765, 0)])
def test_published_scores(data, predictions, exact, f1, missing):
    result = scoring.score(read_questions(REAL / f"{data}.json.gz"),
                           scoring.read_predictions(REAL / f"predictions/{predictions}.json"))
    assert (round(result["exact_match"], 4), round(result["f1"], 4)) == (exact, f1)
    assert result["missing"] == missing


def test_window_count_is_that_of_google(tmp_path):
    # Google's run_squad.py tells 10,833 for the development set of v1.1, 384 tokens, stride 128.
    options = SquadConfig(cache=str(tmp_path))
    found = open_features(read_questions(REAL / "squad_dev_v1.1_rebuilt.json.gz"),
                          f"{VOCABULARIES}/bert_base_uncased.txt", True, options)
    assert len(found.window_question) == 10833


@pytest.mark.parametrize("name, vocabulary, exceptions", [
    # The answer "(2,70" ends inside of 2,700.
    ("xquad.en.json", "bert_base_uncased", {"5729e2316aef0514001550c5": "inside a token"}),
    ("xquad.zh.json", "bert_base_chinese", {}),
    ("cmrc2018_trial.squad.json.gz", "bert_base_chinese", {})])
def test_true_answers_come_back(name, vocabulary, exceptions):
    result = squad_oracle.check(read_questions(REAL / name), f"{VOCABULARIES}/{vocabulary}.txt",
                                True, SquadConfig(sequence_length=512, cache=""), None)
    assert {entry["id"]: entry["reason"] for entry in result["exceptions"]} == exceptions
    if not exceptions:
        assert result["has_text"]["exact_match"] == result["has_text"]["f1"] == 100
