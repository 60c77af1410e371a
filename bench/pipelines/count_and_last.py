"""How many values a key has had, and the last of them: the fold, and the same for a single key of Spark's own.

Both keep two numbers a key and put out every key that a micro-batch brought, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tidelog.pipelines.operators.state.fold import DUE, HASH, Clock, Step

OUTPUT = "key bigint, n bigint, last bigint"
KEPT = [("key", pa.int64()), ("n", pa.int64()), ("last", pa.int64())]


@dataclass(frozen=True)
class CountAndLast:
    name: str = "count and last"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        return pa.schema([(HASH, pa.int64()), (DUE, pa.int64()), *KEPT])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema(KEPT)

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        """State rows before new ones, sorted by key and otherwise in order: the last of a run is the newest."""
        keys = np.concatenate([state["key"].to_numpy(), rows["key"].to_numpy()])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        ends = np.flatnonzero(np.append(keys[1:] != keys[:-1], True)) if len(keys) else np.zeros(0, np.int64)
        counts = np.concatenate([state["n"].to_numpy(), np.ones(len(rows), np.int64)])[order]
        totals = np.diff(np.cumsum(counts)[ends], prepend=0)
        newest = order[ends]
        lasts = np.concatenate([state["last"].to_numpy(), rows["value"].to_numpy()])[newest]
        hashes = np.concatenate([state[HASH].to_numpy(), rows[HASH].to_numpy()])[newest]
        output = pa.table([keys[ends], totals, lasts], schema=self.output_schema)
        now = [pa.array(hashes), pa.nulls(len(ends), pa.int64()), *output.columns]
        return Step(pa.table(now, schema=self.state_schema), output.filter(pa.array(newest >= len(state))))


class PerKey(StatefulProcessor):
    """As Spark's guide has it: a group is a key. The methods' names, and those of their arguments, are Spark's."""

    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("state", "n bigint, last bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        held = self.state.get()
        n, last, newest = held[0] if held else 0, held[1] if held else 0, -1
        for row in rows:
            n += 1
            if row.offset > newest:
                newest, last = row.offset, row.value
        self.state.update((n, last))
        yield Row(key=key[0], n=n, last=last)

    def close(self) -> None:
        pass
