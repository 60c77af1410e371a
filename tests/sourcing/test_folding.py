"""Random histories against a plain fold: decisions, snapshots at any place, entities beyond the bound, old versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from sourcing.seats import Cancel, Cancelled, Look, Reserve, Reserved, Seat, Swap, apply, decide, seats
from tidelog.errors import HistoryFault, Refused, UnknownEvent
from tidelog.record.columns import Row
from tidelog.sourcing import EventType
from tidelog.sourcing.deciding import Deciding
from tidelog.sourcing.entities import COMMANDS_EACH, ColdEntities, Entities
from tidelog.sourcing.entity import SKIP, Folding
from tidelog.sourcing.event_record import headers_of
from tidelog.sourcing.requests import DECIDE, Request

PEOPLE, ENTITIES = st.sampled_from("abc"), st.sampled_from(["A1", "A2", "é"])
COMMANDS = st.builds(Reserve, PEOPLE) | st.builds(Cancel, PEOPLE) | st.builds(Swap, PEOPLE, PEOPLE) | st.builds(Look)


def request(entity: str, command: Any, id: str) -> Request:
    name, value = seats().encode_command(command)
    return Request(DECIDE, entity, id, command=command, type=name, value=value)


class Partition:
    """A partition without a log: what would be written is kept as rows."""

    def __init__(self, folding: Folding, bound: int, folder: str) -> None:
        self.entities = Entities(folding, bound=bound, folder=folder)
        self.rows: list[Row] = []
        self._deciding = Deciding(folding, "seats", 0, largest=1_000_000, remembered=1_000)

    def send(self, *requests: Request) -> bool:
        try:
            after, outcomes = self._deciding.decide(self.entities.find, requests, 1000)
        except Refused:
            return False
        for one, outcome in zip(requests, outcomes, strict=True):
            if outcome.records and outcome.remembered is not None:
                for key, value, headers, timestamp in outcome.records:
                    self.rows.append(Row(len(self.rows), timestamp, key, value, list(headers)))
                outcome.remembered[3] = len(self.rows) - 1
                self.entities.keep(one.entity, after[one.entity])
        self.entities.trim()
        return True


def replay(folding: Folding, rows: list[Row], entities: Entities) -> None:
    for row in rows:
        record = folding.parse(row)
        assert record is not None
        entity = entities.find(record.entity)
        folding.apply(entity, record, row)
        entities.keep(record.entity, entity)
        entities.trim()


def known(entities: Entities) -> dict[str, Any]:
    found = {name: entities.find(name) for name in ("A1", "A2", "é")}
    return {name: (one.state, one.version, one.closed, one.commands) for name, one in found.items()}


@proves("E1", "E2", "E4", "es.10", "es.16")
@given(
    st.lists(st.lists(st.tuples(ENTITIES, COMMANDS), min_size=1, max_size=3), max_size=25), st.integers(1, 3), st.data()
)
def test_decisions_snapshots_and_replay_come_to_what_a_plain_fold_comes_to(
    tmp_path_factory: pytest.TempPathFactory, joints: list[Any], bound: int, data: st.DataObject
) -> None:
    folding, folder = Folding(seats()), str(tmp_path_factory.mktemp("cold"))
    live = Partition(folding, bound, folder)
    plain: dict[str, list[Any]] = {"A1": [], "A2": [], "é": []}
    for number, joint in enumerate(joints):
        tentative = {name: list(events) for name, events in plain.items()}
        try:
            for entity, command in joint:
                state = Seat()
                for event in tentative[entity]:
                    state = apply(state, event)
                tentative[entity] += decide(state, command, None)  # type: ignore[arg-type]
            plain, allowed = tentative, True
        except Refused:
            allowed = False
        requests = [request(entity, command, f"{number}/{at}") for at, (entity, command) in enumerate(joint)]
        assert live.send(*requests) is allowed
    expected = known(live.entities)
    for name, events in plain.items():
        state = Seat()
        for event in events:
            state = apply(state, event)
        assert expected[name][:2] == (state, len(events))

    whole = Entities(folding, bound=bound, folder=folder)
    replay(folding, live.rows, whole)
    assert known(whole) == expected

    k = data.draw(st.integers(0, len(live.rows)), "snapshot after")
    first = Entities(folding, bound=bound, folder=folder)
    replay(folding, live.rows[:k], first)
    later = Entities(folding, bound=bound, folder=folder)
    later.cold.put(list(first.snapshots()))
    begin = data.draw(st.integers(0, k), "tail from")  # a snapshot may be newer than the checkpoint
    replay(folding, live.rows[begin:], later)
    assert known(later) == expected
    for entities in (live.entities, whole, first, later):
        entities.close()


@proves("E2")
def test_entities_beyond_the_bound_lie_in_a_file_that_goes_with_them(tmp_path: Path) -> None:
    folding = Folding(seats())
    partition = Partition(folding, 10, str(tmp_path))
    for number in range(100):
        assert partition.send(request(f"s{number}", Reserve(str(number)), f"c{number}"))
    assert partition.entities.hot <= 10 and partition.entities.cold.in_file
    assert list(tmp_path.iterdir()) == []  # nobody finds it by a name, and it goes with the process
    assert [partition.entities.find(f"s{n}").state.holder for n in range(100)] == [str(n) for n in range(100)]
    assert len(dict(partition.entities.snapshots())) == 100
    partition.entities.close()
    assert list(tmp_path.iterdir()) == []


STEPS = st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.binary(max_size=6)), max_size=20)


@proves("E2")
@given(STEPS, st.integers(1, 8))
def test_cold_entities_are_those_of_a_dict_in_memory_and_in_a_file(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bytes | None]], bound: int
) -> None:
    cold, plain = ColdEntities(bound, str(tmp_path_factory.mktemp("cold"))), dict[str, bytes]()
    for name, value in steps:
        if value is None:
            cold.drop(name)
            plain.pop(name, None)
        else:
            cold.put([(name, value)])
            plain[name] = value
        assert (len(cold), dict(cold.items())) == (len(plain), plain)
        assert [cold.get(one) for one in "abcdef"] == [plain.get(one) for one in "abcdef"]
    cold.close()


@proves("E2", "perf")
def test_how_many_entities_there_are_is_known_without_reading_them(tmp_path: Path) -> None:
    """It is told after every commit."""
    cold, asked = ColdEntities(10, str(tmp_path)), list[str]()
    cold.put([(f"s{number}", b"{}") for number in range(100)])
    assert cold._file is not None
    cold._file.set_trace_callback(asked.append)
    assert (len(cold), asked) == (100, [])
    cold.close()


@proves("E2", "hostile")
def test_entities_with_many_commands_and_large_snapshots_are_bounded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.sourcing.entities.COLD_BYTES", 2_000)
    partition = Partition(Folding(seats()), 4, str(tmp_path))
    for number in range(300):
        assert partition.send(request(f"s{number % 3}", Reserve("a"), f"c{number}"))
        assert partition.send(request(f"s{number % 3}", Cancel("a"), f"d{number}"))
        assert partition.entities._commands <= 4 * COMMANDS_EACH or partition.entities.hot == 1
    assert partition.entities.cold.in_file, "snapshots of 200 commands each"
    found = [partition.entities.find(f"s{number}") for number in range(3)]
    assert [(one.version, len(one.commands)) for one in found] == [(200, 200)] * 3
    assert partition.entities._commands == 600
    partition.entities.close()


@proves("E2", "es.11")
@given(st.lists(st.sampled_from([1, 2]), min_size=1, max_size=20), st.data())
def test_snapshot_and_tail_are_replay_also_over_versions_of_events(versions: list[int], data: st.DataObject) -> None:
    upcast = EventType(Reserved, version=2, upcasters={1: lambda fields: {"who": fields["name"]}})
    folding = Folding(seats(events=[upcast, Cancelled]))
    values = {1: b'{"name":"n%d"}', 2: b'{"who":"n%d"}'}
    rows = [
        Row(at, 0, b"A1", values[schema] % at, headers_of("Reserved", schema, at + 1, f"c{at}", 0, "0", []))
        for at, schema in enumerate(versions)
    ]

    def folded(entities: Entities, some: list[Row]) -> Entities:
        replay(folding, some, entities)
        return entities

    whole = folded(Entities(folding), rows)
    k = data.draw(st.integers(0, len(rows)))
    later = Entities(folding)
    later.cold.put(list(folded(Entities(folding), rows[:k]).snapshots()))
    assert known(folded(later, rows[k:])) == known(whole)
    assert whole.find("A1").state == Seat(f"n{len(rows) - 1}", len(rows))


@proves("E2", "es.6")
@pytest.mark.parametrize("policy", ["refuse", "skip"])
def test_an_unknown_event_makes_its_entity_refuse_or_is_skipped_as_declared(policy: str) -> None:
    folding = Folding(seats(), unknown=policy)
    partition = Partition(folding, 10, "")
    rows = [
        Row(0, 0, b"A1", b'{"who":"a"}', headers_of("Reserved", 1, 1, "c", 0, "0", [])),
        Row(1, 0, b"A1", b"{}", headers_of("Renamed", 1, 2, "d", 0, "0", [])),
        Row(2, 0, b"A1", b'{"who":"a"}', headers_of("Cancelled", 1, 3, "e", 0, "0", [])),
        Row(3, 0, b"A2", b'{"who":"a"}', headers_of("Reserved", 1, 1, "f", 0, "0", [])),
    ]
    replay(folding, rows, partition.entities)
    if policy == SKIP:
        assert partition.entities.find("A1").version == 3
        assert partition.send(request("A1", Reserve("b"), "x"))
    else:
        with pytest.raises(UnknownEvent, match="'Renamed' of schema version 1"):
            partition.send(request("A1", Reserve("b"), "x"))
    assert partition.send(request("A2", Cancel("a"), "y"))  # nobody else is hurt


@proves("E2", "es.6")
@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Row(9, 0, b"A1", b'{"who":"a"}', headers_of("Reserved", 1, 3, "c", 0, "0", [])), "version 3.*after version 0"),
        (Row(9, 0, b"A1", b'{"who":7}', headers_of("Reserved", 1, 1, "c", 0, "0", [])), "is not of type Reserved"),
    ],
)
def test_a_history_with_a_hole_or_a_value_of_another_shape_takes_no_commands(row: Row, said: str) -> None:
    partition = Partition(Folding(seats()), 10, "")
    replay(Folding(seats()), [row], partition.entities)
    with pytest.raises(HistoryFault, match=said):
        partition.send(request("A1", Reserve("b"), "x"))


@proves("E2", "es.6")
def test_an_apply_that_fails_is_a_fault_of_one_history_with_its_place() -> None:
    def fails(seat: Seat, event: Any) -> Seat:
        raise ZeroDivisionError

    decider = seats()
    decider.apply = fails
    folding = Folding(decider)
    entities = Entities(folding)
    rows = [Row(0, 0, b"A1", b'{"who":"a"}', headers_of("Reserved", 1, 1, "c", 0, "0", []))]
    replay(folding, rows, entities)
    assert "version 1 of 'A1' cannot be applied: ZeroDivisionError" in str(entities.find("A1").fault)


@proves("E4", "es.5")
def test_an_entity_remembers_its_last_commands_and_no_more() -> None:
    folding = Folding(seats(), remembered=3)
    entities = Entities(folding)
    rows = [
        Row(at, 0, b"A1", b'{"who":"a"}', headers_of("Reserved", 1, at + 1, f"c{at}", 0, "0", [])) for at in range(5)
    ]
    replay(folding, rows, entities)
    assert list(entities.find("A1").commands) == ["c2", "c3", "c4"]
    again = folding.decode("A1", folding.encode("A1", entities.find("A1")))
    assert again.commands == entities.find("A1").commands
