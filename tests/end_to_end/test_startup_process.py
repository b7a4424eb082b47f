"""Start-up in processes of its own."""

import subprocess
import sys


def test_threads_reach_paddle():
    code = ("from engines import startup; startup.prepare(1)\n"
            "import os, paddle; print(os.environ['OMP_NUM_THREADS'])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("cpu: 1 threads, MKL path ") and lines[-1] == "1"


def test_paddle_must_come_after():
    done = subprocess.run(
        [sys.executable, "-c", "import paddle; from engines import startup; startup.prepare()"],
        capture_output=True, text=True)
    assert "must come before the import of paddle" in done.stderr
