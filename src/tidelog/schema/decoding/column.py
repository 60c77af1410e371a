"""Columns as a tree, whatever format fills them: each of a kind that Arrow and Spark both have (`column_types.KINDS`),
with what is inside of it.

Every column may have nulls. A column is itself alone: two that look alike are two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.schema.column_types import KINDS, arrow_of

if TYPE_CHECKING:
    from tidelog.schema.decoding._decode import Layout, Taken

BITS, FIXED, BINARY, LIST, STRUCT = range(5)  # as in columns.h

MEMORY = {
    "boolean": (BITS, 0),
    "byte": (FIXED, 1),
    "short": (FIXED, 2),
    "int": (FIXED, 4),
    "long": (FIXED, 8),
    "float": (FIXED, 4),
    "double": (FIXED, 8),
    "decimal": (FIXED, 16),
    "string": (BINARY, 0),
    "binary": (BINARY, 0),
    "json": (BINARY, 0),
    "date": (FIXED, 4),
    "timestamp": (FIXED, 8),
    "timestamp_ntz": (FIXED, 8),
    "interval": (FIXED, 8),
    "struct": (STRUCT, 0),
    "list": (LIST, 0),
    "map": (LIST, 0),
}
PRECISION_MAX = 38


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """`children`: the fields of a struct, the element of a list, or a map's one struct of `key` and `value`."""

    name: str
    kind: str
    children: tuple[Column, ...] = ()
    precision: int = 0
    scale: int = 0


def map_of(name: str, key: Column, value: Column) -> Column:
    return Column(name, "map", (Column("entries", "struct", (key, value)),))


class Tree:
    """The columns under a root, numbered: a parent before its children."""

    def __init__(self, root: Column) -> None:
        self.root = root
        self.columns: list[Column] = []
        self.paths: list[str] = []
        self._numbers: dict[int, int] = {}
        self._add(root, "")

    def _add(self, column: Column, path: str) -> None:
        self._numbers[id(column)] = len(self.columns)
        self.columns.append(column)
        self.paths.append(path)
        for child in column.children:
            self._add(child, path if column.kind == "map" else f"{path}.{child.name}" if path else child.name)

    def number(self, column: Column | None) -> int:
        """-1 of none."""
        return -1 if column is None else self._numbers[id(column)]

    def layout(self) -> Layout:
        return [(*MEMORY[one.kind], tuple(map(self.number, one.children))) for one in self.columns]

    def to_arrow(self, taken: Taken) -> Any:
        return _array(self, self.root, taken)


def arrow_type(column: Column) -> Any:
    import pyarrow as pa

    if column.kind == "struct":
        return pa.struct(list(_fields(column)))
    if column.kind == "list":
        return pa.list_(pa.field(column.children[0].name, arrow_type(column.children[0])))
    if column.kind == "map":
        key, value = column.children[0].children
        return pa.map_(arrow_type(key), arrow_type(value))
    if column.kind == "decimal":
        return pa.decimal128(column.precision, column.scale)
    return arrow_of(KINDS[column.kind].arrow)


def _fields(column: Column) -> Iterator[Any]:
    import pyarrow as pa

    for child in column.children:
        yield pa.field(child.name, arrow_type(child))


def _array(tree: Tree, column: Column, taken: Taken) -> Any:
    import pyarrow as pa

    length, validity, offsets, values = taken[tree.number(column)]
    bits = None if validity is None else pa.py_buffer(validity)
    layout = MEMORY[column.kind][0]
    children = [_array(tree, child, taken) for child in column.children]
    if layout == STRUCT:
        buffers = [bits]
    elif layout == LIST:
        buffers = [bits, pa.py_buffer(offsets)]
    elif layout == BINARY:
        buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(values)]
    else:
        buffers = [bits, pa.py_buffer(values)]
    kind = arrow_type(column)
    if column.kind == "map":  # its struct has no nulls, by Arrow's rule
        entries = pa.StructArray.from_arrays(children[0].flatten(), fields=[kind.key_field, kind.item_field])
        children = [entries]
    return pa.Array.from_buffers(kind, length, buffers, children=children or None)
