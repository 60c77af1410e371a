"""Arrow's C stream interface over memory that Python holds, without pyarrow: what DuckDB reads a table from.

    Field    a column's name and type, by Arrow's format string, with its children
    Piece    one column of one batch: buffers as the codec and the decoder made them; nothing is copied
    Table    a schema, and a function that gives batches; DuckDB asks it for a new stream at each scan

pyarrow takes a quarter of a second to import, which is more than a whole question should take. The structs are those of
https://arrow.apache.org/docs/format/CDataInterface.html.

Rules:
- A struct is owned by who has it: it frees it by its own `release`, once. What Python must keep until then (buffers,
  child structs, and the struct that a capsule points at) is held in `_held` under the number that stands in
  `private_data`, as a struct may be moved: who has moved it frees it by that number.
- A batch may be asked for by any thread, one at a time for a stream. An exception in the making of one is the text of
  `get_last_error`, and the exception itself is in `ArrowTable.fault`, for who knows more than a text.
"""

from __future__ import annotations

import ctypes as c
import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.record.header import Buffer, DecodedBinary

if TYPE_CHECKING:
    Memory = bytes | bytearray | memoryview | array[int] | array[float]

NULLABLE = 2
EIO = 5


class ArrowField(NamedTuple):
    name: str
    format: str
    children: tuple[ArrowField, ...] = ()


class ArrowPiece(NamedTuple):
    """`buffers` in Arrow's order for the type, None where there is none; `offset` is the first row that counts."""

    length: int
    buffers: tuple[Memory | None, ...]
    children: tuple[ArrowPiece, ...] = ()
    offset: int = 0


def binary_of(rows: list[bytes | None]) -> DecodedBinary:
    """The buffers of a column of bytes."""
    validity = bytearray((len(rows) + 7) // 8)
    offsets, end = array("i", [0]), 0
    for number, row in enumerate(rows):
        if row is not None:
            validity[number >> 3] |= 1 << (number & 7)
            end += len(row)
        offsets.append(end)
    data: Buffer = b"".join(row for row in rows if row is not None)
    return bytes(validity), offsets.tobytes(), data


class ArrowBatch(NamedTuple):
    length: int
    columns: tuple[ArrowPiece, ...]


class ArrowSchema(c.Structure):
    pass


class ArrowArray(c.Structure):
    pass


class ArrowArrayStream(c.Structure):
    pass


_FREE_SCHEMA = c.CFUNCTYPE(None, c.POINTER(ArrowSchema))
_FREE_ARRAY = c.CFUNCTYPE(None, c.POINTER(ArrowArray))
_FREE_STREAM = c.CFUNCTYPE(None, c.POINTER(ArrowArrayStream))
_GET_SCHEMA = c.CFUNCTYPE(c.c_int, c.POINTER(ArrowArrayStream), c.POINTER(ArrowSchema))
_GET_NEXT = c.CFUNCTYPE(c.c_int, c.POINTER(ArrowArrayStream), c.POINTER(ArrowArray))
_LAST_ERROR = c.CFUNCTYPE(c.c_void_p, c.POINTER(ArrowArrayStream))

ArrowSchema._fields_ = [
    ("format", c.c_char_p),
    ("name", c.c_char_p),
    ("metadata", c.c_char_p),
    ("flags", c.c_int64),
    ("n_children", c.c_int64),
    ("children", c.POINTER(c.POINTER(ArrowSchema))),
    ("dictionary", c.c_void_p),
    ("release", _FREE_SCHEMA),
    ("private_data", c.c_void_p),
]
ArrowArray._fields_ = [
    ("length", c.c_int64),
    ("null_count", c.c_int64),
    ("offset", c.c_int64),
    ("n_buffers", c.c_int64),
    ("n_children", c.c_int64),
    ("buffers", c.POINTER(c.c_void_p)),
    ("children", c.POINTER(c.POINTER(ArrowArray))),
    ("dictionary", c.c_void_p),
    ("release", _FREE_ARRAY),
    ("private_data", c.c_void_p),
]
ArrowArrayStream._fields_ = [
    ("get_schema", _GET_SCHEMA),
    ("get_next", _GET_NEXT),
    ("get_last_error", _LAST_ERROR),
    ("release", _FREE_STREAM),
    ("private_data", c.c_void_p),
]

_held: dict[int, Any] = {}
_numbers = itertools.count(1)


def _hold(kept: Any) -> int:
    number = next(_numbers)
    _held[number] = kept
    return number


# --- schemas and arrays ----------------------------------------------------------------------------------------------


def _write_schema(out: ArrowSchema, field: ArrowField) -> None:
    children = [ArrowSchema() for _ in field.children]
    for made, child in zip(children, field.children, strict=True):
        _write_schema(made, child)
    pointers = (c.POINTER(ArrowSchema) * len(children))(*map(c.pointer, children))
    texts = (field.format.encode(), field.name.encode())
    out.format, out.name = texts
    out.metadata, out.dictionary = None, None
    out.flags, out.n_children = NULLABLE, len(children)
    out.children = c.cast(pointers, c.POINTER(c.POINTER(ArrowSchema)))
    out.private_data = _hold((texts, children, pointers, out))
    out.release = _free_schema


def _write_array(out: ArrowArray, piece: ArrowPiece) -> None:
    children = [ArrowArray() for _ in piece.children]
    for made, child in zip(children, piece.children, strict=True):
        _write_array(made, child)
    pointers = (c.POINTER(ArrowArray) * len(children))(*map(c.pointer, children))
    addresses, kept = _addresses(piece.buffers)
    out.length, out.null_count, out.offset = piece.length, -1 if piece.buffers[0] is not None else 0, piece.offset
    out.n_buffers, out.n_children = len(piece.buffers), len(children)
    out.buffers = c.cast(addresses, c.POINTER(c.c_void_p))
    out.children = c.cast(pointers, c.POINTER(c.POINTER(ArrowArray)))
    out.dictionary = None
    out.private_data = _hold((addresses, kept, children, pointers))
    out.release = _free_array


def _addresses(buffers: Sequence[Memory | None]) -> tuple[Any, list[Any]]:
    found: list[int | None] = []
    kept: list[Any] = []
    for buffer in buffers:
        if buffer is None:
            found.append(None)
            continue
        view = memoryview(buffer).cast("B")
        if view.readonly:
            # ctypes gives addresses of bytes and of what can be written; a view on bytes is followed to those.
            whole = view.obj if isinstance(view.obj, bytes) and len(view.obj) == len(view) else bytes(view)
            pointer = c.c_char_p(whole)
            kept.append((whole, pointer))
            found.append(c.cast(pointer, c.c_void_p).value)
        elif len(view):
            there = (c.c_char * len(view)).from_buffer(view)
            kept.append(there)
            found.append(c.addressof(there))
        else:
            found.append(c.addressof(_NOTHING))
    return (c.c_void_p * len(found))(*found), kept


_NOTHING = (c.c_char * 8)()


@_FREE_SCHEMA  # type: ignore[untyped-decorator]
def _free_schema(given: Any) -> None:
    schema = given.contents
    for number in range(schema.n_children):
        child = schema.children[number].contents
        if child.release:
            child.release(c.pointer(child))
    _held.pop(schema.private_data, None)
    schema.release = _FREE_SCHEMA()


@_FREE_ARRAY  # type: ignore[untyped-decorator]
def _free_array(given: Any) -> None:
    array = given.contents
    for number in range(array.n_children):
        child = array.children[number].contents
        if child.release:
            child.release(c.pointer(child))
    _held.pop(array.private_data, None)
    array.release = _FREE_ARRAY()


# --- streams ---------------------------------------------------------------------------------------------------------


class ArrowStream:
    """What is behind one ArrowArrayStream."""

    def __init__(self, table: ArrowTable) -> None:
        self.table = table
        self.batches = table.scan()
        self.error = c.create_string_buffer(b"")
        self.struct: ArrowArrayStream | None = None

    def next(self, out: ArrowArray) -> int:
        try:
            batch = next(self.batches, None)
            if batch is None:
                out.release = _FREE_ARRAY()
            else:
                _write_array(out, ArrowPiece(batch.length, (None,), batch.columns))
            return 0
        except BaseException as fault:  # it may not pass through DuckDB's frames
            self.table.fault = fault
            self.error = c.create_string_buffer(str(fault).encode())
            return EIO

    def close(self) -> None:
        close = getattr(self.batches, "close", None)
        if close is not None:
            close()


@_GET_SCHEMA  # type: ignore[untyped-decorator]
def _get_schema(stream: Any, out: Any) -> int:
    _write_schema(out.contents, _held[stream.contents.private_data].table.root)
    return 0


@_GET_NEXT  # type: ignore[untyped-decorator]
def _get_next(stream: Any, out: Any) -> int:
    made: int = _held[stream.contents.private_data].next(out.contents)
    return made


@_LAST_ERROR  # type: ignore[untyped-decorator]
def _last_error(stream: Any) -> int:
    return c.addressof(_held[stream.contents.private_data].error)


@_FREE_STREAM  # type: ignore[untyped-decorator]
def _free_stream(given: Any) -> None:
    stream = given.contents
    behind = _held.pop(stream.private_data, None)
    stream.release = _FREE_STREAM()
    if behind is not None:
        behind.close()


_python = c.pythonapi
_python.PyCapsule_New.restype = c.py_object
_python.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]


class ArrowTable:
    """What DuckDB takes as a table: it asks for the schema once, and for a stream at each scan."""

    def __init__(self, fields: Sequence[ArrowField], scan: Callable[[], Iterator[ArrowBatch]]) -> None:
        self.root = ArrowField("", "+s", tuple(fields))
        self.scan = scan
        self.fault: BaseException | None = None

    def __arrow_c_schema__(self) -> Any:
        made = ArrowSchema()
        _write_schema(made, self.root)
        return _python.PyCapsule_New(c.addressof(made), b"arrow_schema", None)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        behind = ArrowStream(self)
        made = ArrowArrayStream(_get_schema, _get_next, _last_error, _free_stream, _hold(behind))
        behind.struct = made
        return _python.PyCapsule_New(c.addressof(made), b"arrow_array_stream", None)
