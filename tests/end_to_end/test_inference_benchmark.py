"""The comparison of inference runs at tiny settings, without the peers that need torch."""

import json

import pytest

from benchmarks import inference


def test_figures_and_picture(tmp_path):
    result = inference.main(["--tiny", "--output", str(tmp_path), "--peers", "ours",
                             "--batches", "1,2", "--lengths", "8", "--seconds",
                             "0", "--mix-count", "9", "--threads", "1"])
    assert json.loads((tmp_path / "inference.json").read_text()) == result
    assert result["texts"] == 9 and list(result["tiny"]) == ["ours"]
    for figures in result["tiny"].values():
        assert list(figures["grid"]) == ["1x8", "2x8"]
        cell = figures["grid"]["2x8"]
        assert cell["calls"] == 3 and cell["p50_milliseconds"] <= cell["p99_milliseconds"]
        assert figures["mix"]["texts_per_second"] == pytest.approx(
            9 / figures["mix"]["seconds"])
        assert figures["peak_megabytes"] > 50 and figures["start_seconds"] > 0.1
        assert figures["largest_difference"] == 0
    assert (tmp_path / "inference.png").stat().st_size > 5000


def test_throughput_is_rows_over_time(monkeypatch):
    ticks = iter([0, 0.5, 1, 2, 2, 4])
    monkeypatch.setattr(inference.time, "perf_counter", lambda: next(ticks))
    figures = inference.time_calls(lambda: None, 8, 0)
    assert figures["sequences_per_second"] == pytest.approx(3 * 8 / 3.5)
    assert figures["p50_milliseconds"] == pytest.approx(1000)
