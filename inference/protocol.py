"""HTTP/1.1 that does not wait for slow clients, nor for endless ones."""

import json
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 1 << 16
"""Bytes of a request line and its headers that are read in pieces"""


class PromptProtocol(HttpToolsProtocol):
    """Closes a connection whose next request is not there in time: line, headers and body."""

    seconds = 30.0
    _deadline, _is_in_head, _head_size = None, True, 0

    def connection_made(self, transport):
        super().connection_made(transport)
        self._start_deadline()

    def connection_lost(self, error):
        self._stop_deadline()
        super().connection_lost(error)

    def data_received(self, data):
        if self._deadline is None:
            self._start_deadline()
        was_in_head = self._is_in_head
        super().data_received(data)
        # The parser's own memory of a head has no bound.
        if was_in_head and self._is_in_head:
            self._head_size += len(data)
            if self._head_size > LARGEST_HEAD:
                self._refuse(431, f"headers of more than {LARGEST_HEAD} bytes")

    def on_message_begin(self):
        if self._deadline is None:  # behind another request, in the same packet
            self._start_deadline()
        self._is_in_head, self._head_size = True, 0
        super().on_message_begin()

    def on_headers_complete(self):
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self):
        self._stop_deadline()
        super().on_message_complete()

    def _start_deadline(self):
        self._deadline = self.loop.call_later(self.seconds, self._give_up)

    def _stop_deadline(self):
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self):
        cycle = self.cycle
        if cycle and not (cycle.response_complete or cycle.more_body):
            self._start_deadline()  # the request before this one still gets its answer
        elif cycle and cycle.more_body and cycle.response_started:
            self.transport.close()  # refused already, but more came
        else:
            self._refuse(408, f"not there after {self.seconds:g} seconds")

    def _refuse(self, status, problem):
        if self.transport.is_closing():
            return
        body = json.dumps({"error": problem}).encode()
        self.transport.write(
            b"HTTP/1.1 %d %s\r\nconnection: close\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s"
            % (status, HTTPStatus(status).phrase.encode(), len(body), body))
        self.transport.close()
