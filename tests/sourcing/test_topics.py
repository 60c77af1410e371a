"""The topics of a store: kept for ever, closed to others, with types that fit; what `check` finds; snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from contract import Broker
from proving import proves
from sourcing.seats import Cancel, Cancelled, Reserve, Reserved, Seat, Swap, seats
from tidelog.client.admin import configs, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions
from tidelog.control.owner import Owner
from tidelog.errors import BrokerError, HistoryFault, IncompatibleEvents, UsageError
from tidelog.record.columns import Row
from tidelog.sourcing import EventStore, EventType
from tidelog.sourcing.asking import ask_owner
from tidelog.sourcing.checking import check, fault_in, faults_of
from tidelog.sourcing.entity import Folding
from tidelog.sourcing.event_record import headers_of
from tidelog.sourcing.event_types import EventTypes
from tidelog.sourcing.requests import Request
from tidelog.sourcing.store_topics import place_of
from tidelog.wire.error_code import ErrorCode

pytestmark = pytest.mark.timeout(300)


def opened(broker: Broker, name: str, **more: Any) -> EventStore[Seat]:
    return EventStore(name, seats(**more), bootstrap=broker.bootstrap, partitions=1)


@proves("E2")
@pytest.mark.parametrize("setting", ["cleanup.policy=compact", "retention.ms=1000", "retention.bytes=10000"])
def test_a_topic_that_compaction_or_retention_may_cut_is_refused_at_the_start(
    broker: Broker, topic: str, cluster: Cluster, setting: str
) -> None:
    key, _, value = setting.partition("=")
    topics.create(cluster, f"{topic}.events", partitions=1, configs={"retention.ms": "-1", key: value})
    with pytest.raises(UsageError, match=f"{key}={value}.*histories would be cut"), opened(broker, topic):
        pass
    mended = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    configs.alter(cluster, configs.TOPIC, f"{topic}.events", set=mended)
    with opened(broker, topic) as store:
        assert store.send("A1", Reserve("anna")).version == 1


@proves("E1")
def test_a_produce_past_the_decider_is_refused_or_found(broker: Broker, topic: str, cluster: Cluster) -> None:
    with opened(broker, topic) as store:
        store.send("A1", Reserve("anna"))
        forged = headers_of("Reserved", 1, 2, "forged", 0, "0", [])
        with Transactions(cluster, f"other-{topic}") as others:
            for at, write in enumerate(_ways(cluster, others, store.topics.events, forged)):
                if cluster.is_tidelog():
                    with pytest.raises(BrokerError) as refused:
                        write()
                    assert refused.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, at
                else:
                    write()
    checked = check(cluster, topic, seats().types)
    if cluster.is_tidelog():
        assert checked == (1, [])
    else:
        assert [one.kind for one in checked.findings] == ["foreign"]
        assert "lacks" in checked.findings[0].what
    with opened(broker, topic) as store:  # a record that no store wrote is not an event
        assert store.state("A1").state == Seat("anna", 1)
        assert store.figures()["foreign_records"] == len(checked.findings)


def _ways(cluster: Cluster, others: Transactions, topic: str, headers: Any) -> Any:
    def plainly() -> None:
        with Producer(cluster) as producer:
            producer.send(topic, b'{"who":"bob"}', key=b"A1", partition=0)

    def in_a_transaction() -> None:
        try:
            with others.transaction():
                others.producer.send(topic, b'{"who":"bob"}', key=b"A1", partition=0, headers=headers)
                others.producer.flush()
                if not cluster.is_tidelog():
                    raise KeyError  # a forged event with all its headers is not to be told from a true one
        except KeyError:
            pass

    return [plainly, in_a_transaction]


@proves("E2")
def test_a_store_whose_types_do_not_fit_the_log_does_not_start(broker: Broker, topic: str) -> None:
    @dataclass(frozen=True)
    class Booked:
        whom: str

    with opened(broker, topic) as store:
        store.send("A1", Reserve("anna"))
    for wrong in ([Cancelled], [EventType(Booked, name="Reserved"), Cancelled]):
        with pytest.raises(IncompatibleEvents, match="Reserved"), opened(broker, topic, events=wrong):
            pass
    upcast = EventType(Reserved, version=2, upcasters={1: lambda fields: fields})
    with opened(broker, topic, events=[upcast, Cancelled]) as store:
        assert store.state("A1").state == Seat("anna", 1)
    with pytest.raises(IncompatibleEvents, match="schema version 2"), opened(broker, topic):
        pass  # an older program, after a newer one


@proves("E1")
def test_who_sends_to_a_store_that_is_not_there_is_told(broker: Broker, topic: str) -> None:
    with (
        pytest.raises(UsageError, match="does not exist"),
        EventStore(topic, seats(), bootstrap=broker.bootstrap, serve=False),
    ):
        pass


@proves("E1", "E2")
@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        (Row(1, 0, b"A1", b'{"who":"a"}', headers_of("Reserved", 1, 2, "c", 0, "0", [])), []),
        (Row(1, 0, b"A1", b'{"who":"a"}', headers_of("Reserved", 1, 1, "c", 0, "0", [])), ["repeated"]),
        (Row(1, 0, b"A1", b'{"who":"a"}', headers_of("Reserved", 1, 4, "c", 0, "0", [])), ["gap"]),
        (Row(1, 0, b"A1", b'{"who":"a"}', headers_of("Reserved", 2, 2, "c", 0, "0", [])), ["unknown"]),
        (Row(1, 0, b"A1", b'{"who":"a"}', headers_of("Lost", 1, 2, "c", 0, "0", [])), ["unknown"]),
        (Row(1, 0, b"A1", b'{"whom":"a"}', headers_of("Reserved", 1, 2, "c", 0, "0", [])), ["schema"]),
        (Row(1, 0, b"A1", b'{"who":4}', headers_of("Reserved", 1, 2, "c", 0, "0", [])), ["schema"]),
        (Row(1, 0, b"A1", b"not json", headers_of("Reserved", 1, 2, "c", 0, "0", [])), ["schema"]),
        (Row(1, 0, b"A1", b'{"who":"a"}', []), ["foreign"]),
        (Row(1, 0, None, b'{"who":"a"}', headers_of("Reserved", 1, 2, "c", 0, "0", [])), ["foreign"]),
        (Row(1, 0, b"A2", b"{}", headers_of("tidelog.closed", 1, 1, "c", 0, "0", [], closes=True)), []),
    ],
)
@pytest.mark.parametrize("by", ["app", "store"])
def test_a_check_names_what_is_wrong_by_the_app_or_by_what_the_store_wrote_down(
    row: Row, kinds: list[str], by: str
) -> None:
    types = seats().types
    found = list(faults_of(row, {"A1": 1}, types if by == "app" else None, types.schemas()))
    assert [kind for kind, *_ in found] == kinds


@proves("E2")
def test_a_field_may_be_what_any_of_its_types_allows() -> None:
    @dataclass
    class Wide:
        a: int | None
        b: list[int]
        c: float = 0.5

    schema = EventTypes([Wide]).schemas()["Wide", 1]
    assert fault_in({"a": None, "b": [], "c": 1}, schema) is None
    assert fault_in({"a": 3, "b": [1], "more": 1}, schema) is None
    assert fault_in({"a": {"personal": "x"}, "b": []}, schema) is None
    for wrong in ([], {"a": 1}, {"a": "x", "b": []}, {"a": True, "b": []}, {"a": 1, "b": {}}):
        assert fault_in(wrong, schema) is not None


@proves("E1", "E4", "es.16")
def test_a_store_keeps_its_partitions_when_the_topics_get_more(broker: Broker, topic: str, cluster: Cluster) -> None:
    def pair() -> EventStore[Seat]:
        return EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=2)

    entities = [f"A{n}" for n in range(12)]
    with pair() as store:
        for entity in entities:
            store.send(entity, Reserve("anna"), id="a")
    for name in (store.topics.events, store.topics.snapshots, store.topics.commands, store.topics.replies):
        topics.add_partitions(cluster, name, 4)
    with pair() as store:
        for entity in entities:
            assert store.send(entity, Reserve("anna"), id="a").repeated
            assert store.state_at(entity).version == 1
        with EventStore(topic, seats(), bootstrap=broker.bootstrap, serve=False) as elsewhere:
            assert {elsewhere.send(entity, Cancel("anna")).version for entity in entities} == {2}
        for entity in entities:
            request = Request("tidelog.state", entity, "q", value=b"{}")
            assert ask_owner(cluster, store.topics, request, 60)["version"] == 2
    assert check(cluster, topic, seats().types) == (24, [])
    wrong = TopicPartition(f"{topic}.events", 1 - place_of(topic, b"A0", 2).partition)
    owner = Owner(cluster, f"tidelog.store.{topic}.{wrong.partition}")
    owner.begin()
    with owner.transaction() as outgoing:
        headers = headers_of("Reserved", 1, 1, "c", 0, "0", [])
        outgoing.send(wrong, [(b"A0", b'{"who":"a"}', headers, 0)])
    (found,) = check(cluster, topic, seats().types).findings
    assert (found.kind, found.partition, found.entity) == ("misplaced", wrong.partition, "A0")


@proves("E1", "E4")
def test_a_store_whose_topics_have_fewer_partitions_than_it_was_made_with_is_refused(
    tidelog_broker: Broker, topic: str
) -> None:
    def opened_with(partitions: int) -> EventStore[Seat]:
        return EventStore(topic, seats(), bootstrap=tidelog_broker.bootstrap, partitions=partitions)

    with opened_with(2) as store, Cluster(tidelog_broker.bootstrap) as cluster:
        every = [store.topics.events, store.topics.snapshots, store.topics.commands, store.topics.replies]
    with Cluster(tidelog_broker.bootstrap) as cluster:
        for name in every:
            topics.delete(cluster, name)
    with pytest.raises(UsageError, match=f"made with 2 partitions.*delete {topic}.types"), opened_with(1):
        pass


# Snapshots ------------------------------------------------------------------------------------------------------------


def snapshotting(broker: Broker, name: str, every: int = 10, **more: Any) -> EventStore[Seat]:
    return EventStore(name, seats(**more), bootstrap=broker.bootstrap, partitions=1, snapshot_every=every)


def loaded(store: EventStore[Seat]) -> int:
    """Events that its owner has read."""
    (owner,) = store._owners.values()
    return owner.figures.loaded_events


@proves("E2", "es.10")
def test_loading_does_not_grow_with_history_and_gives_what_replay_gives(broker: Broker, topic: str) -> None:
    with snapshotting(broker, topic) as store:
        answers = [store.send_soon(f"A{n % 7}", Reserve(f"p{n}")) for n in range(7)]
        for answer in answers:
            answer.result(30)
        for n in range(40):
            entity = f"A{n % 7}"
            holder = store.state(entity).state.holder
            store.send(entity, Swap(holder, f"q{n}"), id=f"c{n}")
        before = {f"A{n}": store.state(f"A{n}") for n in range(7)}
    with snapshotting(broker, topic) as store:
        assert loaded(store) == 0  # it had ended in peace
        assert {f"A{n}": store.state(f"A{n}") for n in range(7)} == before
        assert store.find("A4", "c39") is not None  # commands are remembered over snapshots
    with snapshotting(broker, topic, state_version=2) as store:
        assert loaded(store) == 87  # old snapshots are passed over
        assert {f"A{n}": store.state(f"A{n}") for n in range(7)} == before
        assert store.find("A4", "c39") is not None
        store.send("A0", Swap(before["A0"].state.holder, "z"))
    with snapshotting(broker, topic, state_version=2) as store:
        assert loaded(store) == 0
        assert store.state("A0").state.holder == "z"


@proves("E2", "es.10")
@pytest.mark.parametrize(
    "value", [b"not json", b'{"v":1}', b'{"v":1,"state":7,"version":1,"closed":false,"commands":[]}']
)
def test_a_snapshot_that_cannot_be_read_is_left_aside_and_all_events_are_read(
    broker: Broker, topic: str, cluster: Cluster, value: bytes
) -> None:
    with snapshotting(broker, topic) as store:
        store.send("A1", Reserve("anna"), id="a")
        schema = store._folding.snapshot_schema
    owner = Owner(cluster, f"tidelog.store.{topic}.0")
    owner.begin()
    with owner.transaction() as outgoing:
        outgoing.send(TopicPartition(f"{topic}.snapshots", 0), [(b"s/A1", value, [("schema", schema)], 0)])
    with snapshotting(broker, topic) as store:
        assert store.state("A1") == (Seat("anna", 1), 1, False)
        assert store.send("A1", Reserve("anna"), id="a").repeated
        assert loaded(store) == 1


@proves("E2", "E4", "es.10")
def test_a_state_that_is_too_large_for_a_snapshot_costs_the_checkpoint_and_nothing_else(
    broker: Broker, topic: str, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with snapshotting(broker, topic):
        pass
    configs.alter(cluster, configs.TOPIC, f"{topic}.snapshots", set={"max.message.bytes": "3000"})
    with snapshotting(broker, topic, every=3) as store:
        store.send("A1", Reserve("x" * 5_000))
        for n in range(8):
            store.send(f"B{n}", Reserve("anna"))
        (owner,) = store._owners.values()
        assert owner.figures.loads == 1, "it does not begin again"
    assert "the snapshot of 'A1' has" in caplog.text
    with snapshotting(broker, topic, every=3) as store:
        assert loaded(store) == 9
        assert (store.state("A1").version, store.state("B7").state) == (1, Seat("anna", 1))
        store.send("A1", Cancel("x" * 5_000))
    with snapshotting(broker, topic, every=3) as store:
        assert loaded(store) == 0
        assert (store.state("A1").state, store.state("B7").state) == (Seat(None, 1), Seat("anna", 1))


@proves("E2")
def test_a_snapshot_of_another_shape_is_a_fault() -> None:
    with pytest.raises(HistoryFault):
        Folding(seats()).decode("A1", b'{"v":1,"state":{"holder":4},"version":1,"closed":false,"commands":[]}')
