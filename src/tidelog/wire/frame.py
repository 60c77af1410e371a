"""Frames: what stands around a message on the connection.

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

from tidelog.errors import MalformedMessage
from tidelog.wire.api import ApiKey, is_flexible
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

_request_head = Layout(">hhih")
_request_prefix = Layout(">ihhih")
_response_prefix = Layout(">ii")
_response_prefix_flexible = Layout(">iix")

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
