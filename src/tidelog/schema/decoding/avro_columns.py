"""The columns of an Avro schema, as Spark's own from_avro has them; what has none is refused by name.

union with null          the other branch, which may be null anyway
int and long             long; float and double: double
any other union          a struct with `member0`, `member1` and so on, of which one is not null
enum, uuid               string
fixed                    binary
decimal                  up to 38 digits
timestamp-millis/micros  timestamp; local-timestamp-...: timestamp_ntz
timestamp-nanos          long, since Spark has microseconds only; so are all logical types that are not named here
"""

from __future__ import annotations

from tidelog.errors import InvalidSchema
from tidelog.schema.avro.model import Array, Enum, Fixed, Map, Primitive, RecordType, Type, Union, kind_of
from tidelog.schema.decoding.column import PRECISION_MAX, Column, map_of

KINDS = {kind: kind for kind in ("boolean", "int", "long", "float", "double", "string")} | {"bytes": "binary"}
LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
UUID_SIZE = 16


def avro_column(root: Type, name: str) -> Column:
    return _column(root, name, ())


def branches(union: Union) -> list[Type]:
    """Without null."""
    return [branch for branch in union.branches if kind_of(branch) != "null"]


def logical(one: Type) -> str | None:
    said = one.properties.get("logicalType") if isinstance(one, Primitive | Fixed) else None
    return said if isinstance(said, str) else None


def decimal_of(one: Primitive | Fixed) -> tuple[int, int] | None:
    """Precision and scale. What Avro says is not a decimal is read as if nothing were said."""
    if logical(one) != "decimal":
        return None
    precision, scale = one.properties.get("precision"), one.properties.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        return None
    return precision, scale


def _column(one: Type, name: str, inside: tuple[RecordType, ...]) -> Column:
    if isinstance(one, Union):
        return _union(one, name, inside)
    if isinstance(one, RecordType):
        if one in inside:
            raise InvalidSchema(f"the record {one.name.full!r} contains itself at {name!r}; a column cannot")
        fields = tuple(_column(field.type, field.name, (*inside, one)) for field in one.fields)
        if not fields:
            raise InvalidSchema(f"the record {one.name.full!r} at {name!r} has no fields; a column needs some")
        return Column(name, "struct", fields)
    if isinstance(one, Array):
        return Column(name, "list", (_column(one.items, "element", inside),))
    if isinstance(one, Map):
        return map_of(name, Column("key", "string"), _column(one.values, "value", inside))
    if isinstance(one, Enum):
        return Column(name, "string")
    return _plain(one, name)


def _plain(one: Primitive | Fixed, name: str) -> Column:
    kind = kind_of(one)
    decimal = decimal_of(one) if kind in ("bytes", "fixed") else None
    if decimal is not None:
        if decimal[0] > PRECISION_MAX:
            raise InvalidSchema(f"the decimal {name!r} has {decimal[0]} digits; Spark has {PRECISION_MAX} at most")
        return Column(name, "decimal", precision=decimal[0], scale=decimal[1])
    if isinstance(one, Fixed):
        return Column(name, "string" if logical(one) == "uuid" and one.size == UUID_SIZE else "binary")
    if kind == "null":
        raise InvalidSchema(f"{name!r} is always null; a column of that type cannot be written anywhere, leave it out")
    return Column(name, LOGICAL.get((kind, logical(one) or ""), KINDS[kind]))


def _union(one: Union, name: str, inside: tuple[RecordType, ...]) -> Column:
    others = branches(one)
    if len(others) == 1:
        return _column(others[0], name, inside)
    kinds = {_column(other, name, inside).kind for other in others}
    for both in ({"int", "long"}, {"float", "double"}):
        if kinds == both:
            return Column(name, max(both, key=("int", "float", "long", "double").index))
    if not others:
        raise InvalidSchema(f"{name!r} is a union of null alone; a column of that type cannot be written anywhere")
    members = (_column(other, f"member{index}", inside) for index, other in enumerate(others))
    return Column(name, "struct", tuple(members))
