"""The server with a model that counts: answers, limits, and what clients may throw at it."""

import http.client
import json
import random
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from inference.dynamic_batching import DynamicBatcher, QueueFull
from inference.server import Limits
from tests.serving import counting_predictor, serving

@pytest.fixture(scope="module")
def shared():
    predictor = counting_predictor()
    with serving(predictor) as port:
        yield port, predictor.runner


def ask(port, body, method="POST", path="/predict"):
    """Status and parsed body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    body = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    connection.request(method, path, body)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    try:
        return response.status, json.loads(text)
    except ValueError:
        return response.status, text.decode()


def send(port, data, seconds=5):
    """What comes back for raw bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        received = b""
        try:
            while part := connection.recv(65536):
                received += part
                if b"\r\n\r\n" in received:
                    break
        except (socket.timeout, ConnectionResetError):
            pass
    return received


def test_one_and_many(shared):
    port, _ = shared
    assert ask(port, {"text": "two words"}) == (200, {"embedding": [4.0]})
    assert ask(port, {"records": [{"text": "a b c"}, {"text": "中"}]}) == (
        200, {"answers": [{"embedding": [5.0]}, {"embedding": [3.0]}]})


def test_waiting_requests_are_computed_together(shared):
    port, runner = shared
    runner.rows.clear()
    runner.seconds = 0.2
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda n: ask(port, {"text": "a " * n}), range(12)))
    runner.seconds = 0.0
    assert found == [(200, {"embedding": [n + 2.0]}) for n in range(12)]
    assert sum(runner.rows) == 12 and len(runner.rows) <= 4


@pytest.mark.parametrize("body, status, problem", [
    (b"\xff", 400, "not UTF-8"), (b"{", 400, "not JSON"), (b"", 400, "not JSON"),
    (b"[" * 15_000, 400, "not JSON"), (b"[]", 422, "not a JSON object"),
    ({}, 422, "record 0: text: is missing"), ({"text": 3}, 422, "text: is no text"),
    ({"text": "\ud800"}, 422, "half of a surrogate pair"),
    ({"records": []}, 422, "records: not a list"), ({"records": [3]}, 422, "is no object"),
    ({"records": [{"text": ""}] * 9}, 413, "more than 8 records"),
    ({"text": "a" * 20_000}, 413, "more than 20000 bytes"),
], ids=range(12))
def test_bad_requests_are_told(shared, body, status, problem):
    found, answer = ask(shared[0], body)
    assert found == status and problem in answer["error"]


def test_huge_and_slow_requests_are_cut_off(shared):
    port, _ = shared
    head = b"POST /predict HTTP/1.1\r\nhost: a\r\n"
    assert send(port, head + b"content-length: 99999999\r\n\r\n").startswith(b"HTTP/1.1 413")
    chunks = b"transfer-encoding: chunked\r\n\r\n" + b"fff\r\n" + b"a" * 0xfff + b"\r\n"
    chunks += (b"fff\r\n" + b"a" * 0xfff + b"\r\n") * 5
    assert send(port, head + chunks).startswith(b"HTTP/1.1 413")
    with ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(send, port, data) for data in (
            head + b"content-length: 10\r\n\r\n{", head, b"", b"\r\n")]
    assert [answer.result()[:12] for answer in slow] == [b"HTTP/1.1 408"] * 4


def test_endless_headers_are_cut_off(shared):
    with socket.create_connection(("127.0.0.1", shared[0]), timeout=5) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n")
        sent, received = 0, b""
        connection.settimeout(0.01)
        while sent < 4_000_000 and not received:
            sent += connection.send(b"x-more: " + b"a" * 5000 + b"\r\n")
            try:
                received = connection.recv(1000)
            except socket.timeout:
                pass
    assert received.startswith(b"HTTP/1.1 431") and b"connection: close" in received


def test_requests_behind_each_other_on_a_connection(shared):
    """All are answered in order, the last one, which never ends, with 408."""
    body = b'{"text": "a"}'
    whole = b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    with socket.create_connection(("127.0.0.1", shared[0]), timeout=5) as connection:
        connection.sendall(whole * 3 + whole[:30])
        received = b""
        while part := connection.recv(65536):
            received += part
    statuses = [line.split()[1] for line in received.split(b"\r\n")
                if line.startswith(b"HTTP/1.1 ") or b"}HTTP/1.1 " in line]
    assert statuses == [b"200", b"200", b"200", b"408"]


def test_a_refused_body_is_read_to_its_end(shared):
    """The connection goes on: what was not wanted is not taken for the next request."""
    connection = http.client.HTTPConnection("127.0.0.1", shared[0], timeout=10)
    for body, status in ((b"x" * 300_000, 413), (b'{"text": "a"}', 200)):
        connection.request("POST", "/predict", body)
        response = connection.getresponse()
        assert response.status == status and response.read()
    connection.close()


def test_a_full_queue_says_503_and_loses_nothing():
    predictor = counting_predictor()
    predictor.runner.seconds = 0.3
    with serving(predictor, Limits(most_waiting=4, timeout=5.0)) as port:
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda n: ask(port, {"text": "a"}), range(16)))
        statuses = [status for status, _ in found]
        assert set(statuses) == {200, 503}
        assert all(answer == ({"embedding": [3.0]} if status == 200 else
                              {"error": "too many texts are waiting"}) for status, answer in found)
        text = ask(port, None, "GET", "/metrics")[1]
        for status in (200, 503):
            assert f'bert_requests_total{{status="{status}"}} {statuses.count(status):.1f}' in text
        assert "bert_waiting_pieces 0.0" in text
    assert sum(predictor.runner.rows) == statuses.count(200)


def test_what_nobody_waits_for_is_not_computed():
    predictor = counting_predictor()
    predictor.runner.may_go_on.clear()
    with serving(predictor, Limits(timeout=1.0)) as port:
        with ThreadPoolExecutor(3) as pool:
            futures = [pool.submit(ask, port, {"text": "a"})]
            assert predictor.runner.entered.wait(10)
            futures += [pool.submit(ask, port, {"text": "a"}) for _ in range(2)]
        assert [future.result()[0] for future in futures] == [503] * 3
        predictor.runner.may_go_on.set()
        assert ask(port, {"text": "a"})[0] == 200
        text = ask(port, None, "GET", "/metrics")[1]
    assert "bert_batch_pieces_count 2.0" in text and sum(predictor.runner.rows) == 2


def test_a_failing_model_is_500_and_the_next_request_is_answered():
    predictor = counting_predictor()
    predictor.runner.fails = True
    with serving(predictor) as port:
        assert ask(port, {"text": "a"})[0] == 500
        predictor.runner.fails = False
        assert ask(port, {"text": "a"})[0] == 200


def test_stopping_answers_what_is_open():
    predictor = counting_predictor()
    predictor.runner.seconds = 0.4
    with ThreadPoolExecutor(1) as pool, serving(predictor) as port:
        open_request = pool.submit(ask, port, {"text": "a"})
        assert predictor.runner.entered.wait(10)
    assert open_request.result() == (200, {"embedding": [3.0]})


def test_health_page_and_openapi(shared):
    port, _ = shared
    assert ask(port, None, "GET", "/health") == (200, {"status": "ok", "task": "embed"})
    assert 'of ["text"]' in ask(port, None, "GET", "/")[1]
    schema = ask(port, None, "GET", "/openapi.json")[1]["paths"]["/predict"]["post"]
    assert "text" in json.dumps(schema["requestBody"])
    page = ask(port, None, "GET", "/docs")[1]
    assert "://" not in page  # it is shown without a network
    for path in re.findall(r'(?:href|src)="([^"]+)"', page):
        status, content = ask(port, None, "GET", f"/{path}")
        assert status == 200 and len(content) > 50_000
    assert ask(port, None, "GET", "/none") == (404, {"error": "Not Found"})
    assert ask(port, None, "GET", "/predict") == (405, {"error": "Method Not Allowed"})


def test_a_closed_batcher_takes_no_more():
    batcher = DynamicBatcher(counting_predictor(), 8)
    batcher.close()
    assert not batcher.is_alive()
    with pytest.raises(QueueFull):
        batcher.submit([])


def fuzzed(number):
    """A request with one thing wrong, or perhaps right, from its number."""
    dice = random.Random(number)
    good = json.dumps({"text": "some words of a text"}).encode()
    body = bytearray(good)
    kind = number % 6
    if kind == 0:
        for _ in range(dice.randrange(1, 4)):
            body[dice.randrange(len(body))] = dice.randrange(256)
    elif kind == 1:
        body = body[:dice.randrange(len(body))]
    elif kind == 2:
        body = bytes(dice.randrange(256) for _ in range(dice.randrange(200)))
    elif kind == 3:
        depth = dice.randrange(1, 4000)
        body = b'{"text": ' + b"[" * depth + b"]" * depth + b"}"
    elif kind == 4:
        value = dice.choice([None, True, 1e308, -1, [], {}, "x" * 30_000, "\ud83d", "\0", "🎈"])
        body = json.dumps({dice.choice(["text", "records", "", "pair"]): value}).encode()
    head = (f"POST /predict HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\n\r\n").encode()
    if kind == 5:
        head = bytearray(head)
        head[dice.randrange(len(head) - 4)] = dice.randrange(256)
    return bytes(head) + bytes(body)


def test_six_hundred_fuzzed_requests(shared):
    port, _ = shared
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda number: send(port, fuzzed(number)), range(600)))
        good = list(pool.map(lambda _: ask(port, {"text": "fine"})[0], range(20)))
    statuses = np.array([int(answer.split(b" ")[1]) if answer else 0 for answer in answers])
    assert set(statuses) <= {200, 400, 404, 405, 408, 413, 422}  # 0 would be no answer
    assert (statuses >= 400).sum() > 300 and (statuses == 200).sum() > 20
    assert good == [200] * 20
