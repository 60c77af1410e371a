"""What a Python user writes for one key where a library has no operator for it: state and event in, state and rows out.

Bytewax and Quix Streams share these. State is plain lists and dictionaries, since Quix keeps it as JSON. Events have
their `kind`. What each query answers: `oracle.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Event = dict[str, Any]
State = dict[str, Any]
Stepped = tuple[State, list[Event]]
WINDOW = 10_000
BID = ("auction", "bidder", "price", "dateTime")


def key_of(query: str) -> Callable[[Event], str]:
    names = {"q3": ("seller", "id"), "q8": ("seller", "id"), "q18": ("bidder", "auction")}
    if query == "q18":
        return lambda event: f"{event['bidder']},{event['auction']}"
    if query in names:
        return lambda event: str(event["seller"] if event["kind"] == "auction" else event["id"])
    return lambda event: str(event["auction"] if event["kind"] == "bid" else event["id"])


def picked(event: Event, names: tuple[str, ...]) -> Event:
    return {name: event[name] for name in names}


def is_wanted(query: str, event: Event) -> bool:
    if query != "q3":
        return True
    return event["category"] == 10 if event["kind"] == "auction" else event["state"] in ("OR", "ID", "CA")


def sellers(state: State | None, event: Event) -> Stepped:
    state = state or {"person": None, "auctions": []}
    if event["kind"] == "auction":
        if state["person"] is None:
            state["auctions"].append(event["id"])
            return state, []
        return state, [{"id": event["id"], **state["person"]}]
    state["person"] = picked(event, ("name", "city", "state"))
    found = [{"id": auction, **state["person"]} for auction in state["auctions"]]
    state["auctions"] = []
    return state, found


def newcomers(state: State | None, event: Event) -> Stepped:
    state = state or {"person": None, "opened": []}
    start = event["dateTime"] - event["dateTime"] % WINDOW
    if event["kind"] == "person":
        state["person"] = [event["id"], event["name"], start]
        is_new = start in state["opened"]
    else:
        is_new = state["person"] is not None and state["person"][2] == start and start not in state["opened"]
        if start not in state["opened"]:
            state["opened"].append(start)
    if not is_new:
        return state, []
    number, name, start = state["person"]
    return state, [{"id": number, "name": name, "start": start}]


def winning(state: State | None, event: Event) -> Stepped:
    state = state or {"auction": None, "waiting": [], "best": None}
    if event["kind"] == "auction":
        state["auction"] = picked(event, ("category", "dateTime", "expires"))
        bids, state["waiting"] = state["waiting"], []
    elif state["auction"] is None:
        state["waiting"].append(picked(event, BID))
        return state, []
    else:
        bids = [event]
    before = state["best"]
    for bid in bids:
        _take_if_best(state, bid)
    return state, [] if state["best"] == before else [dict(state["best"])]


def _take_if_best(state: State, bid: Event) -> None:
    auction, best = state["auction"], state["best"]
    if not auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
        return
    if best is None or (bid["price"], -bid["dateTime"]) > (best["price"], -best["dateTime"]):
        state["best"] = {**picked(bid, BID), "category": auction["category"]}


def final_prices(state: State | None, event: Event) -> Stepped:
    """What a better bid changes in the average of its category."""
    state = state or {"price": None, "winning": None}
    state["winning"], found = winning(state["winning"], event)
    if not found:
        return state, []
    before, now = state["price"], found[-1]["price"]
    state["price"] = now
    change = {"category": found[-1]["category"], "more": now - (before or 0), "count": 1 if before is None else 0}
    return state, [change]


def averages(state: State | None, change: Event) -> Stepped:
    state = state or {"total": 0, "n": 0}
    state = {"total": state["total"] + change["more"], "n": state["n"] + change["count"]}
    return state, [{"category": change["category"], "average": state["total"] / state["n"]}]


def newest(state: State | None, event: Event) -> Stepped:
    if state is not None and state["at"] > event["dateTime"]:
        return state, []
    return {"at": event["dateTime"]}, [picked(event, BID)]


def with_auction(state: State | None, event: Event) -> Stepped:
    """Auctions of other categories are kept too: else their bids would wait for ever."""
    state = state or {"auction": None, "waiting": []}
    if event["kind"] == "auction":
        state["auction"] = picked(event, ("itemName", "seller", "expires", "category"))
        bids, state["waiting"] = state["waiting"], []
    elif state["auction"] is None:
        state["waiting"].append(picked(event, BID))
        return state, []
    else:
        bids = [picked(event, BID)]
    if state["auction"]["category"] != 10:
        return state, []
    return state, [{**bid, **state["auction"]} for bid in bids]


STEPS: dict[str, Callable[[State | None, Event], Stepped]] = {
    "q3": sellers,
    "q4": final_prices,
    "q8": newcomers,
    "q9": winning,
    "q18": newest,
    "q20": with_auction,
}
