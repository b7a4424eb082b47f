"""Processes that compute: what they are given, and what happens when one ends."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import psutil
import pytest

from configs.errors import InputError
from configs.inference_schema import InferenceConfig
from inference.processes import (MOST_PROCESSES, RunnerProcesses, settings_for_many,
                                 share_threads)


class Told:
    """Tells who computes, how, and the double of what it is given."""

    rounded_to = 8

    def __init__(self, settings):
        self.threads = settings.threads

    def run(self, arrays):
        begin = time.monotonic()
        if "seconds" in arrays:
            time.sleep(float(arrays["seconds"]))
        if "problem" in arrays:
            raise ValueError("cannot be computed")
        return {"double": arrays["numbers"] * 2, "process": np.array(os.getpid()),
                "threads": np.array(self.threads),
                "times": np.array([begin, time.monotonic()])}  # one clock for all processes


def refuse(problem, _):
    raise InputError("model", problem, "export it anew")


def fail(_):
    raise KeyError("weights")


@pytest.fixture(scope="module")
def runner():
    runner = RunnerProcesses(Told, InferenceConfig(threads=6, processes=2))
    yield runner
    runner.close()


def ask(runner, **arrays):
    return runner.run({"numbers": np.arange(3), **{name: np.array(value)
                                                   for name, value in arrays.items()}})


def test_batches_are_computed_beside_one_another(runner):
    assert runner.rounded_to == 8 and runner.idle() == 2
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: ask(runner, seconds=1), range(2)))
    begins, ends = zip(*(one["times"] for one in found))
    assert max(begins) < min(ends)
    assert all(one["double"].tolist() == [0, 2, 4] and one["threads"] == 3 for one in found)
    assert len({int(one["process"]) for one in found} | {os.getpid()}) == 3


def test_what_cannot_be_computed_harms_no_other_batch(runner):
    with pytest.raises(RuntimeError, match="cannot be computed"):
        ask(runner, problem=1)
    assert ask(runner)["double"].tolist() == [0, 2, 4] and runner.idle() == 2


def test_a_killed_process_is_replaced(runner):
    """As the kernel does where memory runs out: its batch fails, those after it do not."""
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(ask, runner, seconds=30)
        while runner.idle() == 2:
            time.sleep(0.01)
        asked = int(ask(runner)["process"])
        other, busy = sorted((worker.process for worker in runner.workers),
                             key=lambda process: process.pid != asked)
        busy.kill()
        with pytest.raises(InputError, match="has ended with code -9"):
            lost.result()
    other.kill()  # which waits, so that nothing is lost
    other.join()
    assert {int(ask(runner)["process"]) for _ in range(2)}.isdisjoint({busy.pid, other.pid})


def test_processes_answer_a_signal_to_all_by_going_on(runner):
    """Ctrl-C reaches all processes of a terminal; what is open is answered all the same."""
    with ThreadPoolExecutor(1) as pool:
        open_batch = pool.submit(ask, runner, seconds=0.5)
        while runner.idle() == 2 and not open_batch.done():
            time.sleep(0.01)
        for worker in runner.workers:
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(worker.process.pid, number)
        assert open_batch.result()["double"].tolist() == [0, 2, 4]


def test_a_model_that_cannot_be_opened_is_told_once(capfd):
    with pytest.raises(InputError, match="model: is damaged; export it anew"):
        RunnerProcesses(partial(refuse, "is damaged"), InferenceConfig(processes=2))
    with pytest.raises(RuntimeError, match="KeyError: 'weights'"):
        RunnerProcesses(fail, InferenceConfig(processes=1))
    assert capfd.readouterr() == ("", "")


def test_closed_processes_compute_no_more():
    runner = RunnerProcesses(Told, InferenceConfig(processes=1))
    runner.close()
    with pytest.raises(RuntimeError, match="were closed"):
        ask(runner)
    runner.close()


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), 9)", "sys.exit(3)"])
def test_processes_end_with_the_one_that_started_them(ending):
    code = ("import os, sys\n"
            "from tests.unit.test_inference_processes import *\n"
            "runner = RunnerProcesses(Told, InferenceConfig(processes=1))\n"
            f"print(ask(runner)['process'], flush=True)\n{ending}")
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, timeout=20)
    assert done.returncode == {"o": -9, "s": 3}[ending[0]]
    process, until = int(done.stdout), time.monotonic() + 5
    while is_running(process) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_running(process)


def is_running(pid):
    """Whether a process has not ended; a zombie has, though nobody asked how."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_processes_are_chosen_for_the_machine():
    def chosen(**settings):
        return settings_for_many(InferenceConfig(**settings)).processes

    assert chosen(threads=2) == 2 and chosen(threads=64) == MOST_PROCESSES
    assert chosen(threads=64, processes=9) == 9 and chosen(threads=1) == 1
    assert chosen(device="gpu") == 1
    assert share_threads(InferenceConfig(threads=7, processes=4)) == [2, 2, 2, 1]
    with pytest.raises(InputError, match="4 share 3 threads"):
        InferenceConfig(threads=3, processes=4).check()
    with pytest.raises(InputError, match="one process drives the IPUs"):
        InferenceConfig(device="ipu", fixed_rows=1, fixed_length=8, processes=2).check()
