"""Runs of ``run_pretrain.py`` in several processes; also the script that those processes run.

One launch computes many runs one after another, for starting Paddle takes longer than a short
run: ``launch(4, [Job(arguments), …], folder)``.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import List, NamedTuple, Optional

ROOT = Path(__file__).resolve().parent.parent


class Job(NamedTuple):
    """One run."""

    arguments: List[str]
    """Of ``run_pretrain.py``"""
    trace: Optional[str] = None
    """Folder that each process writes its working times to, as ``rank_N.json``: a list of
    ``[kind, begin, end]`` for each micro batch, kind F(orward) or B(ackward), in seconds"""


def launch(processes, jobs, folder, timeout=600, threads=None):
    """Run jobs in their order in ``processes`` processes.

    Args:
        processes: how many.
        jobs: the runs.
        folder: for logs.
        timeout: seconds that all of them may take.
        threads: of each process; None is its share of the cores.

    Raises:
        RuntimeError: a run failed; with the end of what the first process printed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps([job._asdict() for job in jobs]))
    command = ([sys.executable] if processes == 1 else
               launcher(processes, folder / "log")) + [__file__, str(folder / "jobs.json")]
    names = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, cwd=ROOT, env={**environment(), **names}, timeout=timeout,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stdout[-3000:]}")
    return done.stdout


def launcher(processes, log):
    """The words that put Paddle's launcher before a script."""
    return [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node",
            str(processes), "--log_dir", str(log)]


def environment():
    """Of a launch on CPUs: where the variable is set, the launcher looks for GPUs."""
    names = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**names, "PYTHONPATH": os.pathsep.join(paths)}


def run_jobs(path):
    """Run the jobs of a file in this process."""
    import run_pretrain
    from engines import startup

    for job in [Job(**fields) for fields in json.loads(Path(path).read_text())]:
        startup.prepare()
        times = _watch_stages() if job.trace else []
        run_pretrain.main(job.arguments)
        if job.trace:
            rank = os.environ.get("PADDLE_TRAINER_ID", "0")
            Path(job.trace).mkdir(parents=True, exist_ok=True)
            (Path(job.trace) / f"rank_{rank}.json").write_text(json.dumps(times))


def _watch_stages():
    """Note when Paddle's pipeline computes; waiting and sending lie between."""
    from paddle.distributed.fleet.meta_parallel import PipelineParallel

    times = []
    for kind, name in (("F", "_forward_step"), ("B", "_backward_step")):
        method = getattr(PipelineParallel, name)
        method = getattr(method, "of_paddle", method)
        setattr(PipelineParallel, name, _timed(method, kind, times))
    return times


def _timed(method, kind, times):
    def call(self, *arguments, **options):
        begin = time.time()
        result = method(self, *arguments, **options)
        times.append([kind, begin, time.time()])
        return result

    call.of_paddle = method
    return call


if __name__ == "__main__":
    run_jobs(sys.argv[1])
