"""AdamW and LAMB against float64 written from the papers."""

import numpy as np
import paddle
import pytest

from configs.errors import InputError
from configs.load import load_config
from training.optimizers import AdamW, Lamb, is_decayed

STEPS = 100


def recipe(**changes):
    overrides = [f"train.{key}={str(value).lower()}" for key, value in changes.items()]
    return load_config("configs/pretrain/quickstart.yaml", overrides).train


def make_parameters(seed=0):
    random = np.random.default_rng(seed)
    shapes = {"layer.weight": [5, 7], "layer.bias": [7], "attention_norm.weight": [7]}
    return {name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def gradients(step):
    random = np.random.default_rng([9, step])
    return {name: random.normal(size=value.shape).astype("float32")
            for name, value in make_parameters().items()}


def run_ours(kind, train, values):
    parameters = {}
    for name, value in values.items():
        parameters[name] = paddle.create_parameter(value.shape, "float32")
        parameters[name].set_value(value)
    optimizer = kind(train, parameters)
    for step in range(1, STEPS + 1):
        for name, gradient in gradients(step).items():
            (parameters[name] * paddle.to_tensor(gradient)).sum().backward()
        optimizer.step(1e-2 * step / STEPS)
    return {name: p.numpy() for name, p in parameters.items()}


def run_reference(train, values, lamb):
    """Loshchilov and Hutter 2019, algorithm 2; You et al. 2020, algorithm 2."""
    weights = {name: value.astype("float64") for name, value in values.items()}
    first = {name: np.zeros_like(value) for name, value in weights.items()}
    second = {name: np.zeros_like(value) for name, value in weights.items()}
    for step in range(1, STEPS + 1):
        rate = 1e-2 * step / STEPS
        drawn = {name: value.astype("float64") for name, value in gradients(step).items()}
        norm = np.sqrt(sum((value ** 2).sum() for value in drawn.values()))
        clip = min(1.0, train.max_gradient_norm / norm) if train.max_gradient_norm else 1.0
        for name, weight in weights.items():
            gradient = drawn[name] * clip
            first[name] = train.beta1 * first[name] + (1 - train.beta1) * gradient
            second[name] = train.beta2 * second[name] + (1 - train.beta2) * gradient ** 2
            corrected1, corrected2 = first[name], second[name]
            if train.bias_correction:
                corrected1 = corrected1 / (1 - train.beta1 ** step)
                corrected2 = corrected2 / (1 - train.beta2 ** step)
            direction = corrected1 / (np.sqrt(corrected2) + train.epsilon)
            decay = train.decay_all_parameters or name == "layer.weight"
            direction = direction + (train.weight_decay * weight if decay else 0)
            if lamb:
                norm = np.linalg.norm(weight)
                cap = train.max_weight_norm or norm
                direction *= min(norm, cap) / np.linalg.norm(direction)
            weights[name] = weight - rate * direction
    return weights


@pytest.mark.parametrize("kind, changes", [
    (AdamW, {"optimizer": "adamw"}),
    (AdamW, {"optimizer": "adamw", "weight_decay": 0.3, "max_gradient_norm": 0}),
    (AdamW, {"optimizer": "adamw", "decay_all_parameters": True, "beta2": 0.98}),
    (AdamW, {"optimizer": "adamw", "bias_correction": False}),
    (Lamb, {"optimizer": "lamb"}),
    (Lamb, {"optimizer": "lamb", "bias_correction": False, "decay_all_parameters": True,
            "max_gradient_norm": 0}),
    (Lamb, {"optimizer": "lamb", "weight_decay": 0.3, "beta1": 0.71}),
    (Lamb, {"optimizer": "lamb", "max_weight_norm": 2.0}),
])
def test_hundred_steps_against_float64(kind, changes):
    train, values = recipe(**changes), make_parameters()
    ours = run_ours(kind, train, values)
    reference = run_reference(train, values, kind is Lamb)
    for name, value in reference.items():
        # float32 weights of about 1 drift by some of their last bits over a hundred steps.
        assert np.linalg.norm(ours[name] - value) <= 1e-6 * np.linalg.norm(value)


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("kind", [AdamW, Lamb])
def test_state_goes_on_where_it_was(kind, bias_correction):
    train = recipe(optimizer="adamw" if kind is AdamW else "lamb",
                   bias_correction=bias_correction)

    def build():
        parameters = {"layer.weight": paddle.create_parameter([3, 4], "float32")}
        parameters["layer.weight"].set_value(np.arange(12, dtype="float32").reshape(3, 4))
        return kind(train, parameters), parameters["layer.weight"]

    def step(optimizer, weight, number):
        (weight * float(number)).sum().backward()
        optimizer.step(0.01)

    whole, weight = build()
    for number in (1, 2, 3):
        step(whole, weight, number)
    first, first_weight = build()
    step(first, first_weight, 1)
    step(first, first_weight, 2)
    second, second_weight = build()
    second_weight.set_value(first_weight.numpy())
    state = first.state()
    if kind is AdamW and not bias_correction:
        state["layer.weight/beta1_pow_acc"] += train.beta1 ** 3  # as IPUs count
    second.load_state(state)
    step(second, second_weight, 3)
    assert np.array_equal(weight.numpy(), second_weight.numpy())


def test_a_weight_of_zero_still_moves():
    parameters = {"layer.weight": paddle.create_parameter([2], "float32")}
    parameters["layer.weight"].set_value(np.zeros(2, "float32"))
    optimizer = Lamb(recipe(optimizer="lamb"), parameters)
    (parameters["layer.weight"] * 2.0).sum().backward()
    optimizer.step(0.1)
    assert np.allclose(parameters["layer.weight"].numpy(), -0.1, atol=1e-6)


def test_biases_and_layer_norms_are_not_decayed():
    names = ["embeddings.word_embeddings.weight", "layer.0.output.weight", "layer.0.output.bias",
             "layer.0.attention_norm.weight", "embeddings.layer_norm.bias",
             "heads.masked_lm.decoder_bias"]
    assert [is_decayed(name, False) for name in names] == [True, True] + [False] * 4
    assert all(is_decayed(name, True) for name in names)


def round_to_half(array):
    return array.astype("float16").astype("float64")


def test_moments_in_half_precision_round_and_nothing_else():
    """float64 moments, rounded to a scaled float16 after each update (IEEE 754)."""
    train = recipe(optimizer="lamb", first_moment_precision="fp16",
                   second_moment_precision="fp16", moment_scale=64.0, max_gradient_norm=0)
    parameters = {"layer.bias": paddle.create_parameter([4], "float32")}
    parameters["layer.bias"].set_value(np.ones(4, "float32"))
    optimizer = Lamb(train, parameters)
    first = second = np.zeros(4)
    for step in range(1, 21):
        gradient = np.random.default_rng(step).normal(size=4).astype("float32") * 1e-3
        (parameters["layer.bias"] * paddle.to_tensor(gradient)).sum().backward()
        optimizer.step(0.01)
        first = round_to_half((first * 0.9 + 0.1 * gradient) * 64.0) / 64.0
        second = round_to_half((second * 0.999 + 0.001 * gradient ** 2) * 4096.0) / 4096.0
    state = optimizer.state()
    assert state["layer.bias/moment1"].dtype == state["layer.bias/moment2"].dtype == np.float16
    # A rounding may fall the other way where float32 and float64 straddle a half.
    moment1, moment2 = (state[f"layer.bias/{name}"].astype("float64")
                        for name in ("moment1", "moment2"))
    assert np.allclose(moment1 / 64.0, first, rtol=2 ** -10, atol=0)
    assert np.allclose(moment2 / 4096.0, second, rtol=2 ** -10, atol=0)
    assert np.isfinite(parameters["layer.bias"].numpy()).all()


def test_a_half_moment_does_not_overflow():
    train = recipe(optimizer="lamb", second_moment_precision="fp16", moment_scale=1024.0,
                   max_gradient_norm=0)
    parameters = {"layer.bias": paddle.create_parameter([1], "float32")}
    optimizer = Lamb(train, parameters)
    (parameters["layer.bias"] * 1e4).sum().backward()
    optimizer.step(0.01)
    assert optimizer.state()["layer.bias/moment2"] == np.float16(65504)


@pytest.mark.parametrize("kind", [AdamW, Lamb])
def test_a_scaled_loss_moves_nothing_else(kind):
    train = recipe(optimizer="adamw" if kind is AdamW else "lamb")
    results = []
    for scale in (1.0, 1024.0):
        parameters = {"layer.weight": paddle.create_parameter([3, 4], "float32")}
        parameters["layer.weight"].set_value(np.arange(12, dtype="float32").reshape(3, 4))
        optimizer = kind(train, parameters)
        for number in (1.7, 2.3):
            ((parameters["layer.weight"] * number).sum() * scale).backward()
            norm = optimizer.step(0.01, scale)
        assert norm == pytest.approx(2.3 * 12 ** 0.5, rel=1e-6)
        results.append(parameters["layer.weight"].numpy())
    assert np.array_equal(*results)


@pytest.mark.parametrize("kind", [AdamW, Lamb])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_an_update_that_is_not_finite_is_skipped(kind, value):
    train = recipe(optimizer="adamw" if kind is AdamW else "lamb")
    weight = paddle.create_parameter([2], "float32")
    weight.set_value(np.array([1.0, 2.0], "float32"))
    optimizer = kind(train, {"layer.weight": weight})
    (weight * 3.0).sum().backward()
    optimizer.step(0.01)
    before, state = weight.numpy(), optimizer.state()
    (weight * paddle.to_tensor([1.0, value], "float32")).sum().backward()
    assert not np.isfinite(optimizer.step(0.01))
    assert np.array_equal(weight.numpy(), before) and not weight.grad.numpy().any()
    for name, array in optimizer.state().items():
        assert np.array_equal(array, state[name])


@pytest.mark.parametrize("kind", [AdamW, Lamb])
@pytest.mark.parametrize("damage, message", [
    (lambda arrays: arrays.pop("layer.weight/moment2"), "is missing in"),
    (lambda arrays: arrays.update({"other/moment1": np.zeros(2, "float32")}), "has no place in"),
    (lambda arrays: arrays.update({"layer.weight/moment1": np.zeros(3, "float32")}),
     r"is float32 \[3\] in the optimizer state, not float32 \[2\]"),
    (lambda arrays: arrays.update({"layer.weight/moment1": np.zeros(2, "int32")}), "is int32"),
])
def test_a_state_of_another_run_is_refused(kind, damage, message):
    train = recipe(optimizer="adamw" if kind is AdamW else "lamb")
    weight = paddle.create_parameter([2], "float32")
    optimizer = kind(train, {"layer.weight": weight})
    weight.sum().backward()
    optimizer.step(0.01)
    arrays = optimizer.state()
    damage(arrays)
    with pytest.raises(InputError, match=message):
        optimizer.load_state(arrays)
