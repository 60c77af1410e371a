"""The program that reads JSON into columns: it follows from the columns alone, whoever made them.

A member that is not there is null; of one that stands twice the last counts. Times without a zone are in UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import InvalidSchema
from tidelog.schema.decoding.column import Column, Tree

if TYPE_CHECKING:
    from tidelog.schema.decoding._decode import Action

# In the order of the enum in json.h.
OPS = (
    *("boolean", "integer", "float", "double", "decimal", "string", "base64", "date", "timestamp", "struct", "list"),
    *("map", "any"),
)
NUMBER = {name: number for number, name in enumerate(OPS)}
BY_KIND = {kind: kind for kind in OPS if kind not in ("integer", "base64", "any")} | {
    "byte": "integer",
    "short": "integer",
    "int": "integer",
    "long": "integer",
    "binary": "base64",
    "timestamp_ntz": "timestamp",
    "json": "any",
}


def json_actions(tree: Tree) -> list[Action]:
    """One action a column, with the number of the column."""
    return [_action(tree, column) for column in tree.columns]


def _action(tree: Tree, column: Column) -> Action:
    if column.kind not in BY_KIND:
        raise InvalidSchema(f"{column.name!r} is of type {column.kind}, which JSON has no text for; use another")
    children, texts = column.children, tuple(child.name.encode() for child in column.children)
    if column.kind == "map":
        children, texts = (column.children[0].children[1],), ()
        if column.children[0].children[0].kind != "string":
            raise InvalidSchema(f"the keys of the map {column.name!r} are not strings; in JSON they must be")
    elif column.kind == "list":
        texts = ()
    numbers = tuple(map(tree.number, children))
    return (
        *(NUMBER[BY_KIND[column.kind]], 0, column.precision, column.scale, tree.number(column)),
        numbers,
        texts,
    )
