"""A fold to try the mechanism with: how many rows a key has had, and the last value of it.

With `forget_after` a key is forgotten that long, in ms, after the time of its last row, and its count is put out then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.operators.state.fold import DUE, HASH, Clock, Step

ROW = pa.schema([("key", pa.string()), ("value", pa.int64()), ("at", pa.int64()), (HASH, pa.int64())])
KEPT = [("key", pa.string()), ("n", pa.int64()), ("last", pa.int64())]


@dataclass(frozen=True)
class Counting:
    forget_after: int | None = None
    name: str = "counting"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        return pa.schema([(HASH, pa.int64()), (DUE, pa.int64()), *KEPT])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([*KEPT, ("forgotten", pa.bool_())])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        new = rows.append_column("n", pa.array(np.ones(len(rows), np.int64))).rename_columns({"value": "last"})
        new = new.append_column(DUE, self._due(rows))
        names = [HASH, DUE, *(name for name, _ in KEPT)]
        grouped = pa.concat_tables([state.select(names), new.select(names)]).group_by(["key", HASH], use_threads=False)
        sums = grouped.aggregate([("n", "sum"), ("last", "last"), (DUE, "max")])
        now = sums.rename_columns({"n_sum": "n", "last_last": "last", f"{DUE}_max": DUE}).select(names)
        gone = pc.fill_null(pc.less_equal(now[DUE], clock.watermark), False) if clock.watermark is not None else None
        changed = now.filter(pc.is_in(now["key"], value_set=rows["key"].combine_chunks()))
        if gone is None:
            return Step(now, self._output(changed, False), {"in": len(rows)})
        output = [self._output(changed, False), self._output(now.filter(gone), True)]
        counts = {"in": len(rows), "forgotten": len(output[1])}
        return Step(now.filter(pc.invert(gone)), pa.concat_tables(output), counts)

    def _due(self, rows: pa.Table) -> pa.Array:
        if self.forget_after is None:
            return pa.nulls(len(rows), pa.int64())
        return pc.add(rows["at"], self.forget_after).combine_chunks()

    def _output(self, now: pa.Table, forgotten: bool) -> pa.Table:
        rows = now.select([name for name, _ in KEPT])
        return rows.append_column("forgotten", pa.array([forgotten] * len(rows), pa.bool_()))
