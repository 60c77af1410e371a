"""The input of the benchmarks of pipelines, and the answers that sides are held to."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from proving import proves

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.pipelines import nexmark, oracle
from bench.pipelines.checking import difference, parsed
from bench.pipelines.sides.steps import STEPS, averages, is_wanted, key_of

EVENTS = nexmark.Events(30_000)


@proves("P2")
def test_the_same_events_come_again_and_have_their_shares() -> None:
    counts = {kind: len(EVENTS.of(kind)) for kind in nexmark.KINDS}
    assert counts == {"person": 600, "auction": 1800, "bid": 27_600}
    assert counts == {kind: EVENTS.rows_of(kind) for kind in nexmark.KINDS}
    assert EVENTS.bids() == nexmark.Events(30_000).bids()
    times = [time for kind in nexmark.KINDS for time in EVENTS.of(kind)["dateTime"].to_pylist()]
    assert sorted(times) == list(range(nexmark.START, nexmark.START + 30_000))


@proves("P2")
def test_bids_find_their_auctions_and_auctions_their_sellers() -> None:
    auctions, people = set(EVENTS.auctions()["id"].to_pylist()), set(EVENTS.people()["id"].to_pylist())
    bids = EVENTS.bids()
    without = [auction for auction in bids["auction"].to_pylist() if auction not in auctions]
    assert max(without, default=0) <= max(auctions) + nexmark.LEAD
    assert len(without) < len(bids) / 100
    assert sum(seller in people for seller in EVENTS.auctions()["seller"].to_pylist()) > 1750


@proves("P2")
@pytest.mark.parametrize("kind", nexmark.KINDS)
def test_values_are_json_with_every_column(kind: str) -> None:
    rows = EVENTS.of(kind).slice(0, 200)
    assert [json.loads(value) for value in nexmark.to_json(rows).to_pylist()] == rows.to_pylist()
    closing = json.loads(nexmark.to_json(EVENTS.closing(kind)).to_pylist()[0])
    assert list(closing) == rows.column_names
    assert closing["dateTime"] > EVENTS.end


@proves("P2")
def test_partitions_have_all_rows_once_and_reach_the_same_time() -> None:
    bids = EVENTS.bids()
    halves = [nexmark.partition(bids, number) for number in range(nexmark.PARTITIONS)]
    assert pa.concat_tables(halves).sort_by("dateTime") == bids.combine_chunks()
    assert abs(halves[0]["dateTime"][-1].as_py() - halves[1]["dateTime"][-1].as_py()) < 10


@proves("P2")
@pytest.mark.parametrize("query", oracle.READS)
def test_answers_are_those_of_a_loop_over_all_rows(query: str) -> None:
    inputs = [EVENTS.of(kind).to_pylist() for kind in oracle.READS[query]]
    by_loop = sorted(SLOWLY[query](*inputs), key=repr)
    found = sorted(oracle.answer(query, EVENTS).to_pylist(), key=lambda row: repr(_by_name(row)))
    assert [_by_name(row) for row in found] == by_loop
    assert found


def _by_name(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in sorted(row.items())}


@proves("P2")
def test_what_a_side_wrote_is_compared_row_by_row() -> None:
    answer = oracle.answer("q18", EVENTS)
    right = [json.dumps(row).encode() for row in answer.to_pylist()]
    older = json.dumps(answer.to_pylist()[0] | {"price": 1}).encode()
    closing = json.dumps({"auction": -1, "bidder": -1, "price": -1, "dateTime": 0}).encode()
    keys = oracle.KEYS["q18"]
    assert difference(parsed([older, *right, closing], answer.schema), answer, keys) is None
    assert difference(parsed([*right, older], answer.schema), answer, keys)
    assert difference(parsed(right[1:], answer.schema), answer, keys)
    assert difference(parsed([*right, older], answer.schema), answer, ())


@proves("P2")
@pytest.mark.parametrize("query", STEPS)
def test_steps_of_single_keys_lead_to_the_answer_in_any_order_of_topics(query: str) -> None:
    answer, keys = oracle.answer(query, EVENTS), oracle.KEYS.get(query, ())
    inputs = [[{**row, "kind": kind} for row in EVENTS.of(kind).to_pylist()] for kind in oracle.READS[query]]
    one, other = list(chain(*inputs)), list(chain(*reversed(inputs)))
    for events in (one, other, sorted(one, key=lambda row: row["dateTime"])):
        found = list(_stepped(query, events))
        values = [json.dumps(row).encode() for row in found]
        assert difference(parsed(values, answer.schema), answer, keys) is None


def _stepped(query: str, events: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    states: dict[str, Any] = {}
    categories: dict[int, Any] = {}
    for event in events:
        if not is_wanted(query, event):
            continue
        key = key_of(query)(event)
        states[key], found = STEPS[query](states.get(key), event)
        if query != "q4":
            yield from found
            continue
        for change in found:
            categories[change["category"]], rows = averages(categories.get(change["category"]), change)
            yield from rows


Rows = list[dict[str, Any]]


def _bid(bid: dict[str, Any], **more: Any) -> dict[str, Any]:
    return _by_name({name: bid[name] for name in oracle.BID_COLUMNS} | more)


def _slow_q3(auctions: Rows, people: Rows) -> Iterable[dict[str, Any]]:
    known = {person["id"]: person for person in people if person["state"] in ("OR", "ID", "CA")}
    for auction in auctions:
        if auction["category"] == 10 and (person := known.get(auction["seller"])):
            yield _by_name({"id": auction["id"]} | {name: person[name] for name in ("name", "city", "state")})


def _slow_q9(auctions: Rows, bids: Rows) -> Iterable[dict[str, Any]]:
    best: dict[int, dict[str, Any]] = {}
    opened = {auction["id"]: auction for auction in auctions}
    for bid in bids:
        auction = opened.get(bid["auction"])
        if auction and auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
            held = best.get(bid["auction"])
            if held is None or bid["price"] > held["price"]:
                best[bid["auction"]] = _bid(bid, category=auction["category"])
    return best.values()


def _slow_q4(auctions: Rows, bids: Rows) -> Iterable[dict[str, Any]]:
    prices = defaultdict(list)
    for bid in _slow_q9(auctions, bids):
        prices[bid["category"]].append(bid["price"])
    for category, found in prices.items():
        yield _by_name({"category": category, "average": sum(found) / len(found)})


def _slow_q5(bids: Rows) -> Iterable[dict[str, Any]]:
    counts: Counter[tuple[int, int]] = Counter()
    for bid in bids:
        start = bid["dateTime"] // 2000 * 2000
        counts.update((start - back * 2000, bid["auction"]) for back in range(5))
    most: dict[int, int] = defaultdict(int)
    for (start, _), count in counts.items():
        most[start] = max(most[start], count)
    for (start, auction), count in counts.items():
        if count == most[start]:
            yield _by_name({"start": start, "auction": auction, "n": count})


def _slow_q7(bids: Rows) -> Iterable[dict[str, Any]]:
    best: dict[int, dict[str, Any]] = {}
    for bid in bids:
        start = bid["dateTime"] // 10_000 * 10_000
        if start not in best or bid["price"] > best[start]["price"]:
            best[start] = _bid(bid, start=start)
    return best.values()


def _slow_q8(auctions: Rows, people: Rows) -> Iterable[dict[str, Any]]:
    opened = {(auction["seller"], auction["dateTime"] // 10_000) for auction in auctions}
    for person in people:
        if (person["id"], person["dateTime"] // 10_000) in opened:
            start = person["dateTime"] // 10_000 * 10_000
            yield _by_name({"id": person["id"], "name": person["name"], "start": start})


def _slow_q11(bids: Rows) -> Iterable[dict[str, Any]]:
    sessions: dict[int, list[list[int]]] = defaultdict(list)
    for bid in bids:
        of_bidder = sessions[bid["bidder"]]
        if of_bidder and bid["dateTime"] - of_bidder[-1][-1] <= 10_000:
            of_bidder[-1].append(bid["dateTime"])
        else:
            of_bidder.append([bid["dateTime"]])
    for bidder, found in sessions.items():
        yield from (_by_name({"bidder": bidder, "start": times[0], "n": len(times)}) for times in found)


def _slow_q18(bids: Rows) -> Iterable[dict[str, Any]]:
    return {(bid["bidder"], bid["auction"]): _bid(bid) for bid in bids}.values()


def _slow_q20(auctions: Rows, bids: Rows) -> Iterable[dict[str, Any]]:
    wanted = {auction["id"]: auction for auction in auctions if auction["category"] == 10}
    for bid in bids:
        if auction := wanted.get(bid["auction"]):
            yield _bid(bid, **{name: auction[name] for name in ("itemName", "seller", "expires")})


SLOWLY: dict[str, Any] = {
    "q0": lambda bids: [_bid(bid) for bid in bids],
    "q3": _slow_q3,
    "q4": _slow_q4,
    "q5": _slow_q5,
    "q7": _slow_q7,
    "q8": _slow_q8,
    "q9": _slow_q9,
    "q11": _slow_q11,
    "q18": _slow_q18,
    "q20": _slow_q20,
}
