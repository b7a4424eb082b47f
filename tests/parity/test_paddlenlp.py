"""Against PaddleNLP: ERNIE at full width, every head, and files."""

import paddle
import paddlenlp.transformers as peers
import pytest

from configs.schema import ModelConfig
from models import tasks
from models.heads import PretrainingHeads
from models.weights import paddlenlp
from models.weights.load import load_weights
from models.weights.names import PADDLENLP
from tests.feeding import gradients, make_inputs, random_rows, randomise
from tests.parity.comparison import (assert_close, assert_same_gradients, loss_weights,
                                     weighted_sum)

# Sizes of ernie-1.0-base-zh and ernie-3.0-base-zh; of the second three layers are enough, as
# all twelve are alike. PaddleNLP's ERNIE computes layer norms with 1e-12.
ERNIE_1 = ModelConfig("ernie", vocabulary="vocab.txt", vocab_size=18000, hidden_act="relu",
                      max_position_embeddings=513)
ERNIE_3 = ModelConfig("ernie", vocabulary="vocab.txt", vocab_size=40000, num_hidden_layers=3,
                      max_position_embeddings=2048, type_vocab_size=4, task_type_vocab_size=3)
SIZES = {"vocabulary": "vocab.txt", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 24}
CONFIGS = {"bert": ModelConfig("bert", **SIZES, layer_norm_eps=1e-3),
           "ernie": ModelConfig("ernie", **SIZES, hidden_act="relu"),
           "ernie task types": ModelConfig("ernie", **SIZES, task_type_vocab_size=3,
                                           type_vocab_size=4)}
LENGTH = 14
LABELS = {"ForSequenceClassification": 3, "ForTokenClassification": 5}


def build_for_pretraining(config):
    """Heads that read every token of an ordinary row, [CLS] in front."""
    network = tasks.build_encoder(config)
    network.heads = PretrainingHeads(config, network.embeddings.word_embeddings, LENGTH)
    return network


# Class of PaddleNLP, our network, and our outputs in the order of theirs.
TASKS = {
    "Model": (tasks.build_encoder, ["hidden", "pooled"]),
    "ForPretraining": (build_for_pretraining, ["masked_lm_logits", "pair_logits"]),
    "ForQuestionAnswering": (tasks.build_for_question_answering,
                             ["start_logits", "end_logits"]),
    "ForSequenceClassification": (
        lambda config: tasks.build_for_sequence_classification(
            config, LABELS["ForSequenceClassification"]), ["logits"]),
    "ForTokenClassification": (
        lambda config: tasks.build_for_token_classification(
            config, LABELS["ForTokenClassification"]), ["logits"]),
    "ForMultipleChoice": (
        lambda config: tasks.build_for_multiple_choice(config, 2), ["logits"])}


def run_ours(network, rows, names):
    """Outputs by our names, without the dimension of the one sequence of an ordinary row."""
    outputs = network(make_inputs(*rows))
    return {name: outputs[name].squeeze(1) if outputs[name].shape[1:2] == [1]
            else outputs[name] for name in names}


def run_theirs(model, rows, names):
    """Outputs by our names; a multiple-choice model takes [batch, choices, sequence]."""
    ids, mask, types = (paddle.to_tensor(array) for array in rows)
    if "MultipleChoice" in type(model).__name__:
        ids, mask, types = (x.reshape([-1, 2, x.shape[-1]]) for x in (ids, mask, types))
    outputs = model(ids, token_type_ids=types, attention_mask=mask)
    return dict(zip(names, outputs if isinstance(outputs, tuple) else [outputs]))


def compare(network, model, rows, names):
    """Assert equal outputs and gradients; return the largest differences of both."""
    mask = rows[1]
    ours, theirs = run_ours(network, rows, names), run_theirs(model, rows, names)
    weights = loss_weights(theirs, mask)
    weighted_sum(ours, weights, paddle.to_tensor).backward()
    weighted_sum(theirs, weights, paddle.to_tensor).backward()
    outputs = assert_close({name: ours[name].numpy() for name in ours},
                           {name: theirs[name].numpy() for name in theirs}, mask)
    their_gradients = PADDLENLP.to_ours(gradients(model), "gradients")
    if "heads.span.weight" in dict(network.named_parameters()):
        their_gradients = {name.replace("heads.classifier.", "heads.span."): gradient
                           for name, gradient in their_gradients.items()}
    return outputs, assert_same_gradients(gradients(network), their_gradients)


def config_of_peer(config, **more):
    """PaddleNLP's config object of ours."""
    config_class = getattr(peers, config.architecture.capitalize() + "Config")
    keys = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
            "intermediate_size", "hidden_act", "max_position_embeddings", "type_vocab_size",
            "layer_norm_eps")
    ernie = {"task_type_vocab_size": config.task_type_vocab_size,
             "use_task_id": config.task_type_vocab_size > 0}
    return config_class(**{key: getattr(config, key) for key in keys}, **more,
                        **(ernie if config.architecture == "ernie" else {}))


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocabulary.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    return path


@pytest.mark.parametrize("config", [ERNIE_1, ERNIE_3], ids=["ernie 1.0", "ernie 3.0"])
def test_ernie_at_full_width(config):
    network = tasks.build_encoder(config)
    randomise(network, seed=2, scale=0.02)
    model = peers.ErnieModel(config_of_peer(config))
    state = PADDLENLP.from_ours({name: parameter.numpy()
                                 for name, parameter in network.named_parameters()}, base="")
    assert model.set_state_dict(state) == ([], [])
    network.eval(), model.eval()
    rows = random_rows(config.vocab_size, batch=2, length=24,
                       type_vocab_size=config.type_vocab_size)
    print("largest differences", compare(network, model, rows, TASKS["Model"][1]))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("task", TASKS)
def test_every_head(task, config, vocabulary, tmp_path):
    """What save_pretrained writes is opened with every key matched, and computes the same."""
    build, names = TASKS[task]
    network = build(config)
    randomise(network, seed=7, scale=0.1)
    network.eval()
    paddlenlp.save_pretrained(tmp_path / "out", network, config, vocabulary)
    model_class = getattr(peers, config.architecture.capitalize() + task)
    model = model_class.from_pretrained(str(tmp_path / "out"))
    # PaddleNLP has a pooler even where it is not used.
    unused = {name for name in model.state_dict() if ".pooler." in name} \
        if network.pooler is None else set()
    assert set(paddlenlp.read_pdparams(tmp_path / "out/model_state.pdparams")) \
        == set(model.state_dict()) - unused
    model.eval()
    rows = random_rows(config.vocab_size, 4, LENGTH, type_vocab_size=config.type_vocab_size)
    print("largest differences", compare(network, model, rows, names))


@pytest.mark.parametrize("architecture", ["bert", "ernie"])
@pytest.mark.parametrize("task", TASKS)
def test_what_paddlenlp_writes_is_read(task, architecture, tmp_path):
    config = CONFIGS[architecture]
    build, names = TASKS[task]
    peer_config = config_of_peer(config, num_choices=2, num_labels=LABELS.get(task, 2))
    model = getattr(peers, architecture.capitalize() + task)(peer_config)
    randomise(model, seed=3, scale=0.1)
    model.eval()
    model.save_pretrained(str(tmp_path))
    arrays, values = paddlenlp.read_pretrained(tmp_path)
    assert ModelConfig(vocabulary="vocab.txt", **values) == config
    network = build(config)
    assert not load_weights(network, arrays).missing
    network.eval()
    rows = random_rows(config.vocab_size, 4, LENGTH)
    with paddle.no_grad():
        ours, theirs = run_ours(network, rows, names), run_theirs(model, rows, names)
    assert_close({name: ours[name].numpy() for name in ours},
                 {name: theirs[name].numpy() for name in theirs}, rows[1])


def test_layer_norm_epsilon_of_paddlenlp():
    """Its ERNIE computes with 1e-12 whatever its config says, its BERT with the config's."""
    for name, expected in (("bert", 1e-3), ("ernie", paddlenlp.ERNIE_LAYER_NORM_EPS)):
        config = ModelConfig(name, **SIZES, layer_norm_eps=1e-3)
        model = getattr(peers, f"{name.capitalize()}ForPretraining")(config_of_peer(config))
        found = {layer._epsilon for layer in model.sublayers()
                 if isinstance(layer, paddle.nn.LayerNorm)}
        assert found == {expected}
