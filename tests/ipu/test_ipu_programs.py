"""The Programs of the shipped recipes for pods, as the backend would be given them."""

from functools import lru_cache

import numpy as np
import paddle
import pytest

from configs.load import load_config
from data.batch import Batch
from engines.ipu.engine import IpuEngine
from engines.placement import resolve
from models.tasks import build_for_pretraining, build_for_recipe

PODS = ["pretrain/bert_base_128_pod16", "pretrain/bert_base_384_pod16",
        "pretrain/bert_large_128_pod16", "pretrain/bert_large_mlperf_1536_pod16",
        "pretrain/ernie_1_base_512_pod16", "pretrain/ernie_3_base_512_pod16"]


def load(name, *overrides, **options):
    return load_config(f"configs/{name}.yaml", overrides, resolve, **options)


def open_dry(config):
    """An engine with a network of full width, of whose weights there are but the shapes."""
    with paddle.LazyGuard():
        network = build_for_recipe(config)
    engine = IpuEngine(config, is_dry=True)
    engine.build(network)
    return engine


def example(config):
    """A batch of one micro batch, all ones."""
    data, rows = config.data, config.run.micro_batch_size
    ids = np.ones([rows, data.sequence_length], np.int32)

    def labels(name, count):
        return {f"{name}_labels": np.ones([rows, count], np.int32),
                f"{name}_weights": np.ones([rows, count], np.float32)}

    if data.task == "squad":
        ends = np.ones([rows, data.sequences_per_row], np.int32)
        answers = {"sequence_id": ids, "start_positions": ends, "end_positions": ends,
                   "window_weights": ends.astype(np.float32)}
    else:
        answers = {**labels("masked_lm", data.max_predictions),
                   **labels("pair", data.sequences_per_row)}
    return Batch(ids, ids, ids, ids, answers)


@lru_cache(maxsize=None)
def training(name, *overrides):
    """The training Program and its options, which hold to the contract."""
    config = load(name, *overrides)
    return open_dry(config)._build("training", example(config))


@pytest.mark.parametrize("name", PODS)
def test_pretraining_programs_hold_to_the_contract(name):
    built, options = training(name)
    config = load(name)
    assert options["num_ipus"] == 16 == config.run.replicas * resolve(config).ipus_per_replica
    kinds = {op.type for op in built.main.global_block().ops}
    assert {"lookup_table_v2", "matmul_v2", "layer_norm", "softmax_with_cross_entropy",
            config.train.optimizer.replace("adamw", "adam")} <= kinds
    table = built.main.global_block().var("embeddings.word_embeddings.weight")
    assert list(table.shape) == [config.model.vocab_size, {"bert_l": 1024}.get(
        name.partition("/")[2][:6], 768)]


def test_evaluation_and_prediction_hold_to_the_contract():
    config = load(PODS[0])
    engine, batch = open_dry(config), example(config)
    evaluation, _ = engine._build("evaluation", batch, 5)
    drops = [op for op in evaluation.main.global_block().ops if op.type == "dropout"]
    assert all(op.attr("is_test") for op in drops)
    assert set(evaluation.fetches) == {"loss", "mlm_loss", "mlm_accuracy", "nsp_loss",
                                       "nsp_accuracy"}
    prediction, options = engine._build("prediction", Batch(**batch.inputs, labels={}), 5)
    assert set(prediction.feeds) == set(Batch.INPUTS) and not options["is_training"]
    assert set(prediction.fetches) == {"masked_lm_logits", "pair_logits"}


def test_reading_comprehension_holds_to_the_contract():
    config = load("squad/bert_base_pod16", "train.weight_decay=0.01", task="squad").with_steps(9)
    engine, batch = open_dry(config), example(config)
    built, options = engine._build("training", batch)
    assert (options["num_ipus"], options["accumulation_factor"]) == (16, 8)
    # One feed for each IPU that reads it: the embeddings on the first, the loss on the last.
    assert {"sequence_id", "labels.sequence_id"} <= set(built.feeds)
    regularizer = next(op for op in built.main.global_block().ops if op.type == "scale"
                       and "regularization" in op.attr("op_namescope"))
    assert regularizer.attr("scale") == pytest.approx(config.train.weight_decay)
    prediction, options = engine._build("prediction", Batch(**batch.inputs, labels={}), 2)
    assert set(prediction.fetches) == {"start_logits", "end_logits"}
    assert not options["is_training"] and "adam" not in {
        op.type for op in prediction.main.global_block().ops}


def test_every_operator_knows_its_stage_and_part():
    built, _ = training(PODS[0])
    placement, block = resolve(load(PODS[0])), built.main.global_block()
    forward = [op for op in block.ops if not op.attr("op_role") & 3]
    for operator in forward:
        stage = placement.stage_of(operator.attr("op_namescope").strip("/"))
        assert (operator.attr("ipu_stage"), operator.attr("ipu_index")) == (stage.number, stage.ipu)
    # The backward pass mirrors it: gradients sit where their operator sat.
    mirrored = [op for op in block.ops if op.type == "gelu_grad"]
    assert [op.attr("ipu_index") for op in mirrored] == [0] + [3] * 4 + [2] * 4 + [1] * 4


def test_numbers_of_the_recipe_reach_the_options():
    _, options = training(PODS[0])
    # Graphcore's options of phase 1 (PaddleNLP, model_zoo/bert/static_ipu).
    published = {
        "num_ipus": 16, "is_training": True, "micro_batch_size": 32, "batches_per_step": 1,
        "enable_manual_shard": True, "enable_pipelining": True, "enable_replicated_graphs": True,
        "replicated_graph_count": 4, "enable_gradient_accumulation": True,
        "accumulation_factor": 512, "auto_recomputation": 3, "enable_half_partial": True,
        "available_memory_proportion": 0.28, "loss_scaling": 512.0, "use_no_bias_optimizer": True,
        "enable_stochastic_rounding": True, "rearrange_anchors_on_host": False,
        "default_prefetch_buffering_depth": 3, "outline_threshold": 10.0,
        "subgraph_copying_strategy": 1, "disable_grad_accumulation_tensor_streams": True,
        "schedule_non_weight_update_gradient_consumers_early": True,
        "accumulate_outer_fragment": {3: [0]}}
    assert {name: options.get(name) for name in published} == published


def test_share_of_memory_and_pieces_reach_the_operators():
    built, options = training("pretrain/bert_large_128_pod16")
    assert "available_memory_proportion" not in options
    products = [op for op in built.main.global_block().ops if op.type == "matmul_v2"]
    shares = {op.attr("ipu_index"): op.attr("__available_memory") for op in products}
    assert shares == pytest.approx({0: 0.15, 1: 0.25, 2: 0.25, 3: 0.25})
    pieces = [op for op in products if op.has_attr("serialize_factor")]
    assert [op.input("Y") for op in pieces] == [["embeddings.word_embeddings.weight"]]


def test_half_precision_is_everywhere_but_in_the_moments():
    built, _ = training(PODS[0])
    block = built.main.global_block()
    kinds = {str(parameter.dtype).rpartition(".")[2].lower() for parameter in
             block.all_parameters()}
    assert kinds <= {"fp16", "float16"} and len(kinds) == 1
    update = next(op for op in block.ops if op.type == "lamb")
    assert "32" in str(block.var(update.input("Moment1")[0]).dtype)


def test_lamb_spares_what_the_recipe_spares():
    built, _ = training("pretrain/bert_large_128_pod16")
    decays = {op.input("Param")[0]: op.attr("weight_decay")
              for op in built.main.global_block().ops if op.type == "lamb"}
    assert decays["layer.0.output.bias"] == 0 == decays["layer.0.output_norm.weight"]
    assert decays["layer.0.output.weight"] == pytest.approx(0.01)


def test_a_build_leaves_the_network_as_it_was():
    config = load("pretrain/bert_base_128_pod16", "model.hidden_size=32",
                  "model.num_attention_heads=2", "model.intermediate_size=64")
    network = build_for_pretraining(config.model, config.data.max_predictions)
    before = {name: parameter.numpy() for name, parameter in network.named_parameters()}
    engine = IpuEngine(config, is_dry=True)
    engine.build(network, lambda network: None)
    engine._build("training", example(config))
    assert paddle.in_dynamic_mode() and not paddle.is_compiled_with_ipu()
    for name, parameter in network.named_parameters():
        assert np.array_equal(parameter.numpy(), before[name])
    assert network.heads.masked_lm.decoder_weight is network.embeddings.word_embeddings.weight
