"""Whether data written with one Avro schema can be read with another: Avro's schema resolution, walked on types alone.

A pair of types that is being looked at higher up counts as readable: whatever is wrong with it is found there.
Named types match by their last name, or by an alias of the reader's, as Avro's Java library has it.
"""

from __future__ import annotations

from tidelog.schema.avro.model import (
    MISSING,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Model,
    Named,
    RecordType,
    Type,
    Union,
    kind_of,
)
from tidelog.schema.bounds import REASONS_MAX, Budget
from tidelog.schema.schema import Reason

NAMED_MAX = 10  # symbols that a sentence names
PROMOTED = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}


def compatible(reader: Model, writer: Model) -> list[Reason]:
    return _Walk().read(reader.root, writer.root, "")


class _Walk:
    def __init__(self) -> None:
        self._budget = Budget()
        self._known: dict[tuple[int, int], list[Reason]] = {}

    def read(self, reader: Type, writer: Type, path: str) -> list[Reason]:
        self._budget.spend()
        pair = (id(reader), id(writer))
        if pair not in self._known:
            self._known[pair] = []
            self._known[pair] = self._look(reader, writer, path)[:REASONS_MAX]
        return self._known[pair]

    def _look(self, reader: Type, writer: Type, path: str) -> list[Reason]:
        if isinstance(writer, Union):
            return self._every_branch(reader, writer, path)
        if isinstance(reader, Union):
            return self._some_branch(reader, writer, path)
        if isinstance(reader, RecordType) and isinstance(writer, RecordType):
            return _names(reader, writer, path) + self._record(reader, writer, path)
        if isinstance(reader, Enum) and isinstance(writer, Enum):
            self._budget.spend(len(reader.symbols) + len(writer.symbols))
            return _names(reader, writer, path) + _symbols(reader, writer, path)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed):
            return _names(reader, writer, path) + _sizes(reader, writer, path)
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self.read(reader.items, writer.items, f"{path}/items")
        if isinstance(reader, Map) and isinstance(writer, Map):
            return self.read(reader.values, writer.values, f"{path}/values")
        to, given = kind_of(reader), kind_of(writer)
        if to == given or given in PROMOTED.get(to, ()):
            return []
        return [Reason("TYPE_MISMATCH", path or "/", f"a reader of {to} cannot read {given}")]

    def _every_branch(self, reader: Type, writer: Union, path: str) -> list[Reason]:
        reasons = []
        for index, branch in enumerate(writer.branches):
            found = self.read(reader, branch, f"{path}/{index}" if isinstance(reader, Union) else path)
            if found and isinstance(reader, Union):
                found = [_no_branch(branch, f"{path}/{index}")]
            reasons += found
        return reasons

    def _some_branch(self, reader: Union, writer: Type, path: str) -> list[Reason]:
        for index, branch in enumerate(reader.branches):
            if not self.read(branch, writer, f"{path}/{index}"):
                return []
        return [_no_branch(writer, path or "/")]

    def _record(self, reader: RecordType, writer: RecordType, path: str) -> list[Reason]:
        self._budget.spend(len(reader.fields) + len(writer.fields))
        reasons: list[Reason] = []
        by_name = {field.name: field for field in writer.fields}
        for index, field in enumerate(reader.fields):
            at = f"{path}/fields/{index}"
            source = _source(field, by_name)
            if source is not None:
                reasons += self.read(field.type, source.type, f"{at}/type")
            elif field.default is MISSING:
                sentence = f"the reader's field {field.name!r} has no default, and the writer has no such field"
                reasons.append(Reason("READER_FIELD_MISSING_DEFAULT_VALUE", at, sentence))
        return reasons


def _source(field: Field, by_name: dict[str, Field]) -> Field | None:
    return next((by_name[name] for name in (field.name, *field.aliases) if name in by_name), None)


def _no_branch(writer: Type, path: str) -> Reason:
    what = writer.name.full if isinstance(writer, RecordType | Enum | Fixed) else kind_of(writer)
    return Reason("MISSING_UNION_BRANCH", path, f"the reader's union has no branch that reads {what}")


def _names(reader: Named, writer: Named, path: str) -> list[Reason]:
    if reader.name.simple == writer.name.simple or writer.name in reader.aliases:
        return []
    sentence = f"the reader expects {reader.name.full!r}, the writer wrote {writer.name.full!r}"
    return [Reason("NAME_MISMATCH", f"{path}/name", sentence)]


def _symbols(reader: Enum, writer: Enum, path: str) -> list[Reason]:
    known = set(reader.symbols)
    missing = [symbol for symbol in writer.symbols if symbol not in known]
    if not missing or reader.default is not None:
        return []
    sentence = f"the reader has no symbol {', '.join(missing[:NAMED_MAX])}, and no default"
    return [Reason("MISSING_ENUM_SYMBOLS", f"{path}/symbols", sentence)]


def _sizes(reader: Fixed, writer: Fixed, path: str) -> list[Reason]:
    if reader.size == writer.size:
        return []
    return [
        Reason("FIXED_SIZE_MISMATCH", f"{path}/size", f"the reader has {reader.size} bytes, the writer {writer.size}")
    ]
