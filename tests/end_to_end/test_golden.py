"""Losses of two tiny runs, equal to those written down: to the last bit on their machine."""

import math

import pytest

from tests.golden import record
from training.compare import compare


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return record.run_all(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", record.NAMES)
def test_losses_are_those_written_down(runs, name):
    (machine, losses), (golden_machine, golden) = runs[name], record.read_golden(name)
    assert list(losses) == list(golden) == list(range(1, 51))
    differences = compare(golden, losses)
    assert len(differences) == 50
    largest = max(differences, key=lambda difference: difference.size)
    if machine == golden_machine:
        assert largest.size == 0, f"{largest}; if this is meant: {record.__doc__}"
    assert largest.size <= record.TOLERANCE, str(largest)


@pytest.mark.parametrize("name, vocabulary", [("bert_tiny", 30522), ("ernie_tiny", 18000)])
def test_what_is_written_down_begins_at_chance(name, vocabulary):
    # Masked tokens and a pair's two classes, guessed; weights of 0.02 leave it within a per cent.
    _, losses = record.read_golden(name)
    assert losses[1]["loss"] == pytest.approx(math.log(vocabulary) + math.log(2), rel=0.01)
