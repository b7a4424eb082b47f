"""Answers over HTTP: JSON in, JSON out, many clients answered together."""

import asyncio
import json
import signal
import time
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
import uvicorn
import uvloop
from prometheus_client import (CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram,
                               generate_latest)
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from swagger_ui_bundle import swagger_ui_path

from configs.errors import InputError
from inference.dynamic_batching import DynamicBatcher, QueueFull
from inference.openapi import DOCS_PAGE, describe
from inference.protocol import PromptProtocol

PAGE = Path(__file__).with_name("page.html")
_QUICKLY_READ = 4096
"""Bytes; reading a request of so many takes about as long as handing it to another thread"""
_SECONDS = (.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)


@dataclass(frozen=True)
class Limits:
    """What a server takes on."""

    most_waiting: int = 512
    """Texts, or windows of texts, in the queue; above, 503"""
    timeout: float = 30.0
    """Seconds for a request to arrive, and then for its answer"""
    largest_body: int = 1 << 20
    """Bytes; above, 413"""
    most_records: int = 128
    """Of one request; above, 413"""


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status, problem):
        super().__init__(problem)
        self.status, self.problem = status, problem


class Metrics:
    """Counts for Prometheus, of this server alone."""

    def __init__(self, batcher):
        self.registry = CollectorRegistry()
        self.requests = Counter("bert_requests_total", "Requests for answers, by status",
                                ["status"], registry=self.registry)
        self.records = Counter("bert_records_total", "Records answered", registry=self.registry)
        self.seconds = Histogram("bert_request_seconds", "From request to answer",
                                 buckets=_SECONDS, registry=self.registry)
        self.together = Histogram("bert_batch_pieces", "Texts or windows computed together",
                                  buckets=[2 ** n for n in range(11)], registry=self.registry)
        Gauge("bert_waiting_pieces", "Texts or windows in the queue",
              registry=self.registry).set_function(lambda: batcher().waiting)


def build_app(predictor, limits=Limits()):
    """The ASGI application of a ``Predictor``."""
    @asynccontextmanager
    async def lifespan(app):
        app.state.batcher = DynamicBatcher(predictor, limits.most_waiting,
                                           on_batch=metrics.together.observe)
        try:
            yield
        finally:
            # Uvicorn has answered what was open; a timed-out request may still be computed.
            await asyncio.to_thread(app.state.batcher.close)

    async def predict(request):
        start, status = time.perf_counter(), 500
        try:
            body = await _body(request, limits)
            records, is_list = _records(body, limits)
            readings = await _read(predictor, records, len(body))
            answers = await _answers(app.state.batcher, readings, limits)
            metrics.records.inc(len(answers))
            status = 200
            return _json({"answers": answers} if is_list else answers[0])
        except Refused as refused:
            status = refused.status
            return _json({"error": refused.problem}, status,
                         {"Retry-After": "1"} if status == 503 else None)
        finally:
            metrics.requests.labels(status).inc()
            metrics.seconds.observe(time.perf_counter() - start)

    async def health(_):
        is_alive = app.state.batcher.is_alive()
        return _json({"status": "ok" if is_alive else "stopped",
                      "task": type(predictor.task).__name__.lower()}, 200 if is_alive else 500)

    async def show_metrics(_):
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def openapi(_):
        return _json(describe(predictor.task))

    async def docs(_):
        return HTMLResponse(DOCS_PAGE)

    async def page(_):
        fields = [*predictor.task.fields, *predictor.task.optional]
        return HTMLResponse(PAGE.read_text("utf-8").replace("FIELDS", json.dumps(fields)))

    metrics = Metrics(lambda: app.state.batcher)
    app = Starlette(lifespan=lifespan, exception_handlers={HTTPException: _tell}, routes=[
        Route("/predict", predict, methods=["POST"]), Route("/health", health),
        Route("/metrics", show_metrics), Route("/openapi.json", openapi), Route("/docs", docs),
        Mount("/docs", StaticFiles(directory=swagger_ui_path)), Route("/", page)])
    return app


def _json(value, status=200, headers=None):
    return Response(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY), status, headers,
                    "application/json")


async def _tell(_, error):
    """No such page, or not by this method."""
    return _json({"error": error.detail}, error.status_code, error.headers)


async def _body(request, limits):
    """The bytes of a request, refused as soon as they are too many."""
    body = bytearray()
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limits.largest_body:
        raise Refused(413, f"more than {limits.largest_body} bytes")
    try:
        async for part in request.stream():
            body += part
            if len(body) > limits.largest_body:
                raise Refused(413, f"more than {limits.largest_body} bytes")
    except ClientDisconnect:  # which hears of it no more, but the counts do
        raise Refused(408, "the connection ended before the request did") from None
    return bytes(body)


def _records(body, limits):
    """Records of a body, and whether they came as a list."""
    try:
        value = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise Refused(400, "not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refused(422, "not a JSON object")
    if "records" not in value:
        return [value], False
    if not isinstance(value["records"], list) or not value["records"]:
        raise Refused(422, "records: not a list of objects")
    if len(value["records"]) > limits.most_records:
        raise Refused(413, f"more than {limits.most_records} records")
    return value["records"], True


async def _read(predictor, records, size):
    """Readings; of a large request on another thread, so that nobody waits for them."""
    def read():
        return [predictor.read(record) for record in records]

    readings = read() if size <= _QUICKLY_READ else await asyncio.to_thread(read)
    for number, reading in enumerate(readings):
        if isinstance(reading, InputError):
            raise Refused(422, f"record {number}: {reading}")
    return readings


async def _answers(batcher, readings, limits):
    try:
        future = batcher.submit(readings)
    except QueueFull:
        raise Refused(503, "too many texts are waiting") from None
    try:
        # Which cancels the future when the time is over.
        return await asyncio.wait_for(asyncio.wrap_future(future), limits.timeout)
    except asyncio.TimeoutError:
        raise Refused(503, f"no answer within {limits.timeout:g} seconds") from None


class _Server(uvicorn.Server):
    """Leaves with exit code 0 when a signal asked it to stop and all is answered."""

    @contextmanager
    def capture_signals(self):
        loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


def serve(model, settings, host, port, limits):
    """Load, warm up, and answer until SIGTERM or Ctrl-C, then answer what is open and stop."""
    from inference.predictor import open_predictor
    from inference.processes import settings_for_many

    protocol = type("Protocol", (PromptProtocol,), {"seconds": limits.timeout})
    with closing(open_predictor(model, settings=settings_for_many(settings))) as predictor:
        predictor.warm_up()
        server = _Server(uvicorn.Config(
            build_app(predictor, limits), host=host, port=port, http=protocol, ws="none",
            log_level="warning", access_log=False, timeout_keep_alive=30,
            timeout_graceful_shutdown=int(limits.timeout) + 1))
        uvloop.run(_run(server, host))


async def _run(server, host):
    async def tell():
        while not server.started:
            await asyncio.sleep(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        print(f"serving http://{host}:{port} (a page to try it, /docs, /health, /metrics)",
              flush=True)

    telling = asyncio.create_task(tell())
    try:
        await server.serve()
    finally:
        telling.cancel()
