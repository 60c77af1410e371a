"""What a decoder made, as pieces of a batch: the same buffers, under Arrow's format strings.

Times have no zone here: all are UTC, and DuckDB's TIMESTAMP needs no library of zones to be fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.schema.column_types import c_format
from tidelog.schema.decoding.column import BINARY, LIST, MEMORY, STRUCT, Column, Tree
from tidelog.sql.c_stream import ArrowField, ArrowPiece

if TYPE_CHECKING:
    from tidelog.record.header import Buffer
    from tidelog.schema.decoding._decode import Taken


def field_of(column: Column, name: str) -> ArrowField:
    children = tuple(field_of(child, child.name) for child in column.children)
    return ArrowField(name, c_format(column.kind, column.precision, column.scale), children)


def piece_of(tree: Tree, column: Column, taken: Taken) -> ArrowPiece:
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
    return ArrowPiece(length, buffers, children)
