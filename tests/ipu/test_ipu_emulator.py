"""The emulated pod against the local engine: the same rows, the same numbers."""

from functools import lru_cache

import numpy as np
import paddle
import pytest

from configs.errors import InputError
from configs.load import load_config
from data.batch import Batch, mean_weights
from engines.ipu.emulator import EmulatedStrategy
from engines.ipu.engine import IpuEngine
from engines.local import LocalEngine
from engines.placement import resolve
from models.initialise import initialise
from models.tasks import build_for_recipe
from training.optimizers import build_optimizer

ROWS = 40
TINY = ["model.hidden_size=32", "model.num_hidden_layers=4", "model.num_attention_heads=2",
        "model.intermediate_size=64", "model.vocab_size=1000", "data.sequence_length=24",
        "data.max_predictions=4", "data.sequences_per_row=2", "model.hidden_dropout_prob=0.0",
        "model.attention_probs_dropout_prob=0.0", "run.micro_batch_size=2",
        f"train.global_batch_size={ROWS}", "train.decay_all_parameters=true",
        "run.peak_flops=1.0e11"]
POD = ["run.device=ipu_model", "run.replicas=2",
       "run.pipeline=[embeddings on 0, -1 on 1, -1 on 2, -1 on 3, 'pooler, heads on 0']"]
# Two IPUs instead of four, for what does not depend on it.
SHORT = ["model.num_hidden_layers=2", "run.micro_batch_size=4", "train.optimizer=lamb"]
SHORT_POD = [*SHORT, "run.device=ipu_model", "run.replicas=2",
             "run.pipeline=[embeddings on 0, -1 on 1, 'pooler, heads on 0']"]
RECIPES = {"bert": "quickstart", "ernie": "quickstart_ernie_zh"}
CASES = pytest.mark.parametrize("recipe, optimizer", [("bert", "lamb"), ("ernie", "adamw")])


def configure(*overrides, recipe="bert"):
    return load_config(f"configs/pretrain/{RECIPES[recipe]}.yaml", [*TINY, *overrides], resolve)


def make_batch(rows, seed):
    """Packed rows whose predictions can be learnt from their tokens."""
    random = np.random.default_rng(seed)
    sequence_id = np.sort(random.integers(0, 3, [rows, 24]))[:, ::-1].astype(np.int32)
    ids = random.integers(1, 1000, [rows, 24]).astype(np.int32)
    labels = {"masked_lm_labels": ids[:, :4] % 50 + 1,
              "masked_lm_weights": mean_weights(random.integers(0, 4, [rows, 4]) > 0),
              "pair_labels": ids[:, 4:6] % 2,
              "pair_weights": mean_weights(random.integers(0, 4, [rows, 2]) > 0)}
    types = random.integers(0, 2, [rows, 24]).astype(np.int32)
    positions = np.tile(np.arange(24, dtype=np.int32), (rows, 1))
    return Batch(ids, types, positions, sequence_id.copy(), labels)


class Batches:
    """The n-th batch is a function of n."""

    def batch(self, consumed, count):
        return make_batch(count, consumed // count)


def open_engine(config):
    network = build_for_recipe(config)
    initialise(network, config.train.seed, config.model.initializer_range)
    engine = (IpuEngine if config.run.on_ipus else LocalEngine)(config)
    engine.build(network, lambda network: build_optimizer(config.train, network))
    return engine


def train(engine, first, last, rate=0.01):
    """The sums of steps ``first`` to ``last``."""
    return [engine.step(engine.read(Batches(), (step - 1) * ROWS, ROWS), rate * step / 20, step)
            for step in range(first, last + 1)]


def losses(sums):
    return np.array([[step[name] for name in ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy",
                                              "nsp_accuracy")] for step in sums])


def weights(engine):
    engine.collect()
    return {name: parameter.numpy() for name, parameter in engine.network.named_parameters()}


@lru_cache(maxsize=None)
def train_locally(recipe, optimizer):
    """The local engine after twenty steps, and their losses."""
    local = open_engine(configure(f"train.optimizer={optimizer}", "train.max_gradient_norm=0.4",
                                  recipe=recipe))
    return local, losses(train(local, 1, 20))


def train_on_pod(recipe, optimizer, *options):
    """The same on two replicas of four IPUs, ten micro batches each."""
    pod = open_engine(configure(f"train.optimizer={optimizer}", "train.max_gradient_norm=0.4",
                                *POD, *options, recipe=recipe))
    assert pod.config.accumulation_steps == 10 and pod.placement.ipus_per_replica == 4
    return pod, losses(train(pod, 1, 20))


@CASES
def test_twenty_steps_of_four_ipus_twice_are_those_of_the_local_engine(recipe, optimizer):
    (pod, ours), (local, theirs) = train_on_pod(recipe, optimizer), train_locally(recipe, optimizer)
    assert np.abs(ours - theirs).max() < 1e-5
    assert theirs[-1, 0] < theirs[0, 0] - 0.05
    expected = weights(local)
    for name, array in weights(pod).items():
        # Adam makes a whole step of a gradient that is but rounding, so single numbers differ.
        assert np.abs(array - expected[name]).mean() < 1e-4, name
    state, wanted = pod.state(), local.state()
    assert {name: (array.shape, array.dtype) for name, array in state.items()} == {
        name: (array.shape, array.dtype) for name, array in wanted.items()}
    held_out = make_batch(50, 1000)
    for name, value in local.evaluate(held_out).items():
        assert pod.evaluate(held_out)[name] == pytest.approx(value, abs=2e-4)
    found, wanted = pod.predict(held_out), local.predict(held_out)
    assert found["pair_logits"].shape == (50, 2, 2)
    for name in wanted:
        assert np.abs(found[name] - wanted[name]).mean() < 1e-3


@CASES
def test_half_precision_falls_alike(recipe, optimizer):
    pod, ours = train_on_pod(recipe, optimizer, "run.precision=fp16", "run.loss_scale=128",
                             "run.stochastic_rounding=true")
    _, theirs = train_locally(recipe, optimizer)
    assert 0 < np.abs(ours - theirs)[:, 0].max() < 2e-2
    assert ours[-1, 0] < ours[0, 0] - 0.05
    for array in weights(pod).values():
        assert np.array_equal(array, array.astype(np.float16).astype(np.float32))


def test_half_precision_rounds_to_the_nearest_too():
    options = ["run.precision=fp16", "run.loss_scale=128", "run.stochastic_rounding=false"]
    pod, local = open_engine(configure(*SHORT_POD, *options)), open_engine(configure(*SHORT))
    ours, theirs = losses(train(pod, 1, 4)), losses(train(local, 1, 4))
    assert 0 < np.abs(ours - theirs)[:, 0].max() < 2e-2


def test_several_updates_a_call_keep_the_rate_of_the_first():
    options = [*SHORT_POD, "train.steps=4", "train.save_every=2", "run.batches_per_step=2",
               "train.evaluate_every=0"]
    pod, local = open_engine(configure(*options)), open_engine(configure(*SHORT))
    ours = train(pod, 1, 4)
    theirs = [local.step(make_batch(ROWS, step - 1), 0.01 * (step - 1 + step % 2) / 20, step)
              for step in range(1, 5)]
    assert np.abs(losses(ours) - losses(theirs)).max() < 1e-5


def test_a_pod_goes_on_where_the_local_engine_stopped_and_back():
    config, pod_config = configure(*SHORT), configure(*SHORT_POD)
    whole = open_engine(config)
    expected = losses(train(whole, 1, 6))
    for first, second in ((config, pod_config), (pod_config, config)):
        start = open_engine(first)
        train(start, 1, 3)
        rest = open_engine(second)
        for name, parameter in rest.network.named_parameters():
            parameter.set_value(weights(start)[name])
        rest.build(rest.network, lambda network: build_optimizer(second.train, network))
        rest.load_state(start.state())
        assert np.abs(losses(train(rest, 4, 6)) - expected[3:]).max() < 1e-5


def test_evaluating_between_steps_changes_no_step():
    disturbed, plain = open_engine(configure(*SHORT_POD)), open_engine(configure(*SHORT_POD))
    sums = train(disturbed, 1, 2)
    disturbed.evaluate(make_batch(30, 7))
    sums += train(disturbed, 3, 4)
    assert np.abs(losses(sums) - losses(train(plain, 1, 4))).max() < 1e-6


def test_fetches_are_labelled_as_the_backend_labels_them():
    pod = open_engine(configure(*SHORT_POD, "run.batches_per_step=2", "train.steps=2",
                                "train.save_every=2", "train.evaluate_every=0"))
    train(pod, 1, 1)
    compiled = pod._compiled.program
    values = [[np.float32(batch * 100 + step * 10 + replica) for step in range(5)]
              for batch in range(2) for replica in range(2)]
    array = compiled._label(0, [value for row in values for value in row], [2, 5, 2])
    # Axes say replicas, accumulation, batches; the order is batches, accumulation, replicas.
    assert array.shape == (2, 5, 2)
    expected = [[[batch * 100 + step * 10 + replica for replica in range(2)]
                 for step in range(5)] for batch in range(2)]
    assert array.ravel().tolist() == np.ravel(expected).tolist()
    feeds = {name: np.zeros([3, *shape], np.int32) for name, shape in compiled.shapes.items()
             if name in compiled.feeds}
    with pytest.raises(InputError, match="2 x 5 x 2 x 4 x 24"):
        compiled.run(feeds)


def test_dropout_drops_in_training_alone():
    pod = open_engine(configure(*SHORT_POD, "model.hidden_dropout_prob=0.5"))
    (first,), held_out = train(pod, 1, 1, rate=1e-9), make_batch(ROWS, 0)
    evaluated = [pod.evaluate(held_out)["loss"] for _ in range(2)]
    assert evaluated[0] == evaluated[1] and abs(first["loss"] - evaluated[0]) > 1e-3
    again = open_engine(configure(*SHORT_POD, "model.hidden_dropout_prob=0.5"))
    assert train(again, 1, 1, rate=1e-9)[0]["loss"] == first["loss"]


def test_weights_stay_on_the_pod_until_they_are_fetched():
    pod = open_engine(configure(*SHORT_POD))
    before = {name: parameter.numpy() for name, parameter in pod.network.named_parameters()}
    train(pod, 1, 1)
    for name, parameter in pod.network.named_parameters():
        assert np.array_equal(parameter.numpy(), before[name])
    assert any(np.abs(array - before[name]).max() > 1e-5 for name, array in weights(pod).items())


def test_one_ipu_a_replica_needs_no_shards():
    pod = open_engine(configure(*SHORT, "run.device=ipu_model", "run.replicas=2"))
    ours = losses(train(pod, 1, 2))
    assert np.abs(ours - losses(train(open_engine(configure(*SHORT)), 1, 2))).max() < 1e-5
    assert not any(op.has_attr("ipu_index")
                   for op in pod._compiled.built.main.global_block().ops)


def test_the_emulated_classes_refuse_as_the_real_ones_do():
    strategy = EmulatedStrategy()
    with pytest.raises(RuntimeError, match="Only if num_ipus > 1"):
        strategy.set_graph_config(num_ipus=1, enable_manual_shard=True)
    with pytest.raises(RuntimeError, match="Only if enable_manual_shard=True"):
        strategy.set_pipelining_config(enable_pipelining=True)
    pod = open_engine(configure(*SHORT_POD))
    train(pod, 1, 1)
    executor, program = pod._compiled.executor, pod._compiled.program
    with pytest.raises(InputError, match="fetch_list: is not what was compiled"):
        executor.run(program, {}, program.fetches[:1])
    with pytest.raises(InputError, match="feed: is not what was compiled"):
        executor.run(program, {}, program.fetches)


def test_what_ipus_lack_is_refused():
    with pytest.raises(InputError, match="adam_decays_all"):
        open_engine(configure(*POD, "train.decay_all_parameters=false"))
    with pytest.raises(InputError, match="train.moment_scale: 64 is not the loss scale"):
        open_engine(configure(*POD, "train.optimizer=lamb", "train.moment_scale=64",
                              "train.first_moment_precision=fp16"))
    with pytest.raises(InputError, match="does not divide model.vocab_size 1000"):
        open_engine(configure(*POD, "run.embedding_serialization_factor=3"))
    with pytest.raises(InputError, match="train.save_every: 1000 is no multiple"):
        open_engine(configure(*POD, "run.batches_per_step=3", "train.steps=3"))
    with pytest.raises(InputError, match="without IPUs.*ipu_model"):
        open_engine(configure(*[value.replace("ipu_model", "ipu") for value in POD]))
    assert not paddle.is_compiled_with_ipu()
