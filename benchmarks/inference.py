"""Sentence encoders on a CPU: this project beside ONNX Runtime, torch and PaddleNLP.

``python -m benchmarks.inference --output DIR --minilm DIR`` takes BERT-Base (random weights, for
speed does not depend on them; ``--bert-base DIR`` takes others) and MiniLM, and runs each peer in
a process of its own, with the same weights and threads: rows of one length, without padding, and
a mix of real texts, tokenizing included, in the order of arrival. Vectors are compared too.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.inference_peers import NEED_BF16, PEERS, export_onnx
from benchmarks.serving import family
from configs.command_line import Parser, run
from configs.errors import InputError
from configs.files import write_json
from engines.startup import processor

BATCHES, LENGTHS = (1, 8, 32), (32, 128, 384)
SAMPLE = "data/samples/wikipedia_en.txt"


def main(argv=None):
    """Measure; write ``inference.json`` and ``inference.png``; return the figures."""
    arguments = _parser().parse_args(argv)
    if arguments.worker:
        return work(json.load(sys.stdin))
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    texts = texts_of(arguments.mix, arguments.mix_count)
    result = {"processor": _processor_name(), "threads": arguments.threads, "texts": len(texts),
              "failed": {}, "skipped": _skipped(arguments.peers)}
    for model, folders in prepare_models(arguments, output / "models").items():
        result[model] = {}
        for name in arguments.peers:
            if name in result["skipped"]:
                continue
            job = {"peer": name, "models": folders, "threads": arguments.threads,
                   "batches": arguments.batches, "lengths": arguments.lengths,
                   "seconds": arguments.seconds, "texts": texts,
                   "vectors": str(output / f"{model}_{name}.npy")}
            figures, problem = run_worker(job, arguments.limit)
            result[model][name] = figures
            if problem:
                result["failed"][f"{model} {name}"] = problem
            print(model, name, problem or "", json.dumps(figures), flush=True)
            write_json(output / "inference.json", result)
        compare_vectors(result[model], output, model)
    write_json(output / "inference.json", result)
    draw(result, output / "inference.png")
    if result["failed"]:
        raise InputError("; ".join(result["failed"]), "failed",
                         f"see {output / 'inference.json'}, which holds what was measured")
    return result


def _skipped(peers):
    has_bf16 = {"avx512_bf16", "amx_bf16"} & set(processor()[1])
    return {name: "this processor has no bf16 instructions"
            for name in peers if name in NEED_BF16 and not has_bf16}


def run_worker(job, limit):
    """One peer and model, measured in a process of its own.

    Args:
        job: what ``work`` reads.
        limit: seconds after which it is stopped.

    Returns:
        The figures, as far as they were measured, and what went wrong, None if nothing did.
    """
    worker = subprocess.Popen([sys.executable, "-m", "benchmarks.inference", "--worker"], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    problem = None
    try:
        told, errors = worker.communicate(json.dumps({**job, "started": time.time()}), limit)
    except subprocess.TimeoutExpired:
        worker.kill()
        told, errors = worker.communicate()
        problem = f"was stopped after {limit:g} seconds"
    if worker.returncode and not problem:
        problem = f"left with {worker.returncode}: {errors.strip()[-300:]}"
    lines = [line for line in told.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}, problem


def work(job):
    """Measure in this process; print the figures so far, a line of JSON, after each step."""
    peer = PEERS[job["peer"]](job["models"], job["threads"])
    random = np.random.default_rng(0)
    peer.embed_ids(random.integers(1000, 2000, (1, 8), np.int32))
    figures = {"start_seconds": time.time() - job["started"], "grid": {}}
    for length in job["lengths"]:
        for batch in job["batches"]:
            ids = random.integers(1000, 2000, (batch, length), np.int32)
            figures["grid"][f"{batch}x{length}"] = time_calls(lambda: peer.embed_ids(ids), batch,
                                                              job["seconds"])
            figures["peak_megabytes"] = _peak_memory() / 1e6
            print(json.dumps(figures), flush=True)
    figures["mix"] = _time_mix(peer, job)
    figures["peak_megabytes"] = _peak_memory() / 1e6
    print(json.dumps(figures), flush=True)
    return figures


def _time_mix(peer, job):
    peer.embed_texts(job["texts"][:64])
    start = time.perf_counter()
    vectors = peer.embed_texts(job["texts"])
    seconds = time.perf_counter() - start
    np.save(job["vectors"], vectors)
    return {"seconds": seconds, "texts_per_second": len(vectors) / seconds}


def time_calls(call, batch, least_seconds):
    """Throughput and latency of calls, after one to warm up: for some seconds and at least three,
    or, of slow ones, as many as begin within four times those seconds."""
    call()
    seconds = []
    while (len(seconds) < 3 or sum(seconds) < least_seconds) and (
            not seconds or sum(seconds) < 4 * least_seconds):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return {"sequences_per_second": batch * len(seconds) / sum(seconds), "calls": len(seconds),
            "p50_milliseconds": float(np.percentile(seconds, 50)) * 1e3,
            "p99_milliseconds": float(np.percentile(seconds, 99)) * 1e3}


def texts_of(files, count):
    """Texts of the mix: XQuAD's questions and contexts, STS pairs, or lines, shuffled."""
    texts = []
    for path in map(Path, files or [SAMPLE]):
        if path.name.endswith((".json", ".json.gz")):
            from data.squad.questions import read_questions

            questions = read_questions(path)
            texts += [*questions.contexts, *(question.text for question in questions.questions)]
        elif path.suffix == ".csv":
            from benchmarks.published import read_sts

            texts += [text for row in read_sts(path.parent) for text in row[:2]]
        else:
            texts += [line for line in path.read_text("utf-8").splitlines() if line]
    order = np.random.default_rng(0).permutation(len(texts))[:count]
    return [texts[number] for number in order]


def prepare_models(arguments, folder):
    """Every format of every model, made where it is not there yet: dict of dicts of paths."""
    sources = {"bert_base": arguments.bert_base, "minilm": arguments.minilm}
    if arguments.tiny:
        sources = {"tiny": None}
    models = {}
    for name, source in sources.items():
        if name == "minilm" and source is None:
            continue
        paths = {key: str(folder / name / key) for key in
                 ("huggingface", "exported", "paddlenlp", "onnx")}
        paths["huggingface"] = source or paths["huggingface"]
        (folder / name).mkdir(parents=True, exist_ok=True)
        _prepare_model(name, paths, arguments.peers)
        models[name] = paths
    return models


def _prepare_model(name, paths, peers):
    if not Path(paths["huggingface"]).exists():
        _python("benchmarks.inference_weights", name, paths["huggingface"])
    if not Path(paths["exported"]).exists():
        _python("export_model", "--checkpoint", paths["huggingface"], "--task", "embed",
                "--formats", "paddle", "--output", paths["exported"])
    if "paddlenlp" in peers and not Path(paths["paddlenlp"]).exists():
        _python("convert_weights", "--input", paths["huggingface"], "--to", "paddlenlp",
                "--output", paths["paddlenlp"])
    if "onnxruntime" in peers and not Path(paths["onnx"]).exists():
        export_onnx(paths["huggingface"], paths["onnx"])


def _python(module, *arguments):
    subprocess.run([sys.executable, "-m", module, *arguments], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def compare_vectors(figures, output, model):
    """Add to each peer the largest difference of its vectors from those of the first one."""
    vectors = {name: output / f"{model}_{name}.npy" for name in figures}
    vectors = {name: path for name, path in vectors.items() if path.exists()}
    if vectors:
        first = np.load(next(iter(vectors.values())))
    for name, path in vectors.items():
        figures[name]["largest_difference"] = float(np.abs(np.load(path) - first).max())
        path.unlink()


def draw(result, path):
    """Throughput as bars: a panel for each model."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    models = [name for name in ("bert_base", "minilm", "tiny") if name in result]
    figure, axes = pyplot.subplots(len(models), 1, figsize=(10, 4 * len(models)), squeeze=False)
    for axis, model in zip(axes[:, 0], models):
        peers = {peer: figures for peer, figures in result[model].items() if figures}
        cells = list(max((figures["grid"] for figures in peers.values()), key=len, default=()))
        for number, (peer, figures) in enumerate(peers.items()):
            rates = [figures["grid"].get(cell, {}).get("sequences_per_second", np.nan)
                     for cell in cells]
            rates.append(figures.get("mix", {}).get("texts_per_second", np.nan))
            places = np.arange(len(rates)) + (number - len(peers) / 2) * 0.8 / len(peers)
            axis.bar(places, rates, 0.8 / len(peers), align="edge", label=peer)
        axis.set_xticks(range(len(cells) + 1), [*cells, "mix"])
        axis.set_yscale("log")
        axis.set_ylabel("texts a second")
        axis.set_title(f"{model}, rows x tokens; {result['threads']} threads, "
                       f"{result['processor']}")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _peak_memory():
    """Bytes, of this process and those that it started, each by itself, other than what getrusage
    tells after a fork."""
    return sum(_peak_of(process.pid) for process in family())


def _peak_of(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _processor_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def _parser():
    def numbers(text):
        return [int(number) for number in text.split(",")]

    parser = Parser(prog="python -m benchmarks.inference", description=__doc__)
    parser.add_argument("--output", metavar="DIR", default="runs/benchmark_inference")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--bert-base", metavar="DIR", help="Hugging Face folder")
    parser.add_argument("--minilm", metavar="DIR", help="Hugging Face folder; left out without")
    parser.add_argument("--tiny", action="store_true", help="one tiny model, to try this out")
    parser.add_argument("--mix", nargs="+", metavar="FILE", default=[],
                        help="XQuAD's JSON, the STS benchmark's csv, lines of text; default: "
                             + SAMPLE)
    parser.add_argument("--mix-count", type=int, default=400, help="texts of it (default 400)")
    parser.add_argument("--batches", type=numbers, default=list(BATCHES))
    parser.add_argument("--lengths", type=numbers, default=list(LENGTHS))
    parser.add_argument("--seconds", type=float, default=3.0, help="of each cell, at least")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS",
                        help="of a peer and model (default 600)")
    parser.add_argument("--worker", action="store_true", help="used by the benchmark itself")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
