"""Every value comes back as it was: extremes, what looks alike, and what was meant as an attack."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest

from proving import proves
from tidelog.record.columns import Row as Record
from tidelog.schema.column_types import OF_A_KEY, TYPES
from tidelog.schema.declaration import Declaration, Value, declare, to_json
from tidelog.schema.expression.parser import parse
from tidelog.schema.expression.tree import Compare, Literal, Name
from tidelog.views.changes import changes_of
from tidelog.views.stores.store import Ask, Store
from views.stores.applied import AT, Applied, assert_same_rows, pages
from views.stores.conftest import Open

LONG_TEXT = "a long way " * 30_000
VALUES: dict[str, list[Value]] = {
    "boolean": [True, False],
    "long": [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1],
    "double": [0.0, -0.0, 1.5, -1e-5, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1e22],
    "decimal": [Decimal(text) for text in ("0", "12.50", "-12.5", "0.000000000000000001", "9" * 38, "-" + "9" * 38)],
    "string": [
        *(
            "",
            " ",
            "a",
            "A",
            "ä",
            "a\u0308",
            "NULL",
            "null",
            "'",
            '"',
            "`",
            "\\",
            "\\x00",
            "\n",
            "\r\n",
            "\t",
            "%s",
            "?",
        ),
        *("a\x00b", "\x00", "\x00\x00", "\x01", "\x01\x01", "\x01\x02", "\x02", "\x00\x01\x02\x01\x00"),
        *("\U0001f375 tea", "\uffff", "\U0010ffff", "\u202e", "日本語", "{}", "[]", "1", "1.0", "true", "a%b_c*d?e[f]"),
        LONG_TEXT,
    ],
    "binary": [b"", b"\x00", b"\x00\xff" * 300, bytes(range(256)), b"text", b"\\x41", b"z" * 300_000],
    "date": [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1582, 10, 10), date(2024, 2, 29)],
    "timestamp": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 10, 25, 0, 30, 0, 1, tzinfo=UTC),  # half past two in Berlin, the first of two
        datetime(2026, 10, 25, 1, 30, 0, 1, tzinfo=UTC),
    ],
    "json": [
        *([], {}, [None], {"": None}, [1, 1.5, "a", True, None, {"b": [[]]}], {"z": 1, "a": 2}, "text", 12, 1.5, True),
        {"ä\U0001f375": "\x00", "'; DROP TABLE": '"', "deep": [[[[[[[[[[1]]]]]]]]]]},
        {"long": LONG_TEXT},
        [2**63 - 1, -(2**63), 1e308, 0.0, 0.1],
    ],
}
# Two columns each, whose texts put together would be the same.
PAIRS = [
    ("a", "bc"),
    ("ab", "c"),
    ("", "abc"),
    ("abc", ""),
    ("a,b", "c"),
    ("a", "b,c"),
    ("a\x00b", "c"),
    ("a", "b\x00c"),
]
PAIRS += [("a:b", "c"), ("a", "b:c"), ('a"', "b"), ("a", '"b'), ("[1", "2]"), ("1", "2"), ("a/b", "c"), ("a", "b/c")]
ATTACKS = [
    "Robert'); DROP TABLE revenue; --",
    '"; DROP TABLE "_tidelog_generations"; --',
    "' OR '1'='1",
    "${HOME}",
    "%s %(name)s %% {0} {name} :name ?1 $1",
    "\\'; SELECT pg_sleep(100); --",
    "../../etc/passwd",
    "*",
    "a\r\nSET x y\r\n",
]


@proves("P3")
@pytest.mark.parametrize("kind_of_value", TYPES)
def test_a_value_comes_back_as_it_was(store: Store, kind_of_value: str) -> None:
    declared = declare({"id": "long", "value": kind_of_value}, ("id",))
    one = Applied(store, declared)
    values = [*VALUES[kind_of_value], None]
    one.put(*({"id": number, "value": value} for number, value in enumerate(values)))
    one.is_equal()
    one.put(*({"id": number, "value": value} for number, value in enumerate(reversed(values))))
    one.is_equal()


@proves("P3", "eo.12")
def test_what_has_two_ways_to_be_said_is_one_value_in_every_store(store: Store) -> None:
    declared = declare({"cost": "decimal", "share": "double", "more": "json"}, ("cost",))
    said = {
        '"-0"': ("-0.0", '{"a":[NaN,-Infinity,1e999,1.5],"b":1}'),
        '"-0.00"': ("NaN", "NaN"),  # the same key, so that this one counts
        '"1.50"': ('"NaN"', '["NaN"]'),
        '"1.5"': ("1e999", "[[1e999]]"),
        '"2"': ("-0", "-1e999"),
    }
    records = [
        Record(offset, 0, f'{{"cost":{cost}}}'.encode(), _envelope(cost, share, more), ())
        for offset, (cost, (share, more)) in enumerate(said.items())
    ]
    one = Applied(store, declared)
    one.apply({change.key: change.after for change in changes_of(declared, AT, records)})
    found = [(str(each["cost"]), repr(each["share"]), each["more"]) for each in pages(store)]
    assert [(cost, share, more) for cost, share, more in found if Decimal(cost) != Decimal("1.5")] == [
        (found[0][0], "nan", "NaN"),
        ("2", "0.0", "-Infinity"),
    ]
    assert not found[0][0].startswith("-") and found[1][1:] == ("inf", [["Infinity"]])
    for where, costs in (("share = 0", [2]), ("share = 'NaN'", [0]), ("share > 'Infinity'", [0]), ("cost = 0", [0])):
        assert [each["cost"] for each in store.read(Ask(where=parse(where))).rows] == costs, where


def _envelope(cost: str, share: str, more: str) -> bytes:
    return f'{{"before":null,"after":{{"cost":{cost},"share":{share},"more":{more}}},"op":"u"}}'.encode()


@proves("P3")
@pytest.mark.parametrize("kind_of_value", OF_A_KEY)
def test_a_value_of_a_key_is_itself_and_in_its_order(store: Store, kind_of_value: str) -> None:
    declared = declare({"key": kind_of_value, "number": "long"}, ("key",))
    one = Applied(store, declared)
    values: list[Any] = [value for value in VALUES[kind_of_value] if not _is_long(value)]
    one.put(*({"key": value, "number": number} for number, value in enumerate(values)))
    assert [found["key"] for found in pages(store, limit=3)] == sorted(values)
    for number, value in enumerate(values):
        found, _ = store.get((value,))
        assert found is not None
        assert (found["key"], found["number"]) == (value, number)
    one.delete(*((value,) for value in values[::2]))
    assert [found["key"] for found in pages(store)] == sorted(values[1::2])


def _is_long(value: Value) -> bool:
    return isinstance(value, str | bytes) and len(value) > 1000  # longer keys than an index of PostgreSQL takes


@proves("P3")
def test_a_decimal_of_a_key_is_one_number_however_it_is_written(store: Store) -> None:
    one = Applied(store, declare({"price": "decimal", "number": "long"}, ("price",)))
    one.put({"price": Decimal("1.50"), "number": 1})
    one.put({"price": Decimal("1.5"), "number": 2}, {"price": Decimal("1.51"), "number": 3})
    assert [(found["price"], found["number"]) for found in pages(store)] == [
        (Decimal("1.5"), 2),
        (Decimal("1.51"), 3),
    ]
    one.delete((Decimal("1.500"),))
    assert [found["number"] for found in pages(store)] == [3]


@proves("P3")
def test_keys_of_several_columns_that_look_alike_are_different(store: Store) -> None:
    one = Applied(store, declare({"left": "string", "right": "string", "number": "long"}, ("left", "right")))
    one.put(*({"left": left, "right": right, "number": number} for number, (left, right) in enumerate(PAIRS)))
    one.is_equal()
    one.delete(*PAIRS[::2])
    one.is_equal()


@proves("P3")
def test_a_key_may_be_the_whole_row(store: Store) -> None:
    one = Applied(store, declare({"left": "string", "right": "long"}, ("right", "left")))
    one.put({"right": 1, "left": "1"}, {"right": 1, "left": "01"}, {"right": -1, "left": "1"})
    one.put({"right": 1, "left": "1"})
    one.is_equal()
    one.delete((1, "1"))
    one.is_equal()


@proves("P3")
def test_a_text_and_a_number_are_different_columns_of_a_key(store: Store) -> None:
    one = Applied(store, declare({"text": "string", "number": "long", "is": "boolean"}, ("text", "number", "is")))
    one.put(
        *(
            {"text": text, "number": number, "is": it}
            for text in ("1", "0")
            for number in (0, 1)
            for it in (True, False)
        )
    )
    one.is_equal()
    one.delete(("1", 1, True))
    one.is_equal()


@proves("P3")
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_a_value_like_any_other(store: Store, attack: str) -> None:
    one = Applied(store, declare({"key": "string", "value": "string", "json": "json"}, ("key",)))
    one.put({"key": "before", "value": "here", "json": None})
    one.put({"key": attack, "value": attack, "json": {attack: [attack]}})
    one.is_equal()
    found = store.read(Ask(where=Compare("=", Name("value"), Literal(attack))))
    assert [row["key"] for row in found.rows] == [attack]
    assert [row["key"] for row in store.read(Ask(after=(attack,))).rows] == [k for (k,) in one.rows if k > attack]  # type: ignore[operator]
    one.delete((attack,))
    one.is_equal()


@proves("P3")
@pytest.mark.parametrize(
    "names",
    [
        ('a"; DROP TABLE revenue; --', "b'"),
        ("select", "from"),
        ("100%", "%s"),
        ("a.b", "a b"),
        ("$1", "?"),
        ("{}", "[x]"),
        ("rowid", "oid"),
        ("key", "value"),
        ("generation", "view"),
        ("ends", "mark"),
        ("old", "new"),
        ("excluded", "left"),
        ("_id", "_version"),
        ("*", ":a"),
        ("日本語", "\U0001f375" * 20),
        ("x" * 63, "y" * 63),
        ("\\", "`"),
        ("..", "/"),
        ("ctid", "xmin"),
        ("rank", "match"),
    ],
)
def test_a_column_may_have_any_name(store: Store, names: tuple[str, str]) -> None:
    one = Applied(store, declare({names[0]: "string", names[1]: "string", "n": "long"}, (names[0],)))
    one.put({names[0]: "a", names[1]: "x", "n": 1}, {names[0]: "b", names[1]: None, "n": 2})
    one.put({names[0]: "b", names[1]: "y", "n": 3})
    one.is_equal()
    found = store.read(Ask(where=Compare("=", Name(names[1]), Literal("y")))).rows
    assert_same_rows(list(found), [one.rows[("b",)]])
    one.delete(("b",))
    one.is_equal()


@proves("P3")
@pytest.mark.story
def test_every_type_stands_beside_every_other(url: str, opened: Open) -> None:
    kinds = list(permutations(TYPES, 2))
    columns = {f"{left} beside {right}": left for left, right in kinds}
    declared: Declaration = declare({"id": "long", **columns}, ("id",))
    one = Applied(opened(url), declared)
    rows = [
        {"id": number} | {name: VALUES[kind][number % len(VALUES[kind])] for name, kind in columns.items()}
        for number in range(12)
    ]
    short = [{name: None if _size(kind, row[name]) else row[name] for name, kind in declared.columns} for row in rows]
    one.put(*short)
    one.store = opened(url)
    one.is_equal()


def _size(kind: str, value: Value) -> bool:
    return len(str(to_json(kind, value))) > 10_000
