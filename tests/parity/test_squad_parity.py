"""Question answering against Hugging Face transformers: windows, loss, null odds and scores."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest
import torch
import transformers
from transformers.data.metrics import squad_metrics
from transformers.data.processors import squad as processors

from configs.data_schema import SquadConfig
from configs.schema import ModelConfig
from data.squad import scoring
from data.squad.answers import find_answers
from data.squad.features import make_features
from data.squad.questions import read_questions
from models.tasks import build_for_question_answering
from models.weights import huggingface
from models.weights.names import HUGGINGFACE
from tests.feeding import gradients, make_inputs, random_rows, randomise
from tests.parity.comparison import assert_same_gradients

FIXTURES = Path("tests/fixtures/squad")
VOCABULARY = "data/vocabularies/bert_base_uncased.txt"
OPTIONS = SquadConfig(sequence_length=128, document_stride=48, max_query_length=24, cache="")


def their_features(name, is_training=True):
    """What squad_convert_examples_to_features makes, its plain tokenizer without processes."""
    examples = processors.SquadV2Processor()._create_examples(
        json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))["data"],
        "train" if is_training else "dev")
    tokenizer = transformers.BertTokenizer(VOCABULARY)
    processors.squad_convert_example_to_features_init(tokenizer)
    return [processors.squad_convert_example_to_features(
        example, OPTIONS.sequence_length, OPTIONS.document_stride, OPTIONS.max_query_length,
        "max_length", is_training) for example in examples]


@pytest.mark.parametrize("name, tighter", [("squad_v1.1", 0), ("squad_v2.0", 2)])
def test_windows_and_their_labels(name, tighter):
    """The same but for "Japan" in "Japanese)": theirs takes what white space parts, with ")"."""
    questions = read_questions(FIXTURES / f"{name}.json")
    ours = make_features(questions, VOCABULARY, True, OPTIONS)
    theirs = [feature for features in their_features(name) for feature in features]
    assert len(theirs) == len(ours.lengths) > len(questions.questions) + 20
    for window, feature in enumerate(theirs):
        question, context = ours.tokens(window)
        length = ours.lengths[window]
        assert feature.input_ids[:length] == [101, *question, 102, *context, 102]
        assert sum(feature.attention_mask) == length
        assert ours.window_start[window] == feature.start_position
        assert ours.window_end[window] <= feature.end_position
    assert (ours.window_start > 0).sum() > 20
    assert sum(end != feature.end_position
               for end, feature in zip(ours.window_end, theirs)) == tighter


def test_null_odds_and_best_answers():
    """With logits that are sure of a span, where both count the same windows and spans."""
    questions = read_questions(FIXTURES / "squad_v2.0.json")
    options = replace(OPTIONS, sequence_length=384, document_stride=128)
    ours = make_features(questions, VOCABULARY, True, options)
    random = np.random.default_rng(0)
    start, end = (random.normal(size=(len(ours.lengths), 384)).astype(np.float32)
                  for _ in range(2))
    answers = find_answers(questions, ours, start, end, options)
    for number, question in enumerate(questions.questions):
        windows = np.flatnonzero(ours.window_question == number)
        null = min(start[window, 0] + end[window, 0] for window in windows)
        entry = max((entry for entry in answers.nbest[question.id] if entry["text"]),
                    key=lambda entry: entry["start_logit"] + entry["end_logit"])
        assert answers.null_odds[question.id] == pytest.approx(
            null - entry["start_logit"] - entry["end_logit"], abs=1e-5)
        logits = [entry["start_logit"] + entry["end_logit"] for entry in
                  answers.nbest[question.id]]
        probabilities = [entry["probability"] for entry in answers.nbest[question.id]]
        assert probabilities == pytest.approx(squad_metrics._compute_softmax(logits), abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_scores_of_version_2(seed):
    """Random cuts of references and contexts as predictions, and random odds."""
    questions = read_questions(FIXTURES / "squad_v2.0.json")
    random = np.random.default_rng(seed)
    predictions, odds = {}, {}
    for question in questions.questions:
        words = questions.contexts[question.context].split()
        if question.answers and random.random() < 0.7:
            words = ["the"] * random.integers(2) + question.answers[-1].text.split()
        begin = random.integers(max(len(words) - 3, 1))
        predictions[question.id] = " ".join(words[begin:begin + random.integers(1, 6)])
        odds[question.id] = float(random.normal(1.0 if not question.answers else -1.0, 2.0))
    examples = processors.SquadV2Processor().get_dev_examples(FIXTURES, "squad_v2.0.json")
    theirs = squad_metrics.squad_evaluate(examples, predictions, odds, 1e9)
    ours = scoring.score(questions, predictions, null_odds=odds)
    assert ours["exact_match"] == pytest.approx(theirs["exact"])
    assert ours["f1"] == pytest.approx(theirs["f1"])
    for kind, prefix in (("has_answer", "HasAns"), ("no_answer", "NoAns")):
        assert ours[kind]["exact_match"] == pytest.approx(theirs[f"{prefix}_exact"])
        assert ours[kind]["f1"] == pytest.approx(theirs[f"{prefix}_f1"])
    assert ours["best"]["f1"] == pytest.approx(theirs["best_f1"])
    assert ours["best"]["f1_threshold"] == pytest.approx(theirs["best_f1_thresh"])
    assert ours["best"]["exact_match"] == pytest.approx(theirs["best_exact"])


@pytest.mark.parametrize("padded", [False, True], ids=["full rows", "padded rows"])
def test_loss_and_gradients(padded, tmp_path):
    """The loss of BertForQuestionAnswering, of which padding is no part where there is some."""
    config = ModelConfig("bert", vocabulary=VOCABULARY, vocab_size=60, hidden_size=32,
                         num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                         max_position_embeddings=24, hidden_dropout_prob=0.0,
                         attention_probs_dropout_prob=0.0)
    network = build_for_question_answering(config)
    randomise(network, seed=7, scale=0.2)
    ids, mask, types = random_rows(60, 4, 14)
    if not padded:
        ids, mask = np.where(mask, ids, 5), np.ones_like(mask)
    starts, ends = np.array([3, 0, 2, 1]), np.array([4, 0, 5, 1])
    huggingface.save_pretrained(tmp_path / "out", network, config, VOCABULARY)
    model = transformers.BertForQuestionAnswering.from_pretrained(tmp_path / "out").eval()

    torch_rows = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask),
                  "token_type_ids": torch.tensor(types)}
    positions = {"start_positions": torch.tensor(starts), "end_positions": torch.tensor(ends)}
    output = model(**torch_rows, **positions)
    theirs = output.loss
    if padded:
        hidden = (1 - torch_rows["attention_mask"]) * -1e30
        theirs = sum(torch.nn.functional.cross_entropy(logits + hidden, positions[name])
                     for logits, name in ((output.start_logits, "start_positions"),
                                          (output.end_logits, "end_positions"))) / 2
        assert abs(theirs.item() - output.loss.item()) > 0.01
    theirs.backward()

    labels = {"sequence_id": mask, "start_positions": starts[:, None],
              "end_positions": ends[:, None]}
    labels = {name: paddle.to_tensor(array, "int32") for name, array in labels.items()}
    labels["window_weights"] = paddle.full([4, 1], 0.25)
    sums = network.heads.loss(network(make_inputs(ids, mask, types)), labels)
    sums["loss"].backward()
    assert float(sums["loss"]) == pytest.approx(theirs.item(), abs=1e-5)
    correct = (output.start_logits + (0 if not padded else hidden)).argmax(-1).numpy() == starts
    assert float(sums["start_accuracy"]) == pytest.approx(correct.mean())
    their_gradients = HUGGINGFACE.to_ours(
        {name: parameter.grad.numpy() for name, parameter in model.named_parameters()},
        "gradients")
    our_gradients = gradients(network)
    # The same added to all logits changes no softmax: these are 0 but for rounding.
    for name in ("heads.span.bias", "layer.1.output_norm.bias"):
        assert np.abs(our_gradients.pop(name)).max() < 1e-6
        assert np.abs(their_gradients.pop(name)).max() < 1e-6
    print("largest difference", assert_same_gradients(our_gradients, their_gradients))
