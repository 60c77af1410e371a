"""Rows packed on their way to a bucket: each arrives in its own, once, in order, under the names its reader has."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.pipelines.operators.state import packing
from tidelog.pipelines.operators.state.fold import EVERY_KEY, HASH
from tidelog.pipelines.operators.state.packing import pack, unpack

IDS = [7, 3, 11]
ROW = pa.schema([("n", pa.int64()), (HASH, pa.int64())])


def batch_of(rows: Sequence[tuple[int, int]], schema: pa.Schema = ROW) -> pa.RecordBatch:
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def packed_of(tasks: Sequence[Sequence[pa.RecordBatch]]) -> dict[int, list[tuple[int, int, bytes]]]:
    """By bucket, as Spark gives them: in no order that one could rely on."""
    found: dict[int, list[tuple[int, int, bytes]]] = {}
    for number, batches in enumerate(tasks):
        for made in pack(iter(batches), IDS, number):
            for row in made.to_pylist():
                found.setdefault(row["bucket"], []).insert(0, (row["task"], row["part"], row["rows"]))
    return found


rows_of_tasks = st.lists(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5), max_size=4), max_size=3)


@proves("P1")
@given(drawn=rows_of_tasks, pack_at=st.sampled_from([1, 40, packing.PACK_AT]))
def test_every_row_comes_to_its_bucket_once_and_in_the_order_of_its_task(
    drawn: list[list[list[int]]], pack_at: int
) -> None:
    number, tasks, expected = 0, [], dict[int, list[int]]()
    for task in drawn:
        batches = []
        for hashes in task:
            batches.append(batch_of([(number + place, found) for place, found in enumerate(hashes)]))
            for found in hashes:
                expected.setdefault(IDS[found % len(IDS)], []).append(number)
                number += 1
        tasks.append(batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PACK_AT", pack_at)
        packed = packed_of(tasks)
    assert {bucket: unpack(rows, ROW)["n"].to_pylist() for bucket, rows in packed.items()} == expected


@proves("P1")
def test_columns_are_known_by_their_place_and_not_by_the_names_that_they_were_packed_under() -> None:
    """Spark takes two inputs that differ in names alone for one, and so packs one of them for both readers."""
    other = pa.schema([("renamed", pa.int64()), (HASH, pa.int64())])
    packed = packed_of([[batch_of([(1, 0), (2, 0)])], [batch_of([(3, 0)], other)]])
    assert unpack(packed[IDS[0]], other).to_pydict() == {"renamed": [1, 2, 3], HASH: [0, 0, 0]}


@proves("P1")
def test_no_column_says_that_it_is_never_null() -> None:
    """Whether it does would be up to Spark's optimizer, and state with another schema would be refused."""
    strict = pa.schema([pa.field("n", pa.int64(), nullable=False), (HASH, pa.int64())])
    packed = packed_of([[batch_of([(1, 0)], strict)]])
    assert unpack(packed[IDS[0]], strict).schema == ROW
    assert unpack([], strict).schema == ROW


@proves("P1")
def test_a_row_for_every_key_comes_to_every_bucket_in_its_place() -> None:
    found = list(pack([batch_of([(1, 0), (2, EVERY_KEY), (3, 0)])], IDS, 0, for_all=True))
    rows = {
        bucket: unpack([(task, part, data)], ROW)["n"].to_pylist()
        for one in found
        for bucket, task, part, data in zip(*(column.to_pylist() for column in one.columns), strict=True)
    }
    assert rows == {bucket: [1, 2, 3] if bucket == IDS[0] else [2] for bucket in IDS}
