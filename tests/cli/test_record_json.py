"""Records as JSON: what `tail` writes `produce` reads, whatever the bytes are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.cli.record_json import NewRow, field, parse_row
from tidelog.errors import UsageError

maybe_bytes = st.none() | st.binary(max_size=30) | st.text(max_size=20).map(str.encode)


@proves("T1")
@given(
    st.builds(
        NewRow,
        maybe_bytes,
        maybe_bytes,
        st.lists(st.tuples(st.text(max_size=8), maybe_bytes), max_size=3),
        st.none() | st.integers(0, 2**31 - 1),
        st.none() | st.integers(0, 2**63 - 1),
    )
)
def test_a_record_survives_json(row: NewRow) -> None:
    written = {
        "topic": "orders",
        "offset": 7,
        **field("key", row.key),
        **field("value", row.value),
        "headers": [{"name": name, **field("value", value)} for name, value in row.headers],
        "partition": row.partition,
        "timestamp": row.timestamp,
    }
    assert parse_row(json.dumps(written)) == row


@proves("T1")
@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("{}", None, None),
        ('{"value": {"total": 10, "ü": [1, null]}}', None, '{"total":10,"ü":[1,null]}'.encode()),
        ('{"key": 42, "value": true}', b"42", b"true"),
        ('{"key_base64": "/w==", "value": ""}', b"\xff", b""),
    ],
)
def test_values_may_be_any_json(line: str, key: bytes | None, value: bytes | None) -> None:
    row = parse_row(line)
    assert (row.key, row.value) == (key, value)


@proves("T1")
def test_headers_may_be_an_object() -> None:
    assert parse_row('{"headers": {"a": "1", "b": null}}').headers == [("a", b"1"), ("b", None)]


@proves("T1")
@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        "[]",
        '"text"',
        '{"values": 1}',
        '{"key": "a", "key_base64": "YQ=="}',
        '{"value_base64": "not base64"}',
        '{"value_base64": 7}',
        '{"value": "\\ud800"}',
        '{"headers": [1]}',
        '{"headers": [{"value": "1"}]}',
        '{"partition": -1}',
        '{"partition": "0"}',
        '{"partition": true}',
        '{"timestamp": 1.5}',
        "[" * 100_000,
    ],
)
def test_what_is_not_a_record_is_refused(line: str) -> None:
    with pytest.raises(UsageError):
        parse_row(line)
