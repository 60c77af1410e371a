"""Records of captures: what is written is read, what was removed is gone, what is newer is not misread."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.control.captures import (
    CapturedTable,
    check_name,
    decode,
    encode_progress,
    encode_table,
    progress_key,
    table_key,
)
from tidelog.control.dead_letters import headers, told_of_error
from tidelog.errors import MalformedMark, UsageError
from tidelog.record.columns import Row

COLUMN = {"name": "id", "connect": {"type": "int32", "optional": False}, "declared": "int4"}
KV = CapturedTable("shop", "public.kv", "shop.public.kv", "postgresql", (COLUMN,), ("id",), "debezium", False)


def rows(*pairs: tuple[bytes, bytes | None]) -> list[Row]:
    return [Row(offset, 0, key, value, ()) for offset, (key, value) in enumerate(pairs)]


@proves("D2")
def test_progress_and_tables_are_read_as_they_were_written() -> None:
    found = decode(rows(encode_table(KV), encode_progress("shop", {"position": {"id": 1}}), (b"no json", b"{}")))
    assert found["shop"].progress == {"position": {"id": 1}}
    assert found["shop"].tables == {"public.kv": KV}


@proves("D2")
def test_a_capture_that_was_removed_is_gone() -> None:
    written = [encode_table(KV), encode_progress("shop", {"position": None})]
    assert decode(rows(*written, (progress_key("shop"), None), (table_key("shop", "public.kv"), None))) == {}


@proves("D2")
def test_a_record_of_a_newer_format_is_refused() -> None:
    with pytest.raises(MalformedMark, match="has format version 2"):
        decode(rows((b'{"v":2,"capture":"shop"}', b"{}")))


@proves("D2")
@pytest.mark.parametrize("name", ["", "a b", "x" * 201, "ü"])
def test_what_is_not_a_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a capture's name"):
        check_name(name)


@proves("D2")
def test_a_dead_letter_has_the_headers_of_kafka_connect() -> None:
    assert headers({"topic": "t", "partition": 0}, told_of_error("TASK_PUT", "a", "b"), "why") == [
        ("__connect.errors.topic", b"t"),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.stage", b"TASK_PUT"),
        ("__connect.errors.class.name", b"a"),
        ("__connect.errors.exception.class.name", b"b"),
        ("__connect.errors.exception.message", b"why"),
    ]
