"""Process managers: an event leads to its commands once, over crashes, take-overs, replays and new versions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from against.patience import eventually
from proving import proves
from sourcing.follower_process import start
from sourcing.orders import Paid, Pay, Place, Placed, orders, shipping
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control.reading import read_all
from tidelog.errors import ProducerFenced, UsageError
from tidelog.sourcing import ClearTimer, EventStore, ProcessManager, Send, SetTimer, TimedOut
from tidelog.sourcing.processes import Process
from tidelog.testing.broker import TestBroker


@pytest.fixture
def store(tidelog_broker: TestBroker) -> Iterator[EventStore[str]]:
    with EventStore("orders", orders(), bootstrap=tidelog_broker.bootstrap, partitions=2) as running:
        yield running


def commands_of(store: EventStore[str], kind: str) -> Counter[str]:
    """How often each order was sent such a command, by topic."""
    found: Counter[str] = Counter()
    with store.connect() as cluster:
        for at in cluster.partitions(store.topics.commands):
            for row in read_all(cluster, TopicPartition(at.topic, at.partition)):
                if dict(row.headers)["type"] == kind.encode():
                    found[(row.key or b"").decode()] += 1
    return found


def state_becomes(store: EventStore[str], order: str, state: str) -> None:
    eventually(lambda: store.state(order).state, lambda found: found == state)


@proves("E3", "E4")
def test_an_event_leads_to_a_command_with_its_cause(store: EventStore[str]) -> None:
    with shipping(store).beside():
        store.send("o1", Place(1), correlation="request 7")
        paid = store.send("o1", Pay(), correlation="request 7")
        state_becomes(store, "o1", "shipped")
    records = [record for record, _ in store.history("o1")]
    assert [record.type for record in records] == ["Placed", "Paid", "Shipped"]
    assert records[2].context[:3] == ("request 7", f"{paid.command}.0", "process shipping")


@proves("E3")
def test_what_react_gives_or_raises_is_told_with_its_process_and_the_line(store: EventStore[str]) -> None:
    store.send("o1", Place(1))
    for react, why in (
        (lambda state, event: state["x"], r"TypeError\(.* \(test_process_manager.py:\d+\); mend it"),
        (lambda state, event: [Send("", Pay())], r"Pay\(\) cannot be sent to '': an entity's id is ''"),
        (lambda state, event: ["Pay"], "it gave 'Pay', and it gives Send, SetTimer and ClearTimer"),
    ):
        failing = ProcessManager("shipping", store, react, start="earliest")
        with pytest.raises(UsageError, match=rf"^react of .* failed on Placed\(amount=1\) of process 'o1': {why}"):
            failing.run(Event())


@proves("E3")
def test_one_action_alone_is_as_good_as_a_list_of_one(store: EventStore[str]) -> None:
    def react(state: Any, event: Any) -> Any:
        match event:
            case Placed():
                return SetTimer("payment", seconds=0)
            case TimedOut("payment"):
                return Send("o1", Pay())
            case Paid():
                return ClearTimer("payment")

    with ProcessManager("alone", store, react).beside():
        store.send("o1", Place(1))
        eventually(lambda: store.state("o1").version, lambda found: found == 2)


@proves("E3")
def test_a_timer_that_runs_out_leads_to_a_command_and_one_that_is_cleared_does_not(store: EventStore[str]) -> None:
    placed = store.send("o1", Place(1), correlation="request 7")
    store.send("o2", Place(2))
    store.send("o2", Pay())  # it is read together with what set the timer, however long this took
    with shipping(store, 0.3, start="earliest").beside():
        state_becomes(store, "o1", "given up")
        state_becomes(store, "o2", "shipped")
    assert commands_of(store, "GiveUp") == {"o1": 1}
    *_, (given_up, _) = store.history("o1")
    assert given_up.context[:2] == ("request 7", f"{placed.command}.0"), "of the event that set the timer"


@proves("E3", "E5")
def test_which_event_set_a_timer_is_kept_with_it_and_need_not_be_there(store: EventStore[str]) -> None:
    manager, process = shipping(store), Process("placed", {"pay": 5})
    process.caused({}, ("c1.0", None))
    process.caused({"pay": 5}, ("c2.0", "r"))
    value = manager.encode("o1", process)
    assert manager.decode("o1", value).causes == {"pay": ("c1.0", None)}
    assert manager.without_state(value).causes == {"pay": ("c1.0", None)}
    process.timers = {"ship": 6}
    process.caused({"pay": 5}, ("c2.0", "r"))
    assert process.causes == {"ship": ("c2.0", "r")}
    old = b'{"v":1,"state":"placed","timers":{"pay":5}}'
    assert (manager.decode("o1", old).timers, manager.decode("o1", old).causes) == ({"pay": 5}, {})


@proves("E3", "es.15")
def test_history_is_applied_and_not_reacted_to(store: EventStore[str]) -> None:
    store.send("o1", Place(1))
    store.send("o1", Pay())
    store.send("o2", Place(2))
    end = end_of(store)
    with shipping(store).beside():
        eventually(lambda: places(store), lambda offset: offset >= end)
        store.send("o2", Pay())
        state_becomes(store, "o2", "shipped")  # by what it learned of the past
    assert commands_of(store, "Ship") == {"o2": 1}
    with shipping(store, state_version=2).beside():  # a new kind of state: folded anew, in silence
        store.send("o3", Place(3))
        store.send("o3", Pay())
        state_becomes(store, "o3", "shipped")
    assert commands_of(store, "Ship") == {"o2": 1, "o3": 1}


def end_of(store: EventStore[str]) -> int:
    """Of all partitions together."""
    with store.connect() as cluster:
        every = dict.fromkeys(cluster.partitions(store.topics.events), LATEST)
        return sum(found.offset for found in list_offsets(cluster, every).values())


def places(store: EventStore[str]) -> int:
    """How far the process manager has come, in all partitions together."""
    with store.connect() as cluster:
        last = {row.key: row.value for row in read_all(cluster, TopicPartition("shipping.process", 0))}
    return sum(json.loads(value)["offset"] for key, value in last.items() if key.startswith(b"position/") and value)


@proves("E3", "es.15")
def test_from_the_earliest_all_events_are_reacted_to(store: EventStore[str]) -> None:
    store.send("o1", Place(1))
    store.send("o1", Pay())
    with shipping(store, start="earliest").beside():
        state_becomes(store, "o1", "shipped")


@proves("E3", "E4", "es.24")
def test_the_newer_of_two_takes_over_and_the_elder_is_fenced(store: EventStore[str]) -> None:
    with shipping(store).beside() as elder:
        store.send("o1", Place(1))
        store.send("o1", Pay())
        state_becomes(store, "o1", "shipped")
        with shipping(store).beside():
            store.send("o2", Place(2))
            store.send("o2", Pay())
            state_becomes(store, "o2", "shipped")
            with pytest.raises(ProducerFenced):
                eventually(elder.check, lambda _: False)
    assert commands_of(store, "Ship") == {"o1": 1, "o2": 1}


@proves("E3")
@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"apply": lambda state, event: state["x"]}, r"apply of process manager shipping failed on Placed\(amount=1\)"),
        ({"key": lambda event, record: record.nothing}, r"key of process manager shipping failed on Placed"),
    ],
)
def test_a_function_that_fails_is_named_with_its_event_and_nothing_is_written(
    store: EventStore[str], more: dict[str, Any], why: str
) -> None:
    store.send("o1", Place(1))
    failing = shipping(store, start="earliest", **more)
    with pytest.raises(UsageError, match=why):
        failing.run(Event())
    assert places(store) == 0


@proves("E3", "F3", "es.15")
@pytest.mark.slow
def test_killed_at_any_moment_each_paid_order_is_shipped_by_one_command(store: EventStore[str]) -> None:
    sent = 0
    for _ in range(8):
        child = start("process", store.bootstrap)
        for _ in range(6):
            sent += 1
            store.send(f"o{sent}", Place(sent))
            store.send(f"o{sent}", Pay())
        state_becomes(store, f"o{sent - 5}", "shipped")  # it is at work, and in the middle of it when it dies
        child.kill()
        child.wait()
    with shipping(store, start="earliest").beside():
        for number in range(1, sent + 1):
            state_becomes(store, f"o{number}", "shipped")
    assert commands_of(store, "Ship") == {f"o{number}": 1 for number in range(1, sent + 1)}
