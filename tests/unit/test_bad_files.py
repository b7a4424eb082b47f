"""Real and made files with faults: each has a decided answer. Small files with the same faults
are made in test_squad_questions.py, test_squad_features.py and test_prepare_data.py."""

import dataclasses
from pathlib import Path

import pytest

import prepare_data
from configs.data_schema import SquadConfig
from configs.errors import InputError
from data.pretraining import PretrainingData
from data.squad.features import UNKNOWN, features_of
from data.squad.questions import read_questions
from data.tokenizer import WordPieceTokenizer

BAD = Path("../shared/data/bad")
TAKEN = {  # questions, and what is told of them
    "made_answer_start_past_end.json": (30, {"answers_repaired": 1}),
    "made_blank_answer_text.json": (30, {"answers_blank": 1}),
    "made_bom_crlf.json": (30, {}),
    "made_empty_answers_v1.json": (30, {}),
    "made_empty_question.json": (30, {"questions_blank": 1}),
    "squad_real_oddities.json": (367, {}),
}
REFUSED = {
    "made_duplicate_ids.json": r"qas\[0\]: the id 56beb4343aeaaa14008c925b stands twice",
    "made_list_top_level.json": 'no list "data" at the top',
    "made_no_data_key.json": 'no list "data" at the top',
    "made_truncated.json": r"made_truncated.json:1:6578: broken JSON",
    "squad_real_oddities.why.json": 'no list "data" at the top',
}
TEXTS = {
    "pretrain_empty.txt": "no text in it",
    "pretrain_only_blank.txt": "no text in it",
    "pretrain_no_blank_lines_crlf.txt": None,
    "pretrain_single_document.txt": None,
}

pytestmark = pytest.mark.skipif(not BAD.is_dir(), reason="the collection of bad files is not here")


def test_every_file_has_its_answer():
    assert {path.name for path in BAD.iterdir()} == {*TAKEN, *REFUSED, *TEXTS}


@pytest.mark.parametrize("name", TAKEN)
def test_questions_that_are_taken(name):
    count, notices = TAKEN[name]
    questions = read_questions(BAD / name)
    assert len(questions.questions) == count and not questions.has_impossible
    tokenizer = WordPieceTokenizer("data/vocabularies/bert_base_uncased.txt")
    found = features_of(questions, tokenizer, SquadConfig(cache=""))
    assert {key: told for key, told in found.notice_counts().items() if told} == notices
    # What cannot be learnt is left out of training, and nothing else is.
    unknown = {int(number) for number in found.window_question[found.window_start == UNKNOWN]}
    assert len(unknown) == (name in ("made_blank_answer_text.json", "made_empty_answers_v1.json"))
    if name == "made_empty_answers_v1.json":
        with pytest.raises(InputError, match="has no answer and is not marked as impossible"):
            questions.check_answers()


@pytest.mark.parametrize("name", REFUSED)
def test_questions_that_are_refused(name):
    with pytest.raises(InputError, match=REFUSED[name]):
        read_questions(BAD / name)


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name, tmp_path, tiny_config):
    """One document is taken, but has no random next sentence."""
    arguments = ["--config", "configs/pretrain/quickstart.yaml", "--input", str(BAD / name),
                 "--workers", "1", "--output", str(tmp_path / "out"),
                 "--set", "data.held_out_share=0.0"]
    if TEXTS[name]:
        with pytest.raises(InputError, match=f"{name}: {TEXTS[name]}"):
            prepare_data.main(arguments)
        return
    manifest = prepare_data.main(arguments)
    assert manifest["counts"]["train"]["documents"] == 1
    config = tiny_config(f"data.directory={tmp_path / 'out'}")
    with pytest.raises(InputError, match="must come from another document"):
        PretrainingData(config)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data,
                                                                  pair_objective="sop"))
    assert len(PretrainingData(config)) > 0
