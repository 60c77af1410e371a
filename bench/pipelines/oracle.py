"""What Nexmark's queries must answer, from the whole input at once, by numpy and pyarrow. Pure.

    q0    every bid
    q3    auctions of category 10 with their sellers, where these live in OR, ID or CA
    q4    by category: the average over its auctions of the highest bid while the auction was open
    q5    by window of 10 s every 2 s: the auctions with the most bids
    q7    by window of 10 s: the highest bid
    q8    by window of 10 s: people who came and opened an auction in the same one
    q9    by auction: the highest bid while it was open, the first of those
    q11   by bidder and session (a gap of more than 10 s ends one): how many bids
    q18   by bidder and auction: the last bid
    q20   bids with their auctions, of category 10

An answer is a table with one row for each that must come out. Where `KEYS` has columns for a query, its result changes
while input comes: then rows are compared by those columns, the last of each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from bench.pipelines.nexmark import AUCTION, BID, PERSON, Events, Numbers

WINDOW, SLIDE, GAP = 10_000, 2_000, 10_000  # ms
CATEGORY = 10
HOME_STATES = ("OR", "ID", "CA")

READS: dict[str, tuple[str, ...]] = {
    "q0": (BID,),
    "q3": (AUCTION, PERSON),
    "q4": (AUCTION, BID),
    "q5": (BID,),
    "q7": (BID,),
    "q8": (AUCTION, PERSON),
    "q9": (AUCTION, BID),
    "q11": (BID,),
    "q18": (BID,),
    "q20": (AUCTION, BID),
}
KEYS: dict[str, tuple[str, ...]] = {"q4": ("category",), "q9": ("auction",), "q18": ("bidder", "auction")}

BID_COLUMNS = ["auction", "bidder", "price", "dateTime"]


def answer(query: str, events: Events) -> pa.Table:
    return ANSWERS[query](*(events.of(kind) for kind in READS[query]))


def q0(bids: pa.Table) -> pa.Table:
    return bids.select(BID_COLUMNS)


def q3(auctions: pa.Table, people: pa.Table) -> pa.Table:
    at_home = people.filter(pc.is_in(people["state"], value_set=pa.array(HOME_STATES)))
    wanted = auctions.filter(pc.equal(auctions["category"], CATEGORY)).select(["id", "seller"])
    sellers = at_home.select(["id", "name", "city", "state"]).rename_columns(["seller", "name", "city", "state"])
    return wanted.join(sellers, "seller", join_type="inner").select(["id", "name", "city", "state"])


def winning(auctions: pa.Table, bids: pa.Table) -> pa.Table:
    """Of bids while their auction was open, the highest, and of those the first; with the auction's category."""
    opened = auctions.select(["id", "category", "dateTime", "expires"]).rename_columns(
        ["auction", "category", "opened", "expires"]
    )
    both = bids.select(BID_COLUMNS).join(opened, "auction", join_type="inner")
    in_time = pc.and_(
        pc.greater_equal(both["dateTime"], both["opened"]), pc.less_equal(both["dateTime"], both["expires"])
    )
    sort = [("auction", "ascending"), ("price", "descending"), ("dateTime", "ascending")]
    best = both.filter(in_time).sort_by(sort)
    return best.take(pa.array(firsts(column(best, "auction")))).select([*BID_COLUMNS, "category"])


def q4(auctions: pa.Table, bids: pa.Table) -> pa.Table:
    best = winning(auctions, bids)
    categories, places = np.unique(column(best, "category"), return_inverse=True)
    sums = np.bincount(places, weights=column(best, "price").astype(np.float64))
    return pa.table({"category": categories, "average": sums / np.bincount(places)})


def q5(bids: pa.Table) -> pa.Table:
    times, auctions = column(bids, "dateTime"), column(bids, "auction")
    last_start = times - times % SLIDE
    pairs = np.concatenate([np.stack([last_start - back, auctions]) for back in range(0, WINDOW, SLIDE)], axis=1)
    found, counts = np.unique(pairs, axis=1, return_counts=True)
    windows, places = np.unique(found[0], return_inverse=True)
    most = np.zeros(len(windows), np.int64)
    np.maximum.at(most, places, counts)
    chosen = counts == most[places]
    return pa.table({"start": found[0][chosen], "auction": found[1][chosen], "n": counts[chosen]})


def q7(bids: pa.Table) -> pa.Table:
    starts = window_starts(column(bids, "dateTime"))
    _, places = np.unique(starts, return_inverse=True)
    price = column(bids, "price")
    most = np.zeros(places.max() + 1, np.int64)
    np.maximum.at(most, places, price)
    chosen = np.flatnonzero(price == most[places])
    if len(chosen) != len(most):
        raise ValueError("two bids of a window are the highest; take another seed, so that the answer is one")
    best = bids.select(BID_COLUMNS).take(pa.array(chosen))
    return best.append_column("start", pa.array(starts[chosen]))


def q8(auctions: pa.Table, people: pa.Table) -> pa.Table:
    opened = pa.table({"id": auctions["seller"], "start": window_starts(column(auctions, "dateTime"))})
    came = people.select(["id", "name"]).append_column("start", pa.array(window_starts(column(people, "dateTime"))))
    return came.join(opened.group_by(["id", "start"]).aggregate([]), ["id", "start"], join_type="left semi")


def q9(auctions: pa.Table, bids: pa.Table) -> pa.Table:
    return winning(auctions, bids)


def q11(bids: pa.Table) -> pa.Table:
    bidders, times = column(bids, "bidder"), column(bids, "dateTime")
    order = np.lexsort((times, bidders))
    bidders, times = bidders[order], times[order]
    begins = np.flatnonzero(np.concatenate([[True], (bidders[1:] != bidders[:-1]) | (times[1:] - times[:-1] > GAP)]))
    counts = np.diff(np.append(begins, len(times)))
    return pa.table({"bidder": bidders[begins], "start": times[begins], "n": counts})


def q18(bids: pa.Table) -> pa.Table:
    newest = bids.select(BID_COLUMNS).sort_by(
        [("bidder", "ascending"), ("auction", "ascending"), ("dateTime", "descending")]
    )
    codes = np.stack([column(newest, "bidder"), column(newest, "auction")])
    is_first = np.concatenate([[True], (codes[:, 1:] != codes[:, :-1]).any(axis=0)])
    return newest.filter(pa.array(is_first))


def q20(auctions: pa.Table, bids: pa.Table) -> pa.Table:
    wanted = auctions.filter(pc.equal(auctions["category"], CATEGORY))
    wanted = wanted.select(["id", "itemName", "seller", "expires"]).rename_columns(
        ["auction", "itemName", "seller", "expires"]
    )
    return bids.select(BID_COLUMNS).join(wanted, "auction", join_type="inner")


ANSWERS: dict[str, Callable[..., pa.Table]] = {
    "q0": q0,
    "q3": q3,
    "q4": q4,
    "q5": q5,
    "q7": q7,
    "q8": q8,
    "q9": q9,
    "q11": q11,
    "q18": q18,
    "q20": q20,
}


def column(rows: pa.Table, name: str) -> Numbers:
    found: Numbers = rows[name].to_numpy()
    return found


def firsts(values: Numbers) -> npt.NDArray[np.intp]:
    """Where a run of equal values begins."""
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])) if len(values) else np.zeros(0, np.intp)


def window_starts(times: Numbers) -> Numbers:
    return times - times % WINDOW
