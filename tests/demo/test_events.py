"""The shop's events: given by a seed, in order, with bursts, late orders and never a sale of what is not there."""

from __future__ import annotations

import json
from itertools import islice, takewhile

import pytest

from proving import proves
from tidelog.demo.events import BURST_TIMES, LATE_MAX_S, PRICES, ShopEvent, events
from tidelog.demo.shop import DELIVERIES, ORDERS

BEGAN_MS = 1_790_000_000_000
RATE = 50.0


def first(count: int, seed: int = 1, number: int = 0) -> list[ShopEvent]:
    return list(islice(events(seed, RATE, number=number), count))


@proves("demo")
def test_equal_seeds_give_equal_bytes_and_others_do_not() -> None:
    def said(found: list[ShopEvent]) -> list[tuple[bytes, bytes, int]]:
        return [(one.key, one.value(BEGAN_MS), one.timestamp_ms(BEGAN_MS)) for one in found]

    assert said(first(500)) == said(first(500))
    assert said(first(500)) != said(first(500, seed=2))


@proves("demo")
def test_what_comes_after_earlier_runs_is_something_else_and_has_ids_of_its_own() -> None:
    before, after = first(300), first(300, number=300)
    assert [one.id for one in before + after] == list(range(600))
    assert [one.product for one in before] != [one.product for one in after]


@proves("demo")
def test_events_come_in_order_at_about_their_rate_with_bursts_in_between() -> None:
    found = list(takewhile(lambda one: one.after_s < 300, events(1, RATE)))
    assert found == sorted(found, key=lambda one: one.after_s)
    counts = [0] * 300
    for one in found:
        counts[int(one.after_s)] += 1
    assert RATE < len(found) / 300 < RATE * BURST_TIMES
    assert max(counts) > 2.5 * sorted(counts)[150] > RATE


@proves("demo")
def test_nothing_is_sold_that_is_not_there_in_no_run() -> None:
    left = dict.fromkeys(PRICES, 0)
    for number in (0, 5000):
        for one in first(5000, number=number):
            left[one.product] += one.quantity if one.topic == DELIVERIES else -one.quantity
            assert left[one.product] >= 0


@proves("demo")
@pytest.mark.parametrize("late", [True, False])
def test_some_orders_happened_before_they_are_sent(late: bool) -> None:
    orders = [one for one in first(2000) if one.topic == ORDERS and (one.late_s > 0) is late]
    assert len(orders) > 50
    assert all(0 <= one.late_s <= LATE_MAX_S for one in orders)
    said = json.loads(ShopEvent(2.0, ORDERS, 7, "tea", 2, 900, 1.5).value(0))
    assert said == {"id": 7, "product": "tea", "quantity": 2, "cents": 900, "at": "1970-01-01T00:00:00.500Z"}
