"""A window against an oracle that a page can hold: a state, a count and a hold for every single offset.

- Whatever is acquired, acknowledged, released, parked or runs out, in any order, each record is as the oracle says.
- Nobody is given what another has, what is done, or what is not due.
- A restart, from what the window keeps, is the oracle without its holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker.queues.state import Queue, Queues, apply, to_records
from tidelog.broker.queues.window import ACKNOWLEDGED, ARCHIVED, ARCHIVING, AVAILABLE, LOCKED, PARKED, Hold, QueueWindow
from tries import tries

TOP = 24
PLACE = (b"0" * 16, 0)


@dataclass(frozen=True)
class One:
    state: int = AVAILABLE
    count: int = 0
    hold: Hold | None = None


class Oracle:
    def __init__(self) -> None:
        self.records = [One() for _ in range(TOP)]
        self.floor = 0

    def put(self, first: int, last: int, one: One) -> None:
        for offset in range(max(first, self.floor), last + 1):
            self.records[offset] = one
        while self.floor < TOP and self.records[self.floor].state in (ACKNOWLEDGED, ARCHIVED):
            self.floor += 1

    def acquire(self, hold: Hold, first: int, top: int, most: int) -> list[int]:
        got = []
        for offset in range(max(first, self.floor), top):
            if len(got) < most and self.records[offset].state == AVAILABLE and self.records[offset].hold is None:
                self.records[offset] = replace(self.records[offset], hold=hold)
                got.append(offset)
        return got


def parked(oracle: Oracle, offset: int) -> bool:
    hold = oracle.records[offset].hold
    return hold is not None and hold.kind == PARKED


def agree(window: QueueWindow, oracle: Oracle) -> None:
    assert window.start == oracle.floor
    assert [span.first for span in window.spans] == [window.start, *(span.last + 1 for span in window.spans)][:-1]
    seen = {offset: span for span in window.spans for offset in range(span.first, span.last + 1)}
    for offset in range(oracle.floor, TOP):
        one = oracle.records[offset]
        if offset in seen:
            assert (seen[offset].state, seen[offset].count, seen[offset].hold) == (one.state, one.count, one.hold)
        else:
            assert offset >= window.end and one == One()
    free = [at for at in range(oracle.floor, TOP) if (oracle.records[at].state, oracle.records[at].hold) == (0, None)]
    assert window.next_free() == (free[0] if free else max(window.end, oracle.floor))
    assert window.free_below(TOP) == len(free)
    left = [
        at
        for at in range(oracle.floor, TOP)
        if oracle.records[at].state in (AVAILABLE, ARCHIVING) and not parked(oracle, at)
    ]
    assert window.left(TOP) == len(left)
    assert window.first_left() == min([*left, window.end])
    undone = [at for at in range(oracle.floor, TOP) if oracle.records[at].state in (AVAILABLE, ARCHIVING)]
    for first, top in ((window.start, window.end), (window.start + 1, TOP)):
        assert window.undone(first, top) == sum(first <= at < top for at in undone)
    tried = [at for at in undone if oracle.records[at].state == AVAILABLE and oracle.records[at].count]
    assert window.tried == len(tried)
    dying = [at for at in undone if oracle.records[at].state == ARCHIVING]
    assert [at for span in window.dying() for at in range(span.first, span.last + 1)] == dying
    mine = [at for at in undone if (hold := oracle.records[at].hold) is not None and hold[:2] == (LOCKED, "a")]
    assert [at for span in window.owned("a") for at in range(span.first, span.last + 1)] == mine
    held = [one.hold.kind for one in oracle.records[oracle.floor :] if one.hold is not None]
    assert (window.held[LOCKED], window.held[PARKED]) == (held.count(LOCKED), held.count(PARKED))
    until = [one.hold.until_ms for one in oracle.records[oracle.floor :] if one.hold is not None]
    assert window.next_deadline() == min(until, default=None)


SPANS = st.tuples(st.integers(0, TOP - 1), st.integers(0, TOP - 1)).map(lambda pair: (min(pair), max(pair)))
STEPS = st.one_of(
    st.tuples(st.just("acquire"), SPANS, st.sampled_from("ab"), st.integers(1, 8)),
    st.tuples(
        st.just("put"), SPANS, st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED, ARCHIVING]), st.integers(0, 3)
    ),
    st.tuples(st.just("park"), SPANS, st.just(""), st.integers(1, 5)),
    st.tuples(st.just("let_go"), SPANS, st.just(""), st.just(0)),
    st.tuples(st.just("due"), SPANS, st.just(""), st.integers(0, 200)),
    st.tuples(st.just("advance"), SPANS, st.just(""), st.just(0)),
    st.tuples(st.just("cut"), SPANS, st.just(""), st.just(0)),
    st.tuples(st.just("restart"), SPANS, st.just(""), st.just(0)),
)


@proves("T4")
@tries(50)
@given(st.lists(STEPS, max_size=40))
def test_a_window_is_what_an_oracle_of_single_records_says(steps: list[tuple[str, tuple[int, int], str, int]]) -> None:
    window, oracle = QueueWindow(0), Oracle()
    for clock, (step, (first, last), who, number) in enumerate(steps):
        if step == "acquire":
            hold = Hold(LOCKED, who, 100 + clock)
            got = window.acquire(who, first, last + 1, number, hold.until_ms)
            told = [offset for one in got for offset in range(one.first, one.last + 1)]
            counts = [one.deliveries for one in got for _ in range(one.first, one.last + 1)]
            assert told == oracle.acquire(hold, first, last + 1, number)
            assert counts == [oracle.records[offset].count + 1 for offset in told]
        elif step == "put":
            window.put(first, last, int(who), number)
            oracle.put(first, last, One(int(who), number))
        elif step == "park" and first >= oracle.floor:
            hold = Hold(PARKED, "", clock + number)
            window.hold_free(first, last, hold)
            oracle.acquire(hold, first, last + 1, TOP)
        elif step == "let_go" and first >= oracle.floor and last < window.end:
            window.hold_again(first, last, None)
            for offset in range(first, last + 1):
                oracle.records[offset] = replace(oracle.records[offset], hold=None)
        elif step == "due":
            for span in window.take_due(number):
                assert span.hold is not None and span.hold.until_ms <= number
                window.put(span.first, span.last, AVAILABLE, span.count + 1)
            for offset in range(oracle.floor, TOP):
                one = oracle.records[offset]
                if one.hold is not None and one.hold.until_ms <= number:
                    oracle.records[offset] = One(one.state, one.count + 1)
        elif step == "advance":
            window.advance_to(first)
            oracle.put(0, first - 1, One(ARCHIVED))
        elif step == "cut" and first < window.end:
            window.cut(first)
            oracle.floor = min(oracle.floor, first)
            oracle.records[first:] = [One()] * (TOP - first)
        elif step == "restart":
            window = restarted(window)
            oracle.records = [replace(one, hold=None) for one in oracle.records]
        agree(window, oracle)


def restarted(window: QueueWindow) -> QueueWindow:
    state = Queues({"g": 1}, {"g": {PLACE: Queue("jobs", window)}})
    again = Queues()
    for record in to_records(state):
        apply(again, record.key, record.value)
    assert again == state
    return again.queues["g"][PLACE].window
