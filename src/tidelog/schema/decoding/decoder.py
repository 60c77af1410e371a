"""Values in, a column and the reasons of those that failed out, for a reader's schema and any writers' schemas.

    reader_of(...)      what is decided once, from texts alone: the column that there will be; refuses what has none
    Decoder             the same with memory and programs; one for each process, and not for two threads

With frames, each value says by an id which schema it was written with. `writer_of` knows schemas by their ids; it may
return a reason instead, which is then that of the row, and is asked again with the next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tidelog.errors import InvalidSchema, UsageError
from tidelog.schema import formats
from tidelog.schema.bounds import bounded
from tidelog.schema.decoding.column import Column, Tree, arrow_type
from tidelog.schema.decoding.faults import sentence
from tidelog.schema.schema import Schema

if TYPE_CHECKING:
    from tidelog.schema.decoding import _decode
    from tidelog.schema.decoding.protobuf_program import Step

NO_FRAME = "it has no frame of a schema registry: a zero, and the schema's id in four bytes"

WriterOf: TypeAlias = Callable[[int], "Schema | str"]


class Failed(NamedTuple):
    row: int
    reason: str


class Ready(NamedTuple):
    program: _decode.Program
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class Reader:
    """The schema that values are read with, and the column that they become. `steps` are Protobuf's."""

    format: str
    schema: Schema | None
    column: Column
    message: str = ""
    steps: Step | None = None


def reader_of(
    format: str, text: str, references: Mapping[str, str], *, message: str | None = None, name: str = "value"
) -> Reader:
    schema = formats.parse(format, text, references)
    with bounded():
        if format == "PROTOBUF":
            from tidelog.schema.decoding.protobuf_program import find_message, protobuf_steps

            found = find_message(schema.model, message)
            steps = protobuf_steps(found, name)
            return Reader(format, schema, steps.column, found.full_name, steps)
        if message is not None:
            raise UsageError(f"message {message!r} is given for {format}; only Protobuf has messages to choose from")
        if format == "AVRO":
            from tidelog.schema.decoding.avro_columns import avro_column

            return Reader(format, schema, avro_column(schema.model.root, name))
        from tidelog.schema.decoding.json_columns import json_column

        return Reader(format, schema, json_column(schema.model, name))


def json_reader(column: Column) -> Reader:
    """JSON whose columns somebody has named without a schema of JSON's."""
    return Reader("JSON", None, column)


class Decoder:
    def __init__(self, reader: Reader, writer_of: WriterOf | None = None) -> None:
        """With `writer_of`, values have frames."""
        self.reader = reader
        self._compiled = compiled()
        self.tree = Tree(reader.column)
        self._columns = self._compiled.Columns(self.tree.layout())
        self._writer_of = writer_of
        self._own = None if writer_of else self._ready(reader.schema)
        self._by_kind: dict[tuple[int, bytes], Ready] = {}

    def decode(self, values: Any) -> tuple[Any, list[Failed]]:
        """`values` is an Arrow array of binary. A null stays one, and so does what failed."""
        validity, offsets, data = values.buffers()
        taken, failed = self.take(
            len(values), values.offset, validity if values.null_count else None, offsets or bytes(4), data
        )
        return self.tree.to_arrow(taken), failed

    def take(
        self, count: int, start: int, validity: Any, offsets: Any, data: Any
    ) -> tuple[_decode.Taken, list[Failed]]:
        """The same without pyarrow: the buffers of an array in, those of every column out, as `Tree` numbers them."""
        rows = self._compiled.Rows(count, start, validity, offsets, data)
        failed: list[Failed] = []
        if self._own is not None:
            faults = self._compiled.decode(self._columns, [self._own.program], rows)
            failed = [Failed(row, self._said(self._own, *fault)) for row, *fault in faults]
        else:
            failed = self._framed(rows)
        return self._columns.take(), failed

    def _framed(self, rows: _decode.Rows) -> list[Failed]:
        kinds, which, skip, unframed = self._compiled.frames(rows, self.reader.format == "PROTOBUF")
        known = [self._of_kind(kind) for kind in kinds]
        bad = {number: reason for number, reason in enumerate(known) if isinstance(reason, str)}
        failed = [Failed(row, NO_FRAME) for row in unframed]
        if bad:
            numbers = memoryview(which).cast("i").tolist()
            failed += [Failed(row, bad[number]) for row, number in enumerate(numbers) if number in bad]
            which = b"".join((-1 if n in bad else n).to_bytes(4, "little", signed=True) for n in numbers)
        # Rows of a bad kind have no program, so that any one may stand in its place.
        good = [one for one in known if not isinstance(one, str)]
        programs = [good[0].program if isinstance(one, str) else one.program for one in known] if good else []
        numbers_of = memoryview(which).cast("i")
        for row, *fault in self._compiled.decode(self._columns, programs, rows, which, skip):
            ready = known[numbers_of[row]]
            assert not isinstance(ready, str)
            failed.append(Failed(row, self._said(ready, *fault)))
        return sorted(failed)

    def _of_kind(self, kind: tuple[int, bytes]) -> Ready | str:
        if kind in self._by_kind:
            return self._by_kind[kind]
        assert self._writer_of is not None
        writer = self._writer_of(kind[0])
        if isinstance(writer, str):
            return writer
        if writer.format != self.reader.format:
            return f"schema {kind[0]} is {writer.format}, and the reader's is {self.reader.format}"
        wrong = self._wrong_message(writer, kind)
        if wrong is not None:
            return wrong
        try:
            with bounded():
                made = self._by_kind[kind] = self._ready(writer)
        except InvalidSchema as error:
            return f"schema {kind[0]}: {error}"
        return made

    def _wrong_message(self, writer: Schema, kind: tuple[int, bytes]) -> str | None:
        if self.reader.format != "PROTOBUF":
            return None
        from tidelog.schema.decoding.protobuf_program import name_at

        name = name_at(writer.model, kind[1])
        if name == self.reader.message:
            return None
        return f"it is a {name or 'message that its schema lacks'}, and the reader's is {self.reader.message}"

    def _ready(self, writer: Schema | None) -> Ready:
        """For Protobuf and JSON the writer's schema makes no difference: fields are known by number or name."""
        reader, reasons = self.reader, list[str]()
        if reader.format == "AVRO":
            from tidelog.schema.decoding.avro_program import avro_actions

            assert reader.schema is not None and writer is not None
            actions, reasons = avro_actions(reader.schema.model, writer.model, self.tree)
        elif reader.format == "PROTOBUF":
            from tidelog.schema.decoding.protobuf_program import protobuf_actions

            assert reader.steps is not None
            actions = protobuf_actions(reader.steps, self.tree)
        else:
            from tidelog.schema.decoding.json_program import json_actions

            actions = json_actions(self.tree)
        return Ready(self._compiled.Program(self._columns, reader.format, actions), reasons)

    def _said(self, ready: Ready, fault: int, column: int, byte: int, detail: int) -> str:
        return sentence(fault, self.tree.paths[column] if column >= 0 else "", byte, detail, ready.reasons)


def value_type(reader: Reader) -> Any:
    return arrow_type(reader.column)


def compiled() -> Any:
    try:
        from tidelog.schema.decoding import _decode
    except ImportError as error:
        raise UsageError(
            f"decoding needs a compiled part that is missing ({error}); install a C compiler and install tidelog again"
        ) from error
    return _decode
