"""Weights of other libraries: read, written, fitted into a network, and refused."""

import io
import json
import os
import pickle
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file

import convert_weights
from configs.command_line import EXIT_BAD_INPUT, run
from configs.errors import InputError
from configs.schema import ModelConfig
from models import tasks
from models.heads import PretrainingHeads
from models.initialise import initialise
from models.weights import bfloat16, huggingface, model_configs, paddlenlp, tensorflow
from models.weights.load import build_network_for, load_weights
from models.weights.restricted_pickle import WeightsUnpickler
from models.weights.torch_file import read_torch_file
from tests.feeding import gradients, make_inputs, randomise

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures/weights"
READERS = {"huggingface": huggingface, "paddlenlp": paddlenlp, "tensorflow": tensorflow}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
SMALL = {"vocabulary": "vocab.txt", "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2,
         "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 12}
BERT = ModelConfig("bert", **SMALL)
ERNIE = ModelConfig("ernie", **SMALL, task_type_vocab_size=3)
NETWORKS = {
    "ForPreTraining": lambda config: tasks.build_for_pretraining(config, 4),
    "ForMaskedLM": lambda config: tasks.build_for_pretraining(config, 4, with_pairs=False),
    "Model": tasks.build_encoder,
    "ForQuestionAnswering": tasks.build_for_question_answering,
    "ForSequenceClassification": lambda c: tasks.build_for_sequence_classification(c, 3),
    "ForTokenClassification": lambda c: tasks.build_for_token_classification(c, 5),
    "ForMultipleChoice": lambda c: tasks.build_for_multiple_choice(c, 2)}


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocabulary.txt"
    path.write_text("\n".join(TOKENS) + "\n")
    return path


def values_of(network):
    return {name: parameter.numpy() for name, parameter in network.named_parameters()}


def assert_same(arrays, expected):
    assert set(arrays) == set(expected)
    for name in expected:
        assert arrays[name].dtype == np.float32
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)


# Folders that this project writes.


@pytest.mark.parametrize("library", ["huggingface", "paddlenlp"])
@pytest.mark.parametrize("task", NETWORKS)
@pytest.mark.parametrize("config", [BERT, ERNIE], ids=["bert", "ernie"])
def test_written_folders_are_read_back(library, task, config, vocabulary, tmp_path):
    network = NETWORKS[task](config)
    randomise(network, seed=1)
    READERS[library].save_pretrained(tmp_path / "out", network, config, vocabulary)
    arrays, values = READERS[library].read_pretrained(tmp_path / "out")
    assert_same(arrays, values_of(network))
    assert Path(values["vocabulary"]).read_text() == vocabulary.read_text()
    assert ModelConfig(**{**values, "vocabulary": "vocab.txt"}) == config
    declared = model_configs.declared_task(
        json.loads((tmp_path / "out/config.json").read_text()))
    assert declared == task
    assert type(build_network_for(arrays, config, declared).heads) is type(network.heads)


def test_huggingface_names_and_layouts(vocabulary, tmp_path):
    network = NETWORKS["ForPreTraining"](ERNIE)
    randomise(network, seed=1)
    huggingface.save_pretrained(tmp_path / "out", network, ERNIE, vocabulary)
    entries = load_file(tmp_path / "out/model.safetensors")
    ours = values_of(network)
    layer = "ernie.encoder.layer.1."
    for theirs, name in {
            "ernie.embeddings.task_type_embeddings.weight":
                "embeddings.task_type_embeddings.weight",
            "ernie.embeddings.LayerNorm.bias": "embeddings.layer_norm.bias",
            f"{layer}attention.output.LayerNorm.weight": "layer.1.attention_norm.weight",
            f"{layer}intermediate.dense.bias": "layer.1.intermediate.bias",
            "cls.predictions.bias": "heads.masked_lm.decoder_bias"}.items():
        np.testing.assert_array_equal(entries[theirs], ours[name])
    for theirs, name in {
            f"{layer}attention.self.value.weight": "layer.1.attention.value.weight",
            f"{layer}output.dense.weight": "layer.1.output.weight",
            "cls.predictions.transform.dense.weight": "heads.masked_lm.transform.weight",
            "cls.seq_relationship.weight": "heads.pair.weight"}.items():
        np.testing.assert_array_equal(entries[theirs], ours[name].T)
    assert len(entries) == len(ours)


def test_config_json_says_how_many_labels(vocabulary, tmp_path):
    huggingface.save_pretrained(tmp_path, NETWORKS["ForTokenClassification"](BERT), BERT,
                                vocabulary)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert len(config["id2label"]) == 5
    assert "use_task_id" not in config


def test_vocabulary_with_ids_is_written_a_token_a_line(tmp_path):
    source = tmp_path / "ids.txt"
    source.write_bytes("[PAD]\t0\n\u2028\t1\n。\t2\r\n".encode())
    huggingface.save_pretrained(tmp_path / "out", tasks.build_encoder(BERT), BERT, source)
    assert (tmp_path / "out/vocab.txt").read_bytes() == "[PAD]\n\u2028\n。\n".encode()


def test_paddlenlp_has_no_gelu_new(vocabulary, tmp_path):
    config = ModelConfig("bert", **SMALL, hidden_act="gelu_new")
    with pytest.raises(InputError, match="gelu_new"):
        paddlenlp.save_pretrained(tmp_path, tasks.build_encoder(config), config, vocabulary)


# Google's checkpoints.


def test_google_checkpoint():
    arrays, values = tensorflow.read_pretrained(FIXTURES / "google")
    saved = np.load(FIXTURES / "google.npz")
    assert len(arrays) == len(saved.files) == 46, "slots and counters are left out"
    for theirs, name in {
            "bert/embeddings/token_type_embeddings": "embeddings.token_type_embeddings.weight",
            "bert/encoder/layer_1/attention/self/key/kernel": "layer.1.attention.key.weight",
            "bert/encoder/layer_0/intermediate/dense/kernel": "layer.0.intermediate.weight",
            "bert/encoder/layer_1/output/LayerNorm/gamma": "layer.1.output_norm.weight",
            "bert/encoder/layer_1/output/LayerNorm/beta": "layer.1.output_norm.bias",
            "cls/predictions/output_bias": "heads.masked_lm.decoder_bias",
            "cls/seq_relationship/output_bias": "heads.pair.bias"}.items():
        np.testing.assert_array_equal(arrays[name], saved[theirs])
    np.testing.assert_array_equal(arrays["heads.pair.weight"],
                                  saved["cls/seq_relationship/output_weights"].T)
    assert values["vocabulary"] == str(FIXTURES / "google/vocab.txt")
    assert ModelConfig(**{**values, "vocabulary": "vocab.txt"}) == BERT
    network = tasks.build_for_pretraining(BERT, 4)
    assert not load_weights(network, arrays).missing


def test_every_value_of_a_google_checkpoint():
    arrays, _ = tensorflow.read_pretrained(FIXTURES / "google/bert_model.ckpt.index")
    saved = np.load(FIXTURES / "google.npz")
    assert_same(arrays, tensorflow.GOOGLE.to_ours(dict(saved), "google.npz"))


def test_tensorflow_2_names_and_bfloat16():
    arrays, _ = tensorflow.read_pretrained(FIXTURES / "google_keras/bert_model.ckpt")
    expected, _ = tensorflow.read_pretrained(FIXTURES / "google")
    assert set(expected) - set(arrays) == {name for name in expected
                                           if name.startswith("heads.")}
    for name, array in arrays.items():
        np.testing.assert_allclose(array, expected[name], rtol=2 ** -8, err_msg=name)


def copy_of(folder, tmp_path):
    return Path(shutil.copytree(FIXTURES / folder, tmp_path / folder))


@pytest.mark.parametrize("number", [0, 1])
def test_a_changed_weight_in_a_google_checkpoint_is_found(number, tmp_path):
    folder = copy_of("google", tmp_path)
    shard = folder / f"bert_model.ckpt.data-0000{number}-of-00002"
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    with pytest.raises(InputError, match=f"data-0000{number}-of-00002: damaged: the checksum"):
        tensorflow.read_pretrained(folder)


def test_a_cut_or_missing_shard_is_named(tmp_path):
    folder = copy_of("google", tmp_path)
    shard = folder / "bert_model.ckpt.data-00001-of-00002"
    shard.write_bytes(shard.read_bytes()[:1000])
    with pytest.raises(InputError, match="data-00001-of-00002: damaged: cut short at 'bert/"):
        tensorflow.read_pretrained(folder)
    shard.unlink()
    with pytest.raises(InputError, match="data-00001-of-00002: no such file"):
        tensorflow.read_pretrained(folder)


# torch's files.


@pytest.mark.parametrize("file", ["pytorch_model.bin", "legacy.bin"])
def test_torch_file(file):
    arrays, values = huggingface.read_pretrained(FIXTURES / "torch" / file)
    saved = np.load(FIXTURES / "torch.npz")
    assert len(arrays) == 46
    np.testing.assert_array_equal(arrays["embeddings.word_embeddings.weight"],
                                  saved["bert.embeddings.word_embeddings.weight"])
    np.testing.assert_array_equal(arrays["layer.1.attention_norm.bias"],
                                  saved["bert.encoder.layer.1.attention.output.LayerNorm.bias"])
    np.testing.assert_array_equal(arrays["layer.0.output.weight"],
                                  saved["bert.encoder.layer.0.output.dense.weight"].T)
    assert values["hidden_act"] == "gelu_new" and values["layer_norm_eps"] == 1e-5


def test_torch_number_types_and_views():
    arrays = read_torch_file(FIXTURES / "torch/types.bin")
    saved = np.load(FIXTURES / "torch.npz")
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, saved[f"types.{name}"], err_msg=name)
    assert set(arrays) == {"half", "bfloat16", "double", "transposed", "row", "scalar",
                           "parameter", "integers"}


# Pickles are never run.


class Malice:
    """Unpickles by making a file."""

    def __init__(self, path):
        self.command = f"touch {path}"

    def __reduce__(self):
        return os.system, (self.command,)


class Evaluation:
    """Unpickles by evaluating text, as Paddle pickles its own DenseTensor."""

    def __reduce__(self):
        return eval, ("1 + 1",)


def malicious_files(folder, payload):
    state = pickle.dumps({"bert.pooler.dense.weight": payload}, protocol=2)
    with zipfile.ZipFile(folder / "zip.bin", "w") as archive:
        archive.writestr("archive/data.pkl", state)
    magic = pickle.dumps(0x1950A86A20F9469CFC6C)
    (folder / "legacy.bin").write_bytes(magic + pickle.dumps(1001) + pickle.dumps({}) + state)
    (folder / "only.bin").write_bytes(state)
    (folder / "model_state.pdparams").write_bytes(state)
    return [(huggingface, "zip.bin"), (huggingface, "legacy.bin"), (huggingface, "only.bin"),
            (paddlenlp, "model_state.pdparams")]


def test_a_malicious_pickle_is_refused_and_named(tmp_path):
    made = tmp_path / "made"
    for reader, file in malicious_files(tmp_path, Malice(made)):
        with pytest.raises(InputError, match=rf"{file}: refused: .* (posix|nt)\.system"):
            reader.read_pretrained(tmp_path / file)
    for reader, file in malicious_files(tmp_path, Evaluation()):
        with pytest.raises(InputError, match=r"refused: .*builtin(s|__)\.eval"):
            reader.read_pretrained(tmp_path / file)
    assert not made.exists()


@pytest.mark.parametrize("module, name", [
    ("torch", "load"), ("numpy", "load"), ("numpy", "core.multiarray"), ("builtins", "getattr"),
    ("builtins", "__import__"), ("collections", "OrderedDict.__init__"), ("_codecs", "decode")])
def test_what_a_pickle_may_not_name(module, name):
    program = b"\x80\x04\x8c" + bytes([len(module)]) + module.encode() \
        + b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93."
    with pytest.raises(InputError, match="refused"):
        WeightsUnpickler(io.BytesIO(program), "file").load()


def test_arrays_of_objects_are_refused(tmp_path):
    path = tmp_path / "model_state.pdparams"
    path.write_bytes(pickle.dumps({"a": np.array([{}, {}], dtype=object)}))
    with pytest.raises(InputError, match="arrays of 'O8' are no weights"):
        paddlenlp.read_pretrained(path)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_what_paddle_saves(protocol, tmp_path):
    network = NETWORKS["ForSequenceClassification"](BERT)
    randomise(network, seed=3)
    state = {**network.state_dict(), "half": paddle.ones([2], "float16"),
             "bfloat16": paddle.to_tensor([1.5, -2.0]).astype("bfloat16"),
             "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
             "big": np.arange(3, dtype=">f4"), "step": 7}
    paddle.save(state, str(tmp_path / "state.pdparams"), protocol=protocol)
    arrays = paddlenlp.read_pdparams(tmp_path / "state.pdparams")
    for name, parameter in network.named_parameters():
        np.testing.assert_array_equal(arrays[name], parameter.numpy())
    assert arrays["bfloat16"].tolist() == [1.5, -2.0] and arrays["half"].tolist() == [1, 1]
    assert arrays["fortran"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["big"].tolist() == [0, 1, 2] and "step" not in arrays


# Damaged files.

SAMPLES = [("huggingface", "torch", "pytorch_model.bin"), ("huggingface", "torch", "legacy.bin"),
           ("huggingface", "torch", "model.safetensors"),
           ("paddlenlp", "paddlenlp", "model_state.pdparams"),
           ("tensorflow", "google", "bert_model.ckpt.index")]


@pytest.fixture
def sample(request, tmp_path):
    """Reader, path to read, file to damage."""
    library, folder, file = request.param
    folder = copy_of(folder, tmp_path)
    if file == "model.safetensors":
        save_file({"pooler.dense.bias": np.ones(8, "float32")}, folder / file)
    read = folder / "bert_model.ckpt" if library == "tensorflow" else folder / file
    return READERS[library], read, folder / file


@pytest.mark.parametrize("sample", SAMPLES, indirect=True, ids=lambda sample: sample[2])
def test_a_cut_file_is_told(sample):
    reader, path, file = sample
    data = file.read_bytes()
    for size in {0, 1, 7, 8, 40, 100, len(data) // 2, len(data) - 9, len(data) - 1}:
        if size < len(data):
            file.write_bytes(data[:size])
            with pytest.raises(InputError, match=file.name):
                reader.read_pretrained(path)


@pytest.mark.parametrize("sample", SAMPLES, indirect=True, ids=lambda sample: sample[2])
def test_changed_bytes_never_end_in_a_traceback(sample):
    reader, path, file = sample
    data = file.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(40):
        changed = bytearray(data)
        for position in random.integers(0, len(data), 3):
            changed[position] = random.integers(256)
        file.write_bytes(changed)
        try:
            reader.read_pretrained(path)
        except InputError:
            pass


@pytest.mark.parametrize("content", [b"", b"PK", b"hello", b"\x80\x04N.", b"{}"])
@pytest.mark.parametrize("library, file", [
    ("huggingface", "a.bin"), ("huggingface", "a.safetensors"), ("paddlenlp", "a.pdparams"),
    ("tensorflow", "a.index")])
def test_another_kind_of_file_is_told(content, library, file, tmp_path):
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError, match=file):
        READERS[library].read_pretrained(tmp_path / file)


@pytest.mark.parametrize("library", READERS)
def test_an_empty_folder_and_a_missing_file_are_told(library, tmp_path):
    with pytest.raises(InputError, match="holds"):
        READERS[library].read_pretrained(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        READERS[library].read_pretrained(tmp_path / "nothing.bin")


# safetensors in shards, other types, tied weights.


def huggingface_entries():
    saved = np.load(FIXTURES / "torch.npz")
    return {name: saved[name] for name in saved.files if not name.startswith("types.")}


def test_shards(tmp_path):
    entries = huggingface_entries()
    names = sorted(entries)
    files = {name: f"model-0000{1 + index % 2}-of-00002.safetensors"
             for index, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: entries[name] for name in names if files[name] == file},
                  tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    expected, _ = huggingface.read_pretrained(FIXTURES / "torch")
    assert_same(huggingface.read_pretrained(tmp_path)[0], expected)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InputError, match="model-00002-of-00002.safetensors: no such file"):
        huggingface.read_pretrained(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "../../etc/passwd"}}))
    with pytest.raises(InputError, match="no file name"):
        huggingface.read_pretrained(tmp_path)


def test_bfloat16_is_widened_exactly():
    numbers = np.array([0, -0.0, 1.5, -3e38, 1e-30, np.inf], "float32")
    kept = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    widened = bfloat16.widen(kept)
    np.testing.assert_array_equal(widened.view(np.uint32) & 0xFFFF, 0)
    np.testing.assert_array_equal(widened.view(np.uint32) >> 16, kept)
    np.testing.assert_allclose(widened, numbers, rtol=2 ** -7)


def test_safetensors_in_bfloat16(tmp_path):
    header = json.dumps({"pooler.dense.bias": {"dtype": "BF16", "shape": [2],
                                               "data_offsets": [0, 4]}}).encode()
    header += b" " * (-len(header) % 8)
    (tmp_path / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes([0x80, 0x3F, 0, 0xC0]))
    arrays, _ = huggingface.read_pretrained(tmp_path)
    assert arrays["pooler.dense.bias"].tolist() == [1.0, -2.0]


def test_an_untied_decoder_is_refused(tmp_path):
    entries = huggingface_entries()
    save_file(entries, tmp_path / "model.safetensors")
    assert len(huggingface.read_pretrained(tmp_path)[0]) == 46
    entries["cls.predictions.decoder.weight"] = entries["cls.predictions.decoder.weight"] + 1
    save_file(entries, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="cls.predictions.decoder.weight' differs"):
        huggingface.read_pretrained(tmp_path)


def test_a_bias_under_its_other_name_alone_is_read(tmp_path):
    entries = huggingface_entries()
    bias = entries.pop("cls.predictions.bias")
    save_file(entries, tmp_path / "model.safetensors")
    arrays, _ = huggingface.read_pretrained(tmp_path)
    np.testing.assert_array_equal(arrays["heads.masked_lm.decoder_bias"], bias)


# Configs of other libraries.


@pytest.mark.parametrize("change, problem", [
    ({"model_type": "roberta"}, "'roberta' is neither"), ({"hidden_act": "silu"}, "'silu'"),
    ({"position_embedding_type": "relative_key"}, "relative_key"),
    ({"is_decoder": True}, "is_decoder"), ({"hidden_size": "8"}, "'hidden_size' is '8'"),
    ({"vocab_size": None}, "'vocab_size' is None"), ({"layer_norm_eps": True}, "layer_norm_eps")])
def test_a_config_that_cannot_be_computed_is_told(change, problem):
    config = json.loads((FIXTURES / "torch/config.json").read_text())
    with pytest.raises(InputError, match=f"config.json: .*{problem}"):
        model_configs.from_json({**config, **change}, "config.json")


def test_a_config_that_is_no_json_is_told(tmp_path):
    folder = copy_of("torch", tmp_path)
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="config.json: not JSON"):
        huggingface.read_pretrained(folder)


def test_config_of_old_paddlenlp(tmp_path):
    """model_config.json as PaddleNLP 2.3 wrote it, the encoder's values nested."""
    folder = copy_of("paddlenlp", tmp_path)
    inner = json.loads((folder / "config.json").read_text())
    for key in ("architectures", "model_type", "type_vocab_size"):
        del inner[key]
    (folder / "config.json").unlink()
    (folder / "model_config.json").write_text(json.dumps(
        {"init_args": [{**inner, "init_class": "ErnieModel"}, 2],
         "init_class": "ErnieForQuestionAnswering"}))
    state = {"ernie.pooler.dense.bias": np.zeros(8, "float32"),
             "classifier.weight": np.ones((8, 2), "float32")}
    paddle.save(state, str(folder / "model_state.pdparams"))
    arrays, values = paddlenlp.read_pretrained(folder)
    assert set(arrays) == {"pooler.dense.bias", "heads.span.weight"}
    assert values["architecture"] == "ernie" and values["type_vocab_size"] == 16
    assert values["layer_norm_eps"] == 1e-12 and values["task_type_vocab_size"] == 3


@pytest.mark.parametrize("folder, tokenizer, lower_case", [
    ("uncased_L-2", None, True), ("cased_L-2", None, False), ("multi_cased", None, False),
    ("chinese_L-12", None, True), ("cased_L-2", {"do_lower_case": True}, True),
    ("model", {"do_lower_case": False}, False), ("model", {}, True)])
def test_case_of_the_vocabulary(folder, tokenizer, lower_case, tmp_path):
    folder = tmp_path / folder
    folder.mkdir()
    shutil.copy(FIXTURES / "torch/pytorch_model.bin", folder)
    assert "vocabulary" not in huggingface.read_pretrained(folder)[1]
    (folder / "vocab.txt").write_text("a\n")
    if tokenizer is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    _, values = huggingface.read_pretrained(folder)
    assert values["lower_case"] is lower_case
    assert values["vocabulary"] == str(folder / "vocab.txt")


# Into a network.


def pretrained_arrays():
    return huggingface.read_pretrained(FIXTURES / "torch")[0]


def test_missing_heads_are_told_loudly_and_keep_their_values():
    network = tasks.build_for_question_answering(BERT)
    initialise(network, seed=5, initializer_range=0.02)
    before = values_of(network)
    report = load_weights(network, pretrained_arrays())
    assert report.missing == ["heads.span.weight", "heads.span.bias"]
    assert len(report.loaded) == 37 and "pooler.dense.weight" in report.unexpected
    lines = report.lines()
    assert lines[0] == "loaded 37 parameters"
    assert lines[1] == ("NEWLY INITIALISED, not in the weights: heads.span.weight, "
                        "heads.span.bias")
    assert lines[2].startswith("left out, not in the network: heads.masked_lm.decoder_bias")
    after = values_of(network)
    np.testing.assert_array_equal(after["heads.span.weight"], before["heads.span.weight"])
    assert_same({name: after[name] for name in report.loaded},
                {name: pretrained_arrays()[name] for name in report.loaded})


def other_config(**changes):
    return ModelConfig("bert", **{**SMALL, **changes})


def test_another_number_of_labels_is_told():
    three, two = (tasks.build_for_sequence_classification(other_config(), labels)
                  for labels in (3, 2))
    with pytest.raises(InputError, match=r"heads.classifier.weight: is \[8, 3\].*data.labels"):
        load_weights(two, values_of(three))


@pytest.mark.parametrize("changes, message", [
    ({"vocab_size": 24}, r"embeddings.word_embeddings.weight: is \[20, 8\] in the weights, but "
     r"\[24, 8\] in the network; write model.vocab_size: 20, or pad the vocabulary"),
    ({"vocab_size": 16}, r"\[20, 8\] .* \[16, 8\] in the network; write model.vocab_size: 20"),
    ({"max_position_embeddings": 16}, r"position_embeddings.weight: is \[12, 8\] .* \[16, 8\] "
     r"in the network; write model.max_position_embeddings: 12"),
    ({"type_vocab_size": 4}, "write model.type_vocab_size: 2"),
    ({"intermediate_size": 8}, r"layer.0.intermediate.weight: is \[8, 16\] .* \[8, 8\]"),
    ({"num_hidden_layers": 3}, "layer.2.attention.query.weight: is not in the weights")])
def test_another_size_is_an_error_and_changes_nothing(changes, message):
    network = tasks.build_for_pretraining(other_config(**changes), 4)
    initialise(network, seed=5, initializer_range=0.02)
    before = values_of(network)
    with pytest.raises(InputError, match=message):
        load_weights(network, pretrained_arrays())
    assert_same(values_of(network), before)


def test_padding_lengthens_with_zeros():
    network = tasks.build_for_pretraining(other_config(vocab_size=24), 4)
    randomise(network, seed=5)
    report = load_weights(network, pretrained_arrays(), pad_vocabulary=True)
    assert report.padded == [("embeddings.word_embeddings.weight", 20, 24),
                             ("heads.masked_lm.decoder_bias", 20, 24)]
    assert "padded heads.masked_lm.decoder_bias with zeros from 20 to 24 rows" in report.lines()
    after = values_of(network)
    for name, _, _ in report.padded:
        np.testing.assert_array_equal(after[name][:20], pretrained_arrays()[name])
        assert not after[name][20:].any()


@pytest.mark.parametrize("changes", [{"vocab_size": 16}, {"max_position_embeddings": 16}])
def test_padding_neither_cuts_nor_lengthens_other_tables(changes):
    network = tasks.build_for_pretraining(other_config(**changes), 4)
    with pytest.raises(InputError):
        load_weights(network, pretrained_arrays(), pad_vocabulary=True)


# The networks compute what Hugging Face's and PaddleNLP's do; see make_reference.py.


@pytest.mark.parametrize("model, library, folder", [
    ("bert", huggingface, "torch"), ("ernie", paddlenlp, "paddlenlp")])
def test_results_of_the_peers(model, library, folder):
    saved = np.load(FIXTURES / "reference.npz")
    arrays, values = library.read_pretrained(FIXTURES / folder)
    config = ModelConfig(**values, vocabulary="vocab.txt")
    network = tasks.build_encoder(config)
    network.heads = PretrainingHeads(config, network.embeddings.word_embeddings,
                                     saved["input_ids"].shape[1])
    report = load_weights(network, arrays)
    assert not report.missing and not report.unexpected
    network.eval()
    mask = saved["attention_mask"]
    logits = network(make_inputs(saved["input_ids"], mask, saved["token_type_ids"]))
    masked_lm, pair = logits["masked_lm_logits"], logits["pair_logits"].squeeze(1)
    tokens = mask.astype(bool)
    np.testing.assert_allclose(masked_lm.numpy()[tokens],
                               saved[f"{model}.masked_lm_logits"][tokens], atol=1e-5)
    np.testing.assert_allclose(pair.numpy(), saved[f"{model}.pair_logits"], atol=1e-5)
    loss = ((masked_lm * paddle.to_tensor(saved["masked_lm_weights"])).sum()
            + (pair * paddle.to_tensor(saved["pair_weights"])).sum())
    loss.backward()
    norms = {name: np.linalg.norm(gradient) for name, gradient in gradients(network).items()}
    expected = dict(zip(saved[f"{model}.gradient_names"], saved[f"{model}.gradient_norms"]))
    assert set(norms) == set(expected)
    for name in expected:
        if name.endswith("key.bias"):  # softmax does not see it: the gradient is 0 but for rounding
            assert norms[name] < 1e-6
        else:
            assert norms[name] == pytest.approx(expected[name], rel=1e-4), name


# The entry point.


@pytest.fixture
def without_peers(monkeypatch):
    for module in ("torch", "transformers", "paddlenlp"):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.usefixtures("without_peers")
def test_convert_google_to_huggingface(tmp_path, capsys):
    output = tmp_path / "deep/out"
    result = convert_weights.main(["--input", str(FIXTURES / "google/bert_model.ckpt"), "--to",
                                   "huggingface", "--output", str(output)])
    expected, _ = tensorflow.read_pretrained(FIXTURES / "google")
    assert_same(huggingface.read_pretrained(output)[0], expected)
    assert len(result["report"].loaded) == 46 and result["differences"] == {}
    printed = capsys.readouterr().out
    assert "loaded 46 parameters" in printed and "not compared with huggingface" in printed
    assert sorted(path.name for path in output.iterdir()) == [
        "config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]


@pytest.mark.usefixtures("without_peers")
@pytest.mark.parametrize("options", [
    ["--pad-vocabulary", "24"], ["--pad-vocabulary", "--set", "model.vocab_size=24"]])
def test_convert_and_pad(options, vocabulary, tmp_path):
    convert_weights.main(["--input", str(FIXTURES / "paddlenlp"), "--to", "paddlenlp",
                          "--output", str(tmp_path / "out"), *options,
                          "--set", f"model.vocabulary={vocabulary}"])
    arrays, values = paddlenlp.read_pretrained(tmp_path / "out")
    assert values["vocab_size"] == 24
    assert arrays["embeddings.word_embeddings.weight"].shape == (24, 8)
    assert arrays["heads.masked_lm.decoder_bias"].shape == (24,)


@pytest.mark.usefixtures("without_peers")
def test_convert_with_a_config_of_ours(vocabulary, tmp_path):
    source = shutil.copy(FIXTURES / "torch/legacy.bin", tmp_path)
    config = tmp_path / "model.yaml"
    config.write_text("model:\n  architecture: bert\n" + "".join(
        f"  {key}: {value}\n" for key, value in {**SMALL, "vocabulary": vocabulary}.items()))
    arguments = ["--input", source, "--to", "huggingface", "--output", str(tmp_path / "out")]
    with pytest.raises(InputError, match="legacy.bin: has no config beside it; add --config"):
        convert_weights.main(arguments)
    convert_weights.main([*arguments, "--config", str(config)])
    assert_same(huggingface.read_pretrained(tmp_path / "out")[0], pretrained_arrays())


@pytest.mark.parametrize("options, message", [
    (["--input", "nowhere"], "nowhere: no such file"),
    (["--input", str(FIXTURES)], "holds no weights of a known kind"),
    (["--input", str(FIXTURES / "torch")], "no vocab.txt beside it; add --set model.vocabulary"),
    (["--input", str(FIXTURES / "google"), "--set", "model.vocab_size=24"], "pad the vocabulary"),
    (["--input", str(FIXTURES / "google"), "--from", "paddlenlp"], "holds 0 .pdparams files"),
    (["--input", str(FIXTURES / "google"), "--from", "onnx"], "invalid choice"), ([], "--input")])
def test_what_cannot_be_converted_is_one_line_and_leaves_nothing(options, message, tmp_path,
                                                                 capsys):
    output = tmp_path / "out"
    arguments = [*options, "--to", "huggingface", "--output", str(output)]
    assert run(convert_weights.main, arguments) == EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and error.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_peers")
def test_a_failed_conversion_leaves_nothing_and_a_folder_is_not_overwritten(tmp_path,
                                                                            monkeypatch):
    output = tmp_path / "out"
    arguments = ["--input", str(FIXTURES / "google"), "--to", "huggingface", "--output",
                 str(output)]

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(convert_weights, "compare", fail)
        with pytest.raises(KeyboardInterrupt):
            convert_weights.main(arguments)
    assert list(tmp_path.iterdir()) == []
    convert_weights.main(arguments)
    with pytest.raises(InputError, match="is there already"):
        convert_weights.main(arguments)


@pytest.mark.usefixtures("without_peers")
def test_names_of_labels_go_into_config_json_and_through_a_conversion(vocabulary, tmp_path):
    labels = ["O", "B-X", "你"]
    network = tasks.build_for_classification(BERT, "tokens", labels)
    initialise(network, 0, 0.02)
    huggingface.save_pretrained(tmp_path / "one", network, BERT, vocabulary)
    config = json.loads((tmp_path / "one" / "config.json").read_text("utf-8"))
    assert config["id2label"] == {"0": "O", "1": "B-X", "2": "你"}
    assert config["label2id"] == {"O": 0, "B-X": 1, "你": 2}
    convert_weights.main(["--input", str(tmp_path / "one"), "--to", "paddlenlp",
                          "--output", str(tmp_path / "two")])
    assert model_configs.label_names(
        json.loads((tmp_path / "two" / "config.json").read_text("utf-8"))) == labels


@pytest.mark.parametrize("values", [{}, {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}},
                                    {"id2label": {"0": "a", "2": "b"}}, {"id2label": []}])
def test_a_config_that_names_no_labels(values):
    assert model_configs.label_names(values) is None
