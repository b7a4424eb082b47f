"""prepare_data.py as processes: worker counts and kills change no byte."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CONFIG = "configs/pretrain/quickstart.yaml"
KILLS = 20
# Pieces so small that the 2 MB sample fills some dozen shards.
SMALL_PIECES = """
import sys
from data import preparation
preparation.BLOCK_CHARACTERS, preparation.SHARD_TOKENS = 30_000, 30_000
import prepare_data
if __name__ == "__main__":
    prepare_data.main(sys.argv[1:])
"""


def start(folder, output, workers):
    script = folder / "small_pieces.py"
    script.write_text(SMALL_PIECES)
    return subprocess.Popen(
        [sys.executable, str(script), "--config", CONFIG, "--output", str(output),
         "--workers", str(workers)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())}, start_new_session=True)


def finish(process):
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0, printed


def contents(directory):
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    begun = time.monotonic()
    finish(start(folder, folder / "out", 1))
    return contents(folder / "out"), time.monotonic() - begun


@pytest.mark.parametrize("workers", [2, 5])
def test_worker_count_changes_no_byte(tmp_path, one_worker, workers):
    finish(start(tmp_path, tmp_path / "out", workers))
    assert contents(tmp_path / "out") == one_worker[0]
    assert sum(name.endswith("shard.json") for name in one_worker[0]) >= 10


def test_kills_change_no_byte(tmp_path, one_worker):
    expected, seconds = one_worker
    chance = random.Random(7)
    killed = 0
    while killed < KILLS:
        process = start(tmp_path, tmp_path / "out", 1)
        try:
            process.wait(timeout=chance.uniform(0.2, 1.0) * seconds)
            assert contents(tmp_path / "out") == expected
            shutil.rmtree(tmp_path / "out")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.communicate()
    finish(start(tmp_path, tmp_path / "out", 2))
    assert contents(tmp_path / "out") == expected
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []
