"""Rows of windows: packed and shuffled in training, sorted by length in evaluation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from configs.data_schema import SquadConfig
from configs.errors import InputError
from configs.load import load_config
from data.batch import join_batches
from data.squad.features import UNKNOWN, make_features
from data.squad.questions import Answer, Question, QuestionFile, read_questions
from data.squad.rows import SquadData, gather_logits, window_logits
from data.tokenizer import WordPieceTokenizer

FIXTURES = Path("tests/fixtures/squad")
ENGLISH = "data/vocabularies/bert_base_uncased.txt"
OPTIONS = SquadConfig(sequence_length=384, sequences_per_row=4, cache="")


@pytest.fixture(scope="module")
def features():
    return make_features(read_questions(FIXTURES / "squad_v2.0.json"), ENGLISH, True, OPTIONS)


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(ENGLISH)


def whole(features, tokenizer, window):
    """Ids, token types of a window in the order of the text."""
    question, context = features.tokens(window)
    ids = [tokenizer.cls, *question, tokenizer.sep, *context, tokenizer.sep]
    return ids, [0] * (len(question) + 2) + [1] * (len(context) + 1)


def check_rows(features, tokenizer, windows, batch):
    """Every window stands in its row as it should; returns how many there are."""
    count = 0
    for row, numbers in enumerate(windows):
        assert set(batch.sequence_id[row]) - {0} == {i + 1 for i in np.flatnonzero(numbers >= 0)}
        for place, window in enumerate(numbers):
            weight = batch.labels["window_weights"][row, place]
            if window < 0:
                assert weight == 0
                continue
            slots = np.flatnonzero(batch.sequence_id[row] == place + 1)
            slots = slots[np.argsort(batch.position_ids[row, slots])]
            ids, types = whole(features, tokenizer, window)
            assert batch.input_ids[row, slots].tolist() == ids
            assert batch.token_type_ids[row, slots].tolist() == types
            assert batch.position_ids[row, slots].tolist() == list(range(len(ids)))
            assert slots[0] == place  # [CLS], where a pooler reads it
            for end in ("start", "end"):
                label = max(getattr(features, f"window_{end}")[window], 0)
                assert batch.labels[f"{end}_positions"][row, place] == slots[label]
            count += 1
    assert (batch.input_ids[batch.sequence_id == 0] == tokenizer.pad).all()
    assert (batch.labels["sequence_id"] == batch.sequence_id).all()
    return count


@pytest.mark.parametrize("depth", [1, 4])
def test_training_rows(features, tokenizer, depth):
    data = SquadData(features, tokenizer, replace(OPTIONS, sequences_per_row=depth), seed=1)
    windows, batch = data.windows_of(0, len(data)), data.batch(0, len(data))
    assert batch.input_ids.shape == (len(data), 384) and windows.shape == (len(data), depth)
    assert check_rows(features, tokenizer, windows, batch) == len(features.lengths)
    assert sorted(windows[windows >= 0]) == list(range(len(features.lengths)))
    weights = batch.labels["window_weights"]
    assert weights.sum() == pytest.approx(1) and len(set(weights[weights > 0])) == 1
    assert batch.token_count == features.lengths.sum()


def test_packing_saves_rows(features, tokenizer):
    data = SquadData(features, tokenizer, OPTIONS)
    report = data.packing_report
    assert report.sequences == len(features.lengths)
    assert len(data) == report.rows < 0.65 * len(features.lengths)


def test_epochs_visit_every_window_in_another_order(features, tokenizer):
    data = SquadData(features, tokenizer, OPTIONS, seed=1)
    rows = len(data)
    first, second = data.windows_of(0, rows), data.windows_of(rows, rows)
    assert not np.array_equal(first, second)
    assert sorted(first[first >= 0]) == sorted(second[second >= 0])
    across = data.windows_of(rows - 3, 6)
    assert np.array_equal(across, np.concatenate([first[-3:], second[:3]]))
    again = SquadData(features, tokenizer, OPTIONS, seed=1)
    assert np.array_equal(again.windows_of(rows - 3, 6), across)
    other = SquadData(features, tokenizer, OPTIONS, seed=2)
    assert not np.array_equal(other.windows_of(0, rows), first)
    whole, parts = data.batch(rows - 3, 6), join_batches([data.batch(rows - 3, 2),
                                                          data.batch(rows - 1, 4)])
    for name, array in {**whole.inputs, **whole.labels}.items():
        other = {**parts.inputs, **parts.labels}[name]
        assert np.array_equal(array, other) and array.dtype == other.dtype, name


def test_evaluation_reads_the_longest_first_without_needless_padding(features, tokenizer):
    data = SquadData(features, tokenizer, OPTIONS, is_training=False)
    seen, lengths = [], []
    for consumed in range(0, len(data), 20):
        windows, batch = data.windows_of(consumed, 20), data.batch(consumed, 20)
        check_rows(features, tokenizer, windows, batch)
        longest = features.lengths[windows].max()
        assert longest <= batch.input_ids.shape[1] < longest + 8
        assert batch.labels["window_weights"].sum() == pytest.approx(1)
        seen += windows[:, 0].tolist()
        lengths += features.lengths[windows[:, 0]].tolist()
    assert sorted(seen) == list(range(len(features.lengths)))
    assert lengths == sorted(lengths, reverse=True) and len(batch) < 20


def test_fixed_length_fills_the_last_batch(features, tokenizer):
    data = SquadData(features, tokenizer, OPTIONS, is_training=False, fixed_length=True)
    batch, windows = data.batch(len(data) - 3, 8), data.windows_of(len(data) - 3, 8)
    assert batch.input_ids.shape == (8, 384) and windows[3:].tolist() == [[-1]] * 5
    assert check_rows(features, tokenizer, windows, batch) == 3
    assert not batch.sequence_id[3:].any()


def test_windows_of_unknown_answer_are_evaluated_and_not_trained(tokenizer):
    questions = QuestionFile("made", ("one two", "three"), (
        Question("a", "?", 0, (Answer("two", 4),), False),
        Question("b", "?", 1, (Answer("lost", 0),), False)))
    features = make_features(questions, ENGLISH, True, OPTIONS)
    assert features.window_start[1] == UNKNOWN
    data = SquadData(features, tokenizer, OPTIONS)
    assert data.windows_of(0, 1).tolist() == [[0, -1, -1, -1]] and len(data) == 1
    evaluation = SquadData(features, tokenizer, OPTIONS, is_training=False)
    assert evaluation.batch(0, 2).labels["window_weights"].tolist() == [[1], [0]]
    lost = replace(questions, questions=questions.questions[1:])
    with pytest.raises(InputError, match="no question has an answer to learn"):
        SquadData(make_features(lost, ENGLISH, True, OPTIONS), tokenizer, OPTIONS)


def test_windows_that_fill_a_row_to_its_last_slot(tokenizer):
    """As many tokens as slots: the reserved slots of absent windows are used as well."""
    contexts = ("a b c d e f g h i", "a b", "c")
    questions = QuestionFile("made", contexts, tuple(
        Question(str(n), "?", n, (Answer(context[0], 0),), False)
        for n, context in enumerate(contexts)))
    options = SquadConfig(sequence_length=13, document_stride=4, max_query_length=2,
                           sequences_per_row=3, cache="")
    features = make_features(questions, ENGLISH, True, options)
    assert features.lengths.tolist() == [13, 6, 5]
    data = SquadData(features, tokenizer, options)
    assert len(data) == 2
    assert check_rows(features, tokenizer, data.windows_of(0, 2), data.batch(0, 2)) == 3
    with pytest.raises(ValueError, match="sequences of 19 tokens in a row of 13"):
        data.make_rows(np.array([[0, 1]]))


@pytest.mark.parametrize("is_training", [True, False])
def test_logits_go_back_to_their_windows(features, tokenizer, is_training):
    data = SquadData(features, tokenizer, OPTIONS, is_training=is_training)
    out = np.full((len(features.lengths), 384), np.nan, np.float32)
    for consumed in range(0, len(data), 7):
        count = min(7, len(data) - consumed)
        batch = data.batch(consumed, count)
        gather_logits(batch.input_ids, data.windows_of(consumed, count), batch, out)
    for window, length in enumerate(features.lengths):
        assert out[window, :length].tolist() == whole(features, tokenizer, window)[0]
        assert np.isnan(out[window, length:]).all()


@pytest.mark.parametrize("fixed_length", [True, False])
def test_logits_of_all_windows(features, tokenizer, fixed_length):
    """A number of windows that no batch size divides: none is left out."""
    data = SquadData(features, tokenizer, OPTIONS, is_training=False, fixed_length=fixed_length)
    shapes = []

    def compute(batch):
        shapes.append(batch.input_ids.shape)
        return {"start_logits": batch.input_ids, "end_logits": batch.position_ids}

    start, end = window_logits(data, compute, 10)
    assert len(data) % 10 and sum(rows for rows, _ in shapes) == (
        -(-len(data) // 10) * 10 if fixed_length else len(data))
    assert (len(set(shapes)) == 1) == fixed_length
    for window, length in enumerate(features.lengths):
        assert start[window, :length].tolist() == whole(features, tokenizer, window)[0]
        assert end[window, :length].tolist() == list(range(length))


# Rows an update, rate, epochs, warm-up (a share or updates), schedule, epsilon, bias correction,
# weight decay, clipping, longest answer
@pytest.mark.parametrize("name, published", [
    # google-research/bert: run_squad.py, optimization.py, README.md
    ("bert_base_google", (12, 3e-5, 2, 0.1, "linear", 1e-6, False, 0.01, 1.0, 30)),
    # transformers: examples/pytorch/question-answering, TrainingArguments
    ("bert_base_huggingface", (12, 3e-5, 2, 0.0, "linear", 1e-8, True, 0.0, 1.0, 30)),
    # PaddlePaddle/PaddleNLP: model_zoo/bert/static_ipu/scripts/pod16/run_squad.sh, run_squad.py
    ("bert_base", (128, 5.6e-5, 4, 208, "linear", 1e-6, True, 0.0, 0.0, 30)),
    # PaddlePaddle/ERNIE: script/zh_task/ernie_base, finetune_args.py, optimization.py
    ("ernie_1_cmrc2018", (64, 3e-5, 2, 0.0, "constant", 1e-8, True, 0.01, 1.0, 100)),
    ("ernie_1_drcd", (64, 5e-5, 2, 0.0, "constant", 1e-8, True, 0.01, 1.0, 100))])
def test_published_recipes(name, published):
    config = load_config(f"configs/squad/{name}.yaml", task="squad")
    train = config.train
    assert (train.global_batch_size, train.learning_rate, train.epochs,
            train.warmup_steps or train.warmup_ratio, train.schedule, train.epsilon,
            train.bias_correction, train.weight_decay, train.max_gradient_norm,
            config.data.max_answer_length) == published
    assert config.data.document_stride == 128 and config.data.sequences_per_row == 1
