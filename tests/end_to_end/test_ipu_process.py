"""What needs Paddle in its legacy mode, in processes of its own: tests/ipu, and the entry point."""

import subprocess
import sys
from pathlib import Path

PIPELINE = "run.pipeline=[embeddings on 0, layer.0 on 1, 'layer.1, pooler, heads on 0']"


def run_python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_programs_contract_and_emulated_pod():
    # Each file on a core of its own, for they take a minute.
    started = {path.name: subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "--confcutdir", "tests/ipu", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for path in sorted(Path("tests/ipu").glob("test_*.py"))}
    assert len(started) == 6
    outputs = {name: process.communicate()[0] for name, process in started.items()}
    for name, process in started.items():
        assert process.returncode == 0, outputs[name][-4000:]


def test_a_dry_run_shows_the_program_and_a_real_one_is_refused(tiny_overrides, tmp_path):
    sets = [word for override in (*tiny_overrides, "train.decay_all_parameters=true",
                                  "run.device=ipu", "train.global_batch_size=20", PIPELINE)
            for word in ("--set", override)]
    arguments = ["run_pretrain.py", "--config", "configs/pretrain/quickstart.yaml", *sets,
                 "--output", str(tmp_path / "run")]
    result = run_python(*arguments, "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "are such as Paddle's IPU backend takes" in result.stdout
    text = (tmp_path / "run/program.txt").read_text()
    assert "stage 1 on IPU 1: layer.0.attention" in text and "softmax_with_cross_entropy(" in text
    assert (tmp_path / "run/stages.png").read_bytes().startswith(b"\x89PNG")
    result = run_python(*arguments[:-1], str(tmp_path / "other"))
    assert result.returncode == 2 and not (tmp_path / "other").exists()
    assert result.stderr.splitlines()[-1].startswith("error: run.device: ipu asked for, but")
