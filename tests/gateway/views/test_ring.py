"""The ring: whoever joins anywhere, from whatever pieces he came by, gets the rest and nothing twice."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.control.catalog import Generation
from tidelog.errors import UsageError
from tidelog.gateway.views import rendering
from tidelog.gateway.views import ring as ring_module
from tidelog.gateway.views.ring import Ring
from tidelog.gateway.views.slot import Slot
from tidelog.gateway.views.subscriber import Subscriber
from tidelog.schema.declaration import Row, declare, row_to_json
from tidelog.views.changes import Change
from tidelog.views.feeds import Cursor, from_text

DECLARED = declare({"id": "string"}, ("id",))
PARTITIONS = 3
NOWHERE = Cursor("v", 1, (0,) * PARTITIONS)

Ends = tuple[int, ...]


def pieces(cuts: list[Ends]) -> list[Slot]:
    """One for each way from a place to the next, with all that lies between."""
    made, at = [], NOWHERE
    for cut in cuts:
        end = at._replace(offsets=tuple(map(max, at.offsets, cut)))
        changes = [
            Change((f"{index}-{offset}",), {"id": f"{index}-{offset}"}, None, TopicPartition("v.v1", index), offset, 0)
            for index in range(PARTITIONS)
            for offset in range(at.offsets[index], end.offsets[index])
        ]
        if changes:
            made.append(Slot(at, end, DECLARED, changes))
            made[-1].render([None])
        at = end
    return made


def keys_and_places(told: bytes) -> list[tuple[str, Cursor]]:
    blocks = [dict(line.split(": ", 1) for line in block.split("\n")) for block in told.decode().split("\n\n")[:-1]]
    return [(json.loads(block["data"])["key"]["id"], from_text(block["id"], "v")) for block in blocks]


CUTS = st.lists(st.tuples(*[st.integers(0, 6)] * PARTITIONS), max_size=6).map(lambda cuts: [*cuts, (6,) * PARTITIONS])


@proves("D7", "eo.15")
@given(CUTS, CUTS, st.integers(0, 18), st.integers(0, 18), st.integers(0, 6))
def test_who_came_by_other_pieces_gets_the_rest_once(
    ring_cuts: list[Ends], own_cuts: list[Ends], had: int, cut_again: int, gone: int
) -> None:
    """He has had some by his own pieces, joins, is cut off within a chunk, and joins by the last place that he saw."""
    mine = [one for slot in pieces(own_cuts) for one in keys_and_places(slot.bytes_of(None))][:had]
    ring = Ring(NOWHERE)
    for slot in pieces(ring_cuts):
        ring.add(slot)
    for _ in range(min(gone, len(ring._slots) - 1)):
        ring._slots.popleft()
        ring._first += 1
    for _ in range(2):
        cursor = mine[-1][1] if mine else NOWHERE
        number = ring.place_of(cursor)
        if number is None:
            assert gone, "all of it is in the ring"
            return
        came = []
        for slot in ring.since(number) or []:
            told, after = slot.told(cursor, None)
            assert after.reaches(cursor.offsets), "nobody goes back"
            came += keys_and_places(told)
            cursor = after
        mine += came[:cut_again] if _ == 0 else came
    names = [name for name, _ in mine]
    assert sorted(names) == sorted(f"{index}-{offset}" for index in range(PARTITIONS) for offset in range(6))
    for index in range(PARTITIONS):
        assert [name for name in names if name.startswith(f"{index}-")] == [f"{index}-{one}" for one in range(6)]


@proves("D7", "hostile")
def test_a_ring_keeps_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "RING_CHANGES", 5)
    ring = Ring(NOWHERE)
    for slot in pieces([(number, number, number) for number in range(1, 30)]):
        ring.add(slot)
    assert len(ring._slots) == 1 and ring._bytes == ring._slots[0].size
    assert ring.place_of(NOWHERE) is None and ring.since(0) is None
    assert ring.place_of(ring.position) == 29 and ring.since(29) == []


@proves("D7", "eo.26")
def test_an_expression_of_a_new_column_passes_what_the_ring_has_from_before_it() -> None:
    ring, grown = Ring(NOWHERE), declare({"id": "string", "note": "string"}, ("id",))
    for slot in pieces([(1, 0, 0), (2, 0, 0)]):
        ring.add(slot)

    def told(where: str, number: int) -> list[str]:
        feed, live = cast("Any", SimpleNamespace(begun=lambda: ring)), Generation(number, "v.v1", "s", "f", 3, grown)
        one = Subscriber(feed, cast("Any", None), cast("Any", None), NOWHERE, where, live=live)
        one._number = ring.place_of(NOWHERE)
        lines = one._all_told(ring.since(0) or []).decode().splitlines()
        data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
        return [found["row"]["id"] for found in data if "row" in found]

    assert told("note = 'x'", 1) == []
    assert told("note is null and id = '0-1'", 1) == ["0-1"]
    with pytest.raises(UsageError, match="note"):
        told("note = 'x'", 2)


@proves("D7", "eo.15")
def test_an_event_has_the_row_as_a_query_gives_it_also_half_a_surrogate_pair() -> None:
    declared = declare({"id": "string", "said": "json"}, ("id",))
    row: Row = {"id": "ü", "said": {"half \ud800": ["\u2028", "日本"]}}
    change = Change(("ü",), row, None, TopicPartition("v.v1", 0), 0, 0, "c")
    told = rendering.changes(declared, NOWHERE, [change], None).decode()
    (data,) = [line.removeprefix("data: ") for line in told.split("\n") if line.startswith("data: ")]
    assert json.loads(data) == {"key": {"id": "ü"}, "row": row_to_json(declared, row)}
