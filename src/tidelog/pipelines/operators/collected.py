"""A bounded list of values, in the order of event time: what `collect_list` keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidelog.pipelines.operators.grouping import Groups

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, slots=True)
class Collected:
    """The times and the values of the first `limit` rows, as two lists in step."""

    column: str
    limit: int

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(kind)

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        return (pa.list_(pa.int64()), pa.list_(kind))

    def lift(self, values: pa.Array, times: pa.Array) -> Sequence[pa.Array]:
        there = values.is_valid()
        offsets = pa.array(np.concatenate(([0], np.cumsum(there.to_numpy(zero_copy_only=False)))).astype(np.int32))
        kept, at = values.filter(there), times.filter(there)
        return (pa.ListArray.from_arrays(offsets, at), pa.ListArray.from_arrays(offsets, kept))

    def reduce(self, state: Sequence[pa.Array], groups: Groups) -> Sequence[pa.Array]:
        times, values = state
        owners = groups.ids[times.value_parent_indices().to_numpy()]
        at = times.flatten().to_numpy()
        order = np.lexsort((at, owners))
        sizes = np.bincount(owners, minlength=groups.size)
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order = pa.array(order[rank < self.limit])
        offsets = np.concatenate(([0], np.cumsum(np.minimum(sizes, self.limit)))).astype(np.int32)
        return tuple(
            pa.ListArray.from_arrays(pa.array(offsets), part.flatten().take(order)) for part in (times, values)
        )

    def finish(self, state: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
        return state[1]

    def native(self, time: str) -> Column | None:
        """None: Spark's own list has no bound, and no order."""
        return None
