"""Stages from ``run.pipeline``: right ones by hand-made tables, wrong ones by what they are told."""

import dataclasses
from pathlib import Path

import pytest

from configs.data_schema import SquadConfig
from configs.errors import InputError
from configs.load import load_config
from engines.placement import describe, resolve, stage_costs
from engines.stage_text import shorten
from models.cost import forward_flops, forward_flops_by_part, parameters_by_part, part_names

ROOT = Path(__file__).resolve().parents[2]
POD16 = load_config(ROOT / "configs/pretrain/bert_base_128_pod16.yaml")
HALVES = ("attention", "feed_forward")


def pod16(pipeline=None, layers=12, **run):
    """PaddleNLP's POD16 (4 replicas, accumulation 512) with another pipeline."""
    run = dataclasses.replace(POD16.run, pipeline=pipeline or POD16.run.pipeline, **run)
    model = dataclasses.replace(POD16.model, num_hidden_layers=layers)
    return dataclasses.replace(POD16, run=run, model=model)


def table(placement):
    """IPU and shortened parts of each stage."""
    return [(stage.ipu, shorten(stage.parts)) for stage in placement.stages]


# --- right pipelines -------------------------------------------------------------------------


def test_paddlenlps_five_stages():
    placement = resolve(POD16)
    assert table(placement) == [(0, "embeddings"), (1, "layer.0-3"), (2, "layer.4-7"),
                                (3, "layer.8-11"), (0, "pooler, heads")]
    assert [stage.number for stage in placement.stages] == [0, 1, 2, 3, 4]
    assert placement.stages[2].parts == (
        "layer.4.attention", "layer.4.feed_forward", "layer.5.attention", "layer.5.feed_forward",
        "layer.6.attention", "layer.6.feed_forward", "layer.7.attention", "layer.7.feed_forward")
    assert placement.ipus_per_replica == 4
    assert placement.stage_of("layer.4.attention").ipu == 2


# IPU of each layer's halves in MLPerf v2.0, IPU_Base_PaddlePaddle/bert.py.
MLPERF = {
    "bert_large_mlperf_1536_pod16": (
        [1] * 3 + [2] * 4 + [3] * 3 + [4] * 3 + [5] * 4 + [6] * 3 + [7] * 4,
        [1] * 3 + [2] * 3 + [3] * 3 + [4] * 4 + [5] * 3 + [6] * 4 + [7] * 3 + [0]),
    "bert_large_mlperf_2304_pod64": (
        [1] * 3 + [2] * 3 + [3] * 3 + [4] * 4 + [5] * 3 + [6] * 4 + [7] * 3 + [0],
        [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3 + [5] * 4 + [6] * 3 + [7] * 4 + [0]),
}


@pytest.mark.parametrize("name", MLPERF)
def test_mlperfs_nine_stages_place_the_halves_apart(name):
    placement = resolve(load_config(ROOT / f"configs/pretrain/{name}.yaml"))
    assert [stage.ipu for stage in placement.stages] == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    for half, ipus in zip(HALVES, MLPERF[name]):
        assert [placement.stage_of(f"layer.{layer}.{half}").ipu for layer in range(24)] == ipus
    assert placement.stages[0].parts == ("embeddings",)
    assert placement.stages[8].parts[-2:] == ("pooler", "heads")


def test_graphcores_bert_large_on_four_ipus():
    placement = resolve(load_config(ROOT / "configs/pretrain/bert_large_128_pod16.yaml"))
    assert table(placement) == [(0, "embeddings, layer.0-2"), (1, "layer.3-9"), (2, "layer.10-16"),
                                (3, "layer.17-23"), (0, "pooler, heads")]


@pytest.mark.parametrize("layers, shares", [
    (12, [4, 4, 4]), (4, [1, 1, 2]), (6, [2, 2, 2]), (3, [1, 1, 1]), (24, [8, 8, 8]),
    (14, [4, 5, 5])])
def test_the_rest_is_shared_evenly(layers, shares):
    placement = resolve(pod16(layers=layers))
    assert [len(stage.parts) // 2 for stage in placement.stages[1:4]] == shares


def test_a_stage_with_other_parts_takes_its_share_of_the_rest():
    placement = resolve(pod16(["embeddings, -1 on 0", "-1, layer.8-11 on 1", "pooler, heads on 0"]))
    assert table(placement) == [(0, "embeddings, layer.0-3"), (1, "layer.4-11"),
                                (0, "pooler, heads")]


@pytest.mark.parametrize("first", [
    "embeddings, layer.0-1, layer.2.attention on 0", "embeddings layer.0-1 layer.2.attention on 0",
    "  layer.2.attention ,layer.0, embeddings,layer.1   on   0 "])
def test_commas_blanks_and_order_within_a_stage_are_free(first):
    placement = resolve(pod16([first, "layer.2.feed_forward, -1 on 1", "heads, pooler on 0"]))
    assert table(placement) == [
        (0, "embeddings, layer.0-1, layer.2.attention"),
        (1, "layer.2.feed_forward, layer.3-11"), (0, "pooler, heads")]


def test_an_empty_pipeline_is_one_stage():
    config = load_config(ROOT / "configs/pretrain/bert_base_128.yaml")
    placement = resolve(config)
    assert table(placement) == [(0, "embeddings, layer.0-11, pooler, heads")]
    assert placement.ipus_per_replica == 1
    assert placement.stages[0].parts == part_names(config.model)


def test_reading_comprehension_has_no_pooler_and_no_head_with_the_embedding():
    config = pod16(["embeddings, layer.0-5 on 0", "layer.6-11, heads on 1"])
    config = dataclasses.replace(config, data=SquadConfig(sequence_length=384))
    placement = resolve(config)
    assert table(placement) == [(0, "embeddings, layer.0-5"), (1, "layer.6-11, heads")]
    assert resolve(config, with_pooler=False) == placement
    # Six layers on each, and 2 x 768 + 2 numbers of the span.
    assert stage_costs(config, placement)[0] == [23_837_184 + 6 * 7_087_872, 6 * 7_087_872 + 1538]


def test_fleet_may_share_the_embedding_between_devices_and_takes_any_number():
    split = ["embeddings, -1 on 0", "-1 on 1", "-1, pooler, heads on 2"]
    placement = resolve(pod16(split, device="cpu", precision="fp32", ipus=None, replicas=2))
    assert placement.ipus_per_replica == 3


def test_an_emulated_or_real_pod_may_be_used_in_part():
    assert resolve(pod16(replicas=2, device="ipu_model")).ipus_per_replica == 4


# --- costs -----------------------------------------------------------------------------------


def test_the_table_of_paddlenlps_split():
    # By hand: 31036 x 768 + 1536; 4 x 7,087,872; 590,592 + (590,592 + 1536 + 30522 + 1538).
    # A layer of 128 tokens takes 1,862,270,976 FLOPs, the heads 961,228,800, the pooler 1,179,648.
    parameters, flops = stage_costs(POD16, resolve(POD16))
    assert parameters == [23_837_184, 28_351_488, 28_351_488, 28_351_488, 1_214_780]
    assert flops == [0, 7_449_083_904, 7_449_083_904, 7_449_083_904, 962_408_448]
    lines = describe(POD16, resolve(POD16))
    assert lines[0] == ("pipeline: 5 stages x 4 replicas, 16 IPUs of 16; heaviest stage "
                        "1.60 x the mean FLOPs")
    assert [line.split() for line in lines[1:]] == [
        ["stage", "IPU", "parts", "parameters", "FLOPs"],
        ["0", "0", "embeddings", "23,837,184", "0.0%"],
        ["1", "1", "layer.0-3", "28,351,488", "32.0%"],
        ["2", "2", "layer.4-7", "28,351,488", "32.0%"],
        ["3", "3", "layer.8-11", "28,351,488", "32.0%"],
        ["4", "0", "pooler,", "heads", "1,214,780", "4.1%"]]


def test_too_few_micro_batches_for_processes_are_noted():
    split = ["embeddings, -1 on 0", "-1, pooler, heads on 1"]
    run = dict(device="cpu", precision="fp32", replicas=2048)
    lines = describe(pod16(split, ipus=None, **run), resolve(pod16(split, ipus=None, **run)))
    assert lines[0].startswith("pipeline: 2 stages x 2048 replicas, 4096 devices; ")
    assert lines[-1] == "  note: 1 micro batches an update cannot keep 2 stages busy"


NETWORKS = ["bert_tiny_uncased", "ernie_1.0_base_zh", "ernie_2.0_base_en", "ernie_3.0_nano_zh"]


@pytest.mark.parametrize("with_pairs", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_names_and_parameters_are_those_of_the_network(name, with_pairs):
    from models.tasks import build_for_pretraining, build_for_question_answering

    config = load_config(ROOT / f"configs/models/{name}.yaml", [
        "train.steps=1", "train.global_batch_size=1", "train.learning_rate=1",
        "run.micro_batch_size=1", "model.num_hidden_layers=2", "model.vocab_size=100",
        "model.hidden_size=24", "model.num_attention_heads=2", "model.intermediate_size=40"]).model
    parts = build_for_pretraining(config, max_predictions=5, with_pairs=with_pairs).parts()
    assert tuple(part.name for part in parts) == part_names(config, with_pooler=with_pairs)
    seen, sizes = set(), {}
    for part in parts:
        own = {id(p): p.size for layer in part.layers for p in layer.parameters()
               if id(p) not in seen}
        seen.update(own)
        sizes[part.name] = sum(own.values())
    costs = parameters_by_part(config, with_pairs)
    assert {name: costs[name] for name in sizes} == sizes
    heads = build_for_question_answering(config).heads.parameters()
    assert parameters_by_part(config, with_pairs, with_masked_lm=False)["heads"] == sum(
        parameter.size for parameter in heads)


def test_parts_add_up_to_the_flops_of_a_row():
    # BERT-Base, 512 tokens, 76 predictions: layers, head and pooler by hand.
    model = POD16.model
    layer = 2 * 512 * 4 * 768 ** 2 + 4 * 512 ** 2 * 768 + 2 * 512 * 2 * 768 * 3072
    head = 2 * 76 * 768 * (768 + 30522)
    assert forward_flops(model, 512, 76) == 12 * layer + head + 2 * 768 ** 2
    by_part = forward_flops_by_part(model, 512, 76)
    assert sum(by_part.values()) == forward_flops(model, 512, 76)
    assert by_part["layer.3.attention"] + by_part["layer.3.feed_forward"] == layer


# --- wrong pipelines -------------------------------------------------------------------------

RIGHT = ["embeddings on 0", "layer.0-3 on 1", "layer.4-7 on 2", "layer.8-11 on 3",
         "pooler, heads on 0"]
EVEN = ["embeddings on 0", "-1 on 1", "-1 on 2", "-1 on 3", "pooler, heads on 0"]


def but(number, text, pipeline=RIGHT):
    """A right pipeline with one stage replaced."""
    return [*pipeline[:number], text, *pipeline[number + 1:]]


def without(*numbers):
    return [text for number, text in enumerate(RIGHT) if number not in numbers]


LAYERS = "write layer.N, layer.N-M, layer.N.attention, layer.N.feed_forward"
OUTSIDE = "but the model has layers 0 to 11; name those, or change model.num_hidden_layers"
ORDER = "list the stages in the order of the network"

# Pipeline, what else stands in run, place of the error, words of problem and mend.
WRONG = [
    # A stage that cannot be read.
    (but(1, "layer.0-3"), {}, 1, "does not say on which device it sits; write '… on 0'"),
    (but(1, "layer.0-3 on"), {}, 1, "stage 1 ('layer.0-3 on') does not say on which device"),
    (but(1, "layer.0-3 1"), {}, 1, "does not say on which device"),
    (but(1, "layer.0-3 at 1"), {}, 1, "does not say on which device"),
    (but(1, "layer.0-3 on1"), {}, 1, "stage 1 ('layer.0-3 on1') does not say on which device"),
    (but(1, "layer.0-3 ON 1"), {}, 1, "does not say on which device"),
    (["embeddings", "-1 on 0"], {}, 0, "in [ ] a stage with commas needs quotes"),
    (but(1, "layer.0-3: 1"), {}, 1, "does not say on which device"),
    (but(1, "1"), {}, 1, "stage 1 ('1') does not say on which device"),
    (but(4, "heads"), {}, 4, "stage 4 ('heads') does not say on which device"),
    (but(2, "on 2"), {}, 2, "names no part; write e.g. 'layer.0-3 on 2'"),
    (but(2, " on  2 "), {}, 2, "stage 2 ('on 2') names no part"),
    (but(2, ", on 2"), {}, 2, "has a comma with nothing beside it; remove it"),
    (but(4, "pooler,, heads on 0"), {}, 4, "has a comma with nothing beside it"),
    (but(4, "pooler, heads, on 0"), {}, 4, "has a comma with nothing beside it"),
    (but(4, ",pooler, heads on 0"), {}, 4, "has a comma with nothing beside it"),
    # Devices that are no numbers.
    (but(1, "layer.0-3 on IPU1"), {}, 1, "sits on 'IPU1', which is no number; write e.g. 'on 0'"),
    (but(1, "layer.0-3 on ipu 1"), {}, 1, "sits on 'ipu 1', which is no number"),
    (but(1, "layer.0-3 on one"), {}, 1, "sits on 'one', which is no number"),
    (but(1, "layer.0-3 on 1.0"), {}, 1, "sits on '1.0', which is no number"),
    (but(1, "layer.0-3 on 1,2"), {}, 1, "sits on '1,2', which is no number"),
    (but(1, "layer.0-3 on 0x1"), {}, 1, "sits on '0x1', which is no number"),
    (but(1, "layer.0-3 on ١"), {}, 1, "sits on '١', which is no number"),
    (but(1, "layer.0-3 on 9999999999"), {}, 1, "sits on '9999999999', which is no number"),
    (but(1, "layer.0-3 on -1"), {}, 1, "sits on -1, but devices count from 0; write 0 or more"),
    (but(4, "pooler, heads on -4"), {}, 4, "sits on -4, but devices count from 0"),
    (but(1, "layer.0-1 on 1 on 2"), {}, 1, "names 'on', which is no part"),
    # Unknown parts.
    (but(0, "embedding on 0"), {}, 0, "names 'embedding', which is no part; write embeddings"),
    (but(0, "Embeddings on 0"), {}, 0, "names 'Embeddings', which is no part; write embeddings"),
    (but(0, "word_embeddings on 0"), {}, 0, "'word_embeddings', which is no part; write embedd"),
    (but(0, "emb on 0"), {}, 0, "'emb', which is no part; write embeddings, layer.N, layer.N-M"),
    (but(4, "pooler, head on 0"), {}, 4, "names 'head', which is no part; write heads"),
    (but(4, "pool, heads on 0"), {}, 4, "names 'pool', which is no part; write pooler"),
    (but(4, "pooler, mlm on 0"), {}, 4, "'mlm', which is no part; write embeddings, layer.N"),
    (but(4, "pooler + heads on 0"), {}, 4, "names '+', which is no part"),
    (but(4, "pooler; heads on 0"), {}, 4, "names 'pooler;', which is no part; write pooler"),
    (but(1, "layers.0-3 on 1"), {}, 1, f"names 'layers.0-3', which is no part; {LAYERS}"),
    (but(1, "layer0-3 on 1"), {}, 1, f"names 'layer0-3', which is no part; {LAYERS}"),
    (but(1, "layer 0-3 on 1"), {}, 1, f"names 'layer', which is no part; {LAYERS}"),
    (but(1, "Layer.0-3 on 1"), {}, 1, f"names 'Layer.0-3', which is no part; {LAYERS}"),
    (but(1, "encoder.layer.0 on 1"), {}, 1, f"names 'encoder.layer.0', which is no part; {LAYERS}"),
    (but(1, "layer.0..3 on 1"), {}, 1, f"names 'layer.0..3', which is no part; {LAYERS}"),
    (but(1, "layer.0:3 on 1"), {}, 1, "names 'layer.0:3', which is no part"),
    (but(1, "layer.0-layer.3 on 1"), {}, 1, f"names 'layer.0-layer.3', which is no part; {LAYERS}"),
    (but(1, "layer.0- on 1"), {}, 1, "names 'layer.0-', which is no part"),
    (but(1, "layer.-3 on 1"), {}, 1, "names 'layer.-3', which is no part"),
    (but(1, "layer.* on 1"), {}, 1, "names 'layer.*', which is no part"),
    (but(1, "layer. on 1"), {}, 1, "names 'layer.', which is no part"),
    (but(1, "layer on 1"), {}, 1, "stage 1 ('layer on 1') names 'layer', which is no part"),
    (but(1, "layer.0-3-5 on 1"), {}, 1, "names 'layer.0-3-5', which is no part"),
    (but(1, "layer.9999999 on 1"), {}, 1, "names 'layer.9999999', which is no part"),
    (but(1, "0-3 on 1"), {}, 1, "names '0-3', which is no part; write embeddings, layer.N"),
    (but(1, "* on 1"), {}, 1, "names '*', which is no part"),
    (but(1, "-2 on 1", EVEN), {}, 1, "names '-2', which is no part"),
    (but(1, "rest on 1", EVEN), {}, 1, "names 'rest', which is no part"),
    (but(1, "x" * 500 + " on 1"), {}, 1, f"names '{'x' * 40}', which is no part"),
    # Halves.
    (but(1, "layer.0.ffn on 1"), {}, 1, "names 'layer.0.ffn', but the halves of a layer are "
                                        "attention and feed_forward; write layer.0."),
    (but(1, "layer.0.attn on 1"), {}, 1, "names 'layer.0.attn', but the halves of a layer are "
                                         "attention and feed_forward; write layer.0.attention"),
    (but(1, "layer.0.feedforward on 1"), {}, 1, "write layer.0.feed_forward"),
    (but(1, "layer.0.output on 1"), {}, 1, "names 'layer.0.output', but the halves of a layer"),
    (but(1, "layer.0-3.attention on 1"), {}, 1, "names one half of several layers in "
     "'layer.0-3.attention'; name each by itself"),
    (but(1, "layer.0-2, layer.3.attention on 1"), {}, 1, "no stage holds layer.3.feed_forward; "
     "add it to stage 1 ('layer.0-2, layer.3.attention on 1') or to a stage beside it"),
    # Layers that are not there.
    (but(3, "layer.8-12 on 3"), {}, 3, f"names layer 12, {OUTSIDE}"),
    (but(3, "layer.8-11, layer.12 on 3"), {}, 3, f"names layer 12, {OUTSIDE}"),
    (but(3, "layer.8-23 on 3"), {}, 3, f"names layer 23, {OUTSIDE}"),
    (but(3, "layer.8-11, layer.99.attention on 3"), {}, 3, f"names layer 99, {OUTSIDE}"),
    (but(3, "layer.8-999999 on 3"), {}, 3, f"names layer 999999, {OUTSIDE}"),
    (but(1, "layer.3-0 on 1"), {}, 1, "counts backwards in 'layer.3-0'; write layer.0-3"),
    # Parts that no stage holds.
    (without(0), {}, 0, "no stage holds embeddings; add it to stage 0 ('layer.0-3 on 1')"),
    (without(1), {}, 0, "no stage holds layer.0-3; add it to stage 0 ('embeddings on 0')"),
    (without(2), {}, 1, "no stage holds layer.4-7; add it to stage 1 ('layer.0-3 on 1')"),
    (without(3), {}, 2, "no stage holds layer.8-11; add it to stage 2"),
    (without(4), {}, 3, "no stage holds pooler, heads; add it to stage 3 ('layer.8-11 on 3')"),
    (without(1, 3), {}, 0, "no stage holds layer.0-3, layer.8-11; add it to stage 0"),
    (but(4, "heads on 0"), {}, 3, "no stage holds pooler; add it to stage 3"),
    (but(4, "pooler on 0"), {}, 4, "no stage holds heads; add it to stage 4 ('pooler on 0')"),
    (but(2, "layer.4, layer.6-7 on 2"), {}, 2, "no stage holds layer.5; add it to stage 2"),
    (but(2, "layer.4-6, layer.7.feed_forward on 2"), {}, 2, "no stage holds layer.7.attention"),
    (["heads on 0"], {}, 0, "no stage holds embeddings, layer.0-11, pooler; add it to stage 0"),
    (["embeddings, pooler, heads on 0"], {}, 0, "no stage holds layer.0-11; add it to stage 0"),
    # Parts that two stages hold.
    (but(2, "layer.3-7 on 2"), {}, 2, "holds layer.3, which stage 1 ('layer.0-3 on 1') holds "
                                      "already; name each part once"),
    (but(1, "embeddings, layer.0-3 on 1"), {}, 1, "holds embeddings, which stage 0 ("),
    (but(3, "layer.6-11, heads on 3"), {}, 3, "holds layer.6-7, which stage 2 ("),
    (but(3, "layer.8-11, heads on 3"), {}, 4, "holds heads, which stage 3 ("),
    (but(1, "layer.0-3, layer.2 on 1"), {}, 1, "holds layer.2, which it holds already"),
    (but(0, "embeddings, embeddings on 0"), {}, 0, "holds embeddings, which it holds already"),
    (but(1, "layer.0-3, layer.3.attention on 1"), {}, 1, "holds layer.3.attention, which it"),
    (but(1, "-1, -1 on 1", EVEN), {}, 1, "says -1 twice; remove one"),
    # The rest of the layers.
    (but(3, "-1 on 3", but(2, "layer.4-11 on 2")), {}, 3,
     "gets no layer by -1: 0 left for 1 such stage; remove it"),
    ([*RIGHT[:4], "-1, pooler, heads on 0"], {}, 4, "gets no layer by -1: 0 left"),
    (EVEN, {"layers": 2}, 1, "gets no layer by -1: 2 left for 3 such stages"),
    (["embeddings on 0", "layer.2.attention on 1", "-1 on 2", "pooler, heads on 0"], {}, 1,
     "no stage holds layer.2.feed_forward"),
    # Order.
    (without(0) + RIGHT[:1], {}, 4, f"holds embeddings, but stage 3 ('pooler, heads on 0') before "
                                    f"it holds heads; {ORDER}"),
    ([RIGHT[i] for i in (0, 2, 1, 3, 4)], {}, 2, "stage 2 ('layer.0-3 on 1') holds "
     "layer.0.attention, but stage 1 ('layer.4-7 on 2') before it holds layer.7.feed_forward"),
    ([RIGHT[i] for i in (0, 1, 2, 4, 3)], {}, 4, "holds layer.8.attention, but stage 3 ("),
    (RIGHT[::-1], {}, 1, "holds layer.8.attention, but stage 0 ('pooler, heads on 0') before it"),
    (["heads on 0", *RIGHT[:4], "pooler on 0"], {}, 1, "holds embeddings, but stage 0 ('heads on"),
    (["embeddings, heads on 0", *RIGHT[1:4], "pooler on 0"], {}, 1, "but stage 0 ('embeddings, hea"),
    (["embeddings, pooler, heads on 0", *RIGHT[1:4]], {}, 1, "before it holds heads; list the"),
    (["embeddings on 0", "layer.0.feed_forward on 1", "layer.0.attention, -1 on 2",
      "pooler, heads on 0"], {}, 2, "holds layer.0.attention, but stage 1 ("),
    (["embeddings, -1 on 0", "layer.0-3 on 1", "pooler, heads on 0"], {}, 1,
     "holds layer.0.attention, but stage 0 ('embeddings, -1 on 0') before it holds layer.11."),
    # Devices.
    (but(3, "layer.8-11 on 4"), {}, 3, "sits on 4, but no stage sits on 3; number the devices of "
                                       "a replica from 0 without a gap"),
    (["embeddings on 1", "-1 on 2", "pooler, heads on 1"], {}, 0, "sits on 1, but no stage sits "
                                                                  "on 0"),
    (but(2, "layer.4-7 on 1"), {}, 2, "sits on 1, as stage 1 ('layer.0-3 on 1') before it; write "
                                      "the two as one"),
    (but(1, "layer.0-3 on 0"), {}, 1, "sits on 0, as stage 0 ('embeddings on 0') before it"),
    # The embedding that the heads use.
    (but(4, "pooler, heads on 1"), {}, 4, "puts heads on IPU 1, but the word embedding that they "
     "use lies on IPU 0 with embeddings, and pipelined IPUs cannot share a weight; write a last "
     "stage 'heads on 0'"),
    (["embeddings, -1 on 0", "-1, pooler, heads on 1"], {}, 1, "puts heads on IPU 1"),
    (["embeddings, -1 on 0", "-1, pooler, heads on 1"], {"device": "ipu_model"}, 1,
     "stage 1 ('-1, pooler, heads on 1') puts heads on IPU 1"),
    # The machine.
    (RIGHT, {"replicas": 8}, "run.replicas", "8 x 4 IPUs a replica = 32, but run.ipus is 16; "
                                             "write at most 4"),
    (RIGHT, {"ipus": 2, "replicas": 1}, "run.replicas", "1 x 4 IPUs a replica = 4, but run.ipus "
     "is 2; take fewer IPUs in run.pipeline"),
    (RIGHT, {"ipus": 12, "replicas": 2}, "run.ipus", "12 is no power of two, but IPUs are taken "
     "in powers of two; write e.g. 4, 16 or 64"),
    (RIGHT, {"ipus": None, "replicas": 3}, "run.replicas", "3 is no power of two"),
    (["embeddings on 0", "-1 on 1", "-1 on 2", "pooler, heads on 0"], {"ipus": None},
     "run.pipeline", "3 is no power of two, but IPUs are taken in powers of two; take 1, 2, 4"),
    (RIGHT, {"available_memory_proportion": [0.2, 0.3]}, "run.available_memory_proportion",
     "2 values for 4 IPUs a replica; write one value, or one for each IPU"),
    # The batch.
    (RIGHT, {"micro_batch_size": 2048}, "run.pipeline", "5 stages forward and back need 9 micro "
     "batches an update, but global batch 65536 / (micro batch 2048 x replicas 4) is 8; raise"),
    (RIGHT, {"micro_batch_size": 16384}, "run.pipeline", "(micro batch 16384 x replicas 4) is 1"),
    (["embeddings on 0", "-1 on 1", "pooler, heads on 0"], {"micro_batch_size": 4096},
     "run.pipeline", "3 stages forward and back need 5 micro batches an update, but global batch "
     "65536 / (micro batch 4096 x replicas 4) is 4"),
]


@pytest.mark.parametrize("pipeline, run, place, words", WRONG,
                         ids=[f"{number}" for number in range(len(WRONG))])
def test_a_wrong_pipeline_is_told_where_and_how_to_mend_it(pipeline, run, place, words):
    with pytest.raises(InputError) as caught:
        resolve(pod16(pipeline, **run))
    error = caught.value
    assert error.place == (f"run.pipeline[{place}]" if isinstance(place, int) else place)
    assert words in str(error).partition(": ")[2]
    assert error.mend and len(str(error).splitlines()) == 1 and len(str(error)) < 800


def test_the_wrong_pipelines_are_many_and_differ():
    assert len(WRONG) >= 100
    assert len({repr(wrong[:2]) for wrong in WRONG}) == len(WRONG)
    assert len({wrong[3] for wrong in WRONG}) >= 95


def test_a_pooler_that_the_network_lacks():
    with pytest.raises(InputError, match="names pooler, but this network has none; remove it"):
        resolve(pod16(RIGHT), with_pooler=False)


def test_the_error_names_the_line_of_the_stage(tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(f"base: {ROOT}/configs/pretrain/bert_base_128.yaml\nrun:\n  pipeline:\n"
                    "    - embeddings, -1 on 0\n    # the second\n    - -1, pooler, heads on one\n")
    with pytest.raises(InputError) as caught:
        load_config(file, also_check=resolve)
    assert str(caught.value) == (f"{file}:6: run.pipeline[1]: stage 1 ('-1, pooler, heads on one') "
                                 "sits on 'one', which is no number; write e.g. 'on 0'")


def test_the_error_names_the_override():
    with pytest.raises(InputError) as caught:
        load_config(ROOT / "configs/pretrain/bert_base_128_pod16.yaml", ["run.replicas=8"],
                    also_check=resolve)
    assert str(caught.value).startswith("--set run.replicas=8: run.replicas: 8 x 4 IPUs a replica")
