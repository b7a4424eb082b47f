"""Plans of IPU pods against values worked out by hand, a simulation, and published figures."""

import dataclasses
import itertools
import json
import os
import subprocess
import sys

import pytest

import plan_pod
from benchmarks import planner as published
from configs.command_line import run
from configs.load import load_config
from engines.planner import timing
from engines.planner.drawing import blocks
from engines.planner.hardware import IPUS, MIB
from engines.planner.memory import stash_per_ipu
from engines.planner.plan import make_plan, mean_sequences
from engines.planner.search import _share_out, scale, search

POD16 = "configs/pretrain/bert_base_128_pod16.yaml"
LAYER = 4 * (768 * 768 + 768) + 2 * 768 + 2 * 768 * 3072 + 3072 + 768 + 2 * 768


def plan_of(*overrides, ipu="mk2", path=POD16):
    return make_plan(load_config(path, overrides), IPUS[ipu])


@pytest.fixture(scope="module")
def pod16():
    return plan_of()


@pytest.mark.parametrize("name, memory, half, single", [
    ("mk1", 304, 125e12, 31.1e12), ("mk2", 897, 250e12, 62.5e12), ("bow", 897, 350e12, 87.5e12)])
def test_the_hardware_reaches_its_published_peaks(name, memory, half, single):
    ipu = IPUS[name]
    assert ipu.memory == memory * MIB
    assert ipu.peak_flops("fp16", True) == pytest.approx(half, rel=0.01)
    assert ipu.peak_flops("fp32", True) == pytest.approx(single, rel=0.01)


def test_pods_are_named_by_their_size():
    assert IPUS["bow"].pod(16) == "Bow Pod16" and IPUS["mk2"].pod(8) == "IPU-POD16"
    assert IPUS["mk1"].pod(4) == "DSS8440" and "larger" in IPUS["mk2"].pod(512)


def test_parameters_are_those_of_the_network(pod16):
    from models.tasks import build_for_pretraining

    config = load_config(POD16, ["model.num_hidden_layers=4", "model.hidden_size=48"])
    network = build_for_pretraining(config.model, config.data.max_predictions)
    plan = make_plan(config, IPUS["mk2"])
    for part in network.parts():
        names = {id(parameter): parameter.size for layer in part.layers
                 for parameter in layer.parameters()}
        if part.name == "heads":
            names.pop(id(network.embeddings.word_embeddings.weight))
        assert plan.costs[part.name].parameters == sum(names.values())


def test_memory_of_phase_1_by_hand(pod16):
    first = pod16.memory[1]
    assert LAYER == 7_087_872
    assert first["weights"] == first["accumulators"] == 2 * 4 * LAYER
    # The input and three layers' outputs, for the 7 micro batches between stage 1 and its return.
    assert first["stash"] == 7 * 4 * 32 * 128 * 768 * 2 == 168 * MIB
    # A layer that is recomputed, and two gradients as wide as the feed-forward layer.
    kept = 6 * 128 * 768 + 12 * 128 * 128 + 2 * 128 * (768 + 3072)
    assert first["working"] == 2 * 32 * (kept + 2 * 128 * 3072)
    # Operand and result of the feed-forward layer, and its weight.
    assert first["products"] == 2 * (32 * 128 * (768 + 3072) + 768 * 3072)
    assert first["optimizer"] == 0
    assert first["off_chip"] == 8 * 4 * LAYER // 4  # two fp32 moments over four replicas
    assert [kinds["stash"] for kinds in pod16.memory] == [0, 168 * MIB, 120 * MIB, 72 * MIB]
    assert pod16.fits


def test_a_stage_that_ends_within_a_layer_keeps_that_layer_s_input_too():
    pipeline = ('["embeddings, layer.0 on 0", "layer.1-3, layer.4.attention on 1", '
                '"layer.4.feed_forward, layer.5-7 on 2", "layer.8-11 on 3", "pooler, heads on 0"]')
    plan = plan_of(f"run.pipeline={pipeline}")
    tensor = 32 * 128 * 768 * 2
    # Of IPU 0, the ids are no activation; of IPU 1, the inputs of layers 1 to 4; of IPU 2, of
    # the second half of layer 4 and of layers 5 to 7.
    assert [kinds["stash"] // tensor for kinds in plan.memory] == [0, 7 * 4, 5 * 4, 3 * 4]


def test_reading_comprehension_has_a_head_of_two_scores_and_no_recomputation_at_its_end():
    rows = {row["name"]: row for row in published.read_rows()["rows"]}
    plan = published.plan_row(rows["Paddle base SQuAD POD16"])
    assert plan.costs["heads"].parameters == 2 * 768 + 2
    assert [stage.ipu for stage in plan.placement.stages] == [0, 1]
    first, second = plan.timing.forward
    assert plan.timing.loads == pytest.approx((4 * first, 3 * second))
    assert plan.hours is None and plan.fits
    better = search(plan)[-1].plan
    assert len(better.placement.stages) == better.placement.ipus_per_replica == 4


def test_keeping_activations_takes_all_of_them_for_every_micro_batch(pod16):
    kept = 4 * (6 * 128 * 768 + 12 * 128 * 128 + 2 * 128 * (768 + 3072))
    stashes = stash_per_ipu(pod16.config, pod16.placement, pod16.costs, recompute=False)
    assert stashes[1] == 7 * 32 * kept * 2
    assert not plan_of("run.recompute=false").fits
    dropping = plan_of("model.attention_probs_dropout_prob=0.1")
    more = stash_per_ipu(dropping.config, dropping.placement, dropping.costs, recompute=False)
    assert more[1] - stashes[1] == 7 * 32 * 4 * 12 * 128 * 128 * 2


def test_the_optimizer_on_the_chip():
    on_chip = plan_of("run.optimizer_state_on_chip=true", "run.shard_optimizer=false")
    assert on_chip.memory[1]["optimizer"] == 8 * 4 * LAYER and on_chip.memory[1]["off_chip"] == 0
    halves = plan_of("run.optimizer_state_on_chip=true", "train.first_moment_precision=fp16")
    assert halves.memory[1]["optimizer"] == 6 * 4 * LAYER // 4


def test_products_stay_within_their_share():
    narrow = plan_of("run.available_memory_proportion=[0.01]")
    assert narrow.memory[1]["products"] == int(0.01 * 897 * MIB)
    each = plan_of("run.available_memory_proportion=[0.28, 0.01, 0.28, 0.28]")
    assert each.memory[1]["products"] < each.memory[2]["products"]


def test_twelve_layers_of_bert_large_on_one_ipu_do_not_fit():
    pipeline = '["embeddings, layer.0-11 on 0", "layer.12-23 on 1", "pooler, heads on 0"]'
    path = "configs/pretrain/bert_large_128_pod16.yaml"
    plan = plan_of(f"run.pipeline={pipeline}", "run.available_memory_proportion=[0.2]",
                   path=path)
    assert not plan.fits and "memory of IPU 0" in plan.limit
    assert plan_of(path=path).fits


def test_mk1_has_no_memory_off_the_chip():
    plan = plan_of("run.micro_batch_size=2", ipu="mk1")
    assert not plan.fits and "run.optimizer_state_on_chip" in plan.limit
    assert plan_of("run.micro_batch_size=2", "run.optimizer_state_on_chip=true", ipu="mk1").fits


@pytest.mark.parametrize("overrides", [
    ["train.global_batch_size=1536"], ["train.global_batch_size=1536", "run.recompute=false"],
    ["run.pipeline=[]", "train.global_batch_size=1536"],
    ['run.pipeline=["embeddings, layer.0-8 on 0", "layer.9-11 on 1", "pooler, heads on 0"]',
     "train.global_batch_size=1536"]])
def test_the_pipeline_takes_as_long_as_its_simulation(overrides):
    plan = plan_of(*overrides)
    forward, stages = plan.timing.forward, plan.placement.stages
    last, micro_batches = len(stages) - 1, plan.timing.accumulation
    again = 1 if plan.config.run.recompute else 0
    total = 0.0
    for cycle in range(micro_batches + 2 * last):
        loads = [0.0] * plan.placement.ipus_per_replica
        for stage in stages:
            if 0 <= cycle - stage.number < micro_batches:
                loads[stage.ipu] += forward[stage.number]
            if 0 <= cycle - (2 * last - stage.number) < micro_batches:
                recomputed = again if stage.number < last or last == 0 else 0
                loads[stage.ipu] += (2 + recomputed) * forward[stage.number]
        total += max(loads) + plan.timing.exchange
    assert plan.timing.pipeline == pytest.approx(total, rel=1e-9)
    drawn = blocks(plan, micro_batches)
    end = max(start + seconds for *_, start, seconds in drawn)
    assert end + plan.timing.exchange == pytest.approx(total, rel=1e-9)
    full = micro_batches * plan.timing.cycle
    assert plan.timing.bubble_share == pytest.approx(1 - full / total, abs=1e-9)


def test_a_stage_takes_its_products_and_its_steps(pod16):
    flops = 4 * (2 * 128 * (4 * 768 * 768 + 2 * 768 * 3072) + 4 * 128 * 128 * 768)
    rate = timing.FITTED.efficiency * 2 * 1472 * 64 * 1.33e9
    steps = 8 * timing.FITTED.part_cycles / 1.33e9
    assert pod16.timing.forward[1] == pytest.approx(32 * flops / rate + steps, rel=1e-9)
    assert pod16.timing.exchange == pytest.approx(2 * 32 * 128 * 768 * 2 / 160e9)


def test_speed_hours_and_shares_belong_together(pod16):
    step = pod16.timing.step
    assert pod16.sequences_per_second == pytest.approx(65536 / step)
    assert pod16.hours == pytest.approx(7038 * step / 3600)
    assert sum(pod16.timing.shares().values()) == pytest.approx(1)
    # A ring over four replicas of the layers' gradients, and two fp32 moments there and back.
    assert pod16.timing.reduction == pytest.approx(2 * 3 / 4 * 2 * 4 * LAYER / 160e9)
    assert pod16.timing.state_traffic == pytest.approx(2 * 8 * LAYER / 32e9)
    faster = plan_of("run.batches_per_step=4").timing
    assert step - faster.step == pytest.approx(0.75 * timing.FITTED.host_seconds)
    assert plan_of(ipu="bow").timing.loads[1] == pytest.approx(
        pod16.timing.loads[1] * 1.33 / 1.85)
    flops = sum(part.flops for part in pod16.costs.values())
    assert pod16.peak_share == pytest.approx(
        3 * flops * pod16.sequences_per_second / 16 / IPUS["mk2"].peak_flops("fp16", True))


def test_packed_rows_count_their_sequences():
    data = load_config(POD16).data
    assert mean_sequences(data) == 1
    packed = dataclasses.replace(data, sequences_per_row=3)
    assert mean_sequences(packed) == pytest.approx(1.17)
    middle = dataclasses.replace(packed, sequence_length=448)
    assert mean_sequences(middle) == pytest.approx((1.7 + 2.0) / 2)
    assert mean_sequences(dataclasses.replace(middle, sequences_per_row=1)) == 1


def test_published_throughputs_are_met():
    result = published.compare()
    assert result["all_fit"]
    for name, value in result["fitted"].items():
        assert value == pytest.approx(result["used"][name], rel=0.01), name
    checked = [row for row in result["rows"] if row["use"] == "check"]
    assert len(checked) == 39 and result["median_error"]["check"] <= 0.10
    assert result["largest_error"]["fit"] < 0.06
    by_name = {row["name"]: row for row in result["rows"]}
    assert abs(by_name["Paddle base phase 2 POD16"]["error"]) < 0.03


def test_the_layers_are_shared_out_as_well_as_can_be():
    work = [3, 1, 4, 1, 5, 9, 2, 6]
    for count in (1, 2, 3, 4, 8):
        cuts = itertools.combinations(range(1, len(work)), count - 1)
        best = min(max(sum(work[start:stop]) for start, stop in zip((0, *cut), (*cut, 8)))
                   for cut in cuts)
        groups = _share_out(list(range(8)), work, count)
        assert [part for group in groups for part in group] == list(range(8))
        assert len(groups) == count and all(groups)
        assert max(sum(work[part] for part in group) for group in groups) == best


def test_advice_is_faster_fits_and_loads():
    uneven = ('["embeddings on 0", "layer.0-6 on 1", "layer.7-9 on 2", "layer.10-11 on 3", '
              '"pooler, heads on 0"]')
    plan = plan_of(f"run.pipeline={uneven}", "run.micro_batch_size=4")
    small, large = search(plan)
    assert set(small.keys) == {"micro_batch_size"} and "pipeline" in large.keys
    before = plan
    for change in (small, large):
        assert change.plan.fits and change.plan.ipus == 16
        assert change.plan.timing.step < before.timing.step
        written = [f"run.{key}={json.dumps(value)}" for key, value in change.keys.items()]
        again = plan_of(f"run.pipeline={uneven}", "run.micro_batch_size=4", *written)
        assert again.timing.step == pytest.approx(change.plan.timing.step, rel=1e-9)
        assert again.memory == change.plan.memory
        before = change.plan


def test_advice_leaves_memory_free():
    plan = plan_of(path="configs/pretrain/bert_large_512_pod16.yaml")
    changes = search(plan)
    assert changes and all(max(change.plan.used) <= 0.95 * plan.ipu.memory for change in changes)


def test_advice_fills_the_pipeline():
    plan = plan_of("model.hidden_size=48", "model.num_attention_heads=4",
                   "model.intermediate_size=96", "train.global_batch_size=256",
                   "run.micro_batch_size=1")
    same_split = search(plan)[0].plan
    # Memory would allow 32; nine micro batches fill five stages there and back.
    assert same_split.config.run.micro_batch_size == 4 and same_split.timing.accumulation == 16


def test_advice_frees_a_stated_accumulation():
    plan = plan_of("run.micro_batch_size=8", "run.accumulation_steps=2048")
    assert search(plan)[0].keys == {"micro_batch_size": 32, "accumulation_steps": None}


def test_advice_that_was_taken_is_not_followed_by_more(pod16):
    assert search(search(pod16)[-1].plan) == []


def test_advice_finds_room_for_what_does_not_fit():
    plan = plan_of("run.micro_batch_size=128")
    assert not plan.fits
    assert search(plan)[0].plan.fits


def test_scaling_keeps_the_global_batch(pod16):
    points = {ipus: point for _, ipus, point in scale(pod16)}
    assert list(points) == [4, 16, 64, 128, 256]
    assert [point.config.run.replicas for point in points.values()] == [1, 4, 16, 32, 64]
    assert points[16].timing.step == pod16.timing.step
    speeds = [point.sequences_per_second for point in points.values()]
    assert all(1 < fast / slow < big / small for (slow, fast), (small, big)
               in zip(zip(speeds, speeds[1:]), zip(points, list(points)[1:])))
    few = plan_of("train.global_batch_size=2048")
    assert "micro batches" in dict((ipus, point) for _, ipus, point in scale(few))[64]


def test_the_command_prints_writes_and_draws(tmp_path, capsys):
    arguments = ["--config", POD16, "--output", str(tmp_path)]
    facts = plan_pod.main([*arguments, "--json"])
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "plan.json").read_text())
    assert facts["fits"] is True and facts["bubble_share"] == pytest.approx(0.0043, abs=5e-4)
    assert facts["sequences_per_second"] == pytest.approx(11700, rel=0.02)
    assert facts["hours"] == pytest.approx(10.95, rel=0.02)
    assert facts["per_ipu"][1]["stash"] == 168 and len(facts["per_ipu"]) == 4
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    plan_pod.main(["--config", POD16])
    text = capsys.readouterr().out
    assert "verdict: fits" in text and "advice" in text and "IPU-POD256" in text


@pytest.mark.parametrize("arguments, told", [
    (["--draw", "plan.gif"], "--draw plan.gif"),
    (["--sequences-per-row", "2"], "data.sequences_per_row 1"),
    (["--draw", "no/such/folder/plan.svg"], "no/such/folder/plan.svg"),
    (["--output", POD16], f"--output {POD16}"),
    (["--hardware", "mk3"], "--hardware"),
    (["--set", "run.micro_batch_size=16384"], "run.pipeline"),
    (["--set", "run.replicas=8"], "run.ipus is 16")])
def test_wrong_input_is_told_in_one_line(arguments, told, capsys):
    assert run(plan_pod.main, ["--config", POD16, *arguments]) == 2
    errors = capsys.readouterr().err
    assert told in errors and errors.count("\n") == 1


def test_it_plans_in_seconds_and_without_paddle():
    script = ("import sys, plan_pod; plan_pod.main(['--config', sys.argv[1], '--json']); "
              "assert not {'paddle', 'numpy', 'matplotlib'} & set(sys.modules)")
    before = os.times()
    subprocess.run([sys.executable, "-c", script, POD16], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    # Of the processor, for on a busy machine everything waits.
    assert sum(after[2:4]) - sum(before[2:4]) < 5
