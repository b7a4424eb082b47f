"""The comparison of inference runs at tiny settings, without the peers that need torch."""

import json

import pytest

from benchmarks import inference
from configs.errors import InputError

TINY = ["--tiny", "--batches", "1,2", "--lengths", "8", "--seconds", "0", "--mix-count", "9",
        "--threads", "1"]


def test_figures_and_picture(tmp_path):
    result = inference.main([*TINY, "--output", str(tmp_path), "--peers", "ours"])
    assert json.loads((tmp_path / "inference.json").read_text()) == result
    assert result["texts"] == 9 and list(result["tiny"]) == ["ours"]
    for figures in result["tiny"].values():
        assert list(figures["grid"]) == ["1x8", "2x8"]
        cell = figures["grid"]["2x8"]
        assert cell["calls"] == 1 and cell["p50_milliseconds"] <= cell["p99_milliseconds"]
        assert figures["mix"]["texts_per_second"] == pytest.approx(
            9 / figures["mix"]["seconds"])
        assert figures["peak_megabytes"] > 50 and figures["start_seconds"] > 0.1
        assert figures["largest_difference"] == 0
    assert (tmp_path / "inference.png").stat().st_size > 5000


def test_what_was_measured_is_kept_when_a_peer_fails(tmp_path, monkeypatch):
    def run_worker(job, limit):
        if job["peer"] == "onnxruntime":
            return {}, "left with 1: no memory"
        return {"grid": {"1x8": {"sequences_per_second": 3.0}},
                "mix": {"texts_per_second": 2.0}}, None

    monkeypatch.setattr(inference, "run_worker", run_worker)
    monkeypatch.setattr(inference, "prepare_models", lambda *_: {"tiny": {}})
    with pytest.raises(InputError, match="tiny onnxruntime: failed"):
        inference.main([*TINY, "--output", str(tmp_path), "--peers", "onnxruntime", "ours"])
    result = json.loads((tmp_path / "inference.json").read_text())
    assert result["failed"] == {"tiny onnxruntime": "left with 1: no memory"}
    assert result["tiny"]["ours"]["mix"]["texts_per_second"] == 2.0
    assert (tmp_path / "inference.png").stat().st_size > 5000


@pytest.mark.parametrize("code, limit, problem", [
    ("sys.exit('no memory')", 30, "left with 1: no memory"),
    ("time.sleep(60)", 3, "was stopped after 3 seconds")])
def test_a_worker_that_ends_early(code, limit, problem, monkeypatch):
    words = ("import sys, time; sys.stdin.read(); print('{\"grid\": 1}', flush=True); "
             "print('a word', flush=True); " + code)
    popen = inference.subprocess.Popen
    monkeypatch.setattr(inference.subprocess, "Popen", lambda command, **options: popen(
        [command[0], "-c", words], **options))
    assert inference.run_worker({"peer": "ours"}, limit) == ({"grid": 1}, problem)


@pytest.mark.parametrize("least, ticks, calls", [
    (0.5, [0, 0.5, 1, 2, 2, 4], 3),     # three at least
    (0.5, [0, 0.5, 1, 3.5], 2),         # which would take too long
    (3, [0, 0.5, 1, 2, 2, 3], 4)])      # until the time is over
def test_throughput_is_rows_over_time(monkeypatch, least, ticks, calls):
    steps = iter(ticks + [ticks[-1], ticks[-1] + 1])
    monkeypatch.setattr(inference.time, "perf_counter", lambda: next(steps))
    figures = inference.time_calls(lambda: None, 8, least)
    total = sum(end - begin for begin, end in zip(ticks[::2], ticks[1::2]))
    total += max(0, calls - len(ticks) // 2)
    assert figures["calls"] == calls
    assert figures["sequences_per_second"] == pytest.approx(calls * 8 / total)
