"""Frames: what stands around a message on the connection, and how a stream of bytes is cut into them.

    frame    = size int32 (of all that follows), header, message
    request  = api_key int16, api_version int16, correlation_id int32, client_id nullable string (never compact),
               in flexible versions tagged fields; then the request
    response = correlation_id int32, in flexible versions tagged fields (never for ApiVersions); then the response

A client that asks for ApiVersions in a version which the broker does not know is answered in version 0, with the error
UNSUPPORTED_VERSION and what the broker has: `encode_response(ApiKey.API_VERSIONS, 0, ...)`. `decode_response` sees
that.

Bytes after the end of a message are ignored, as Kafka ignores them.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as LayoutError
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidelog.errors import FrameTooLarge, MalformedMessage
from tidelog.wire.api import ApiKey, is_flexible, request_class
from tidelog.wire.codec import decode, encode_into
from tidelog.wire.decoder import read_unknown_tags, read_varint
from tidelog.wire.encoder import IN_MEMORY
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.message import Struct

if TYPE_CHECKING:
    from tidelog.wire.codec import Chunk

M = TypeVar("M", bound=Struct)

CONTROLLED_SHUTDOWN = 7
"""The one API whose version 0 had a header without a client id."""

SCRATCH_SIZE = 64 * 1024
"""What a reader without a shared scratch receives at a time."""

FIRST_ALLOCATION = 64 * 1024
"""What a connection that never sent a large frame gets for its first one; doubled as the bytes arrive."""

_request_head = Layout(">hhih")
_request_prefix = Layout(">ihhih")
_response_prefix = Layout(">ii")
_response_prefix_flexible = Layout(">iix")
_size = Layout(">i")

UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def parse_request_header(frame: memoryview) -> RequestHeader:
    """Works for APIs and versions that we do not know too, so that the broker can say so."""
    try:
        return _parse_request_header(frame)
    except (LayoutError, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"request header in a frame of {len(frame)} bytes: {error}") from error


def _parse_request_header(frame: memoryview) -> RequestHeader:
    if len(frame) == 8 and frame[:4] == bytes((0, CONTROLLED_SHUTDOWN, 0, 0)):
        return RequestHeader(CONTROLLED_SHUTDOWN, 0, int.from_bytes(frame[4:8], "big", signed=True), None, 8)
    api_key, version, correlation_id, size = _request_head.unpack_from(frame)
    position = 10
    client_id = None
    if size >= 0:
        position += size
        if position > len(frame):
            raise MalformedMessage(f"a client id of {size} bytes does not fit a frame of {len(frame)} bytes")
        client_id = frame[10:position].tobytes().decode()
    if is_flexible(api_key, version):
        position = _skip_tags(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def decode_request(header: RequestHeader, frame: memoryview) -> Any:
    """The request that follows a header; its API and version must be ones that `api.APIS` has."""
    return decode(request_class(header.api_key), header.api_version, frame, header.body_position)[0]


def encode_request(request: Struct, version: int, correlation_id: int, client_id: str | None) -> list[Chunk]:
    """A whole frame, in chunks."""
    api_key = type(request).SCHEMA.api_key
    client = b"" if client_id is None else client_id.encode()
    tags = b"\0" if is_flexible(api_key, version) else b""
    chunks = _encode_body(request, version)
    size = _request_head.size + len(client) + len(tags) + chunks_size(chunks)
    length = -1 if client_id is None else len(client)
    prefix = _request_prefix.pack(size, api_key, version, correlation_id, length) + client + tags
    return _prepend(prefix, chunks)


def encode_response(
    api_key: int, version: int, correlation_id: int, response: Struct, gathered: str = ""
) -> list[Chunk]:
    """A whole frame, in chunks; the list of the field `gathered`, if one is named, is encoded already."""
    chunks = _encode_body(response, version, gathered)
    size = chunks_size(chunks)
    if api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version):
        return _prepend(_response_prefix_flexible.pack(size + 5, correlation_id), chunks)
    return _prepend(_response_prefix.pack(size + 4, correlation_id), chunks)


def _encode_body(message: Struct, version: int, gathered: str = "") -> list[Any]:
    parts: list[Any] = []
    chunks: list[Any] = []
    encode_into(message, version, parts, chunks, gathered)
    chunks.append(b"".join(parts))
    return chunks


def _prepend(prefix: bytes, chunks: list[Any]) -> list[Any]:
    chunks[0] = prefix + chunks[0]
    if len(chunks) > 1 and not chunks[-1]:
        chunks.pop()
    return chunks


def chunks_size(chunks: list[Any]) -> int:
    """How many bytes the chunks are, without reading those that lie elsewhere."""
    total = 0
    for chunk in chunks:
        total += len(chunk) if isinstance(chunk, IN_MEMORY) else chunk.size
    return total


def decode_response(cls: type[M], version: int, frame: memoryview) -> tuple[int, M]:
    """The correlation id and the response of a frame that answers a request of this version."""
    if len(frame) < 4:
        raise MalformedMessage(f"a response of {len(frame)} bytes has no correlation id")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    position = 4
    api_key = cls.SCHEMA.api_key
    if api_key == ApiKey.API_VERSIONS:
        if frame[4:6] == UNSUPPORTED:
            version = 0
    elif is_flexible(api_key, version):
        position = _skip_tags(frame, 4)
    return correlation_id, decode(cls, version, frame, position)[0]


def _skip_tags(frame: memoryview, position: int) -> int:
    try:
        count, position = read_varint(frame, position)
        return read_unknown_tags(frame, position, count, len(frame))[1] if count else position
    except IndexError as error:
        raise MalformedMessage(f"header in a frame of {len(frame)} bytes: {error}") from error


class FrameReader:
    """Cuts a stream of bytes into frames: receive into `buffer()`, then tell `received(count)`, which returns the
    frames.

    Frames come without their size, each in writable memory of its own that is never used again. All readers of one
    thread can share one scratch buffer, so that an idle connection holds none; only the rest of a frame larger than
    what was received goes into that frame's own memory directly. That memory grows as bytes arrive: at once only to
    what this connection has sent before, so that nothing is allocated that no bytes came for.

    States, set by `received` alone: between frames, `_frame` is None and `_rest` holds the up to 3 bytes of a size that
    have come; inside a frame, `_frame` is its memory, `_size` what it will be and `_filled` how much of it has come.
    """

    __slots__ = ("_filled", "_frame", "_largest", "_rest", "_scratch", "_size", "limit")

    def __init__(self, limit: int, scratch: memoryview | None = None) -> None:
        self.limit = limit
        self._scratch = memoryview(bytearray(SCRATCH_SIZE)) if scratch is None else scratch
        self._rest = b""
        self._frame: bytearray | None = None
        self._size = 0
        self._filled = 0
        self._largest = 0

    def buffer(self) -> memoryview:
        """Where to receive into next; valid until the next `received`."""
        if self._frame is None:
            rest = len(self._rest)
            self._scratch[:rest] = self._rest
            return self._scratch[rest:]
        if self._filled == len(self._frame):
            grown = bytearray(min(self._size, max(2 * self._filled, self._largest)))
            grown[: self._filled] = self._frame
            self._frame = grown
        return memoryview(self._frame)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that are complete now, in order. `FrameTooLarge` or `MalformedMessage` end the connection."""
        if self._frame is not None:
            self._filled += count
            if self._filled < self._size:
                return []
            frame = memoryview(self._frame)
            self._largest = max(self._largest, self._size)
            self._frame = None
            return [frame]
        return self._split(self._scratch[: len(self._rest) + count])

    def feed(self, data: bytes | bytearray | memoryview) -> list[memoryview]:
        """The same for bytes that are already in memory."""
        frames = []
        view = memoryview(data)
        while len(view):
            buffer = self.buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            frames += self.received(count)
        return frames

    def _split(self, view: memoryview) -> list[memoryview]:
        frames = []
        position, end = 0, len(view)
        while end - position >= 4:
            size = self._checked(_size.unpack_from(view, position)[0])
            position += 4
            if size > end - position:
                self._begin(size, view[position:end])
                position = end
                break
            frames.append(memoryview(bytearray(view[position : position + size])))
            position += size
        self._rest = bytes(view[position:end])
        return frames

    def _checked(self, size: int) -> int:
        if size > self.limit:
            raise FrameTooLarge(f"a frame of {size} bytes is larger than the limit of {self.limit}")
        if size < 0:
            raise MalformedMessage(f"a frame cannot have {size} bytes")
        return size

    def _begin(self, size: int, came: memoryview) -> None:
        allocation = max(FIRST_ALLOCATION, self._largest, 2 * len(came))
        self._frame = bytearray(min(size, allocation))
        self._frame[: len(came)] = came
        self._size = size
        self._filled = len(came)
