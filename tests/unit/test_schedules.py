import pytest

from training.schedules import linear_schedule


@pytest.mark.parametrize("step, expected", [
    (1, 0.1), (5, 0.5), (10, 1.0), (11, 90 / 91), (55, 46 / 91), (100, 1 / 91)])
def test_rises_to_the_peak_and_falls_to_the_end(step, expected):
    assert linear_schedule(step, 1.0, 10, 100) == pytest.approx(expected)


def test_without_warmup_it_starts_at_the_peak():
    assert linear_schedule(1, 3e-5, 0, 4) == pytest.approx(3e-5 * 4 / 5)


def test_warmup_of_the_whole_run():
    assert linear_schedule(4, 1.0, 4, 4) == 1.0
