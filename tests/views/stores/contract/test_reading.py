"""Rows by key, page by page, and by condition."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from proving import proves
from tidelog.errors import QueryTimedOut, UsageError
from tidelog.schema.declaration import Row, declare
from tidelog.schema.expression.checking import check
from tidelog.schema.expression.evaluation import evaluate
from tidelog.schema.expression.parser import parse
from tidelog.views.stores.bounds import size_of
from tidelog.views.stores.scanning import SCAN_ROWS
from tidelog.views.stores.store import PAGE_ROWS, PAGE_ROWS_MAX, Ask, Store
from views.stores.applied import Applied, assert_same_rows, pages, row
from views.stores.kinds import Kind

GOODS = declare(
    {
        "name": "string",
        "size": "long",
        "price": "decimal",
        "weight": "double",
        "since": "date",
        "at": "timestamp",
        "fresh": "boolean",
        "code": "binary",
        "more": "json",
    },
    ("name", "size"),
)
CONDITIONS = [
    "size = 2",
    "size != 2",
    "2 < size",
    "size >= 1.5",
    "name = 'tea'",
    "name > 'Tea'",
    "name in ('tea', 'rum')",
    "not name in ('tea', 'rum')",
    "name like 't%'",
    "name like '%E%'",
    "name like 't_a'",
    "name like '100\\%'",
    "not name like '%a%'",
    "price < 10",
    "price = 9.9",
    "price >= '9.90'",
    "price > -1000000000000000000000000000000",
    "weight > 1",
    "weight = 'NaN'",
    "weight < 'Infinity'",
    "weight is null",
    "not weight is null",
    "since < '2026-01-01'",
    "at >= '2026-01-31T00:00:00Z'",
    "at = '2026-01-31T01:00:00+01:00'",
    "fresh",
    "not fresh",
    "fresh = false",
    "fresh is null",
    "code = 'AAE='",
    "more is null",
    "size > weight",
    "true",
    "false",
    "size = null",
    "not (size = 1 or fresh) and price < 100",
    "(size = 1 or size = 2) and (name = 'tea' or name = 'rum')",
    "size = 1 or size = 2 and fresh",
]


def goods() -> list[Row]:
    prices = [Decimal("9.90"), Decimal("10"), Decimal("-3"), Decimal("9.9"), None, Decimal("9" * 30)]
    weights = [0.5, 1.5, float("nan"), float("inf"), None, -0.0, 2.0]
    times = [datetime(2026, 1, 31, tzinfo=UTC), datetime(2025, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), None]
    names = ["tea", "Tea", "TEA", "rum", "gin", "100%", "1000", "tèa", "t\na", "", "日本"]
    return [
        {
            "name": name,
            "size": size,
            "price": prices[(number + size) % len(prices)],
            "weight": weights[(number * 3 + size) % len(weights)],
            "since": [date(2025, 12, 31), date(2026, 1, 1), None][(number + size) % 3],
            "at": times[(number + size) % len(times)],
            "fresh": [True, False, None][(number + 2 * size) % 3],
            "code": [b"\x00\x01", b"", None][number % 3],
            "more": [{"a": 1}, None][number % 2],
        }
        for number, name in enumerate(names)
        for size in (1, 2, 3)
    ]


@proves("P3")
@pytest.mark.story
def test_rows_come_by_key(store: Store) -> None:
    one = Applied(store, GOODS)
    one.put(*goods())
    found, place = store.get(("tea", 2))
    assert found is not None
    assert_same_rows([found], [one.rows["tea", 2]])
    assert place == store.place(1)
    assert store.get(("tea", 9)) == (None, place)


@proves("P3")
def test_a_key_of_too_few_values_is_refused(store: Store) -> None:
    Applied(store, GOODS).put(*goods())
    with pytest.raises(UsageError):
        store.get(("tea",))
    with pytest.raises(UsageError):
        store.read(Ask(after=("tea",)))


@proves("P3")
@pytest.mark.parametrize("limit", [1, 2, 7, 33, 34])
def test_pages_go_through_all_rows_in_the_order_of_the_key(store: Store, limit: int) -> None:
    one = Applied(store, GOODS)
    one.put(*goods())
    expected = sorted(one.rows.values(), key=lambda good: (good["name"], good["size"]))
    assert_same_rows(list(pages(store, limit=limit)), expected)


@proves("P3")
@pytest.mark.story
def test_a_page_is_bounded(store: Store) -> None:
    one = Applied(store)
    one.put(*(row(f"{number:06}") for number in range(PAGE_ROWS_MAX + 5)))
    assert (len(store.read(Ask()).rows), store.read(Ask()).more) == (PAGE_ROWS, True)
    most = store.read(Ask(limit=10 * PAGE_ROWS_MAX))
    assert (len(most.rows), most.more) == (PAGE_ROWS_MAX, True)


@proves("P3")
def test_a_page_is_bounded_by_bytes_and_the_next_goes_on_behind_it(store: Store) -> None:
    one = Applied(store, declare({"id": "long", "text": "string", "more": "json"}, ("id",)))
    texts = [("x" * (20_000 if number % 40 == 7 else 100), ["y" * 50]) for number in range(400)]
    one.put(*({"id": number, "text": text, "more": more} for number, (text, more) in enumerate(texts)))
    ask, seen, counts = Ask(limit=1_000, max_bytes=8_000), list[Row](), list[int]()
    while True:
        page = store.read(ask)
        counts.append(len(page.rows))
        assert sum(map(size_of, page.rows)) <= 8_000 or len(page.rows) == 1
        seen += page.rows
        if not page.more:
            break
        ask = ask._replace(after=page.last)
    assert_same_rows(seen, list(one.rows.values()))
    assert max(counts) < 60 and 1 in counts, "many rows that are small, and one that is larger than a page"


@proves("P3")
def test_a_page_whose_time_is_over_says_so_or_where_to_go_on(store: Store, kind: Kind) -> None:
    one = Applied(store)
    one.put(*(row(f"{number:06}", 1.0, number) for number in range(3 * SCAN_ROWS)))
    where = parse(f"orders = 0 or orders >= {3 * SCAN_ROWS - 2}")
    ask, seen, pages_read = Ask(where=where, within_s=0), list[Row](), 0
    try:
        while (page := store.read(ask)).more:
            seen += page.rows
            assert page.last is not None and (ask.after is None or page.last > ask.after)
            ask, pages_read = ask._replace(after=page.last), pages_read + 1
    except QueryTimedOut as error:
        assert "did not answer the query in its time" in str(error)
        return
    assert [found["orders"] for found in [*seen, *page.rows]] == [0, 3 * SCAN_ROWS - 2, 3 * SCAN_ROWS - 1]
    assert pages_read >= 2 or kind.name == "postgres", "not all was looked through for one page"


@proves("P3")
def test_paging_goes_on_from_a_key_that_is_gone(store: Store) -> None:
    one = Applied(store)
    one.put(*(row(name) for name in "abcdef"))
    first = store.read(Ask(limit=2))
    assert [found["product"] for found in first.rows] == ["a", "b"]
    one.delete(("b",), ("c",))
    one.put(row("aa"))
    assert [found["product"] for found in store.read(Ask(limit=2, after=("b",))).rows] == ["d", "e"]


@proves("P3")
@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_means_in_a_store_what_it_means_everywhere(store: Store, text: str) -> None:
    one = Applied(store, GOODS)
    one.put(*goods())
    where = parse(text)
    meant = check(where, GOODS.columns)
    expected = sorted(
        (good for good in one.rows.values() if evaluate(meant, good) is True),
        key=lambda good: (good["name"], good["size"]),
    )
    assert_same_rows(list(store.read(Ask(where=where)).rows), expected)
    assert_same_rows(list(pages(store, Ask(where=where), limit=4)), expected)


@proves("P3")
def test_some_conditions_are_met_by_some_rows_and_not_by_others() -> None:
    """So that the test above compares something."""
    met = [sum(evaluate(check(parse(text), GOODS.columns), good) is True for good in goods()) for text in CONDITIONS]
    assert sum(0 < number < len(goods()) for number in met) > len(CONDITIONS) * 3 // 4


@proves("P3")
@pytest.mark.parametrize("text", ["nothing = 1", "size = 'a'", "more = 1", "name > 3"])
def test_a_condition_that_means_nothing_is_refused(store: Store, text: str) -> None:
    Applied(store, GOODS).put(*goods())
    with pytest.raises(UsageError):
        store.read(Ask(where=parse(text)))


@proves("P3")
def test_a_condition_is_of_the_generation_that_is_shown(store: Store) -> None:
    old = Applied(store, GOODS, generation=1)
    old.put(*goods())
    new = Applied(store, declare({"name": "string", "colour": "string"}, ("name",)), generation=2)
    new.put({"name": "tea", "colour": "green"}, show=False)
    with pytest.raises(UsageError, match="colour"):
        store.read(Ask(where=parse("colour = 'green'")))
    new.put({"name": "rum", "colour": "brown"})
    assert [found["name"] for found in store.read(Ask(where=parse("colour = 'green'"))).rows] == ["tea"]
