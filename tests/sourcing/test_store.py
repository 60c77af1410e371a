"""What a store promises, on Tidelog and on Apache Kafka alike: the numbered rules, one by one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from contract import Broker
from proving import proves
from sourcing.seats import Cancel, Cancelled, Look, Reserve, Reserved, Seat, SeatTaken, Swap, seats
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.reading import read_all
from tidelog.errors import CommandConflict, HistoryClosed, OutcomeUnknown, Refused, UsageError, WrongVersion
from tidelog.sourcing import HISTORY_EXISTS, NO_HISTORY, EventStore

pytestmark = pytest.mark.timeout(300)


def events_in(broker: Broker, store: EventStore[Any], partition: int = 0) -> int:
    with Cluster(broker.bootstrap) as cluster:
        return len(list(read_all(cluster, TopicPartition(store.topics.events, partition))))


@proves("E1", "E4", "T10")
def test_a_command_becomes_events_or_is_refused_for_a_typed_reason(broker: Broker, store: EventStore[Seat]) -> None:
    receipt = store.send("A1", Reserve("anna"), id="c1", who="desk", correlation="r7", metadata={"ip": "::1"})
    assert receipt[:5] == ("A1", "c1", 1, 1, 0)
    with pytest.raises(Refused) as refused:
        store.send("A1", Reserve("bob"))
    assert refused.value.reason == SeatTaken("anna")
    assert store.state("A1") == (Seat("anna", 1), 1, False)
    ((record, events),) = store.history("A1")
    assert events == [Reserved("anna")]
    assert (record.version, record.id, record.command, record.offset) == (1, "c1.0", "c1", receipt.offset)
    assert record.context == ("r7", None, "desk", {"ip": "::1"})
    assert events_in(broker, store) == 1  # what was refused is in no log


@proves("E4", "es.1")
def test_an_expected_version_is_the_one_that_the_history_has(broker: Broker, store: EventStore[Seat]) -> None:
    def fails(expected: int | str, actual: int) -> None:
        with pytest.raises(WrongVersion) as wrong:
            store.send("A1", Look(), expected=expected)
        assert (wrong.value.expected, wrong.value.actual) == (expected, actual)

    fails(1, 0)
    fails(HISTORY_EXISTS, 0)
    store.send("A1", Reserve("anna"), expected=NO_HISTORY)
    fails(NO_HISTORY, 1)
    fails(0, 1)
    store.send("A1", Swap("anna", "bob"), expected=1)
    fails(1, 3)
    store.send("A1", Cancel("bob"), expected=HISTORY_EXISTS)
    assert [record.version for record, _ in store.history("A1")] == [1, 2, 3, 4]


@proves("E4", "es.2", "es.9")
def test_of_two_commands_for_one_version_one_succeeds_and_the_other_is_not_retried(store: EventStore[Seat]) -> None:
    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(store.send, "A1", Reserve(str(n)), expected=0) for n in range(8)]
    errors = [one.exception() for one in sent]
    assert errors.count(None) == 1
    assert all(isinstance(error, WrongVersion) and error.actual == 1 for error in errors if error is not None)


@proves("E4", "es.3", "es.5")
def test_a_command_that_comes_again_has_the_same_answer_and_writes_nothing(
    broker: Broker, store: EventStore[Seat]
) -> None:
    first = store.send("A1", Reserve("anna"), id="a", expected=0)
    assert not first.repeated
    store.send("A1", Swap("anna", "bob"), id="b")
    assert store.send("A1", Reserve("anna"), id="a", expected=0) == first._replace(repeated=True)
    assert store.find("A1", "a") == first._replace(repeated=True)
    assert store.find("A1", "b") is not None and store.find("A1", "zzz") is None
    with pytest.raises(CommandConflict, match="'a'"):
        store.send("A1", Reserve("carl"), id="a")
    assert events_in(broker, store) == 3


@proves("E1", "es.5")
def test_a_refused_command_is_not_remembered_and_is_decided_again(store: EventStore[Seat]) -> None:
    with pytest.raises(Refused):
        store.send("A1", Cancel("anna"), id="c")
    store.send("A1", Reserve("anna"))
    assert not store.send("A1", Cancel("anna"), id="c").repeated


@proves("E1", "es.8")
def test_a_command_that_decides_nothing_writes_nothing(broker: Broker, store: EventStore[Seat]) -> None:
    receipt = store.send("A1", Look(), id="look")
    assert receipt[2:] == (0, 0, 0, -1, False)
    assert events_in(broker, store) == 0


@proves("E4", "es.1")
def test_several_entities_of_a_partition_change_together_or_not_at_all(broker: Broker, store: EventStore[Seat]) -> None:
    done = store.send_together([("A1", Reserve("anna")), ("A2", Reserve("anna")), ("A1", Cancel("anna"))], id="t")
    assert [(one.entity, one.command, one.version) for one in done] == [
        ("A1", "t/0", 1),
        ("A2", "t/1", 1),
        ("A1", "t/2", 2),
    ]
    assert [one.offset - done[0].offset for one in done] == [0, 1, 2]
    with pytest.raises(Refused):
        store.send_together([("A3", Reserve("bob")), ("A2", Reserve("bob"))])
    assert store.state("A3").version == 0
    again = store.send_together([("A1", Reserve("anna")), ("A2", Reserve("anna")), ("A1", Cancel("anna"))], id="t")
    assert again == [one._replace(repeated=True) for one in done]
    with pytest.raises(CommandConflict, match="done before"):
        store.send_together([("A1", Reserve("anna")), ("A4", Reserve("anna"))], id="t")
    with pytest.raises(WrongVersion):
        store.send_together([("A5", Reserve("bob")), ("A6", Reserve("bob"))], expected={"A6": 4})
    assert events_in(broker, store) == 3


@proves("E2", "es.18")
def test_a_closed_history_takes_no_commands_and_stays_readable(broker: Broker, topic: str) -> None:
    def opened() -> EventStore[Seat]:
        return EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=1)

    with opened() as store:
        store.send("A1", Reserve("anna"), id="a")
        assert store.close_history("A1", who="desk").version == 2
        assert store.close_history("A1").events == 0
    with opened() as store:
        with pytest.raises(HistoryClosed, match="version 2"):
            store.send("A1", Cancel("anna"))
        assert store.send("A1", Reserve("anna"), id="a").repeated
        assert store.state("A1") == (Seat("anna", 1), 2, True)
        assert [(record.type, events) for record, events in store.history("A1")] == [
            ("Reserved", [Reserved("anna")]),
            ("tidelog.closed", []),
        ]


@proves("E4")
def test_who_owns_nothing_sends_by_topic_and_sees_no_difference(broker: Broker, store: EventStore[Seat]) -> None:
    with EventStore(store.name, seats(), bootstrap=broker.bootstrap, serve=False) as elsewhere:
        receipt = elsewhere.send("A1", Reserve("anna"), id="c1", who="web", expected=NO_HISTORY)
        assert receipt[:5] == ("A1", "c1", 1, 1, 0)
        assert elsewhere.send("A1", Reserve("anna"), id="c1") == receipt._replace(repeated=True)
        with pytest.raises(Refused) as refused:
            elsewhere.send("A1", Reserve("bob"))
        assert refused.value.reason == SeatTaken("anna")
        with pytest.raises(WrongVersion) as wrong:
            elsewhere.send("A1", Cancel("anna"), expected=9)
        assert (wrong.value.expected, wrong.value.actual) == (9, 1)
        with pytest.raises(CommandConflict):
            elsewhere.send("A1", Cancel("anna"), id="c1")
        assert elsewhere.state("A1") == (Seat("anna", 1), 1, False)
        assert elsewhere.find("A1", "c1") == receipt._replace(repeated=True)
        together = elsewhere.send_together([("A1", Cancel("anna")), ("A2", Reserve("bob"))])
        assert [one.version for one in together] == [2, 1]
        elsewhere.close_history("A2")
        with pytest.raises(HistoryClosed):
            elsewhere.send("A2", Cancel("bob"))
    assert [events for _, events in store.history("A1")] == [[Reserved("anna")], [Cancelled("anna")]]
    ((first, _), _) = store.history("A1")
    assert first.context.who == "web"


@proves("E4", "es.4")
def test_an_outcome_that_was_not_heard_of_is_found_by_its_id(broker: Broker, store: EventStore[Seat]) -> None:
    with EventStore(store.name, seats(), bootstrap=broker.bootstrap, serve=False) as elsewhere:
        with pytest.raises(OutcomeUnknown, match="c1"):
            elsewhere.send("A1", Reserve("anna"), id="c1", timeout_s=0)
        receipt = elsewhere.send("A1", Reserve("anna"), id="c1")
    assert store.find("A1", "c1") == receipt._replace(repeated=True)
    assert [record.version for record, _ in store.history("A1")] == [1]


@proves("E1")
def test_commands_that_make_no_sense_are_refused_with_what_is_wrong(broker: Broker, topic: str) -> None:
    with EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=3) as store:
        with pytest.raises(UsageError, match="partitions=1"):
            store.send_together([(f"A{n}", Reserve("anna")) for n in range(9)])
        for entity, id in (("", "c"), ("A1", ""), ("x" * 201, "c")):
            with pytest.raises(UsageError, match="1 to 200 bytes"):
                store.send(entity, Reserve("anna"), id=id)
        wrong: list[tuple[Any, dict[str, Any], str]] = [
            (7, {}, "an entity's id is 7; it is a text"),
            ("A1", {"id": 7}, "a command's id is 7; it is a text"),
            ("A1", {"expected": "one"}, "expected is 'one'; it is a version, NO_HISTORY or HISTORY_EXISTS"),
        ]
        for who, more, said in wrong:
            with pytest.raises(UsageError, match=said):
                store.send(who, Reserve("anna"), timeout_s=0.1, **more)
        with pytest.raises(UsageError, match="not a command"):
            store.send("A1", Reserved("anna"))
    with pytest.raises(UsageError, match="does not run"):
        store.send("A1", Reserve("anna"))
    with pytest.raises(UsageError, match="cannot be called"):
        EventStore("no blanks", seats())


@proves("E1", "es.6")
def test_a_decider_that_fails_is_its_senders_and_hurts_nobody_else(broker: Broker, topic: str) -> None:
    def decide(seat: Seat, command: Any, now: Any) -> list[Any]:
        if command.who == "zero":
            raise ZeroDivisionError("a fault of the decider")
        return [Reserved(command.who)]

    with EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=1) as store:
        store.decider._decide = decide
        with pytest.raises(ZeroDivisionError):
            store.send("A1", Reserve("zero"))
        assert store.send("A1", Reserve("anna")).version == 1


@proves("E1")
def test_the_largest_event_is_named_and_stored_and_one_byte_more_is_refused(
    broker: Broker, store: EventStore[Seat]
) -> None:
    largest = 1_048_588 - 1_000  # max.message.bytes, less what a record has beside
    fits = largest - len('{"who":""}') - len("A1")
    assert store.send("A1", Reserve("x" * fits)).version == 1
    with pytest.raises(UsageError, match=f"the largest may have {largest}"):
        store.send("A2", Reserve("x" * (fits + 1)))
    assert events_in(broker, store) == 1
