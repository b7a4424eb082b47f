"""The shipped files of each machine: nothing but ``run`` differs from the recipe."""

import dataclasses
import re
from pathlib import Path

import pytest

from configs.load import load_config
from engines.placement import resolve

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MACHINE = re.compile(r"(.+)_(cpu4?|gpu(?:8|16)?|pod(?:4|16|64|128|256))")
FILES = [f"{path.parent.name}/{path.stem}" for task in ("pretrain", "squad")
         for path in sorted((CONFIGS / task).glob("*.yaml")) if MACHINE.fullmatch(path.stem)]
CPU, GPU = ["cpu", "cpu4"], ["gpu", "gpu8", "gpu16"]
SMALL_PODS, LARGE_PODS = ["pod4", "pod16", "pod64"], ["pod128", "pod256"]
SHIPPED = {
    **{f"pretrain/{name}": CPU + GPU + SMALL_PODS + LARGE_PODS for name in (
        "bert_base_128", "bert_base_384", "bert_large_128", "bert_large_512")},
    **{f"pretrain/ernie_{version}_base_512": CPU + GPU + SMALL_PODS for version in (1, 2, 3)},
    "pretrain/bert_large_mlperf_1536": ["pod16"],
    "pretrain/bert_large_mlperf_2304": ["pod64", "pod128", "pod256"],
    "squad/bert_base": CPU + ["gpu", "gpu8"] + SMALL_PODS,
    # 64 rows an update cannot fill the pipelines of a POD64.
    **{f"squad/ernie_1_{name}": CPU + ["gpu", "gpu8", "pod4", "pod16"]
       for name in ("cmrc2018", "drcd")},
}
# Recipe on pod: micro batch, accumulation, replicas, loss scale, memory share, and IPUs a replica
# (PaddleNLP static_ipu; graphcore/examples pytorch; MLPerf v2.0 IPU_Base_PaddlePaddle).
PUBLISHED = {
    "pretrain/bert_base_128_pod16": (32, 512, 4, 512, [0.28], 4),
    "pretrain/bert_base_128_pod4": (32, 2048, 1, 512, [0.28], 4),
    "pretrain/bert_base_384_pod16": (8, 512, 4, 128, [0.28], 4),
    "pretrain/bert_base_384_pod4": (8, 2048, 1, 128, [0.28], 4),
    "pretrain/bert_large_128_pod16": (8, 2048, 4, 4096, [0.15, 0.25, 0.25, 0.25], 4),
    "pretrain/bert_large_128_pod4": (8, 8192, 1, 4096, [0.15, 0.25, 0.25, 0.25], 4),
    "pretrain/bert_large_128_pod64": (8, 512, 16, 32768, [0.14, 0.19, 0.19, 0.19], 4),
    "pretrain/bert_large_512_pod16": (2, 2048, 4, 8192, [0.1, 0.15, 0.15, 0.15], 4),
    "pretrain/bert_large_512_pod4": (2, 8192, 1, 8192, [0.1, 0.15, 0.15, 0.15], 4),
    "pretrain/bert_large_512_pod64": (2, 512, 16, 16384, [0.13, 0.19, 0.19, 0.19], 4),
    "pretrain/bert_large_mlperf_1536_pod16": (3, 256, 2, 10, [0.3], 8),
    "pretrain/bert_large_mlperf_2304_pod64": (3, 96, 8, 10, [1.0], 8),
    # On all of the pod's IPUs, where the source takes half of them with twice the accumulation.
    "squad/bert_base_pod16": (2, 8, 8, 256, [0.4], 2),
}


def load(name, *overrides):
    """A recipe of a task's folder; of pretrain where none is named."""
    task, _, name = name.rpartition("/")
    return load_config(CONFIGS / (task or "pretrain") / f"{name}.yaml", overrides, resolve)


def test_every_machine_of_every_recipe_is_shipped():
    expected = {f"{name}_{machine}" for name, machines in SHIPPED.items() for machine in machines}
    assert set(FILES) == expected


@pytest.mark.parametrize("name", FILES)
def test_a_machine_changes_run_alone(name):
    recipe, machine = MACHINE.fullmatch(name).groups()
    config, parent = load(name), load(recipe)
    assert (config.model, config.data, config.train) == (parent.model, parent.data, parent.train)
    assert config.run != parent.run
    kind = re.match("[a-z]+", machine).group()
    assert config.run.device == {"cpu": "cpu", "gpu": "gpu", "pod": "ipu"}[kind]
    size = int(machine[len(kind):] or 1)
    assert config.run.replicas * resolve(config).ipus_per_replica == size
    assert config.run.ipus == (size if kind == "pod" else None)


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith("_cpu")])
def test_the_head_of_a_file_multiplies_the_batch_rightly(name):
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    numbers = re.search(r"^# (\d+) = micro (\d+) x accumulation (\d+) x replicas (\d+)\.$", text,
                        re.MULTILINE).groups()
    batch, micro, accumulation, replicas = map(int, numbers)
    config = load(name)
    assert batch == micro * accumulation * replicas == config.train.global_batch_size
    assert (micro, accumulation, replicas) == (
        config.run.micro_batch_size, config.accumulation_steps, config.run.replicas)


@pytest.mark.parametrize("name", PUBLISHED)
def test_pods_are_as_published(name):
    config = load(name)
    assert (config.run.micro_batch_size, config.accumulation_steps, config.run.replicas,
            config.run.loss_scale, config.run.available_memory_proportion,
            resolve(config).ipus_per_replica) == PUBLISHED[name]


def test_the_options_of_paddlenlps_pod():
    run = load("bert_base_128_pod16").run
    assert (run.precision, run.half_partials, run.stochastic_rounding, run.recompute) == (
        "fp16", True, True, True)
    assert (run.shard_optimizer, run.optimizer_state_on_chip) == (True, False)
    assert (run.prefetch_depth, run.outline_threshold, run.batches_per_step) == (3, 10.0, 1)
    mlperf = load("bert_large_mlperf_1536_pod16").run
    assert (mlperf.shard_optimizer, mlperf.optimizer_state_on_chip) == (True, True)


LARGE = {"steps": 7038, "global_batch_size": 65536, "learning_rate": 0.006, "optimizer": "lamb",
         "warmup_steps": 1970, "weight_decay": 0.01, "decay_all_parameters": False,
         "bias_correction": True, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6,
         "max_gradient_norm": 0.0}
# Recipe: what is published of it, then slots of a row, predictions and sequences.
RECIPES = {
    "bert_large_128": (LARGE, 128, 20, 1),
    "bert_large_512": ({**LARGE, "steps": 2137, "global_batch_size": 16384, "warmup_steps": 273,
                        "learning_rate": 0.002828}, 512, 76, 1),
    "bert_large_mlperf_1536": (
        {"steps": 1000, "global_batch_size": 1536, "learning_rate": 0.0035, "beta1": 0.55,
         "beta2": 0.885, "warmup_steps": 0, "weight_decay": 0.001, "max_gradient_norm": 1000.0,
         "bias_correction": False, "optimizer": "lamb", "first_moment_precision": "fp16",
         "second_moment_precision": "fp16", "moment_scale": 10.0}, 512, 78, 3),
    "bert_large_mlperf_2304": (
        {"steps": 800, "global_batch_size": 2304, "learning_rate": 0.0029, "beta1": 0.51,
         "beta2": 0.72, "warmup_steps": 0}, 512, 78, 3),
    "ernie_2_base_512": ({"steps": 1_000_000, "global_batch_size": 512}, 512, 76, 1),
    "ernie_3_base_512": (
        {"steps": 4_000_000, "global_batch_size": 1024, "learning_rate": 1e-4,
         "final_learning_rate": 1e-5, "decay_steps": 3_900_000, "warmup_steps": 40_000,
         "weight_decay": 0.01, "max_gradient_norm": 1.0, "optimizer": "adamw"}, 512, 76, 1),
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_as_published(name):
    published, length, predictions, sequences = RECIPES[name]
    config = load(name)
    assert {key: getattr(config.train, key) for key in published} == published
    data = config.data
    assert (data.sequence_length, data.max_predictions, data.sequences_per_row) == (
        length, predictions, sequences)


def test_the_models_of_the_recipes():
    large = load("bert_large_128").model
    assert (large.num_hidden_layers, large.hidden_size, large.num_attention_heads,
            large.intermediate_size) == (24, 1024, 16, 4096)
    assert load("bert_large_mlperf_1536").model == dataclasses.replace(
        large, attention_probs_dropout_prob=0.1)
    for recipe, model in (("ernie_2_base_512", "ernie_2.0_base_zh"),
                          ("ernie_3_base_512", "ernie_3.0_base_zh")):
        parent = load_config(CONFIGS / f"models/{model}.yaml", [
            "train.steps=1", "train.global_batch_size=1", "train.learning_rate=1",
            "run.micro_batch_size=1"])
        assert load(recipe).model == parent.model


def test_a_pod_file_runs_on_a_cpu_by_overrides_alone():
    config = load("bert_base_128_pod16", "run.device=cpu", "run.precision=fp32",
                  "model.num_hidden_layers=4", "train.global_batch_size=64",
                  "run.micro_batch_size=4", "run.replicas=2",
                  "run.pipeline=[embeddings -1 on 0, -1 pooler heads on 1]")
    assert config.accumulation_steps == 8
    assert [stage.ipu for stage in resolve(config).stages] == [0, 1]
