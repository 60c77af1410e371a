"""Rows that a program folds from a topic: what a view is whose topic has not its rows, but what they are made of.

    records of a stretch  -->  the fold, event by event  -->  the rows that have changed, each once

Rules:
- The rows before a stretch are those that the store has of this generation: the fold has no other memory. So a crash at
  any step repeats a stretch on the rows that it began with, or does not repeat it, as with any stretch.
- Rows are looked up as they are asked for, once a stretch. Nobody else writes them: if another applier did, `apply`
  refuses the stretch (its ends are not those that were read).
- A value is what its column's type says, or it is refused with its column. Columns that are not named are null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Protocol, cast

from tidelog.client.metadata import TopicPartition
from tidelog.errors import UsageError
from tidelog.schema.column_types import BINARY, BOOLEAN, DATE, DECIMAL, DOUBLE, JSON, LONG, STRING, TIMESTAMP
from tidelog.schema.declaration import Declaration, Key, Row, Value, from_json, to_json
from tidelog.views.changes import Change
from tidelog.views.reading import Fold
from tidelog.views.stores.store import KeyedStore, Store

OF_TYPE: dict[str, tuple[type, ...]] = {
    BOOLEAN: (bool,),
    LONG: (int,),
    DOUBLE: (float, int),
    DECIMAL: (Decimal, int),
    STRING: (str,),
    BINARY: (bytes,),
    DATE: (date,),
    TIMESTAMP: (datetime,),
    JSON: (object,),
}


class RowFolding(Protocol):
    fingerprint: str  # of this fold: a generation that was built by another one is not gone on with

    def fold(self, declared: Declaration, store: Store, generation: int) -> Fold: ...


class FoldedRows(MutableMapping[Any, Row]):
    """Rows by key, as a fold sees and changes them: a key of one column is its value, of several a tuple."""

    def __init__(self, declared: Declaration, look_up: Callable[[Key], Row | None], null: object = None) -> None:
        """`null`: a value that is kept as null."""
        self._declared = declared
        self._null = null
        self._look_up = look_up
        self._before: dict[Key, Row | None] = {}
        self._now: dict[Key, Row | None] = {}
        self._told: dict[Key, tuple[TopicPartition, int, int]] = {}
        self._at = (TopicPartition("", 0), 0, 0)

    def now_at(self, at: TopicPartition, offset: int, timestamp_ms: int) -> None:
        """The record that is folded next: what changes is said to have changed there."""
        self._at = (at, offset, timestamp_ms)

    def __getitem__(self, key: Any) -> Row:
        found = self._find(self._key(key))
        if found is None:
            raise KeyError(key)
        return dict(found)

    def __setitem__(self, key: Any, row: Mapping[str, Any]) -> None:
        whole = self._key(key)
        self._find(whole)
        self._now[whole] = self._checked(whole, row)
        self._told[whole] = self._at

    def __delitem__(self, key: Any) -> None:
        whole = self._key(key)
        if self._find(whole) is None:
            raise KeyError(key)
        self._now[whole] = None
        self._told[whole] = self._at

    def __iter__(self) -> Iterator[Any]:
        raise UsageError("rows are looked up by key; a read model does not go through all of them")

    def __len__(self) -> int:
        raise UsageError("rows are looked up by key; how many there are is asked of the store")

    def changes(self) -> list[Change]:
        """Of each row that is not what it was before the stretch."""
        return [
            Change(key, row, self._before[key], *self._told[key])
            for key, row in self._now.items()
            if key in self._told and row != self._before[key]
        ]

    def _find(self, key: Key) -> Row | None:
        if key not in self._now:
            self._before[key] = self._now[key] = self._look_up(key)
        return self._now[key]

    def _key(self, key: Any) -> Key:
        names = self._declared.key
        whole = key if isinstance(key, tuple) else (key,)
        if len(whole) != len(names):
            raise UsageError(f"{key!r} is not a key; it is ({', '.join(names)})")
        return tuple(
            _checked(name, kind, value, is_key=True)
            for (name, kind), value in zip(self._declared.columns, whole, strict=False)
        )

    def _checked(self, key: Key, row: Mapping[str, Any]) -> Row:
        said = {**row, **dict(zip(self._declared.key, key, strict=True))}
        columns = dict(self._declared.columns)
        if unknown := [name for name in said if name not in columns]:
            raise UsageError(f"a row has {', '.join(map(repr, unknown))}, and the columns are {', '.join(columns)}")
        return {
            name: None if said.get(name) is self._null else _checked(name, kind, said.get(name))
            for name, kind in self._declared.columns
        }


def _checked(name: str, kind: str, value: Any, *, is_key: bool = False) -> Value:
    if is_key and value is None:
        raise UsageError(f"column {name!r} is of the key, and cannot be null")
    is_other = not isinstance(value, OF_TYPE[kind]) or (isinstance(value, bool) and kind not in (BOOLEAN, JSON))
    if value is not None and is_other:
        raise UsageError(f"column {name!r} is a {kind}, and {value!r:.80} is a {type(value).__name__}")
    try:
        return from_json(kind, to_json(kind, value))
    except UsageError as error:
        raise UsageError(f"column {name!r}: {error}") from error


def keyed(store: Store, what: str) -> KeyedStore:
    if not hasattr(store, "kept_row"):
        raise UsageError(f"{what} cannot be kept in this kind of store; use sqlite:// or postgresql://")
    return cast("KeyedStore", store)
