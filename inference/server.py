"""Answers over HTTP: JSON in, JSON out, many clients answered together."""

import asyncio
import json
import signal
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import h11
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import (CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram,
                               generate_latest)
from uvicorn.protocols.http.h11_impl import H11Protocol

from configs.errors import InputError
from inference.dynamic_batching import DynamicBatcher, QueueFull

PAGE = Path(__file__).with_name("page.html")
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
    """The FastAPI application of a ``Predictor``."""
    @asynccontextmanager
    async def lifespan(app):
        app.state.batcher = DynamicBatcher(predictor, limits.most_waiting,
                                           on_batch=metrics.together.observe)
        yield
        # Uvicorn has answered what was open; a timed-out request may still be computed.
        await asyncio.to_thread(app.state.batcher.close)

    app = FastAPI(title="BERT on PaddlePaddle", lifespan=lifespan,
                  description=f"{type(predictor.task).__doc__}")
    metrics = Metrics(lambda: app.state.batcher)

    @app.post("/predict", openapi_extra=_openapi(predictor.task))
    async def predict(request: Request):
        """Answer a record, or {"records": […]}."""
        start, status = time.perf_counter(), 500
        try:
            records, is_list = _records(await _body(request, limits), limits)
            answers = await _answers(app.state.batcher, predictor, records, limits)
            metrics.records.inc(len(answers))
            status = 200
            return JSONResponse({"answers": answers} if is_list else answers[0])
        except Refused as refused:
            status = refused.status
            return JSONResponse({"error": refused.problem}, status,
                                {"Retry-After": "1"} if status == 503 else None)
        finally:
            metrics.requests.labels(status).inc()
            metrics.seconds.observe(time.perf_counter() - start)

    @app.get("/health")
    async def health():
        """200 while answers are computed."""
        is_alive = app.state.batcher.is_alive()
        return JSONResponse({"status": "ok" if is_alive else "stopped",
                             "task": type(predictor.task).__name__.lower()},
                            200 if is_alive else 500)

    @app.get("/metrics")
    async def show_metrics():
        """For Prometheus."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", response_class=HTMLResponse)
    async def page():
        """A page to try it."""
        fields = [*predictor.task.fields, *predictor.task.optional]
        return PAGE.read_text("utf-8").replace("FIELDS", json.dumps(fields))

    return app


async def _body(request, limits):
    """The bytes of a request, refused as soon as they are too many or too slow."""
    async def read():
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > limits.largest_body:
                raise Refused(413, f"more than {limits.largest_body} bytes")
        return bytes(body)

    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limits.largest_body:
        raise Refused(413, f"more than {limits.largest_body} bytes")
    try:
        return await asyncio.wait_for(read(), limits.timeout)
    except asyncio.TimeoutError:
        raise Refused(408, f"not there after {limits.timeout:g} seconds") from None


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


async def _answers(batcher, predictor, records, limits):
    readings = await asyncio.to_thread(lambda: [predictor.read(record) for record in records])
    for number, reading in enumerate(readings):
        if isinstance(reading, InputError):
            raise Refused(422, f"record {number}: {reading}")
    try:
        future = batcher.submit(readings)
    except QueueFull:
        raise Refused(503, "too many texts are waiting") from None
    try:
        # Which cancels the future when the time is over.
        return await asyncio.wait_for(asyncio.wrap_future(future), limits.timeout)
    except asyncio.TimeoutError:
        raise Refused(503, f"no answer within {limits.timeout:g} seconds") from None


def _openapi(task):
    """What FastAPI cannot see, for the body is read by hand."""
    text = {"type": "string"}
    record = {"type": "object", "required": list(task.fields),
              "properties": {name: text for name in (*task.fields, *task.optional)}}
    many = {"type": "object", "required": ["records"],
            "properties": {"records": {"type": "array", "items": record}}}
    return {"requestBody": {"required": True, "content": {
        "application/json": {"schema": {"oneOf": [record, many]}}}}}


class PromptProtocol(H11Protocol):
    """Closes a connection whose request line and headers do not arrive in time."""

    seconds = Limits.timeout
    _deadline = None

    def connection_made(self, transport):
        super().connection_made(transport)
        self._start_deadline()

    def connection_lost(self, error):
        self._stop_deadline()
        super().connection_lost(error)

    def data_received(self, data):
        if self._deadline is None and self.conn.their_state is h11.IDLE:
            self._start_deadline()
        super().data_received(data)

    def handle_events(self):
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._stop_deadline()

    def _start_deadline(self):
        self._deadline = self.loop.call_later(self.seconds, self._give_up)

    def _stop_deadline(self):
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self):
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n"
                                 b"content-length: 0\r\n\r\n")
            self.transport.close()


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

    predictor = open_predictor(model, settings=settings)
    predictor.warm_up()
    protocol = type("Protocol", (PromptProtocol,), {"seconds": limits.timeout})
    server = _Server(uvicorn.Config(
        build_app(predictor, limits), host=host, port=port, http=protocol, ws="none",
        log_level="warning", access_log=False, timeout_keep_alive=30,
        timeout_graceful_shutdown=int(limits.timeout) + 1))
    asyncio.run(_run(server, host))


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
