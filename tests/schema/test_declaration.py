"""Declarations, and values that are theirs or are not."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.errors import PeerError, UsageError
from tidelog.record.columns import Row as Record
from tidelog.schema.column_types import TYPES
from tidelog.schema.declaration import (
    Declaration,
    column_from_json,
    declare,
    from_fields,
    from_json,
    grows_to,
    json_text,
    to_fields,
    to_json,
)
from tidelog.views.changes import changes_of, encode

STOCK = declare({"price": "decimal", "text": "string", "product": "string"}, ("product",))


@proves("P3", "eo.12")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("boolean", 1),
        ("boolean", "true"),
        ("long", 2**63),
        ("long", 1.0),
        ("long", True),
        ("long", "1"),
        ("double", "1.5"),
        ("double", "nan"),
        ("double", True),
        ("decimal", 1.5),
        ("decimal", "NaN"),
        ("decimal", "sNaN"),
        ("decimal", "Infinity"),
        ("decimal", "1E+401"),
        ("decimal", "1E-401"),
        ("decimal", "one"),
        ("string", 1),
        ("string", "\ud800"),
        ("string", "tea \udfff"),
        ("binary", "not base64!"),
        ("date", "2026-02-30"),
        ("date", 20260130),
        ("timestamp", "yesterday"),
        ("timestamp", "0001-01-01T00:00:00+14:00"),
        ("timestamp", 0),
        ("timestamp", "+10000-01-01T00:00:00.000000Z"),
        ("timestamp", "-0001-01-01T00:00:00.000000Z"),
        ("date", "+10000-01-01"),
        ("date", "0000-01-01"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused(kind: str, said: Any) -> None:
    with pytest.raises(UsageError, match=f"is not a {kind}"):
        from_json(kind, said)


@proves("P3", "eo.12")
def test_a_record_with_such_a_value_is_told_with_its_offset() -> None:
    at = TopicPartition("stock", 3)
    value = b'{"before":null,"after":{"product":"tea","text":"\\ud800"},"op":"u"}'
    with pytest.raises(PeerError, match="offset 7: not a change of this view"):
        changes_of(STOCK, at, [Record(7, 0, b'{"product":"tea"}', value, [])])


@proves("P3", "eo.12")
def test_zero_has_no_sign_and_json_has_no_number_that_is_none() -> None:
    for kind, said in (("double", -0.0), ("double", -0), ("decimal", "-0.00"), ("decimal", 0)):
        assert not str(from_json(kind, said)).startswith("-"), (kind, said)
        assert not str(column_from_json(kind, [said, said])[1]).startswith("-")
    assert from_json("decimal", "-0.00").as_tuple().exponent == -2, "its digits stay"  # type: ignore[union-attr]
    assert from_json("json", [float("nan"), {"a": float("-inf")}, 1.5, True]) == ["NaN", {"a": "-Infinity"}, 1.5, True]


@proves("P3", "eo.12")
def test_a_time_that_no_store_can_tell_is_refused_with_its_column_and_why() -> None:
    declared = declare({"id": "long", "due": "timestamp"}, ("id",))
    value = b'{"before":null,"after":{"id":1,"due":"+10000-01-01T00:00:00.000000Z"},"op":"u"}'
    with pytest.raises(PeerError, match=r"offset 7: .*column 'due': .* is not a timestamp of the years 1 to 9999"):
        changes_of(declared, TopicPartition("stock", 3), [Record(7, 0, b'{"id":1}', value, [])])


@proves("P3", "eo.12")
@pytest.mark.parametrize("kind", TYPES)
def test_null_is_of_every_type(kind: str) -> None:
    assert from_json(kind, None) is None
    assert to_json(kind, None) is None


@proves("P3", "eo.12")
@given(st.text(st.characters(exclude_categories=["Cs"])), st.decimals(allow_nan=False, allow_infinity=False, places=3))
def test_an_envelope_says_what_was_put_in(text: str, price: Decimal) -> None:
    row = {"product": text, "text": text[::-1], "price": price}
    key, value = encode(STOCK, row)
    json.loads(key)
    (change,) = changes_of(STOCK, TopicPartition("stock", 0), [Record(0, 0, key, value, [])])
    assert (change.key, change.after) == ((text,), row)


@proves("P3", "eo.26")
def test_a_declaration_grows_at_its_end_and_in_no_other_way() -> None:
    columns = dict(STOCK.columns)
    assert grows_to(STOCK, STOCK)
    assert grows_to(STOCK, declare({**columns, "more": "long"}, ("product",)))
    assert not grows_to(declare({**columns, "more": "long"}, ("product",)), STOCK)
    assert not grows_to(STOCK, declare({**columns, "price": "double"}, ("product",)))
    assert not grows_to(STOCK, declare({**columns, "more": "long"}, ("product", "text")))


@proves("P3")
@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"a": "long"}, ()),
        ({"a": "long"}, ("b",)),
        ({"a": "double"}, ("a",)),
        ({"a": "json"}, ("a",)),
        ({"a": "number"}, ("a",)),
        ({"a": "long", "A": "long"}, ("a",)),
        ({"": "long"}, ("",)),
        ({"x" * 64: "long"}, ("x" * 64,)),
        ({"a\x00": "long"}, ("a\x00",)),
        ({"_tidelog_id": "long"}, ("_tidelog_id",)),
    ],
)
def test_a_declaration_that_no_store_could_keep_is_refused(columns: dict[str, str], key: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        declare(columns, key)


@proves("P3")
def test_a_declaration_comes_back_from_its_fields() -> None:
    again: Declaration = from_fields(json.loads(json.dumps(to_fields(STOCK))))
    assert again == STOCK
    assert [name for name, _ in again.columns] == ["product", "price", "text"]


@proves("F2")
def test_json_is_kept_as_text_that_is_utf_8_whatever_stands_in_it() -> None:
    for value in ({"b": 1, "a": ["ü", None]}, "half \ud800", {"\udfff": [2**60, -0.0]}):
        assert json.loads(json_text(value).encode()) == value
    assert json_text({"b": "ü", "a": 1}) == '{"b":"ü","a":1}', "as it came"


@proves("P3", "D7")
@given(st.data())
def test_a_column_is_what_its_values_are_one_by_one(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["boolean", "long", "double", "string", "decimal", "json"]))
    said = data.draw(st.lists(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800")))
    try:
        expected = [from_json(kind, one) for one in said]
    except UsageError as error:
        with pytest.raises(UsageError, match=re.escape(str(error))):
            column_from_json(kind, said)
        return
    assert [(type(one), repr(one)) for one in column_from_json(kind, said)] == [
        (type(one), repr(one)) for one in expected
    ]
