"""Upserts by key into a changelog, and a changelog into upserts by key: the folds of `as_changelog` and `as_upserts`.

Rules:
- `Upserts` keeps the row that each key has now. A key's last row of a step is what it is afterwards; a row that is
  equal to the one that was there changes nothing but the ORDER: what is kept is what was put out, to the bit, so that
  it can be taken back (0.0 is equal to -0.0, and is another row to who counts rows).
- Where rows have an ORDER, it says which is the last of a step, and a row that is below the one that is kept is
  ignored. That of a deleted row is not remembered: rows of a key have to come in order, as those of one partition do.
- Version 1 kept the ORDER of timestamps in seconds, and took rows of one second for equally late. Version 2, which is
  that of timestamps alone, keeps microseconds; of what it finds in seconds it knows no more than version 1 did.
- `Netting` keeps nothing: a micro-batch's changes of a key are together, and become one row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.operators.changelog import (
    AFTER,
    BEFORE,
    DELETE,
    DELETED,
    HEAD,
    INSERT,
    OP,
    SEQ,
    of_changes,
    upserts_of,
)
from tidelog.pipelines.operators.joins.matching import NO_KEY, NO_ROW, Mask, Numbers, key_codes
from tidelog.pipelines.operators.joins.sides import GONE, ORDER, added
from tidelog.pipelines.operators.state.fold import DUE, HASH, Clock, Step

MICROSECONDS = 1_000_000  # in a second
FIRST = -(2**63)  # as which a row without an ORDER counts


@dataclass(frozen=True, slots=True)
class Upserts:
    columns: pa.Schema  # of the table
    by: tuple[str, ...]
    order: str | None = None
    order_in: str | None = None  # the unit of ORDER
    name: str = "as_changelog"

    @property
    def version(self) -> int:
        return 2 if self.order_in == "microseconds" else 1

    def upgrade(self, state: pa.Table, version: int) -> pa.Table:
        order = pc.multiply(state[ORDER], MICROSECONDS)
        return state.set_column(state.schema.get_field_index(ORDER), ORDER, order)

    @property
    def state_schema(self) -> pa.Schema:
        ends = [pa.field(ORDER, pa.int64()), pa.field(DUE, pa.int64())]
        return pa.schema([pa.field(HASH, pa.int64()), *self.columns, *ends])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([*HEAD, *self.columns])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        held = self.state_schema.remove(len(self.state_schema) - 1)
        all_rows = added(state, rows, held)
        (codes,) = key_codes([all_rows], self.by)
        gone = np.concatenate([np.zeros(len(state), bool), np.asarray(rows[GONE])])
        old, new = _before_and_after(codes, len(state), _last(codes, all_rows[ORDER]))
        new[(new != NO_ROW) & gone[new]] = NO_ROW
        table = all_rows.select(self.columns.names)
        changed = _changed(table, old, new)
        stays = new != NO_ROW
        kept = all_rows.take(pa.array(np.where(changed, new, old)[stays]))
        order = all_rows[ORDER].take(pa.array(new[stays]))
        kept = kept.set_column(kept.schema.get_field_index(ORDER), ORDER, order)
        kept = kept.append_column(DUE, pa.nulls(len(kept), pa.int64()))
        return Step(kept, self._changes(table, old, new, changed))

    def _changes(self, rows: pa.Table, old: Numbers, new: Numbers, changed: Mask) -> pa.Table:
        is_there, stays = old != NO_ROW, new != NO_ROW
        gone, come = changed & is_there, changed & stays
        return of_changes(
            rows.take(pa.array(old[gone])),
            rows.take(pa.array(new[come])),
            pc.if_else(pa.array(stays[gone]), BEFORE, DELETE),
            pc.if_else(pa.array(is_there[come]), AFTER, INSERT),
        )


def _last(codes: Numbers, order: pa.ChunkedArray) -> Numbers:
    """For each code the place of its last row: the largest in `order`, where there is one, and the last of those.

    Without a sort: that was a third of a step.
    """
    places = np.flatnonzero(codes != NO_KEY)
    last = np.full(int(codes.max(initial=NO_KEY)) + 1, NO_ROW, np.int64)
    if order.null_count < len(order):
        numbers = pc.fill_null(order, FIRST).to_numpy()
        largest = np.full(len(last), FIRST)
        np.maximum.at(largest, codes[places], numbers[places])
        places = places[numbers[places] == largest[codes[places]]]
    last[codes[places]] = places  # the last assignment of an index stays
    return last


def _before_and_after(codes: Numbers, held: int, last: Numbers) -> tuple[Numbers, Numbers]:
    old = np.full(len(last), NO_ROW, np.int64)
    old[codes[:held]] = np.arange(held)
    return old, last.copy()


def _changed(rows: pa.Table, old: Numbers, new: Numbers) -> Mask:
    """For which codes there is something to tell."""
    is_there, stays = old != NO_ROW, new != NO_ROW
    changed: Mask = is_there | stays
    both = np.flatnonzero(is_there & stays)
    changed[both] = (old[both] != new[both]) & ~_equal(rows, old[both], new[both])
    return changed


def _equal(rows: pa.Table, left: Numbers, right: Numbers) -> Mask:
    equal = np.ones(len(left), bool)
    for column in rows.columns:
        one, other = column.take(pa.array(left)), column.take(pa.array(right))
        if pa.types.is_nested(column.type):
            equal &= np.array([a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], bool)
        else:
            same = pc.fill_null(pc.equal(one, other), False)
            equal &= np.asarray(pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other))))
    return equal


@dataclass(frozen=True, slots=True)
class Netting:
    columns: pa.Schema  # of the changelog
    by: tuple[str, ...]
    name: str = "as_upserts"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        return pa.schema([(HASH, pa.int64()), (DUE, pa.int64())])

    @property
    def output_schema(self) -> pa.Schema:
        rows = [field for field in self.columns if field.name not in (OP, SEQ)]
        return pa.schema([*rows, pa.field(DELETED, pa.bool_())])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        return Step(state, upserts_of(rows.select(self.columns.names).cast(self.columns), self.by))
