"""One request on its way to its reply: what the handlers hold, and what decides when it may leave.

waiting    the constructor; `cancel` is what ends its waiting when the connection goes
done       `reply`, `reply_encoded`: its bytes are in `chunks`, and leave when all before it have left
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.broker.buffers import Buffer
from tidelog.broker.outbound import BYTES
from tidelog.wire.frame import encode_response

if TYPE_CHECKING:
    from tidelog.broker.connection import Connection


class Repeatable(Protocol):
    """A request that was answered and can be asked again with another call (`handlers.fetch`)."""

    @property
    def repeatable(self) -> bool: ...

    def begin_again(self, call: Call) -> None: ...


class Call:
    """One request on its way to its reply. It is its own ticket (see `decision`)."""

    __slots__ = (
        "api_key",
        "buffer",
        "cancel",
        "chunks",
        "client_id",
        "connection",
        "correlation_id",
        "done",
        "frame",
        "held",
        "timeout_ms",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        buffer: Buffer,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.buffer = buffer
        self.chunks: list[Any] | None = None
        self.held = 0
        self.timeout_ms = 0  # of Produce: how long its sender waits for the answer
        self.frame: bytes | None = None  # of a request that may be repeated
        self.done = False
        self.cancel: Callable[[], None] | None = None

    @property
    def peer_host(self) -> str:
        return self.connection.peer_host

    @property
    def listener(self) -> tuple[str, int]:
        return self.connection.listener

    @property
    def user(self) -> str | None:
        """None where nobody is asked who he is."""
        return self.connection.session.user if self.connection.session is not None else None

    @property
    def ticket(self) -> Call:
        return self

    def reply(self, response: Any, gathered: str = "") -> None:
        """Answers the request. None answers it with silence, as acks=0 asks for.

        The list of the field `gathered`, if one is named, is encoded already (`divided`).
        """
        if self.done:
            return
        self.done = True
        self.cancel = None
        if self.connection.closed:
            _release(response)
            return
        if response is not None:
            try:
                self.chunks = encode_response(self.api_key, self.version, self.correlation_id, response, gathered)
            except Exception as error:
                self.fault(error)
                return
            self.connection.outbound.size += sum(len(chunk) for chunk in self.chunks if isinstance(chunk, BYTES))
        self.connection.server.flush_soon(self.connection)

    def reply_encoded(self, frame: bytes) -> None:
        """Answers the request with what was encoded for another one like it."""
        if self.done:
            return
        self.done = True
        self.cancel = None
        connection = self.connection
        if not connection.closed:
            self.chunks = [frame[:4] + self.correlation_id.to_bytes(4, "big", signed=True) + frame[8:]]
            connection.outbound.size += len(frame)
            connection.server.flush_soon(connection)

    def amend_part(self, response: Any, last: bool) -> None:
        """What is to be changed in the answer to a part of the request, before it is encoded."""

    def worked(self, seconds: float) -> None:
        """The loop has worked on it for so long, after its handler returned."""

    def may_be_repeated(self, request: Repeatable) -> None:
        if self.frame is not None:
            self.connection.repeatable = self.frame, self.client_id, request

    def fault(self, error: Exception) -> None:
        """A fault of ours in the middle of this request. Without an answer, the client would wait for ever."""
        self.connection.server.fault(error)
        self.connection.close("a fault of the broker")

    def drop(self) -> None:
        """Ends the connection instead of answering, where the protocol has no better word."""
        self.connection.close("request could not be answered")


class Refusable:
    """The ticket of a request that has an answer also where what was decided for it could not be written."""

    __slots__ = ("_call", "_refusal")

    def __init__(self, call: Call, refusal: Any) -> None:
        self._call = call
        self._refusal = refusal

    def reply(self, response: Any) -> None:
        self._call.reply(response)

    def drop(self) -> None:
        self._call.reply(self._refusal)


def _release(response: Any) -> None:
    for topic in getattr(response, "responses", ()):
        for partition in getattr(topic, "partitions", ()):
            release = getattr(getattr(partition, "records", None), "release", None)
            if release is not None:
                release()
