"""Bytes to messages and back, for any message class and version.

`decode` returns the message and where it ended; whatever is wrong with the bytes is a `MalformedMessage`. Fields of
kind `records` are views of the buffer, never copies, so the buffer must outlive the message. `encode` returns
chunks to be sent in order: bytes, and records values that were left alone: views and byte strings of
`encoder.OWN_CHUNK` bytes or more, and any object that is not bytes but has a `size`, which the server may send
straight from a file. A message that does not fit the version, or holds a value that its field cannot, is a
`UsageError`.

The first use of a class and version compiles its decoder or encoder, which takes up to a millisecond; they are kept.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.errors import UsageError
from tidelog.wire.decoder import compile_decoder
from tidelog.wire.encoder import compile_element_encoder, compile_encoder
from tidelog.wire.message import Struct, StructType

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from tidelog.wire.message import RecordsElsewhere

    Chunk: TypeAlias = bytes | bytearray | memoryview | RecordsElsewhere

M = TypeVar("M", bound=Struct)


def decode(cls: type[M], version: int, buffer: bytes | bytearray | memoryview, position: int = 0) -> tuple[M, int]:
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    decoded: tuple[M, int] = (cls.SCHEMA.decoders.get(version) or decoder(cls, version))(view, position)
    return decoded


def decoder(cls: type[M], version: int) -> Callable[[memoryview, int], tuple[M, int]]:
    """The function that `decode` calls, for who decodes the same class and version again and again."""
    check_version(cls, version)
    schema = cls.SCHEMA
    if version not in schema.decoders:
        schema.decoders[version] = compile_decoder(cls, version)
    compiled: Callable[[memoryview, int], tuple[M, int]] = schema.decoders[version]
    return compiled


def encode(message: Struct, version: int) -> list[Chunk]:
    parts: list[Any] = []
    chunks: list[Any] = []
    encode_into(message, version, parts, chunks)
    if parts:
        chunks.append(b"".join(parts))
    return chunks


def encode_into(message: Struct, version: int, parts: list[Any], chunks: list[Any], gathered: str = "") -> None:
    """Adds the message to `parts`; where a chunk stands alone, all parts so far and then it move to `chunks`.

    The list of the field `gathered`, if one is named, is encoded already (`encoder.Gathered`).
    """
    cls = type(message)
    if gathered:
        encoder = _kept(cls, (version, gathered), lambda: compile_encoder(cls, version, gathered))
    else:
        encoder = cls.SCHEMA.encoders.get(version) or _encoder(cls, version)
    try:
        encoder(message, parts, chunks)
    except (struct.error, AttributeError, TypeError, UnicodeEncodeError) as error:
        raise UsageError(f"{cls.__name__} version {version} cannot be encoded: {error}") from error


def encode_elements(cls: StructType, version: int, field: str, elements: list[Any]) -> bytes:
    """Elements of a list of structs that messages of this class have, for a `Gathered`."""
    encoder = _kept(cls, (version, field, "element"), lambda: compile_element_encoder(cls, version, field))
    parts: list[Any] = []
    for element in elements:
        encoder(element, parts, [])
    return b"".join(parts)


def _kept(cls: StructType, key: tuple[object, ...], compiled: Callable[[], Any]) -> Any:
    encoders = cls.SCHEMA.encoders
    if key not in encoders:
        encoders[key] = compiled()
    return encoders[key]


def _encoder(cls: StructType, version: int) -> Any:
    check_version(cls, version)
    cls.SCHEMA.encoders[version] = encoder = compile_encoder(cls, version)
    return encoder


def check_version(cls: StructType, version: int) -> None:
    versions = cls.SCHEMA.versions
    if version not in versions:
        raise UsageError(f"{cls.__name__} has no version {version}; it has {versions[0]} to {versions[-1]}")
