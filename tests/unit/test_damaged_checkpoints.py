"""300 damaged checkpoints: each is refused in one line or passed over, none loads silently."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from configs.errors import InputError
from configs.load import load_config
from data.shards import file_hash
from engines.local import LocalEngine
from models.weights.huggingface import save_pretrained
from training.checkpoint import (_to_text, newest_checkpoint, read_optimizer, read_state,
                                 save_checkpoint)
from training.optimizers import build_optimizer
from training.run import open_network

FILES = ("model.safetensors", "optimizer.safetensors", "config.json", "vocab.txt",
         "tokenizer_config.json", "state.json")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    vocabulary = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{n}" for n in range(45))]
    vocabulary.write_text("\n".join(words) + "\n")
    return load_config("configs/pretrain/quickstart.yaml", [
        f"model.vocabulary={vocabulary}", "model.vocab_size=50", "model.hidden_size=8",
        "model.num_hidden_layers=1", "model.num_attention_heads=2", "model.intermediate_size=16",
        "model.max_position_embeddings=64", "data.sequence_length=48", "data.max_predictions=7"])


def build_engine(config, checkpoint=None):
    engine = LocalEngine(config)
    engine.build(open_network(config, checkpoint),
                 lambda network: build_optimizer(config.train, network))
    return engine


@pytest.fixture(scope="module")
def checkpoint(config, tmp_path_factory):
    engine = build_engine(config)
    for parameter in engine.network.parameters():
        (parameter * 0.5).sum().backward()
    engine.optimizer.step(0.01)
    return save_checkpoint(
        tmp_path_factory.mktemp("run"),
        lambda path: save_pretrained(path, engine.network, config.model, config.model.vocabulary),
        engine.state(), {"step": 7, "samples": 56, "seconds": 1.0, "skipped_steps": 0})


def load(config, path):
    """Everything that a resumed run reads."""
    read_state(path)
    engine = build_engine(config, path)
    engine.load_state(read_optimizer(path))
    return engine


@pytest.fixture
def damaged(checkpoint, tmp_path):
    return shutil.copytree(checkpoint, tmp_path / checkpoint.name)


def test_the_whole_one_loads(config, checkpoint, damaged):
    assert newest_checkpoint(damaged.parent) == damaged
    engine = load(config, damaged)
    assert np.array_equal(engine.network.heads.pair.bias.numpy(),
                          load_file(checkpoint / "model.safetensors")["cls.seq_relationship.bias"])
    saved = load_file(checkpoint / "optimizer.safetensors")
    assert all(np.array_equal(array, saved[name]) for name, array in engine.state().items())


@pytest.mark.parametrize("number", range(240))
def test_accidents_are_seen_by_their_hash(config, damaged, number):
    """A file cut anywhere, a bit flipped anywhere, or a file gone."""
    random = np.random.default_rng(number)
    file = damaged / FILES[number % len(FILES)]
    content = bytearray(file.read_bytes())
    kind = number // len(FILES) % 4
    if kind == 0 and number >= 200:
        file.unlink()
    elif kind < 2:
        file.write_bytes(content[:random.integers(len(content))])
    else:
        content[random.integers(len(content))] ^= 1 << random.integers(8)
        file.write_bytes(content)
    with pytest.raises(InputError, match="missing or"):
        load(config, damaged)
    assert newest_checkpoint(damaged.parent) is None


def rewrite_hashes(path):
    """What somebody does who changes a checkpoint by hand and makes it look whole."""
    state = json.loads((path / "state.json").read_text())
    del state["hash"]
    state["files"] = {name: file_hash(path / name) for name in FILES[:-1]}
    (path / "state.json").write_text(_to_text(state))


def change_arrays(file, number):
    """One array of another shape, gone, one more, or under another name."""
    arrays = load_file(file)
    name = sorted(arrays)[number % len(arrays)]
    array = arrays.pop(name)
    kind = number % 4
    if kind == 0:
        arrays[name] = np.concatenate([array, array])
    elif kind == 1:
        arrays[name] = array[..., :-1]
    elif kind == 2:
        arrays[f"{name}x"] = array
    save_file(arrays, file, {"format": "pt"})


@pytest.mark.parametrize("number", range(40))
@pytest.mark.parametrize("file", FILES[:2])
def test_other_shapes_and_names_do_not_fit(config, damaged, file, number):
    change_arrays(damaged / file, number)
    rewrite_hashes(damaged)
    assert newest_checkpoint(damaged.parent) == damaged
    with pytest.raises(InputError):
        load(config, damaged)


@pytest.mark.parametrize("change", [
    lambda words: [words[1], words[0], *words[2:]],
    lambda words: words[:-1],
    lambda words: [*words, "more"],
    lambda words: [*words[:20], "other", *words[21:]],
])
def test_another_vocabulary_is_refused(config, damaged, change):
    file = damaged / "vocab.txt"
    file.write_text("\n".join(change(file.read_text().split())) + "\n")
    rewrite_hashes(damaged)
    with pytest.raises(InputError, match="is not model.vocabulary .* they differ from id"):
        load(config, damaged)


@pytest.mark.parametrize("key, value", [
    ("hidden_act", "gelu_new"), ("layer_norm_eps", 1e-3), ("num_attention_heads", 4)])
def test_what_sizes_do_not_show_is_refused(config, damaged, key, value):
    file = damaged / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    rewrite_hashes(damaged)
    with pytest.raises(InputError, match=f"trained with {key} {value}"):
        load(config, damaged)


def test_another_case_is_refused(config, damaged):
    file = damaged / "tokenizer_config.json"
    text = file.read_text()
    file.write_text(text.replace('"do_lower_case": true', '"do_lower_case": false'))
    rewrite_hashes(damaged)
    with pytest.raises(InputError, match="says do_lower_case false, but model.lower_case is true; "
                       "write model.lower_case: false, or correct the file"):
        load(config, damaged)
    for silent in ("{}", '{"do_lower_case": null}', None):
        file.write_text(silent) if silent else file.unlink()
        assert build_engine(config, damaged)
