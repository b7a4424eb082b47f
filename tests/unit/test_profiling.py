"""The trace of chosen steps, from a small network that runs them."""

import json
import re

import paddle
import pytest

from training.profiling import Profile


def run_steps(profile, first, last):
    layer = paddle.nn.Linear(16, 16)
    for step in range(first, last + 1):
        profile.begin(step)
        paddle.nn.functional.gelu(layer(paddle.ones([8, 16]))).sum().backward()
        profile.end(step)


def names(folder):
    trace = json.loads((folder / "profile.json").read_text("utf-8"))
    return [event.get("name") or "" for event in trace["traceEvents"]]


def count(folder, name):
    return sum(found.startswith(name) for found in names(folder))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def test_trace_and_table_hold_the_chosen_steps(tmp_path):
    with Profile([3, 4], tmp_path) as profile:
        run_steps(profile, 1, 5)
    assert [count(tmp_path, f"step {step}") for step in (2, 3, 4, 5)] == [0, 1, 1, 0]
    assert count(tmp_path, "matmul dygraph") == 2  # a product a step
    table = (tmp_path / "profile.txt").read_text("utf-8")
    operators = re.findall(r"^(\w+ dygraph|Global_\w+) +(\d+) +([\d.]+) /", table, re.M)
    assert ("matmul dygraph", "2") in [operator[:2] for operator in operators]
    costs = [float(operator[2]) for operator in operators]
    assert costs == sorted(costs, reverse=True) and len(costs) > 4
    assert list((tmp_path / "here").iterdir()) == []  # Paddle's own place for a trace


def test_a_run_that_ends_before_writes_what_it_has(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with Profile([2, 9], tmp_path) as profile:
            run_steps(profile, 1, 3)
            profile.begin(4)
            raise KeyboardInterrupt
    assert [count(tmp_path, f"step {step}") for step in (1, 2, 3, 5)] == [0, 1, 1, 0]


def test_a_resumed_run_begins_within(tmp_path):
    with Profile([2, 4], tmp_path) as profile:
        run_steps(profile, 4, 6)
    assert [count(tmp_path, f"step {step}") for step in (3, 4, 5)] == [0, 1, 0]


@pytest.mark.parametrize("steps", [[], [7, 9]])
def test_nothing_is_written_without_a_chosen_step(tmp_path, steps):
    with Profile(steps, tmp_path) as profile:
        run_steps(profile, 1, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
