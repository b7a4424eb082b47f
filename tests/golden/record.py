"""Run the tiny recipes beside this file; as a command, write their losses down anew.

``python -m tests.golden.record`` from the project's root rewrites ``bert_tiny.txt`` and
``ernie_tiny.txt``. Do so only where a change is meant to alter the numbers, and say why.

The first line of a file names the machine that it was written on. There the losses must be equal
in every bit. Other processors, thread counts or libraries add up in another order, and a loss may
differ by ``TOLERANCE``: on one machine, MKL_DEBUG_CPU_TYPE=0, 3 and 4 and run.threads=2 moved none
of the hundred losses by more than 9.6e-7.
"""

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from training.compare import read_losses

GOLDEN = Path(__file__).resolve().parent
ROOT = GOLDEN.parents[1]
NAMES = ("bert_tiny", "ernie_tiny")
TOLERANCE = 1e-4


def run_all(folder, names=NAMES):
    """``{name: (machine, losses)}`` of all recipes, run at once into folders of ``folder``."""
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(lambda name: run_golden(name, Path(folder) / name), names)))


def run_golden(name, folder):
    """Prepare the text and train.

    Returns:
        The line that names the machine, and the losses as ``read_losses`` gives them.
    """
    options = ["--config", str(GOLDEN / f"{name}.yaml"), "--set",
               f"data.directory={folder / 'prepared'}"]
    _run("prepare_data.py", *options, "--output", str(folder / "prepared"))
    printed = _run("run_pretrain.py", *options, "--output", str(folder / "run"))
    startup = next(line for line in printed.splitlines() if line.startswith("cpu: "))
    return f"{processor()}; {startup}", read_losses(folder / "run")


def _run(script, *options):
    done = subprocess.run([sys.executable, script, *options], cwd=ROOT, capture_output=True,
                          text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr}")
    return done.stdout


def processor():
    """What decides about the last bits beside Paddle: the processor's model and the C library."""
    fields = {}
    if os.path.exists("/proc/cpuinfo"):
        for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
            key, _, value = line.partition(":")
            fields[key.strip()] = value.strip()
    kind = [fields.get(key, "unknown") for key in ("vendor_id", "cpu family", "model")]
    return "{} family {} model {}".format(*kind) + ", " + " ".join(platform.libc_ver())


def read_golden(name):
    """The machine and the losses of the file."""
    file = GOLDEN / f"{name}.txt"
    return file.read_text("utf-8").splitlines()[0][2:], read_losses(file)


def main():
    """Write every file anew."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name, (machine, losses) in run_all(folder).items():
            lines = [f"# {machine}", *(f"{step} {line['loss']!r}" for step, line in losses.items())]
            (GOLDEN / f"{name}.txt").write_text("\n".join(lines) + "\n", "utf-8")
            print(f"{GOLDEN / name}.txt: {len(losses)} losses")


if __name__ == "__main__":
    main()
