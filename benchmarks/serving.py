"""The server under load: ``python -m benchmarks.serving --model DIR --seconds 600``.

Measures the bare predictor on the shipped sample's sentences, before and after it lets ``wrk`` (a
public load tool, https://github.com/wg/wrk) send the same sentences over loopback, one a request,
and tells throughput, processor time, statuses, the server's memory over time (with that of its
processes), and how long it is away when it is killed. The bare predictor gets as many texts at
once as there are clients, since the server cannot know more; what it does with all of them, sorted
by length, is told too.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import psutil

from configs.command_line import Parser, run, tell
from configs.errors import InputError
from configs.inference_schema import InferenceConfig

SAMPLE = "data/samples/wikipedia_en.txt"
_SCRIPT = """
local bodies, next_body = {}, 0
for line in io.lines(%s) do bodies[#bodies + 1] = line end
request = function()
  next_body = next_body %% #bodies + 1
  return wrk.format("POST", "/predict", {["Content-Type"] = "application/json"}, bodies[next_body])
end
"""


def main(argv=None):
    """Measure, print the figures as JSON and return them."""
    parser = Parser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--model", required=True, metavar="DIR", help="exported for embed")
    parser.add_argument("--seconds", type=int, default=600, help="of load (default 600)")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--texts", type=int, default=2000, help="different ones (default 2000)")
    parser.add_argument("--bare", action="store_true", help="used by the benchmark itself")
    parser.add_argument("--output", metavar="FILE", help="write the JSON there too")
    arguments = parser.parse_args(argv)
    texts = sentences(arguments.texts)
    if arguments.bare:
        return bare_throughput(arguments.model, texts, arguments.clients)
    if not shutil.which("wrk"):
        raise InputError("wrk", "is not installed", "e.g. apt install wrk")
    result = measure(arguments, texts)
    tell(result, arguments.output)
    return result


def measure(arguments, texts):
    """All figures."""
    bare = [_measure_bare(arguments)]
    server, port, start_seconds = start_server(arguments.model)
    processor = processor_seconds(server.pid)  # of starting
    try:
        figures, memory = load(port, server.pid, texts, arguments)
        statuses, processor = statuses_of(port), processor_seconds(server.pid) - processor
        server.send_signal(signal.SIGKILL)
        server.wait()
        server, port, restart_seconds = start_server(arguments.model)
    finally:
        server.kill()
        server.wait()
    bare.append(_measure_bare(arguments))
    rate = sum(run["texts_per_second"] for run in bare) / len(bare)
    return {"bare": bare, **figures, "statuses": statuses,
            "processor_milliseconds": processor / statuses["200"] * 1e3,
            "share_of_bare": figures["texts_per_second"] / rate, "memory_megabytes": memory,
            "start_seconds": start_seconds, "restart_seconds": restart_seconds}


def _measure_bare(arguments):
    return json.loads(_lines_of(sys.executable, "-m", "benchmarks.serving", "--bare", "--model",
                                arguments.model, "--texts", str(arguments.texts), "--clients",
                                str(arguments.clients))[-1])


def bare_throughput(model, texts, together):
    """Texts a second of the predictor itself, and processor time of each, printed as JSON."""
    from engines import startup

    startup.prepare()
    from inference.predictor import open_predictor
    from inference.processes import settings_for_many

    records = [{"text": text} for text in texts]
    with closing(open_predictor(model, settings=settings_for_many(InferenceConfig()))) as predictor:
        predictor.warm_up()
        begin, processor = time.perf_counter(), processor_seconds()
        for first in range(0, len(records), together):
            predictor.answers(records[first:first + together])
        seconds, processor = time.perf_counter() - begin, processor_seconds() - processor
        begin = time.perf_counter()
        predictor.answers(records)
        whole_seconds = time.perf_counter() - begin
    figures = {"texts_per_second": len(records) / seconds,
               "processor_milliseconds": processor / len(records) * 1e3,
               "all_at_once_texts_per_second": len(records) / whole_seconds}
    print(json.dumps(figures))
    return figures


def load(port, pid, texts, arguments):
    """Figures of ``wrk``, and the server's memory at nine moments."""
    with tempfile.TemporaryDirectory() as folder:
        bodies, script = Path(folder) / "bodies", Path(folder) / "load.lua"
        bodies.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
        script.write_text(_SCRIPT % json.dumps(str(bodies)), "utf-8")
        command = ["wrk", "-t", "1", "-c", str(arguments.clients), "-d", f"{arguments.seconds}s",
                   "--timeout", "60s", "--latency", "-s", str(script),
                   f"http://127.0.0.1:{port}/predict"]
        tool = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        memory, started = [], time.time()
        for moment in range(1, 10):
            time.sleep(max(0, started + moment * arguments.seconds / 10 - time.time()))
            memory.append(round(resident(pid) / 1e6))
        return figures_of(tool.communicate()[0]), memory


def figures_of(report):
    """Throughput, latency and errors from what ``wrk`` prints."""
    rate = re.search(r"Requests/sec:\s+([\d.]+)", report)
    if not rate:
        raise InputError("wrk", f"told no rate: {report[-200:]!r}")
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", report)
    sockets = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)",
                        report)
    latency = dict(re.findall(r"^\s+(50|90|99)%\s+([\d.]+[a-z]+)", report, re.M))
    return {"texts_per_second": float(rate[1]), "refused": int(refused[1]) if refused else 0,
            "socket_errors": sum(map(int, sockets.groups())) if sockets else 0,
            "latency": {f"p{share}": value for share, value in latency.items()}}


def start_server(model):
    """The process, its port, and seconds until it answered."""
    start = time.time()
    server = subprocess.Popen([sys.executable, "predict.py", "serve", "--model", model, "--port",
                               "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found = re.search(r"http://127\.0\.0\.1:(\d+)", server.stdout.readline())
    if not found:
        raise InputError(model, "could not be served", "try predict.py serve")
    body = json.dumps({"text": "ready?"}).encode()
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/predict", body, timeout=60).close()
    except BaseException:
        server.kill()
        raise
    return server, int(found[1]), time.time() - start


def statuses_of(port):
    """Requests by status, from the server's own metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        text = response.read().decode()
    return {status: int(float(count)) for status, count in
            re.findall(r'^bert_requests_total\{status="(\d+)"\} (\S+)', text, re.M)}


def sentences(count):
    """Lines of the sample, no longer than a paragraph."""
    lines = Path(SAMPLE).read_text("utf-8").splitlines()
    return [line for line in lines if 0 < len(line) < 600][:count]


def _lines_of(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode:
        raise InputError(" ".join(command[1:4]), f"left with {done.returncode}")
    return done.stdout.splitlines()


def family(pid=None):
    """A process, by default this one, and those that it started."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def processor_seconds(pid=None):
    """Of a process and those that it started, since they began."""
    return sum(times.user + times.system
               for times in (process.cpu_times() for process in family(pid)))


def resident(pid):
    """Bytes of a process and those that it started; what they share counts for each."""
    return sum(process.memory_info().rss for process in family(pid))


if __name__ == "__main__":
    sys.exit(run(main))
