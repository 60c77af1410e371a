"""One HTTP connection: uvicorn's, with the limits that it has no setting for.

uvicorn waits for ever for the headers of a first request and for a client to take its answer. `Connection.sweep`,
called about once a second by `server`, ends both:

    waiting for a head   since the connection was made, or since the first byte of a next request   HEAD_WITHIN_S
    answering            `cycle` runs; the app has its own limits
    sending              bytes lie in the transport and become SENT_BYTES fewer                     SENT_WITHIN_S
    idle                 between requests; uvicorn's own timer                                      KEEP_ALIVE_S

When all CONNECTIONS_MAX places are taken and one more comes, the connection that has waited for its client the longest
goes, and at least EVICTED_AFTER_S: first of those that are idle, then of those whose head and last of those whose body
does not come on. So whoever opens connections and says nothing keeps nobody out. Where all are busy, the newcomer is
told so.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from json import dumps
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidelog.gateway.limits import (
    CONNECTIONS_MAX,
    EVICTED_AFTER_S,
    HEAD_MAX_BYTES,
    HEAD_WITHIN_S,
    SENT_BYTES,
    SENT_WITHIN_S,
)

PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    503: "Service Unavailable",
}


# What a connection waits for, in the order in which they go.
IDLE, HEAD, BODY, BUSY = range(4)

SUBJECT = "tidelog.subject"
"""In the state of a request: the subject of the certificate that its client has shown, if any."""


class Connection(H11Protocol):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._head_since: float | None = self.loop.time()
        self._idle_since = self._request_since = self.loop.time()
        self._sending_since = 0.0
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self.app_state = {**self.app_state, SUBJECT: certificate["subject"]}
        if len(self.connections) > CONNECTIONS_MAX and not self._make_place():
            self._end(503, f"{CONNECTIONS_MAX} connections are open; close some, or try again")

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        before = self.cycle
        if self._head_since is None and self._between_requests():
            self._head_since = self.loop.time()
        super().data_received(data)
        if self.cycle is not before:
            self._head_since = None
            self._request_since = self.loop.time()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def _make_place(self) -> bool:
        """For this one; False when there is none to be had."""
        others = [one for one in self.connections if isinstance(one, Connection) and not one.transport.is_closing()]
        waiting = min((one.waits() for one in others if one is not self), key=lambda found: found[:2], default=None)
        if waiting is None or waiting[0] == BUSY or self.loop.time() - waiting[1] < EVICTED_AFTER_S:
            return False
        waiting[2].transport.close()
        return True

    def waits(self) -> tuple[int, float, Connection]:
        """For what of its client's, and since when."""
        if not self._between_requests():
            return (BODY if self.cycle.more_body else BUSY), self._request_since, self
        if self._head_since is not None:
            return HEAD, self._head_since, self
        return IDLE, self._idle_since, self

    def sweep(self, now: float) -> None:
        if self._head_since is not None and self._between_requests() and now - self._head_since > HEAD_WITHIN_S:
            self._end(408, f"the request's headers did not come in {HEAD_WITHIN_S:g} s; send them faster")
        unsent = self.transport.get_write_buffer_size()
        if not unsent or self._unsent - unsent >= SENT_BYTES or not self._unsent:
            self._unsent, self._sending_since = unsent, now
        elif now - self._sending_since > SENT_WITHIN_S:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Called where h11 has refused the bytes; its error has the status."""
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        advice = f"send {HEAD_MAX_BYTES} bytes of headers at most" if status == 431 else "send HTTP/1.1"
        reason = str(error) if isinstance(error, h11.RemoteProtocolError) else msg
        self._end(status, f"this is not a request that HTTP allows: {reason}; {advice}")

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _end(self, status: int, message: str) -> None:
        """Without h11, whose state may be an error: the connection is over anyway."""
        if self._between_requests() or not self.cycle.response_started:
            body = dumps({"error_code": status, "message": message}).encode() + b"\n"
            head = f"HTTP/1.1 {status} {PHRASES.get(status, '')}\r\nContent-Type: application/json\r\n"
            with suppress(OSError):
                self.transport.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        self.transport.close()
