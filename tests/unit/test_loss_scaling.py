"""The factor on the loss: static, or halved by an overflow and doubled by a long quiet."""

from types import SimpleNamespace

import pytest

from engines.loss_scaling import LossScale, open_loss_scale


@pytest.mark.parametrize("precision, value, expected", [
    ("fp32", None, (1.0, False)), ("bf16", None, (1.0, False)), ("fp16", None, (32768.0, True)),
    ("fp16", 512.0, (512.0, False)), ("fp32", 8.0, (8.0, False))])
def test_what_the_recipe_asks_for(precision, value, expected):
    scale = open_loss_scale(SimpleNamespace(precision=precision, loss_scale=value))
    assert (scale.value, scale.is_dynamic) == expected


def test_static_stays():
    scale = LossScale(512)
    for is_finite in (True, False, False):
        scale.update(is_finite)
    assert scale.value == 512 and scale.state() == {}


def test_dynamic_follows_overflows():
    scale = LossScale()
    for is_finite, expected in ((False, 2.0 ** 14), (False, 2.0 ** 13), (True, 2.0 ** 13)):
        scale.update(is_finite)
        assert scale.value == expected
    for _ in range(1998):
        scale.update(True)
    assert scale.value == 2.0 ** 13
    scale.update(True)
    assert scale.value == 2.0 ** 14


def test_dynamic_has_bounds():
    scale = LossScale()
    for _ in range(30):
        scale.update(False)
    assert scale.value == 1.0
    for _ in range(2000 * 30):
        scale.update(True)
    assert scale.value == 2.0 ** 24


def test_state_goes_on():
    one, two = LossScale(), LossScale()
    for _ in range(1500):
        one.update(True)
    two.load_state(one.state()["loss_scale"])
    for scale in (one, two):
        for _ in range(500):
            scale.update(True)
    assert one.value == two.value == 2.0 ** 16
