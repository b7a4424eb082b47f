"""The YAML contract: shipped recipes, published values, and what a faulty file is told."""

import dataclasses
import hashlib
import re
import subprocess
import sys
import time
import typing
from pathlib import Path

import pytest

from configs.command_line import EXIT_BAD_INPUT, EXIT_INTERRUPTED, build_parser, run
from configs.errors import InputError
from configs.load import describe_keys, load_config, load_section, to_yaml
from configs.schema import SECTIONS, Config

ROOT = Path(__file__).resolve().parents[2]
MODELS = sorted((ROOT / "configs/models").glob("*.yaml"))
# Files of configs/machines are parts of these; those of configs/inference are no recipes.
RECIPES = sorted(path for path in (ROOT / "configs").rglob("*.yaml")
                 if path.parent.name not in ("models", "machines", "inference"))
# What a file of configs/models leaves open.
MINIMAL = ("train.steps=1", "train.global_batch_size=1", "train.learning_rate=1e-4",
           "run.micro_batch_size=1")
# A faulty file is refused in about 20 ms, the slowest (30,000 open brackets) in under 2 s.
SECONDS_ALLOWED = 20  # a second on an idle machine; what it guards against takes minutes


def load_shipped(path):
    return load_config(path, MINIMAL if path in MODELS else ())


def pretrain(name):
    return load_config(ROOT / f"configs/pretrain/{name}.yaml")


def relative(path):
    return str(path.relative_to(ROOT / "configs"))


def fields():
    """``section.key``, its field and its type, for every key there is."""
    for section, schema in SECTIONS.items():
        hints = typing.get_type_hints(schema)
        for field in dataclasses.fields(schema):
            yield f"{section}.{field.name}", field, hints[field.name]


def as_yaml(value):
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else value


def recipe(changes=()):
    """A recipe with every key written out, some of its lines changed (None: left out)."""
    changes, lines = dict(changes), []
    for section in SECTIONS:
        lines.append(f"{section}:")
        for key, value in dataclasses.asdict(getattr(PLAIN, section)).items():
            line = changes.get(f"{section}.{key}", f"{key}: {as_yaml(value)}")
            lines += [] if line is None else [f"  {line}"]
    return "\n".join(lines) + "\n"


def line_of(words, text):
    """The number, from 1, of the first line that ends in these words."""
    lines = text.split("\n")
    return next(number for number, line in enumerate(lines, 1) if line.endswith(words))


# The recipe that the tests below bend; no shipped one, so that those may be tuned.
PLAIN = load_config(ROOT / "configs/models/bert_mini_uncased.yaml", [
    "data.sources=[corpus.txt]", "train.steps=300", "train.global_batch_size=32",
    "train.learning_rate=0.001", "run.micro_batch_size=32"])
WHOLE = recipe()


def write(folder, files):
    """Write texts or bytes into a folder; return the path of the first."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return folder / next(iter(files))


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """The file of a right recipe."""
    return write(tmp_path_factory.mktemp("plain"), {"plain.yaml": WHOLE})



# --- shipped files ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", MODELS + RECIPES, ids=relative)
def test_every_shipped_file_loads_and_says_what_it_is(path):
    config = load_shipped(path)
    assert isinstance(config, Config)
    assert path.read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("path", MODELS + RECIPES, ids=relative)
def test_a_resolved_config_reads_back_the_same(path, tmp_path):
    config = load_shipped(path)
    (tmp_path / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
    assert load_config(tmp_path / "config.yaml") == config


@pytest.mark.parametrize("path", [p for p in RECIPES if p.stem.endswith("_cpu")], ids=relative)
def test_a_cpu_file_differs_from_its_parent_under_run_alone(path):
    machine, parent = load_config(path), load_config(path.with_name(f"{path.stem[:-4]}.yaml"))
    assert (machine.model, machine.data, machine.train) == (
        parent.model, parent.data, parent.train)
    assert machine.run != parent.run and machine.run.device == "cpu"


def test_every_big_recipe_has_a_cpu_file():
    names = {path.stem for path in RECIPES}
    assert {"bert_base_128_cpu", "bert_base_384_cpu", "ernie_1_base_512_cpu"} <= names


# Layers, width, heads, feed-forward width (Turc et al. 2019; Devlin et al. 2018).
BERT_SIZES = {
    "bert_tiny_uncased": (2, 128, 2, 512),
    "bert_mini_uncased": (4, 256, 4, 1024),
    "bert_small_uncased": (4, 512, 8, 2048),
    "bert_medium_uncased": (8, 512, 8, 2048),
    "bert_base_uncased": (12, 768, 12, 3072),
    "bert_large_uncased": (24, 1024, 16, 4096),
    "bert_base_chinese": (12, 768, 12, 3072),
}
# The same, then activation, positions, token types, task types, rows (PaddleNLP's
# ERNIE_PRETRAINED_INIT_CONFIGURATION; no task types where use_task_id is not set).
ERNIE_SIZES = {
    "ernie_1.0_base_zh": (12, 768, 12, 3072, "relu", 513, 2, 0, 18000),
    "ernie_2.0_base_en": (12, 768, 12, 3072, "gelu", 512, 4, 0, 30522),
    "ernie_2.0_base_zh": (12, 768, 12, 3072, "relu", 513, 4, 0, 18000),
    "ernie_3.0_base_zh": (12, 768, 12, 3072, "gelu", 2048, 4, 3, 40000),
    "ernie_3.0_medium_zh": (6, 768, 12, 3072, "gelu", 2048, 4, 16, 40000),
    "ernie_3.0_mini_zh": (6, 384, 12, 1536, "gelu", 2048, 4, 16, 40000),
    "ernie_3.0_micro_zh": (4, 384, 12, 1536, "gelu", 2048, 4, 16, 40000),
    "ernie_3.0_nano_zh": (4, 312, 12, 1248, "gelu", 2048, 4, 16, 40000),
}


def sizes(model):
    return (model.num_hidden_layers, model.hidden_size, model.num_attention_heads,
            model.intermediate_size)


@pytest.mark.parametrize("name", BERT_SIZES)
def test_bert_sizes(name):
    model = load_section("model", ROOT / f"configs/models/{name}.yaml")
    assert model.architecture == "bert" and sizes(model) == BERT_SIZES[name]
    assert (model.hidden_act, model.layer_norm_eps, model.max_position_embeddings,
            model.type_vocab_size, model.task_type_vocab_size) == ("gelu", 1e-12, 512, 2, 0)


@pytest.mark.parametrize("name", ERNIE_SIZES)
def test_ernie_sizes(name):
    model = load_section("model", ROOT / f"configs/models/{name}.yaml")
    assert model.architecture == "ernie" and model.layer_norm_eps == 1e-12
    assert (*sizes(model), model.hidden_act, model.max_position_embeddings, model.type_vocab_size,
            model.task_type_vocab_size, model.vocab_size) == ERNIE_SIZES[name]


# Tokens in the file and rows of the embedding.
VOCABULARIES = {
    "data/vocabularies/bert_base_uncased.txt": (30522, 30522),
    "data/vocabularies/bert_base_chinese.txt": (21128, 21128),
    "data/vocabularies/ernie_1.0_zh.txt": (17964, 18000),
    "data/vocabularies/ernie_3.0_zh.txt": (39980, 40000),
}


@pytest.mark.parametrize("path", MODELS + RECIPES, ids=relative)
def test_the_embedding_has_a_row_for_every_token(path):
    model = load_shipped(path).model
    tokens, rows = VOCABULARIES[model.vocabulary]
    text = (ROOT / model.vocabulary).read_bytes().decode("utf-8")
    assert len(text.rstrip("\n").split("\n")) == tokens
    assert model.vocab_size == rows >= tokens


def test_samples_are_as_their_readme_says():
    readme = (ROOT / "data/samples/README.md").read_text(encoding="utf-8")
    for name in ("wikipedia_en.txt", "wikipedia_zh.txt"):
        content = (ROOT / "data/samples" / name).read_bytes()
        row = next(line for line in readme.split("\n") if line.startswith(f"| `{name}`"))
        assert hashlib.sha256(content).hexdigest() in row and f"{len(content):,}" in row
        assert f"| {content.count(bytes([10, 10])) + 1:,} article" in row
        assert len(content) < 2_900_000


# --- published values ------------------------------------------------------------------------


def test_phase_1_is_paddlenlps_ipu_recipe():
    config = pretrain("bert_base_128")
    published = {
        "steps": 7038, "global_batch_size": 65536, "learning_rate": 0.006, "optimizer": "lamb",
        "warmup_steps": 2000, "weight_decay": 0.01, "decay_all_parameters": True, "beta1": 0.9,
        "beta2": 0.999, "epsilon": 1e-6, "bias_correction": False, "max_gradient_norm": 0.0,
        "initial_weights": None}
    assert {key: getattr(config.train, key) for key in published} == published
    assert (config.data.sequence_length, config.data.max_predictions) == (128, 20)
    assert config.data.pair_objective == "nsp"
    assert (config.model.layer_norm_eps, config.model.hidden_act) == (1e-3, "gelu_new")
    assert (config.model.hidden_dropout_prob, config.model.attention_probs_dropout_prob) == (
        0.1, 0.0)
    assert config.run.micro_batch_size == 32 and config.accumulation_steps == 4 * 512


def test_phase_2_goes_on_from_phase_1():
    first, second = pretrain("bert_base_128"), pretrain("bert_base_384")
    changed = {key: value for key, value in dataclasses.asdict(second.train).items()
               if value != getattr(first.train, key)}
    assert changed == {"steps": 2137, "global_batch_size": 16384, "warmup_steps": 274,
                       "learning_rate": 0.002828427125, "save_every": 500,
                       "initial_weights": "runs/bert_base_128/checkpoints/step_00007038"}
    assert (second.data.sequence_length, second.data.max_predictions) == (384, 56)
    assert second.model == first.model
    assert second.run.micro_batch_size == 8 and second.accumulation_steps == 4 * 512


def test_ernie_is_paddlenlps_recipe():
    config = pretrain("ernie_1_base_512")
    train = config.train
    assert (train.steps, train.global_batch_size, train.learning_rate) == (1_000_000, 512, 1e-4)
    assert (train.optimizer, train.warmup_steps, train.weight_decay) == ("adamw", 10_000, 0.01)
    assert (train.beta1, train.beta2, train.epsilon) == (0.9, 0.999, 1e-8)
    assert (train.max_gradient_norm, train.decay_all_parameters) == (1.0, False)
    data = config.data
    assert (data.sequence_length, data.max_predictions, data.pair_objective) == (512, 76, "sop")
    assert sizes(config.model) == (12, 768, 12, 3072)
    assert config.accumulation_steps == 8


@pytest.mark.parametrize("name", ["quickstart", "quickstart_ernie_zh"])
def test_a_quick_start_reads_the_sample_that_is_shipped(name):
    config = pretrain(name)
    assert [(ROOT / source).is_file() for source in config.data.sources] == [True]
    assert config.data.directory == f"prepared/{name}"


# --- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("written, value", [
    ("1e-4", 1e-4), ("1.0e-4", 1e-4), ("1.e-4", 1e-4), ("1E-4", 1e-4), ("+6e-3", 6e-3),
    (".5", 0.5), ("5", 5.0), ("1e+2", 100.0)])
def test_a_number_is_a_float_with_and_without_a_dot(written, value, plain):
    rate = load_config(plain, [f"train.learning_rate={written}"]).train.learning_rate
    assert rate == value and isinstance(rate, float)


@pytest.mark.parametrize("written", [
    "'1e-4'", '"0.1"', ".inf", "-.inf", ".nan", "1e999", "1_0.5", "1e", "0x10", "1:30", "0,1",
    "true", "null", "٠.٥", "!!python/float 0.1"])
def test_what_is_no_float_is_refused(written, plain):
    with pytest.raises(InputError, match="'train.learning_rate' wants a number, not "):
        load_config(plain, [f"train.learning_rate={written}"])


@pytest.mark.parametrize("written", [
    "'20'", '"20"', "20.0", "2e1", "010", "0o17", "0x10", "1_000", "1:30", "true", "null", "~",
    "twenty", "9" * 5000, "10000000000000000000", "!!int '20'", "!local 20", "[20]", "{a: 20}"])
def test_what_is_no_integer_is_refused(written, plain):
    with pytest.raises(InputError, match="'train.seed' wants an integer, not "):
        load_config(plain, [f"train.seed={written}"])


@pytest.mark.parametrize("written, value", [
    ("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False)])
def test_booleans(written, value, plain):
    train = load_config(plain, [f"train.decay_all_parameters={written}"]).train
    assert train.decay_all_parameters is value


@pytest.mark.parametrize("written", [
    "on", "off", "yes", "no", "On", "YES", "y", "n", "1", "0", "'true'", '"false"', "null"])
def test_only_true_and_false_are_booleans(written, plain):
    with pytest.raises(InputError, match="wants true or false, not "):
        load_config(plain, [f"train.decay_all_parameters={written}"])


@pytest.mark.parametrize("key, written, problem", [
    ("data.pair_objective", "null", "wants nsp or sop or none, not null"),
    ("data.pair_objective", "off", "wants nsp or sop or none, not off"),
    ("data.pair_objective", "NSP", "not NSP; did you mean 'nsp'"),
    ("train.optimizer", "adam", "wants adamw or lamb, not adam; did you mean 'adamw'"),
    ("model.vocabulary", "123", "wants text, not 123; put it in quotes"),
    ("model.vocabulary", "''", "wants text, not ''"),
    ("model.vocabulary", "!!python/name:os.system x",
     "x with the tag tag:yaml.org,2002:python/name:os.system; remove the tag"),
    ("model.vocabulary", "!!python/name:str x", "wants text, not x with the tag"),
    ("data.sources", "corpus.txt", r"wants a list; write \[first, second\]"),
    ("data.sources", "!!python/tuple [a]", "wants a list"),
    ("data.sources", "[a, 5]", "wants text, not 5"),
    ("data.sources", "[[a]]", "wants text, not a list; write one value"),
    ("train.initial_weights", "[a]", "wants text or null, not a list"),
    ("run.threads", "'4'", "wants an integer or null, not '4'; remove the quotes")])
def test_other_wrong_values(key, written, problem, plain):
    with pytest.raises(InputError, match=problem) as caught:
        load_config(plain, [f"{key}={written}"])
    assert str(caught.value).startswith(f"--set {key}=")


def test_none_is_a_word_where_a_choice_is_wanted(plain):
    assert load_config(plain, ["data.pair_objective=none"]).data.pair_objective == "none"


# --- overrides and inheritance ---------------------------------------------------------------


def test_overrides_beat_the_file_and_later_ones_win(plain):
    config = load_config(plain, ["train.steps=7", "train.steps = 9", "run.threads=null",
                                      "data.sources=[a.txt, 'b c.txt']"])
    assert config.train.steps == 9 and config.run.threads is None
    assert config.data.sources == ["a.txt", "b c.txt"]
    assert config.train.learning_rate == 1e-3  # the file's


@pytest.mark.parametrize("override, problem", [
    ("train.steps", "--set train.steps: no '=' in it; write --set section.key=value"),
    ("=5", "--set =5: unknown section ''; known are model, data, train, run"),
    ("trian.steps=5", "--set trian.steps=5: unknown section 'trian'; did you mean 'train'?"),
    ("steps=5", "--set steps=5: unknown section 'steps'; write it under 'train:'"),
    ("train.step=5", "--set train.step=5: unknown key 'train.step'; did you mean 'train.steps'?"),
    ("run.steps=5", "--set run.steps=5: unknown key 'run.steps'; it belongs to 'train'"),
    ("base=x", "--set base=x: unknown section 'base'; known are model, data, train, run"),
    ("train.steps=", "--set train.steps=: '' is no value; write --set section.key=value"),
    ("train.steps=[1", "--set train.steps=[1: '[1' is no value; write --set section.key=value"),
    ("train.steps=-1", "--set train.steps=-1: train.steps: -1 is not positive; "
                       "write more than 0")])
def test_wrong_overrides(override, problem, plain):
    with pytest.raises(InputError) as caught:
        load_config(plain, [override])
    assert str(caught.value) == problem


def test_own_keys_win_wherever_base_stands(tmp_path):
    path = write(tmp_path, {
        "recipes/child.yaml": "train: {steps: 3}\nbase: ../whole.yaml\nrun: {threads: 2}\n",
        "whole.yaml": WHOLE})
    config = load_config(path)
    assert (config.train.steps, config.run.threads) == (3, 2)
    assert config.train.learning_rate == 1e-3


def test_the_last_of_several_bases_wins(tmp_path):
    path = write(tmp_path, {
        "child.yaml": "base: [whole.yaml, first.yaml, second.yaml]\n", "whole.yaml": WHOLE,
        "first.yaml": "train: {steps: 1, seed: 1}\n", "second.yaml": "train: {steps: 2}\n"})
    config = load_config(path)
    assert (config.train.steps, config.train.seed) == (2, 1)


def test_two_bases_may_share_a_third(tmp_path):
    path = write(tmp_path, {
        "child.yaml": "base: [a.yaml, b.yaml]\n", "a.yaml": "base: whole.yaml\n",
        "b.yaml": "base: whole.yaml\ntrain: {steps: 5}\n", "whole.yaml": WHOLE})
    assert load_config(path).train.steps == 5


def test_a_fault_in_a_base_is_told_with_the_bases_name_and_line(tmp_path):
    bent = recipe({"train.steps": "steps: many"})
    path = write(tmp_path, {"child.yaml": "base: bent.yaml\n", "bent.yaml": bent})
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert str(caught.value) == (f"{tmp_path}/bent.yaml:{line_of('steps: many', bent)}: "
                                 "'train.steps' wants an integer or null, not many")


def test_a_byte_order_mark_and_windows_line_ends_are_no_fault(tmp_path):
    path = write(tmp_path, {"recipe.yaml": b"\xef\xbb\xbf" + WHOLE.replace("\n", "\r\n").encode()})
    assert load_config(path) == load_config(write(tmp_path, {"plain.yaml": WHOLE}))


# --- batch arithmetic and contradictions -----------------------------------------------------


@pytest.mark.parametrize("batch, micro, replicas, accumulation", [
    (32, 32, 1, 1), (32, 8, 1, 4), (65536, 32, 4, 512), (65536, 32, 1, 2048), (128, 2, 4, 16)])
def test_accumulation_is_derived(batch, micro, replicas, accumulation, plain):
    layout = [f"train.global_batch_size={batch}", f"run.micro_batch_size={micro}",
              f"run.replicas={replicas}"]
    assert load_config(plain, layout).accumulation_steps == accumulation
    stated = [*layout, f"run.accumulation_steps={accumulation}"]
    assert load_config(plain, stated).accumulation_steps == accumulation


CONTRADICTIONS = [
    (["train.global_batch_size=30"], "train.global_batch_size: 30 is no multiple of "
     "run.micro_batch_size 32 x run.replicas 1; change one of the three"),
    (["run.micro_batch_size=8", "run.accumulation_steps=2"],
     "run.accumulation_steps: micro batch 8 x accumulation 2 x replicas 1 = 16, but "
     "train.global_batch_size is 32; write 4, or null to derive it"),
    (["run.replicas=3"], "train.global_batch_size: 32 is no multiple of "
     "run.micro_batch_size 32 x run.replicas 3; change one of the three"),
    (["run.replicas=0"], "run.replicas: 0 is not positive; write more than 0"),
    (["model.num_attention_heads=5"], "model.num_attention_heads: 5 heads do not divide "
     "hidden_size 256; choose a divisor"),
    (["model.task_type_vocab_size=3"], "model.task_type_vocab_size: BERT has no task-type "
     "embedding; write 0, or architecture: ernie"),
    (["model.task_type_vocab_size=-3"], "model.task_type_vocab_size: is negative; write 0 or "
     "more"),
    (["model.type_vocab_size=1"], "model.type_vocab_size: 1 row, but a pair has two segments; "
     "write 2 or more"),
    (["model.max_position_embeddings=64"], "data.sequence_length: 128 tokens, but "
     "model.max_position_embeddings is 64; shorten the rows or take another model"),
    (["data.max_predictions=125"], "data.max_predictions: 125 predictions and 1 [CLS] do not "
     "fit a row of 128 slots; lower it or lengthen data.sequence_length"),
    (["data.held_out_share=1"], "data.held_out_share: 1.0 is outside [0, 1); write a share"),
    (["train.beta2=1.0"], "train.beta2: 1.0 is outside [0, 1); write e.g. 0.9"),
    (["train.max_weight_norm=10"], "train.max_weight_norm: 10.0 is offered for lamb only; "
     "remove it, or write train.optimizer: lamb"),
    (["train.seed=-1"], "train.seed: -1 is negative; write 0 or more"),
    (["run.precision=fp16"], "run.precision: fp16 is not computed on cpu; write fp32"),
    (["run.precision=bf16"], "run.precision: bf16 is not computed on cpu; write fp32"),
    (["run.device=ipu", "run.precision=bf16"],
     "run.precision: bf16 is not computed on ipu; write fp32 or fp16"),
    (["run.device=ipu", "run.precision=fp16", "run.loss_scale=null"],
     "run.loss_scale: null adapts it, which ipu cannot; write a number, e.g. 512"),
    (["run.loss_scale=0"], "run.loss_scale: 0.0 is not positive; write more than 0"),
    (["run.batches_per_step=4"], "run.batches_per_step: 4 updates that share a learning rate are "
     "made on IPUs alone, not on cpu; write 1"),
    (["run.device=ipu_model", "run.available_memory_proportion=[0.2,1.5]"],
     "run.available_memory_proportion: a share is outside (0, 1]; write e.g. [0.28]"),
    (["run.embedding_serialization_factor=5"], "run.embedding_serialization_factor: 5 does not "
     "divide model.vocab_size 30522; choose a divisor, or 1"),
]


@pytest.mark.parametrize("overrides, message", CONTRADICTIONS, ids=lambda item: str(item)[:40])
def test_values_that_contradict_one_another(overrides, message, plain):
    with pytest.raises(InputError) as caught:
        load_config(plain, overrides)
    assert str(caught.value).endswith(f": {message}")
    # The line of the file, or the override, that gave the value.
    assert re.match(r"(\S+\.yaml:\d+|--set \S+): ", str(caught.value))


@pytest.mark.parametrize("override", [
    "run.ipus=16", "run.loss_scale=512", "run.recompute=true", "run.shard_optimizer=true",
    "run.available_memory_proportion=[0.1, 0.2]", "run.half_partials=true",
    "run.stochastic_rounding=true", "run.optimizer_state_on_chip=true",
    "run.embedding_serialization_factor=6", "run.prefetch_depth=3", "run.outline_threshold=10",
    "run.engine_cache=cache"])
def test_what_only_tunes_ipus_may_stand_in_a_file_for_a_cpu(override, plain):
    assert load_config(plain, [override]).run.device == "cpu"


# --- faulty files ----------------------------------------------------------------------------


def is_optional(hint):
    return typing.get_origin(hint) is typing.Union


def bare(hint):
    return typing.get_args(hint)[0] if is_optional(hint) else hint


def is_required(field):
    return (field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING)


@dataclasses.dataclass(frozen=True)
class Fault:
    """Files, the first of which is loaded; the line the error must name; words it must hold."""

    name: str
    files: dict
    line: typing.Optional[int]
    says: typing.Tuple[str, ...]


def changed_line(name, key, line, *says):
    text = recipe({key: line})
    return Fault(f"{name} {key}", {"recipe.yaml": text}, line_of(line, text), says)


WRONG = {int: "many", float: "fast", bool: "yes", str: "17", list: "text"}


def faults_of_a_key(key, field, hint):
    """What can be wrong with one key."""
    name, kind = key.split(".")[1], typing.get_origin(bare(hint)) or bare(hint)
    typo = name[:len(name) // 2] + name[len(name) // 2 + 1:]
    yield changed_line("misspelt", key, f"{typo}: 1", f"did you mean '{key}'?")
    yield changed_line("mistyped", key, f"{name}: {WRONG.get(kind, 'other')}", f"'{key}' wants")
    yield changed_line("nested", key, f"{name}: {{a: 1}}", f"'{key}' wants")
    if not is_optional(hint):
        yield changed_line("null", key, f"{name}: null", f"'{key}' wants")
        yield changed_line("blank", key, f"{name}:", f"'{key}' wants")
    if kind in (int, float):
        yield changed_line("quoted", key, f"{name}: '1'", f"'{key}' wants", "remove the quotes")
        yield changed_line("negative", key, f"{name}: -1", key)
    if is_required(field):
        yield Fault(f"missing {key}", {"recipe.yaml": recipe({key: None})}, None,
                    (f"'{key}' is missing; add it: ",))


def whole(name, line, *says, **replaced):
    """A fault by plain replacement in the whole recipe: ``old="…", new="…"``."""
    text = WHOLE.replace(replaced["old"], replaced["new"], 1)
    assert text != WHOLE
    return Fault(name, {"recipe.yaml": text}, line, says)


def alone(name, content, line, *says):
    return Fault(name, {"recipe.yaml": content}, line, says)


def based(name, base, line, *says, **others):
    files = {"recipe.yaml": f"# a comment\nbase: {base}\ntrain: {{steps: 1}}\n"}
    return Fault(name, {**files, **others}, line, says)


STEPS = line_of("steps: 300", WHOLE)
BATCH = line_of("global_batch_size: 32", WHOLE)
TRAIN = line_of("train:", WHOLE)
RUN = line_of("run:", WHOLE)
END = WHOLE.count("\n")
DEEP = {f"{number}.yaml": f"base: {number + 1}.yaml\n" for number in range(20)}

FAULTS = [fault for item in fields() for fault in faults_of_a_key(*item)] + [
    # The shape of the file.
    alone("empty", "", None, "the file is empty", "write the sections model, data, train, run"),
    alone("only comments", "# nothing\n\n# yet\n", None, "the file is empty"),
    alone("only a byte order mark", b"\xef\xbb\xbf", None, "the file is empty"),
    alone("only a document mark", "---\n", 2, "must hold 'key: value' lines"),
    alone("list at top level", "- model\n- data\n", 1, "must hold 'key: value' lines"),
    alone("word at top level", "hello\n", 1, "must hold 'key: value' lines"),
    alone("number at top level", "\n\n42\n", 3, "must hold 'key: value' lines"),
    alone("JSON list", '[{"model": {}}]', 1, "must hold 'key: value' lines"),
    alone("set at top level", "!!set {model, data}\n", 1, "must hold 'key: value' lines"),
    alone("two documents", WHOLE + "---\n" + WHOLE, END + 1, "expected a single document"),
    alone("unknown section", WHOLE + "modle:\n  a: 1\n", END + 1, "unknown section 'modle'",
          "did you mean 'model'?"),
    alone("capital section", WHOLE + "Train: {}\n", END + 1, "did you mean 'train'?"),
    alone("far section", WHOLE + "zzzz: 1\n", END + 1, "known are base, model, data, train, run"),
    alone("key at top level", WHOLE + "steps: 5\n", END + 1, "write it under 'train:'"),
    alone("merge key at top level", "a: &a {}\n<<: *a\n", 1, "unknown section 'a'"),
    alone("no sections", "base: []\n", None, "'model.architecture' is missing"),
    alone("half a recipe", WHOLE[:WHOLE.index("run:")], None, "'run.micro_batch_size' is missing"),
    alone("section without keys", WHOLE[:WHOLE.index("run:")] + "run:\n", RUN,
          "section 'run' must hold 'key: value' lines"),
    alone("section as a list", "model:\n  - architecture: bert\n", 2, "section 'model' must hold"),
    alone("section as a word", "model: bert\n", 1, "section 'model' must hold"),
    alone("section as a file", WHOLE[:WHOLE.index("run:")] + "run: !include cpu.yaml\n", RUN,
          "section 'run' must hold"),
    alone("Python", "def main():\n    return {1: 2}\n", 1, "unknown section 'def main()'"),
    alone("Markdown", "# Title\n\n* a\n* b\n", 3, "not YAML"),
    alone("PNG image", b"\x89PNG\r\n\x1a\n\x00\x00", 1, "byte 0x89 is not UTF-8"),
    # Keys.
    whole("duplicate key", STEPS + 1, f"'steps' was already given in line {STEPS}",
          "remove one of the two", old="  steps: 300\n", new="  steps: 300\n  steps: 300\n"),
    whole("duplicate section", RUN, f"'train' was already given in line {TRAIN}",
          old="run:\n", new="train:\n"),
    whole("quoted duplicate key", STEPS + 1, "'steps' was already given",
          old="  steps: 300\n", new="  steps: 300\n  \"steps\": 5\n"),
    alone("duplicate base", "base: a.yaml\nbase: b.yaml\n", 2, "'base'",
          "was already given in line 1"),
    whole("key of another section", STEPS, "'train.replicas'", "it belongs to 'run'",
          old="steps: 300", new="replicas: 1"),
    whole("capital key", STEPS, "did you mean 'train.steps'?", old="steps: 300", new="STEPS: 300"),
    whole("hyphens for underscores", STEPS, "did you mean 'train.warmup_steps'?",
          old="steps: 300", new="warmup-steps: 300"),
    whole("far key", STEPS, "known are global_batch_size, learning_rate, steps",
          old="steps: 300", new="xyzzy: 300"),
    whole("list as a key", STEPS, "a key must be a plain word",
          old="steps: 300", new="? [a, b]\n  : 300"),
    whole("number as a key", STEPS, "unknown key 'train.5'", old="steps: 300", new="5: 300"),
    whole("no key", STEPS, "not YAML", old="steps: 300", new=": 300"),
    whole("blank key", STEPS, "unknown key 'train.'", old="steps: 300", new="'': 300"),
    whole("merge key", STEPS, "unknown key 'train.<<'", old="steps: 300", new="<<: {steps: 300}"),
    whole("dotted key", STEPS, "unknown key 'train.train.steps'", "did you mean 'train.steps'?",
          old="steps: 300", new="train.steps: 300"),
    whole("no space after the colon", BATCH + 1, "check colon and indentation",
          old="global_batch_size: 32", new="global_batch_size:32"),
    whole("equals for a colon", BATCH + 1, "check colon and indentation",
          old="global_batch_size: 32", new="global_batch_size = 32"),
    # Indentation, quotes, brackets.
    whole("tab before a key", STEPS, "not YAML", "indent with spaces",
          old="  steps: 300", new="\tsteps: 300"),
    whole("tab after a space", STEPS, "not YAML", "indent with spaces",
          old="  steps: 300", new=" \tsteps: 300"),
    whole("one space too many", STEPS, "not YAML",
          old="  steps: 300", new="   steps: 300"),
    whole("one space too few", STEPS, "check colon and indentation",
          old="  steps: 300", new=" steps: 300"),
    whole("no indentation", STEPS + 1, "check colon and indentation",
          old="  steps: 300", new="steps: 300"),
    whole("unclosed double quote", None, "not YAML", f"begins in line {STEPS}",
          old="steps: 300", new='steps: "300'),
    whole("unclosed single quote", None, "not YAML", old="steps: 300", new="steps: '300"),
    whole("unclosed bracket", None, "not YAML", old="sources: [", new="sources: [["),
    whole("unclosed brace", None, "not YAML", old="steps: 300", new="steps: {a: 1"),
    whole("bracket too many", STEPS, "not YAML", old="steps: 300", new="steps: ]300"),
    whole("wrong bracket", None, "not YAML", old="corpus.txt']", new="corpus.txt'}"),
    whole("percent sign", STEPS, "not YAML", old="steps: 300", new="steps: %300"),
    whole("at sign", STEPS, "not YAML", old="steps: 300", new="steps: @300"),
    whole("backtick", STEPS, "not YAML", old="steps: 300", new="steps: `300`"),
    whole("wrong escape", STEPS, "not YAML", old="steps: 300", new='steps: "\\q"'),
    whole("escape beyond Unicode", STEPS, "not YAML: a number too large",
          old="steps: 300", new='steps: "\\UFFFFFFFF"'),
    alone("wrong directive", "%YAML 3.0\n---\na: 1\n", 1, "not YAML"),
    alone("endless directive", f"%YAML {'9' * 5000}.0\n---\n", 1, "a number too large"),
    # Anchors, aliases, tags.
    whole("undefined alias", STEPS, "undefined alias", old="steps: 300", new="steps: *x"),
    whole("alias of another name", STEPS + 1, "undefined alias 'b'",
          old="steps: 300\n", new="steps: &a 300\n  seed: *b\n"),
    whole("section that holds itself", TRAIN + 1, "unknown key 'train.train'",
          old="train:\n", new="train: &t\n  train: *t\n"),
    whole("list that holds itself", None, "'data.sources' wants text, not a list",
          old="sources: [", new="sources: &s [*s, "),
    whole("Python object", STEPS, "wants an integer", "remove the tag",
          old="steps: 300", new="steps: !!python/object/apply:os.system ls"),
    whole("Python object with arguments", STEPS, "'train.steps' wants an integer or null, not a list",
          old="steps: 300", new="steps: !!python/object/apply:os.system [ls]"),
    whole("Python name", STEPS, "remove the tag",
          old="steps: 300", new="steps: !!python/name:int 3"),
    whole("Python tag on a section", TRAIN, "section 'train' must hold", old="train:\n",
          new="train: !!python/object:collections.OrderedDict\n"),
    whole("own tag", STEPS, "remove the tag", old="steps: 300", new="steps: !seconds 300"),
    whole("undefined tag handle", STEPS, "not YAML", old="steps: 300", new="steps: !x!y 300"),
    # Bytes.
    whole("NUL", STEPS, "character 0x0 is not allowed", old="steps: 300", new="steps: 3\0"),
    whole("escape character", STEPS, "character 0x1b", old="steps: 300", new="steps: \x1b[31m"),
    alone("Latin-1", WHOLE.encode() + "# café\n".encode("latin-1"), END + 1, "byte 0xe9 is not"),
    alone("GBK", "# 中文\n".encode("gbk") + WHOLE.encode(), 1, "is not UTF-8"),
    alone("UTF-16", WHOLE.encode("utf-16"), 1, "is not UTF-8", "save the file as UTF-8"),
    alone("Latin-1 after a byte order mark", b"\xef\xbb\xbfa: 1\nb: \xe9\n", 2, "byte 0xe9"),
    alone("compressed", b"\x1f\x8b\x08\x00\x00\x00", 1, "byte 0x8b is not UTF-8"),
    # Size.
    alone("long file", WHOLE + "#" * 5_000_000, None, "is longer than 32768 bytes"),
    whole("long key", STEPS, "unknown key 'train.xxx", old="steps", new="x" * 900),
    whole("long value", STEPS, "wants an integer or null, not xxx", old="300", new="x" * 20_000),
    whole("long number", STEPS, "wants an integer or null, not 999", old="300", new="9" * 20_000),
    whole("value of many lines", STEPS, "wants an integer", old="300", new="|\n    a\n    b"),
    whole("line separator in a value", STEPS, "wants an integer", old="300", new='"a\\Lb\\Nc"'),
    alone("deep list", "model: " + "[" * 30_000, 1, "nested too deeply"),
    alone("deep mapping", "{a: " * 8_000, 1, "nested too deeply"),
    # Bases.
    based("missing base", "nowhere.yaml", 2, "base 'nowhere.yaml': no such file\n"),
    based("misspelt base", "wole.yaml", 2, "did you mean", "whole.yaml?", **{"whole.yaml": WHOLE}),
    based("base is a folder", ".", 2, "cannot be read (Is a directory)"),
    based("base below a file", "recipe.yaml/x.yaml", 2, "cannot be read (Not a directory)"),
    based("base of null", "null", 2, "base: wants a file name or a list of them"),
    based("base without a name", "''", 2, "base: wants a file name"),
    based("base is a number", "5", 2, "base: wants a file name"),
    based("base is a mapping", "{a: b}", 2, "base: wants a file name"),
    based("list of numbers as base", "[1, 2]", 2, "base: wants a file name"),
    based("base with a NUL", '"a\\0b"', 2, "cannot be read"),
    based("base with half a character", '"\\uD800"', 2, "cannot be read"),
    based("base with a long name", "x" * 300, 2, "cannot be read (File name too long)"),
    based("base without an end", "/dev/zero", 2, "is longer than"),
    based("self base", "recipe.yaml", 2, "goes round in a circle (recipe.yaml -> recipe.yaml)"),
    based("self base in a list", "[./recipe.yaml]", 2, "goes round in a circle"),
    Fault("cyclic base", {"recipe.yaml": "base: b.yaml\n", "b.yaml": "\nbase: recipe.yaml\n"},
          None, ("b.yaml:2: base 'recipe.yaml': goes round in a circle",
                 "(recipe.yaml -> b.yaml -> recipe.yaml)")),
    Fault("cycle of three", {"recipe.yaml": "base: b.yaml\n", "b.yaml": "base: c.yaml\n",
                             "c.yaml": "base: recipe.yaml\n"},
          None, ("(recipe.yaml -> b.yaml -> c.yaml -> recipe.yaml)",)),
    Fault("many bases deep", {"recipe.yaml": "base: 0.yaml\n", **DEEP, "20.yaml": WHOLE}, None,
          ("7.yaml:1: base '8.yaml': is more than 8 bases deep; remove some",)),
    # Contradictions that two keys of one file make.
    whole("batch is no multiple", BATCH, "33 is no multiple of run.micro_batch_size 32",
          old="global_batch_size: 32", new="global_batch_size: 33"),
    whole("batch below a micro batch", BATCH, "16 is no multiple",
          old="global_batch_size: 32", new="global_batch_size: 16"),
    whole("wrong accumulation", line_of("accumulation_steps: null", WHOLE), "write 1, or null",
          old="accumulation_steps: null", new="accumulation_steps: 2"),
    whole("rows beyond the positions", line_of("sequence_length: 128", WHOLE),
          "1024 tokens, but model.max_position_embeddings is 512",
          old="sequence_length: 128", new="sequence_length: 1024"),
    whole("more predictions than slots", line_of("max_predictions: 20", WHOLE),
          "do not fit a row", old="max_predictions: 20", new="max_predictions: 200"),
    whole("infinite rate", line_of("learning_rate: 0.001", WHOLE), "wants a number",
          old="learning_rate: 0.001", new="learning_rate: .inf"),
]


def tiny_main(argv):
    """The part of an entry point that reads the recipe."""
    arguments = build_parser("reads a recipe").parse_args(argv)
    return load_config(arguments.config, arguments.overrides)


def refuse(argv, capsys):
    """Run ``tiny_main`` as an entry point would; return its one line of complaint."""
    start = time.perf_counter()
    code = run(tiny_main, argv)
    seconds = time.perf_counter() - start
    output, complaint = capsys.readouterr()
    assert (code, output) == (EXIT_BAD_INPUT, "")
    assert complaint.startswith("error: ") and complaint.endswith("\n")
    assert len(complaint.splitlines()) == 1 and len(complaint) < 1500
    assert seconds < SECONDS_ALLOWED
    return complaint


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_faulty_file_is_refused_in_one_line(fault, tmp_path, capsys):
    path = write(tmp_path, fault.files)
    complaint = refuse(["--config", str(path)], capsys)
    assert f"error: {tmp_path}/" in complaint  # whichever of the files it is
    if fault.line is not None:
        assert complaint.startswith(f"error: {path}:{fault.line}: ")
    assert [words for words in fault.says if words not in complaint] == []


def test_the_faults_are_many_and_each_has_a_name():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 200


@pytest.mark.parametrize("name, says", [
    ("nowhere.yaml", "no such file"), ("recipe.yml", "no such file; did you mean"),
    ("", "cannot be read (Is a directory)"), ("recipe.yaml/x", "cannot be read (Not a directory)")])
def test_a_missing_file_is_refused(name, says, tmp_path, capsys):
    write(tmp_path, {"recipe.yaml": WHOLE})
    complaint = refuse(["--config", f"{tmp_path}/{name}"], capsys)
    assert complaint.startswith(f"error: {tmp_path}") and says in complaint


# --- the command line ------------------------------------------------------------------------


@pytest.mark.parametrize("argv, says", [
    ([], "--config: no file was given; write e.g. --config configs/pretrain/quickstart.yaml"),
    (["--config"], "argument --config: expected one argument; see --help"),
    (["--confg", "x.yaml"], "unrecognized arguments: --confg x.yaml; see --help"),
    (["--set", "train.stps=5", "--config"], "did you mean 'train.steps'?"),
    (["--set", "train.steps=x" + "y" * 9999, "--config"], "wants an integer")],
    ids=["no file", "no name", "misspelt option", "misspelt key", "long value"])
def test_wrong_options_are_refused_in_one_line(argv, says, plain, capsys):
    if argv[:1] == ["--set"]:
        argv = [*argv, str(plain)]
    assert says in refuse(argv, capsys)


def test_exit_codes(plain, capsys):
    def interrupted(argv):
        raise KeyboardInterrupt

    assert run(tiny_main, ["--config", str(plain)]) == 0
    assert run(interrupted, []) == EXIT_INTERRUPTED == 130
    with pytest.raises(InputError):
        run(tiny_main, ["--config", "nowhere.yaml", "--debug"])
    assert capsys.readouterr() == ("", "interrupted\n")


def test_help_describes_every_key(capsys):
    with pytest.raises(SystemExit) as caught:
        run(tiny_main, ["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert describe_keys("pretrain") in shown
    for key, field, _ in fields():
        assert f"  {key} (" in shown and field.metadata["meaning"] in shown


@pytest.mark.parametrize("text, says", [
    (WHOLE, None),
    (WHOLE.replace("steps: 300", "stps: 300"), f"recipe.yaml:{STEPS}: unknown key 'train.stps'; "
                                               "did you mean 'train.steps'?"),
    (b"train: \xff\n", "recipe.yaml:1: byte 0xff is not UTF-8; save the file as UTF-8")],
    ids=["right", "misspelt", "not UTF-8"])
def test_as_a_process(text, says, tmp_path):
    program = ("import sys; from configs.command_line import build_parser, run; "
               "from configs.load import load_config; "
               "sys.exit(run(lambda argv: load_config("
               "build_parser('').parse_args(argv).config)))")
    path = write(tmp_path, {"recipe.yaml": text})
    done = subprocess.run([sys.executable, "-c", program, "--config", str(path)], cwd=ROOT,
                          capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
    if says is None:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == EXIT_BAD_INPUT
        assert done.stderr == f"error: {tmp_path}/{says}\n"


def test_the_task_decides_what_the_data_section_holds(plain, tmp_path):
    path = tmp_path / "squad.yaml"
    path.write_text(f"base: {plain}\ndata:\n  task: squad\n  document_stride: 100\n")
    with pytest.raises(InputError, match="unknown key 'data.sources'"):
        load_config(path)  # the parent is a recipe of another task
    path.write_text(f"base: {ROOT}/configs/models/bert_mini_uncased.yaml\ndata:\n  task: squad\n"
                    "  document_stride: 100\n  masking: token\n")
    with pytest.raises(InputError, match="squad.yaml:5: unknown key 'data.masking'"):
        load_config(path, MINIMAL)
    path.write_text(path.read_text().replace("  masking: token\n", ""))
    config = load_config(path, MINIMAL)
    assert config.data.document_stride == 100 and config.data.max_predictions == 0
    written = tmp_path / "written.yaml"
    written.write_text(to_yaml(config))
    assert load_config(written) == config


def test_an_unknown_task_is_refused(plain):
    with pytest.raises(InputError, match="'data.task' wants pretrain or squad.*did you mean"):
        load_config(plain, ["data.task=squat"])


def test_a_recipe_of_another_task_is_refused(plain):
    with pytest.raises(InputError, match="is a recipe for run_pretrain.py; choose one for "
                                         "run_squad.py"):
        load_config(plain, task="squad")


@pytest.mark.parametrize("epochs, rows, steps", [
    # Global batch 32: 300 rows are 9.375 updates.
    (1, 300, 10), (2, 300, 19), (0.5, 64, 1), (3, 320, 30)])
def test_epochs_become_steps(plain, epochs, rows, steps):
    config = load_config(plain, ["train.steps=null", f"train.epochs={epochs}"]).with_steps(rows)
    assert config.train.steps == steps and config.train.epochs is None


@pytest.mark.parametrize("overrides, says", [
    (["train.steps=null"], "train.steps: is missing; add it, or train.epochs"),
    (["train.epochs=2"], "train.epochs: train.steps is given too; write null for one"),
    (["train.steps=null", "train.epochs=0"], "train.epochs: 0.0 is not positive")])
def test_a_run_has_one_length(plain, overrides, says):
    with pytest.raises(InputError) as caught:
        load_config(plain, overrides)
    assert says in str(caught.value)


@pytest.mark.parametrize("overrides, says", [
    (["data.document_stride=400"], "data.document_stride: 400 tokens, but a window has room for "
     "317 beside the longest question, so some would be in no window; write 317 or less"),
    (["data.max_query_length=381"], "data.max_query_length: 381 tokens of a question leave no room"),
    (["run.data_workers=2"], "run.data_workers: fine-tuning makes its rows in the training process"),
    (["train.evaluation_rows=8"], "train.evaluation_rows: fine-tuning scores the whole"),
    (["data.n_best=0"], "data.n_best: 0 is not positive")])
def test_windows_that_cannot_be_cut(tmp_path, overrides, says):
    path = ROOT / "configs/models/bert_mini_uncased.yaml"
    with pytest.raises(InputError) as caught:
        load_config(path, ["data.task=squad", *MINIMAL, *overrides])
    assert says in str(caught.value)


@pytest.mark.parametrize("overrides, says", [
    (["train.warmup_ratio=0.1"], "train.warmup_ratio: warmup_steps is given too"),
    (["train.schedule=constant", "train.final_learning_rate=0.1"], "train.final_learning_rate"),
    (["train.decay_power=2"], "train.decay_power: has no meaning in a linear schedule"),
    (["train.decay_steps=5"], "train.decay_steps: 5 is not after the warm-up of 10 updates"),
    (["train.final_learning_rate=1"], "train.final_learning_rate: 1.0 is above learning_rate"),
    (["train.max_weight_norm=3"], "train.max_weight_norm: 3.0 is offered for lamb only"),
    (["train.optimizer=lamb", "train.moment_scale=8"], "train.moment_scale: both moments are"),
    (["train.profile=[3]"], "train.profile: [3] is not a first and a last update"),
    (["train.trackers=[mlflow]"], "wants")])
def test_options_of_training_that_contradict_one_another(plain, overrides, says):
    with pytest.raises(InputError) as caught:
        load_config(plain, ["train.warmup_steps=10", *overrides])
    assert says in str(caught.value)
