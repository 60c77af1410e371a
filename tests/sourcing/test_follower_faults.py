"""Process managers, effects and read models while things fail: the broker dies, its disk is full, the clock goes back,
their own topics have what nobody of theirs wrote, a command is refused."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from against.patience import eventually
from contract import TIMEOUT_S
from crash.powered_broker import PoweredBroker
from proving import proves
from sourcing.doubtful import Doubtful
from sourcing.orders import Paid, Pay, Place, orders, shipping
from sourcing.seats import Reserve, SeatTaken, seats
from sourcing.test_effects import effects, is_paid, kept
from sourcing.test_process_manager import commands_of, state_becomes
from tidelog.client.admin import configs
from tidelog.client.cluster import Cluster
from tidelog.control.health import Health, health_of
from tidelog.control.status import Report
from tidelog.errors import Disconnected, TidelogError, UsageError
from tidelog.parts.running import Supervisor
from tidelog.sourcing import CommandRefused, Effects, EventStore, ProcessManager, ReadModel, Send, SetTimer, TimedOut
from tidelog.sourcing import process_run as running_process
from tidelog.sourcing.event_following import EventLog, FollowerPart
from tidelog.testing.broker import TestBroker
from tidelog.views.stores.sqlite import SqliteStore

COLUMNS = {"order": "string", "paid": "long"}


@pytest.fixture
def store(tidelog_broker: TestBroker) -> Iterator[EventStore[str]]:
    with EventStore("orders", orders(), bootstrap=tidelog_broker.bootstrap, partitions=2, timeout_s=60) as running:
        yield running


def paid_orders(rows: Any, event: Any, record: Any) -> None:
    if isinstance(event, Paid):
        rows[record.entity] = {"paid": rows.get(record.entity, {"paid": 0})["paid"] + 1}


class Followers:
    """One of each kind, of one store."""

    def __init__(self, store: EventStore[str], url: str) -> None:
        self.store, self.mails = store, list[str]()
        self.model = ReadModel("paid", store, paid_orders, key="order", columns=COLUMNS)
        self.effects = effects(store, lambda event, record, id: self.mails.append(record.entity), start="earliest")
        self.url, self.names = url, list[str]()

    def pay(self, count: int) -> None:
        for _ in range(count):
            name = f"o{len(self.names) + 1}"
            self.names.append(name)
            again(partial(self.store.send, name, Place(len(self.names)), id=f"place {name}"))
            again(partial(self.store.send, name, Pay(), id=f"pay {name}"))

    def run(self, fault: Callable[[], None]) -> None:
        with ExitStack() as stack:
            stack.enter_context(shipping(self.store, start="earliest").beside())
            stack.enter_context(self.effects.beside())
            followed = stack.enter_context(self.model.following(self.url))
            self.pay(4)
            fault()
            self.pay(4)
            for name in self.names:
                state_becomes(self.store, name, "shipped")
            eventually(lambda: sorted(self.mails), lambda mails: mails == sorted(self.names))
            expected = dict.fromkeys(self.names, 1)
            eventually(lambda: {row["order"]: row["paid"] for row in followed.rows()}, lambda rows: rows == expected)
        assert commands_of(self.store, "Ship") == Counter(self.names)


def again(send: Callable[[], Any]) -> None:
    """As a client does that does not know what became of its command."""
    eventually(lambda: _sent(send), bool)


def _sent(send: Callable[[], Any]) -> bool:
    try:
        send()
    except UsageError:
        raise
    except TidelogError:
        return False
    return True


@proves("E3", "F3")
@pytest.mark.slow
def test_a_broker_that_dies_is_waited_for_and_everything_happens_once(
    tidelog_broker: TestBroker, store: EventStore[str], tmp_path: Path
) -> None:
    followers = Followers(store, f"sqlite:///{tmp_path}/paid.db")

    def die() -> None:
        for _ in range(2):
            followers.pay(1)
            tidelog_broker.kill()
            tidelog_broker.start()

    followers.run(die)


@proves("E3", "F3", "T8")
@pytest.mark.slow
def test_on_a_full_disk_they_wait_and_go_on_when_there_is_room(tmp_path: Path) -> None:
    broker = PoweredBroker(tmp_path / "broker", {})
    assert broker.start()
    try:
        with EventStore("orders", orders(), bootstrap=broker.bootstrap, partitions=1, timeout_s=20) as store:
            followers = Followers(store, f"sqlite:///{tmp_path}/paid.db")

            def fill() -> None:
                broker.disk.capacity = sum(path.stat().st_size for path in broker.data.rglob("*") if path.is_file())
                time.sleep(0.5)  # tries fail meanwhile; nothing is concluded from how many
                broker.disk.mend()

            followers.run(fill)
    finally:
        broker.end()


class Clock:
    """The time of day of a process manager alone."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead


@proves("E3", "F3")
def test_a_clock_that_is_set_back_lets_timers_run_out_later_and_never_twice(
    store: EventStore[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(running_process, "time", clock)
    with shipping(store, 5.0, start="earliest").beside():
        store.send("o1", Place(1))
        clock.ahead = -3600.0
        store.send("o2", Place(2))
        store.send("o2", Pay())
        state_becomes(store, "o2", "shipped")  # events are followed, whatever time it is
        assert store.state("o1").state == "placed"
        clock.ahead = 3600.0
        state_becomes(store, "o1", "given up")
        clock.ahead = -3600.0
        store.send("o3", Place(3))
        store.send("o3", Pay())
        state_becomes(store, "o3", "shipped")
    assert commands_of(store, "GiveUp") == {"o1": 1}


def forge(broker: TestBroker, topic: str, key: bytes, value: bytes) -> None:
    """As on a broker that does not know `tidelog.writers`."""
    configs.alter(broker.cluster, configs.TOPIC, topic, delete=["tidelog.writers"])
    broker.produce(topic, [(key, value)])


@proves("E3", "hostile")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"position/0", b"{}"),
        (b"position/0", b"["),
        (b"position/x", b'{"offset":1,"live":0}'),
        (b"position/0", b"[" * 50_000),
        (b"state/o1", b"null"),
        (b"state/o1", b'{"state":"","timers":{"x":"soon"}}'),
    ],
)
def test_a_record_of_others_in_its_own_topic_ends_it_and_is_named(
    tidelog_broker: TestBroker, store: EventStore[str], key: bytes, value: bytes
) -> None:
    with shipping(store, start="earliest").beside():
        store.send("o1", Place(1))
        store.send("o1", Pay())
        state_becomes(store, "o1", "shipped")
    forge(tidelog_broker, "shipping.process", key, value)
    said = r"the record shipping\.process:0:\d+, of key .* was not written by this Tidelog"
    with shipping(store).beside() as forged, pytest.raises(UsageError, match=said):
        eventually(forged.check, lambda _: False)
    assert commands_of(store, "Ship") == {"o1": 1}


@proves("E3", "hostile")
def test_records_of_others_that_say_nothing_are_passed_over(tidelog_broker: TestBroker, store: EventStore[str]) -> None:
    mails: list[str] = []
    for round in range(2):
        sending = effects(store, lambda event, record, id: mails.append(record.entity), start="earliest")
        with shipping(store, start="earliest").beside(), sending.beside():
            store.send(f"o{round}", Place(round))
            store.send(f"o{round}", Pay())
            state_becomes(store, f"o{round}", "shipped")
            eventually(lambda: len(mails), lambda count: count == round + 1)  # noqa: B023
        for topic in ("shipping.process", "confirmations.effects"):
            for key, value in ((b"\xff\xfe", b"x"), (b"", b""), (b"else", b"[" * 50_000)):
                forge(tidelog_broker, topic, key, value)
    assert kept(store, "skipped/") == []


# Refusals -------------------------------------------------------------------------------------------------------------


def learn(known: list[Any], event: Any) -> list[Any]:
    return [*known, type(event).__name__]


@proves("E3")
def test_a_command_that_is_refused_is_told_to_who_sent_it_with_its_reason(
    tidelog_broker: TestBroker, store: EventStore[str]
) -> None:
    told: list[CommandRefused] = []

    def react(known: list[Any], event: Any) -> list[Any]:
        if isinstance(event, Paid):
            return [Send("A1", Reserve("o1"), to=hall), Send("A2", Reserve("o1"), to=hall)]
        if isinstance(event, CommandRefused):
            told.append(event)
            taken = isinstance(event.reason, SeatTaken)
            return [Send("A3", Reserve("o1"), to=hall), SetTimer("soon", 0.0)] if taken else []
        if isinstance(event, TimedOut):
            return [Send("A4", Reserve("o1"), to=hall)]
        return []

    with EventStore("hall", seats(), bootstrap=tidelog_broker.bootstrap, partitions=2) as hall:
        hall.send("A1", Reserve("anna"))
        hall.close_history("A4")
        more: dict[str, Any] = {"apply": learn, "initial": [], "refusals": [hall], "start": "earliest"}
        manager = ProcessManager("booking", store, react, state=list[str], **more)
        with manager.beside():
            store.send("o1", Place(1))
            store.send("o1", Pay())
            eventually(lambda: hall.state("A3").state.holder, lambda holder: holder == "o1")
            eventually(lambda: len(told), lambda count: count == 2)
        assert told[0][:3] == ("Reserve", "A1", SeatTaken("anna"))
        assert told[1][:3] == ("Reserve", "A4", "HistoryClosed")
        assert hall.state("A2").state.holder == "o1"
        ((record, _),) = hall.history("A3")
        assert record.context.causation == told[0].id
        assert manager.figures()["refused"] == 2
        rows = {row.key: row.value for row in tidelog_broker.records("booking.process")}
        known = json.loads(rows[b"state/o1"] or b"")["state"]
        assert Counter(known) == {"Placed": 1, "Paid": 1, "CommandRefused": 2, "TimedOut": 1}


@proves("E3", "F3")
def test_a_refusal_that_comes_while_nobody_runs_is_told_once_at_the_next_start(
    tidelog_broker: TestBroker, store: EventStore[str]
) -> None:
    told: list[CommandRefused] = []

    def react(known: str, event: Any) -> list[Any]:
        if isinstance(event, CommandRefused):
            told.append(event)
        return [Send("A1", Reserve("o1"), to=hall)] if isinstance(event, Paid) else []

    def booking() -> ProcessManager:
        return ProcessManager("booking", store, react, initial="", refusals=[hall], start="earliest")

    with EventStore("hall", seats(), bootstrap=tidelog_broker.bootstrap, partitions=1) as hall:
        hall.send("A1", Reserve("anna"))
    with booking().beside():  # nobody owns the other store: its answer comes when somebody does
        store.send("o1", Place(1))
        store.send("o1", Pay())
        eventually(lambda: len(tidelog_broker.records("hall.commands")), lambda count: count >= 1)
    assert told == []
    with EventStore("hall", seats(), bootstrap=tidelog_broker.bootstrap) as hall:
        eventually(lambda: len(tidelog_broker.records("hall.replies")), lambda count: count >= 1)
        for _ in range(2):
            with booking().beside():
                eventually(lambda: len(told), lambda count: count >= 1)
                store.send("o2", Place(2), id="o2")
    assert [one.reason for one in told] == [SeatTaken("anna")]


@proves("E3")
def test_a_process_that_is_as_at_its_beginning_is_forgotten(tidelog_broker: TestBroker, store: EventStore[str]) -> None:
    def busy(state: str, event: Any) -> str:
        return "" if is_paid(event, None) else "placed"

    with ProcessManager("busy", store, lambda state, event: [], apply=busy, initial="", start="earliest").beside():
        for name in ("o1", "o2"):
            store.send(name, Place(1))
        store.send("o1", Pay())

        def states() -> dict[bytes, bool]:
            rows = tidelog_broker.records("busy.process")
            return {row.key: row.value is None for row in rows if row.key and row.key.startswith(b"state/")}

        eventually(states, lambda found: found == {b"state/o1": True, b"state/o2": False})


# As parts of a deployment ---------------------------------------------------------------------------------------------


def failing(kind: str, store: EventStore[str], check: Callable[[], None], folder: Path) -> Any:
    def concerns(event: Any, record: Any) -> bool:
        check()
        return False

    def project(rows: Any, event: Any, record: Any) -> None:
        check()

    if kind == "effects":
        return Effects("mails", store, lambda event, record, id: None, concerns=concerns, start="earliest")
    if kind == "model":
        return ReadModel("paid", store, project, key="order", columns=COLUMNS).part(f"sqlite:///{folder}/paid.db")
    return ProcessManager("quiet", store, lambda state, event: [], initial="", start="earliest")


@proves("E3", "P3", "F1")
@pytest.mark.parametrize("kind", ["effects", "model", "process"])
def test_a_follower_in_a_crash_loop_is_retrying_at_every_look_until_it_has_worked(
    tidelog_broker: TestBroker, store: EventStore[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    store.send("o1", Place(1))
    doubtful = Doubtful()
    follower = failing(kind, store, doubtful.check, tmp_path)
    if kind == "process":  # a fault of its functions is final: here its first look at the events fails
        fetch = EventLog.fetch
        monkeypatch.setattr(EventLog, "fetch", lambda *words: (doubtful.check(), fetch(*words))[1])
    with Cluster(tidelog_broker.bootstrap) as ours:
        run, now = Supervisor([FollowerPart(follower)], ours, lambda event, **fields: None), 0.0
        key = (follower.kind, follower.name)

        def stepped(state: str) -> dict[str, Any]:
            eventually(lambda: (run.step(key, now), run.watches[key].state)[1], lambda found: found == state)
            return run.figures(key)

        def health() -> Health:
            now_ms = time.time() * 1000
            return health_of(Report(*key, {**run.figures(key), "at_ms": now_ms}), now_ms)

        for restarts in (0, 1, 2):
            stepped("running")
            assert doubtful.called.wait(TIMEOUT_S), "it has begun, and is at the first event"
            run.step(key, now)
            assert (run.figures(key)["restarts"], health().state) == (restarts, "retrying" if restarts else "running")
            doubtful.called.clear()
            doubtful.go_on.set()
            told = stepped("retrying")
            doubtful.go_on.clear()
            assert "no such order" in told["error"]["message"] and told["next_try_ms"] > told["last_error_ms"]
            assert health().fault is not None
            now += 100.0
        doubtful.mended = True
        doubtful.go_on.set()
        stepped("running")
        eventually(lambda: (run.step(key, now), health().state)[1], lambda state: state == "running")
        run.stopping.set()
        assert run.loop() == 0


@proves("E3", "P3", "F1")
def test_a_read_model_whose_store_is_away_is_retrying_and_not_running_with_an_error(
    tidelog_broker: TestBroker, store: EventStore[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = ReadModel("paid", store, paid_orders, key="order", columns=COLUMNS).part(f"sqlite:///{tmp_path}/paid.db")
    apply, away = SqliteStore.apply, True

    def applied(*words: Any, **more: Any) -> None:
        if away:
            raise Disconnected("the store is away")
        apply(*words, **more)

    monkeypatch.setattr(SqliteStore, "apply", applied)
    with Cluster(tidelog_broker.bootstrap) as ours:
        run, key = Supervisor([FollowerPart(part)], ours, lambda event, **fields: None), (part.kind, part.name)
        eventually(lambda: (run.step(key, 0.0), run.figures(key))[1]["state"], lambda state: state == "retrying")
        assert (run.figures(key)["error"], run.watches[key].restarts) == ("the store is away", 0)
        away = False
        eventually(lambda: (run.step(key, 0.0), run.figures(key))[1]["state"], lambda state: state == "running")
        assert run.figures(key)["error"] is None
        run.stopping.set()
        assert run.loop() == 0
