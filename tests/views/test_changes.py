"""What a view's topic says: values come through envelopes as they were, and what is no change is refused."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.errors import PeerError
from tidelog.record.columns import Row as Record
from tidelog.schema.column_types import TYPES
from tidelog.schema.declaration import declare, from_json, to_json
from tidelog.views.changes import NoChange, Stretch, changes_of, encode

AT = TopicPartition("revenue.v1", 0)
EVERY = declare({**{f"c_{kind}": kind for kind in TYPES}, "k": "long", "word": "string"}, ("k", "word"))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(),
    "decimal": st.decimals(-(10**30), 10**30, allow_nan=False, places=12),
    "string": st.text(),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "json": st.recursive(
        st.booleans() | st.integers() | st.text(), lambda part: st.lists(part) | st.dictionaries(st.text(), part)
    ),
}
any_row = st.fixed_dictionaries(
    {name: VALUES[kind] if name in EVERY.key else st.none() | VALUES[kind] for name, kind in EVERY.columns}
)


def same(one: Any, other: Any) -> bool:
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@proves("eo.12")
@given(any_row, st.none() | any_row)
def test_a_row_comes_through_an_envelope_as_it_was(row: dict[str, Any], before: dict[str, Any] | None) -> None:
    key, value = encode(EVERY, row, before)
    (change,) = changes_of(EVERY, AT, [Record(7, 9, key, value, ())])
    assert change.key == (row["k"], row["word"]) and (change.offset, change.timestamp_ms) == (7, 9)
    assert change.after is not None
    assert all(same(change.after[name], row[name]) for name, _ in EVERY.columns)
    assert (change.before is None) == (before is None)


@proves("eo.12")
def test_a_delete_has_what_was_and_its_tombstone_is_passed_over() -> None:
    declared = declare({"k": "long", "v": "string"}, ("k",))
    key, value = encode(declared, {"k": 1, "v": "a"}, gone=True)
    told = json.loads(value)
    assert (told["op"], told["after"], told["before"]) == ("d", None, {"k": 1, "v": "a"})
    changes = changes_of(declared, AT, [Record(0, 0, key, value, ()), Record(1, 0, key, None, ())])
    assert [(change.key, change.after) for change in changes] == [((1,), None)]
    assert Stretch(changes, {AT: 2}, None).latest()[1,].after is None


@proves("eo.12", "eo.26")
def test_a_column_that_a_row_does_not_say_is_null() -> None:
    old, new = declare({"k": "long"}, ("k",)), declare({"k": "long", "v": "string"}, ("k",))
    (change,) = changes_of(new, AT, [Record(0, 0, *encode(old, {"k": 1}), ())])
    assert change.after == {"k": 1, "v": None}


@proves("eo.12")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'{"k":1}', b"hello"),
        (b'{"k":1}', b"{}"),
        (b'{"k":1}', b"[]"),
        (b'{"k":1}', b'{"after":{"k":"one"}}'),
        (b'{"k":1}', b'{"after":{"k":2,"v":"a"}}'),
        (b'{"k":1}', b'{"after":{"k":1,"v":"\\ud800"}}'),
        (b'{"k":1}', b'1,{"after":null}'),
        (b'{"k":null}', b'{"after":null}'),
        (b"{}", b'{"after":null}'),
        (None, b'{"after":null}'),
    ],
)
def test_what_is_no_change_is_refused_with_its_offset(key: bytes | None, value: bytes) -> None:
    declared = declare({"k": "long", "v": "string"}, ("k",))
    with pytest.raises(PeerError, match=r"revenue\.v1\[0\], offset 5: not a change of this view"):
        changes_of(declared, AT, [Record(5, 0, key, value, ())])


@proves("eo.12")
def test_times_are_in_utc() -> None:
    at = from_json("timestamp", "2026-01-31T23:00:00+02:00")
    assert at == datetime(2026, 1, 31, 21, tzinfo=UTC)
    assert to_json("timestamp", at) == "2026-01-31T21:00:00.000000Z"
    assert to_json("date", date(1, 1, 1)) == "0001-01-01" and to_json("decimal", Decimal("12.50")) == "12.50"


@proves("eo.15", "F2")
def test_a_tombstone_whose_delete_was_compacted_away_is_a_delete_to_who_keeps_rows() -> None:
    key, put = encode(EVERY, {"k": 1, "word": "a"})
    _, gone = encode(EVERY, {"k": 1, "word": "a"}, gone=True)
    other, _ = encode(EVERY, {"k": 2, "word": "b"})

    def kept(*records: tuple[bytes, bytes | None]) -> list[tuple[Any, bool]]:
        rows = [Record(offset, 0, said, value, ()) for offset, (said, value) in enumerate(records)]
        assert not [
            one for one in changes_of(EVERY, AT, rows) if one.offset == len(rows) - 1 and rows[-1].value is None
        ]
        return [(one.key, one.after is None) for one in changes_of(EVERY, AT, rows, tombstones=True)]

    assert kept((key, None)) == [((1, "a"), True)]
    assert kept((key, put), (key, None)) == [((1, "a"), False), ((1, "a"), True)]
    assert kept((key, gone), (key, None)) == [((1, "a"), True)], "told once"
    assert kept((key, gone), (other, None)) == [((1, "a"), True), ((2, "b"), True)]


@proves("hostile")
@pytest.mark.parametrize("depth", [600, 900, 50_000])
def test_a_value_that_is_nested_too_deep_is_no_change_and_its_record_is_named(depth: int) -> None:
    declared = declare({"k": "long", "doc": "json"}, ("k",))
    deep = f'{{"after":{{"k":1,"doc":{"[" * depth}{"]" * depth}}},"op":"u"}}'.encode()
    fine = encode(declared, {"k": 1, "doc": [[[]]]})
    rows = [Record(7, 9, *fine, ()), Record(8, 9, b'{"k":1}', deep, ()), Record(9, 9, *fine, ())]
    with pytest.raises(NoChange, match=r"revenue.v1\[0\], offset 8: not a change of this view: .*(deep|recursion)"):
        changes_of(declared, AT, rows)
    assert len(changes_of(declared, AT, [rows[0], rows[2]])) == 2


@proves("hostile")
def test_of_many_records_the_one_that_is_no_json_is_named() -> None:
    declared = declare({"k": "long"}, ("k",))
    fine = encode(declared, {"k": 1})
    with pytest.raises(NoChange, match=r"revenue.v1\[0\], offset 8: "):
        changes_of(declared, AT, [Record(7, 9, *fine, ()), Record(8, 9, b'{"k":1}', b"{", ()), Record(9, 9, *fine, ())])
