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


def test_waiting_threads_leave_their_core_where_others_need_it():
    """Processor time of a process that sleeps after a product of matrices by two threads."""
    code = ("import sys, time; from engines import startup\n"
            "startup.prepare(2, shares_cores=bool(int(sys.argv[1])))\n"
            "import paddle; x = paddle.ones([500, 500])\n"
            "(x @ x).numpy(); begin = time.process_time(); time.sleep(0.3)\n"
            "print(time.process_time() - begin)")
    seconds = [float(subprocess.run([sys.executable, "-c", code, shares], capture_output=True,
                                    text=True, check=True).stdout.splitlines()[-1])
               for shares in "01"]
    assert seconds[1] < 0.02 and seconds[1] < seconds[0] / 2
