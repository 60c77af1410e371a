"""What a decoder made, as pieces of a batch: the same buffers, under Arrow's format strings.

Times have no zone here: all are UTC, and DuckDB's TIMESTAMP needs no library of zones to be fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.schema.decoding.column import BINARY, LIST, MEMORY, STRUCT, Column, Tree
from tidelog.sql.c_stream import Field, Piece

if TYPE_CHECKING:
    from tidelog.record.header import Buffer
    from tidelog.schema.decoding._decode import Taken

FORMATS = {
    "boolean": "b",
    "byte": "c",
    "short": "s",
    "int": "i",
    "long": "l",
    "float": "f",
    "double": "g",
    "string": "u",
    "json": "u",
    "binary": "z",
    "date": "tdD",
    "timestamp": "tsu:",
    "timestamp_ntz": "tsu:",
    "interval": "tDu",
    "struct": "+s",
    "list": "+l",
    "map": "+m",
}


def field_of(column: Column, name: str) -> Field:
    if column.kind == "decimal":
        return Field(name, f"d:{column.precision},{column.scale}")
    return Field(name, FORMATS[column.kind], tuple(field_of(child, child.name) for child in column.children))


def piece_of(tree: Tree, column: Column, taken: Taken) -> Piece:
    length, validity, offsets, values = taken[tree.number(column)]
    children = tuple(piece_of(tree, child, taken) for child in column.children)
    layout = MEMORY[column.kind][0]
    buffers: tuple[Buffer | None, ...]
    if layout == STRUCT:
        buffers = (validity,)
    elif layout == LIST:
        buffers = (validity, offsets)
    elif layout == BINARY:
        buffers = (validity, offsets, values)
    else:
        buffers = (validity, values)
    if column.kind == "map":  # its entries have no nulls, by Arrow's rule
        children = (children[0]._replace(buffers=(None,)),)
    return Piece(length, buffers, children)
