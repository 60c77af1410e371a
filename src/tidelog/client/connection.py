"""One socket to one broker: requests go out numbered, answers come back in the same order.

    opening   dial, then ApiVersions: what the broker offers, and so the highest version of each API in common; then a
              login, where the broker asks for one (`login`)
    open      `send` any number of requests, `receive` their answers; `call` is one of each
    closed    by `close`, or by the first fault: after a late or malformed answer nobody knows where the next starts

A broker works on one request of a connection at a time, so an answer to the second waits for the first. `receive`
takes answers in any order: those that came before the wanted one are kept for whoever asks for them.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Generic, NamedTuple, TypeVar, cast

from tidelog.client.address import Address
from tidelog.client.refusal import check, refused
from tidelog.client.security import Security
from tidelog.client.transport import Buffer, Dial, Transport, plain
from tidelog.errors import Disconnected, MalformedMessage
from tidelog.wire.api import APIS, ApiKey
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.frame import decode_response, encode_request
from tidelog.wire.message import Struct
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
MAX_RESPONSE_BYTES = 256 << 20
LARGE_ANSWER, LARGEST_KEPT = 256 << 10, 8 << 20
SPARES = 2  # one is decoded while the next one comes
CLIENT_SOFTWARE = "tidelog"

Answer = TypeVar("Answer", bound=Struct)


def is_viewed(buffer: bytearray) -> bool:
    """Python refuses to make a buffer longer or shorter as long as somebody has a view of it."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False


class Sent(NamedTuple, Generic[Answer]):
    """A request whose answer is awaited."""

    correlation_id: int
    answer: type[Answer]
    version: int
    deadline: float


class Connection:
    """Use `Connection.open`. Not for several threads at once."""

    def __init__(self, address: Address, transport: Transport, *, client_id: str, timeout_s: float) -> None:
        self.address = address
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.offered: dict[int, range] = {}
        self.features: dict[str, int] = {}
        self.finalized: dict[str, int] = {}
        self.closed = False
        self._served = False  # whether more was answered than which versions there are
        self._transport = transport
        self._correlation_id = 0
        self._awaited: deque[Sent[Struct]] = deque()
        self._kept: dict[int, Struct] = {}
        self._spare: list[bytearray] = []
        self._security: Security | None = None
        self._log_in_at: float | None = None

    @classmethod
    def open(
        cls,
        address: Address,
        *,
        client_id: str = CLIENT_SOFTWARE,
        timeout_s: float = REQUEST_TIMEOUT_S,
        dial: Dial = plain,
        security: Security | None = None,
    ) -> Connection:
        """`dial` is how to connect; with `security` it is `security.dial()`, made once for many connections."""
        try:
            transport = dial(address, min(timeout_s, CONNECT_TIMEOUT_S))
        except OSError as error:
            reason = error.strerror or str(error) or "timed out"
            raise Disconnected(f"no connection to {address}: {reason.lower()}") from error
        connection = cls(address, transport, client_id=client_id, timeout_s=timeout_s)
        try:
            connection._negotiate()
            if security is not None and security.sasl:
                connection._security = security
                connection._log_in()
        except BaseException:
            connection.close()
            raise
        return connection

    def _log_in(self) -> None:
        """Also again, before the session ends. What is awaited is received first: then nothing is under way."""
        from tidelog.client.login import log_in

        assert self._security is not None, "only a connection that has logged in logs in again"
        self._log_in_at = None
        while self._awaited:
            self._receive_next()
        try:
            self._log_in_at = log_in(self, self._security)
        except BaseException:
            self.close()  # nobody is logged in any more
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._transport.close()

    def offers(self, request: type[Struct]) -> bool:
        return request.SCHEMA.api_key in self.offered

    def version_of(self, request: type[Struct], *, highest: int | None = None) -> int:
        """The highest version of this API that both sides know, and no higher than `highest`."""
        api = APIS[request.SCHEMA.api_key]
        what = f"{api.name} (API {api.key}) at {self.address}"
        theirs = self.offered.get(api.key)
        if not theirs:
            raise refused(ErrorCode.UNSUPPORTED_VERSION, what, "it is not offered")
        ours = api.max if highest is None else min(api.max, highest)
        common = min(ours, theirs[-1])
        if common < max(api.min, theirs[0]):
            spans = f"the broker has versions {theirs[0]} to {theirs[-1]}, this client {api.min} to {ours}"
            raise refused(ErrorCode.UNSUPPORTED_VERSION, what, spans)
        return common

    def call(self, request: Struct, answer: type[Answer], *, version: int | None = None) -> Answer:
        return self.receive(self.send(request, answer, version=version))

    def send(
        self, request: Struct, answer: type[Answer], *, version: int | None = None, patience_s: float = 0.0
    ) -> Sent[Answer]:
        """`patience_s` is how long the broker was asked to wait for something to answer with, as in a long poll."""
        sent = self._write(request, answer, version, patience_s)
        self._awaited.append(sent)  # type: ignore[arg-type]
        return sent

    def send_unanswered(self, request: Struct, *, version: int | None = None) -> None:
        """For the one request that brokers do not answer: Produce with acks=0."""
        self._write(request, Struct, version, 0.0)

    def receive(self, sent: Sent[Answer]) -> Answer:
        while sent.correlation_id not in self._kept:
            self._receive_next()
        answer = self._kept.pop(sent.correlation_id)
        assert isinstance(answer, sent.answer)
        return answer

    def ready(self, sent: Sent[Answer]) -> bool:
        """Whether `receive` would find bytes without a look at the socket; else poll `fileno()`."""
        return sent.correlation_id in self._kept or self._transport.pending()

    def fileno(self) -> int:
        return self._transport.fileno()

    def _write(self, request: Struct, answer: type[Answer], version: int | None, patience_s: float) -> Sent[Answer]:
        if self.closed:
            raise Disconnected(f"the connection to {self.address} is closed; open another")
        if self._log_in_at is not None and time.monotonic() > self._log_in_at:
            self._log_in()
        if version is None:
            version = self.version_of(type(request))
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        deadline = time.monotonic() + self.timeout_s + patience_s
        chunks = encode_request(request, version, self._correlation_id, self.client_id)
        try:
            self._transport.send(cast("list[Buffer]", chunks), deadline)
        except (OSError, EOFError) as error:
            raise self._lost(error, f"while {type(request).__name__} was sent") from error
        return Sent(self._correlation_id, answer, version, deadline)

    def _receive_next(self) -> None:
        if self.closed:
            raise Disconnected(f"the connection to {self.address} is closed; open another")
        assert self._awaited, "a response is awaited without a request"
        sent = self._awaited[0]
        try:
            frame = self._read_frame(sent.deadline)
            correlation_id, answer = decode_response(sent.answer, sent.version, frame)
        except (OSError, EOFError) as error:
            raise self._lost(error, f"before {sent.answer.__name__} came") from error
        except MalformedMessage:
            self.close()
            raise
        if correlation_id != sent.correlation_id:
            self.close()
            raise MalformedMessage(f"{self.address} answered request {correlation_id} instead of {sent.correlation_id}")
        self._awaited.popleft()
        self._kept[correlation_id] = answer
        self._served = self._served or sent.answer is not ApiVersionsResponse

    def _read_frame(self, deadline: float) -> memoryview:
        prefix = bytearray(4)
        self._transport.receive_into(memoryview(prefix), deadline)
        size = int.from_bytes(prefix, "big", signed=True)
        if not 0 <= size <= MAX_RESPONSE_BYTES:
            raise MalformedMessage(
                f"{self.address} announces an answer of {size} bytes; it is not a Kafka broker, or it expects TLS"
            )
        frame = self._room_for(size)
        self._transport.receive_into(frame, deadline)
        return frame

    def _room_for(self, size: int) -> memoryview:
        """A large answer is read into the memory of an earlier one that nobody has a view of any more: Python zeroes
        what it makes anew, and the processor's caches do not know it.
        """
        if not LARGE_ANSWER <= size <= LARGEST_KEPT:
            return memoryview(bytearray(size))
        for spare in self._spare:
            if len(spare) >= size and not is_viewed(spare):
                return memoryview(spare)[:size]
        made = bytearray(-(-size // LARGE_ANSWER) * LARGE_ANSWER)
        self._spare = [made, *self._spare[: SPARES - 1]]
        return memoryview(made)[:size]

    def _lost(self, error: BaseException, when: str) -> Disconnected:
        self.close()
        if isinstance(error, TimeoutError):
            return Disconnected(
                f"{self.address} did not answer in time, {when}; is it overloaded, or a wait too short?"
            )
        reason = f" ({error.strerror.lower()})" if isinstance(error, OSError) and error.strerror else ""
        perhaps = "is a broker there, and does it ask for TLS or a login (--command-config)?"
        if self._served:
            perhaps = "the broker may have stopped, or is starting again"
        return Disconnected(f"the connection to {self.address} ended {when}{reason}; {perhaps}")

    def _negotiate(self) -> None:
        """A broker that does not know our version of ApiVersions answers in version 0, with what it has (KIP-511)."""
        self._correlation_id = -1
        highest = APIS[ApiKey.API_VERSIONS].max
        answer = self._api_versions(highest)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            listed = [key.max_version for key in answer.api_keys if key.api_key == ApiKey.API_VERSIONS]
            answer = self._api_versions(min(max(listed, default=0), highest))
        check(answer.error_code, f"ApiVersions at {self.address}")
        self.offered = {key.api_key: range(key.min_version, key.max_version + 1) for key in answer.api_keys}
        self.features = {feature.name: feature.max_version for feature in answer.supported_features}
        self.finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}

    def _api_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest()
        if version >= 3:
            from tidelog import __version__

            request.client_software_name = CLIENT_SOFTWARE
            request.client_software_version = __version__
        return self.call(request, ApiVersionsResponse, version=version)
