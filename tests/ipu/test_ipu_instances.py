"""Several processes that share a pod: the options of each, its rows, and the numbers of one process."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from configs.errors import InputError
from data.batch import Batch
from engines.ipu.device_update import count_updates
from engines.ipu.engine import IpuEngine
from engines.ipu.instances import Instances
from engines.ipu.options import training_options
from engines.placement import resolve
from models.tasks import build_for_recipe
from tests.ipu.test_ipu_emulator import (Batches, ROWS, SHORT, SHORT_POD, configure, losses,
                                         make_batch, open_engine, train, weights)
from tests.ipu.test_ipu_programs import example, load

# What each of the processes does: train, evaluate, predict, and tell what it has.
WORK = """
import json, sys
from tests.ipu import conftest
import numpy as np
from tests.ipu import test_ipu_emulator as pod
engine = pod.open_engine(pod.configure(*pod.SHORT_POD, *sys.argv[2:]))
sums = pod.losses(pod.train(engine, 1, 3)).tolist()
evaluated = engine.evaluate(pod.make_batch(30, 7))
found = engine.predict(pod.make_batch(30, 7))
engine.collect()
total = sum(float(np.abs(p.numpy()).sum()) for p in engine.network.parameters())
told = engine.share({"main": engine.is_main} if engine.is_main else None)
agreed = [engine.agree(not engine.is_main), engine.agree(False)]
with open(sys.argv[1], "w") as file:
    json.dump([sums, evaluated, {name: array.tolist() for name, array in found.items()}, total,
               told, agreed, engine.is_main], file)
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def run_processes(folder, count, *overrides):
    """What each process told."""
    port = free_port()
    started = [subprocess.Popen(
        [sys.executable, "-c", WORK, str(folder / f"{rank}.json"), *overrides],
        env={**os.environ, "PADDLE_TRAINERS_NUM": str(count), "PADDLE_TRAINER_ID": str(rank),
             "PADDLE_TRAINER_ENDPOINTS": ",".join([f"127.0.0.1:{port}"] * count)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(count)]
    for process in started:
        output = process.communicate(timeout=120)[0]
        assert process.returncode == 0, output
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


def test_two_processes_compute_what_one_does(tmp_path):
    alone = open_engine(configure(*SHORT_POD))
    expected = losses(train(alone, 1, 3))
    evaluated, found = alone.evaluate(make_batch(30, 7)), alone.predict(make_batch(30, 7))
    total = sum(float(np.abs(array).sum()) for array in weights(alone).values())
    first, second = run_processes(tmp_path, 2)
    for sums, scores, _, size, told, agreed, _ in (first, second):
        assert np.abs(np.array(sums) - expected).max() < 1e-5
        assert scores == pytest.approx(evaluated, abs=1e-5)
        assert size == pytest.approx(total, rel=1e-6)
        assert told == {"main": True} and agreed == [True, False]
    assert [first[-1], second[-1]] == [True, False] and second[2] == {}
    for name, array in found.items():
        assert np.abs(np.array(first[2][name]) - array).max() < 1e-4


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_the_rows_of_all_processes_are_those_of_one(count):
    run = configure(*SHORT, "run.replicas=8", "run.micro_batch_size=1").run
    parts = [Instances(rank, count).rows(run, ROWS) for rank in range(count)]
    assert sorted(np.concatenate(parts)) == list(range(ROWS))
    # A call's feeds lie as accumulation, replicas, micro batch, over all replicas of the pod.
    whole = np.arange(ROWS).reshape([5, 8])
    joined = np.concatenate([part.reshape([5, -1]) for part in parts], axis=1)
    assert joined.tolist() == whole.tolist()


def test_weights_of_the_parts_still_sum_to_one():
    engine = IpuEngine(configure(*SHORT_POD), is_dry=True)
    totals = {}
    for rank in range(2):
        engine.instances = Instances(rank, 2)
        batch = engine.read(Batches(), 0, ROWS)
        assert len(batch) == ROWS // 2
        for name, array in batch.labels.items():
            if name.endswith("_weights"):
                totals[name] = totals.get(name, 0) + float(array.sum())
    assert totals == pytest.approx(dict.fromkeys(totals, 1.0)) and len(totals) == 2


@pytest.mark.parametrize("name, processes, local, total, each", [
    ("bert_base_128_pod128", 2, 16, 32, 4), ("bert_large_mlperf_2304_pod256", 4, 8, 32, 8)])
def test_options_of_a_process(name, processes, local, total, each):
    config = load(f"pretrain/{name}")
    for rank in (0, processes - 1):
        options = training_options(config, resolve(config), Instances(rank, processes))
        assert {key: options[key] for key in (
            "num_ipus", "enable_replicated_graphs", "replicated_graph_count",
            "enable_distribution", "enable_distributed_replicated_graphs",
            "global_replication_factor", "global_replica_offset")} == {
                "num_ipus": local * each, "enable_replicated_graphs": True,
                "replicated_graph_count": local, "enable_distribution": True,
                "enable_distributed_replicated_graphs": True,
                "global_replication_factor": total, "global_replica_offset": rank * local}
        assert options["location_optimizer"]["sharding_domain_with_consecutive"] == local


def test_the_program_of_a_process_holds_to_the_contract():
    config = load("pretrain/bert_base_128_pod128", "model.num_hidden_layers=3")
    engine = IpuEngine(config, is_dry=True)
    engine.instances = Instances(1, 2)
    engine.build(build_for_recipe(config), lambda network: None)
    _, options = engine._build("training", example(config))
    assert options["num_ipus"] == 64 and options["global_replica_offset"] == 16


def test_replicas_that_cannot_be_shared():
    with pytest.raises(InputError, match="2 replicas cannot be shared by 3 processes"):
        Instances(0, 3).check(configure(*SHORT_POD).run)


SPREAD = {"enable_distribution": True, "enable_distributed_replicated_graphs": True,
          "global_replication_factor": 4, "global_replica_offset": 2,
          "location_optimizer": {"on_chip": 0, "use_replicated_tensor_sharding": 1,
                                 "sharding_domain_with_consecutive": 2}}
BROKEN = {
    "one of the two": ({"enable_distribution": False}, "enable_distribution", "both"),
    "not spread": ({"enable_distribution": False, "enable_distributed_replicated_graphs": False},
                   "global_replication_factor", "is off"),
    "no multiple": ({"global_replication_factor": 5}, "global_replication_factor", "of a process"),
    "offset between": ({"global_replica_offset": 1}, "global_replica_offset", "rank x"),
    "offset beyond": ({"global_replica_offset": 4}, "global_replica_offset", "among 4"),
    "local of one": ({"num_ipus": 2, "replicated_graph_count": 1}, "enable_replicated_graphs",
                     "one replica a process"),
    "shards of others": ({"location_optimizer": {"on_chip": 0,
                                                 "use_replicated_tensor_sharding": 1}},
                         "location_optimizer", "sharding_domain_with_consecutive: 2"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_options_that_several_processes_cannot_have(small, name):
    program = small()
    program.options.update(SPREAD)
    program.check()
    change, *words = BROKEN[name]
    program.options.update(change)
    with pytest.raises(InputError) as caught:
        program.check()
    assert caught.value.mend and all(word in str(caught.value) for word in words)


def test_adam_counts_on_after_any_number_of_updates():
    """float32 cannot tell 0.9 ** 831 from 0; the count itself goes to the pod instead."""
    assert count_updates(0.9, 0.9) == 0 and count_updates(0.9 ** 4, 0.9) == 3
    assert [count_updates(number, 0.9) for number in (0.0, 1.0, 5000.0)] == [0, 1, 5000]
    config = configure(*SHORT_POD, "train.optimizer=adamw", "train.weight_decay=0.0")
    local = open_engine(configure(*SHORT, "train.optimizer=adamw", "train.weight_decay=0.0"))
    train(local, 1, 1)
    state = local.state()
    for name, array in state.items():
        if name.endswith("pow_acc"):
            beta = 0.9 if "beta1" in name else 0.999
            state[name] = np.full_like(array, np.float32(beta) ** 1501)
    pod = open_engine(config)
    for name, parameter in local.network.named_parameters():
        dict(pod.network.named_parameters())[name].set_value(parameter.numpy())
    pod.build(pod.network, lambda network: None)
    for engine in (local, pod):
        engine.load_state(state)
    ours, theirs = losses(train(pod, 2, 4)), losses(train(local, 2, 4))
    assert np.abs(ours - theirs).max() < 1e-5 and pod.updates == 1503
    assert pod._compiled.program.update.updates == 1503
    later = open_engine(config)
    later.build(later.network, lambda network: None)
    later.load_state(pod.state())
    assert later.updates == 1503


def test_a_batch_of_inputs_alone_is_shared_too():
    engine = IpuEngine(configure(*SHORT_POD), is_dry=True)
    engine.instances = Instances(1, 2)
    batch = Batch(**make_batch(ROWS, 0).inputs, labels={})
    assert len(engine._own(batch)) == ROWS // 2


@pytest.mark.parametrize("kind", ["training", "prediction"])
def test_tied_gather_is_switched_on_where_it_matches(kind):
    from engines.ipu.patterns import patterns_of

    config = configure(*SHORT_POD, "run.tied_gather=true", "run.embedding_serialization_factor=5")
    names = patterns_of(config.run, kind == "training")
    assert names == ("TiedGather", "TiedGatherAccumulate")[:1 + (kind == "training")]
    switched = []
    pod = open_engine(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engines.ipu.emulator.EmulatedStrategy.enable_pattern",
                      lambda strategy, name: switched.append(name))
        train(pod, 1, 1) if kind == "training" else pod.predict(make_batch(8, 0))
    assert tuple(switched) == names


def test_tied_gather_is_refused_where_gradients_would_be_lost():
    one_ipu = ["run.device=ipu_model", "run.replicas=1", f"run.micro_batch_size={ROWS}",
               "run.tied_gather=true"]
    with pytest.raises(InputError, match="run.tied_gather: true, but gradients are not accumul"):
        train(open_engine(configure(*SHORT, *one_ipu)), 1, 1)
    with pytest.raises(InputError, match="no product uses the word embedding"):
        config = load("squad/bert_base_pod16", "run.tied_gather=true", task="squad").with_steps(9)
        engine = IpuEngine(config, is_dry=True)
        engine.build(build_for_recipe(config), lambda network: None)
        engine._build("training", example(config))
