"""Learning rates against values worked out by hand."""

import math

import pytest

from configs.load import load_config
from training.schedules import learning_rate


def rate(step, **changes):
    values = {"steps": 100, "warmup_steps": 10, "learning_rate": 1.0, **changes}
    overrides = [f"train.{key}={value}" for key, value in values.items()]
    return learning_rate(step, load_config("configs/pretrain/quickstart.yaml", overrides).train)


@pytest.mark.parametrize("step, expected", [
    (1, 0.1), (5, 0.5), (10, 1.0), (11, 90 / 91), (55, 46 / 91), (100, 1 / 91)])
def test_linear_rises_to_the_peak_and_falls_to_the_end(step, expected):
    assert rate(step) == pytest.approx(expected, rel=1e-12)


def test_without_warmup_it_starts_at_the_peak():
    assert rate(1, steps=4, warmup_steps=0, learning_rate=3e-5) == pytest.approx(3e-5 * 4 / 5)


def test_warmup_of_the_whole_run():
    assert rate(4, steps=4, warmup_steps=4) == 1.0


@pytest.mark.parametrize("step, expected", [(1, 0.05), (20, 1.0), (21, 80 / 81)])
def test_warmup_as_a_share(step, expected):
    assert rate(step, warmup_steps=0, warmup_ratio=0.2) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("step, expected", [
    (10, 1.0), (11, (90 / 91) ** 2 * 0.8 + 0.2), (56, (45 / 91) ** 2 * 0.8 + 0.2),
    (101, 0.2), (500, 0.2)])
def test_polynomial_with_a_final_rate(step, expected):
    options = {"schedule": "polynomial", "decay_power": 2.0, "final_learning_rate": 0.2}
    assert rate(step, **options) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("step, expected", [
    (10, 1.0),
    # A half of the way, a third of it and all of it along half a cosine.
    (60, 0.5), (10 + 100 / 3, 0.75), (110, 0.0)])
def test_cosine(step, expected):
    assert rate(step, steps=109, schedule="cosine") == pytest.approx(expected, abs=1e-12)


def test_cosine_ends_at_the_final_rate():
    assert rate(110, steps=109, schedule="cosine", final_learning_rate=0.1) == pytest.approx(0.1)
    assert rate(60, steps=109, schedule="cosine", final_learning_rate=0.1) == pytest.approx(0.55)


def test_constant_stays_at_the_peak():
    assert [rate(step, schedule="constant") for step in (5, 10, 11, 100)] == [0.5, 1, 1, 1]


@pytest.mark.parametrize("step, expected", [
    (4000, 1e-4), (497_000, 1e-5 + 9e-5 * 493_001 / 986_001), (990_001, 1e-5), (1_000_000, 1e-5)])
def test_ernie_falls_to_a_floor_before_the_end(step, expected):
    """ERNIE 1.0 in PaddleNLP: warm-up 4,000, floor 1e-5 from step 990,000 of 1,000,000."""
    assert rate(step, steps=1_000_000, warmup_steps=4000, learning_rate=1e-4, decay_steps=990_000,
                final_learning_rate=1e-5) == pytest.approx(expected, rel=1e-9)


def test_every_schedule_only_falls_after_the_warmup():
    for schedule in ("linear", "polynomial", "cosine", "constant"):
        rates = [rate(step, schedule=schedule) for step in range(10, 101)]
        assert all(after <= before for before, after in zip(rates, rates[1:]))
        assert all(math.isfinite(value) and 0 <= value <= 1 for value in rates)
