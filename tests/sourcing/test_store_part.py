"""A store as a part of a deployment: what it is told of as while it fails, and when it has worked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from against.patience import eventually
from contract import TIMEOUT_S
from proving import proves
from sourcing.doubtful import Doubtful
from sourcing.seats import Reserve, Seat, seats
from tidelog.client.cluster import Cluster
from tidelog.control.health import Health, health_of
from tidelog.control.owner import Owner
from tidelog.control.status import Report
from tidelog.errors import Disconnected
from tidelog.parts.running import Supervisor
from tidelog.sourcing import EventStore
from tidelog.sourcing.owning import PartitionOwner
from tidelog.sourcing.store_part import StorePart
from tidelog.testing.broker import TestBroker


@pytest.fixture
def sender(tidelog_broker: TestBroker) -> Iterator[EventStore[Seat]]:
    """It owns nothing: its commands come by topic."""
    with EventStore("seats", seats(), bootstrap=tidelog_broker.bootstrap, partitions=1):
        pass
    with EventStore("seats", seats(), bootstrap=tidelog_broker.bootstrap, serve=False) as running:
        yield running


class Watched:
    """A store that is supervised, step by step."""

    def __init__(self, bootstrap: str, cluster: Cluster) -> None:
        self.part = StorePart(EventStore("seats", seats(), bootstrap=bootstrap))
        self.key = (self.part.kind, self.part.name)
        self.run = Supervisor([self.part], cluster, lambda event, **fields: None)
        self.now = 0.0

    def look(self) -> dict[str, Any]:
        self.run.step(self.key, self.now)
        return self.run.figures(self.key)

    def health(self) -> Health:
        now_ms = time.time() * 1000
        return health_of(Report(*self.key, {**self.look(), "at_ms": now_ms}), now_ms)

    def end(self) -> None:
        self.run.stopping.set()
        assert self.run.loop() == 0


@proves("E4", "P3")
def test_a_store_in_a_crash_loop_is_retrying_at_every_look_until_it_has_worked(
    tidelog_broker: TestBroker, sender: EventStore[Seat], monkeypatch: pytest.MonkeyPatch
) -> None:
    doubtful, batch = Doubtful(), PartitionOwner._batch
    monkeypatch.setattr(PartitionOwner, "_batch", lambda *words: (doubtful.check(), batch(*words))[1])
    answer = sender.send_soon("A1", Reserve("anna"))
    with Cluster(tidelog_broker.bootstrap) as ours:
        watched = Watched(tidelog_broker.bootstrap, ours)
        for restarts in (0, 1, 2):
            watched.look()
            assert doubtful.called.wait(TIMEOUT_S), "it is loaded, and at the command"
            told = watched.look()
            assert (told["restarts"], told["state"]) == (restarts, "retrying" if restarts else "running")
            doubtful.called.clear()
            doubtful.go_on.set()
            told = eventually(watched.look, lambda found: found["next_try_ms"] is not None)
            doubtful.go_on.clear()
            assert "no such order" in told["error"]["message"]
            assert watched.health().fault is not None
            watched.now += 100.0
        doubtful.mended = True
        doubtful.go_on.set()
        eventually(lambda: watched.health().state, lambda state: state == "running")
        assert answer.result(TIMEOUT_S).version == 1
        watched.end()


@proves("E4", "P3")
def test_a_store_whose_broker_does_not_take_its_events_is_retrying_and_not_running(
    tidelog_broker: TestBroker, sender: EventStore[Seat], monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction, away = Owner.transaction, True

    def begun(owner: Owner) -> Any:
        if away:
            raise Disconnected("the broker is away")
        return transaction(owner)

    monkeypatch.setattr(Owner, "transaction", begun)
    answer = sender.send_soon("A1", Reserve("anna"))
    with Cluster(tidelog_broker.bootstrap) as ours:
        watched = Watched(tidelog_broker.bootstrap, ours)
        told = eventually(watched.look, lambda found: found["state"] == "retrying")
        assert (told["error"], told["restarts"]) == ("partition 0: the broker is away", 0)
        away = False
        told = eventually(watched.look, lambda found: found["state"] == "running")
        assert (told["error"], answer.result(TIMEOUT_S).version) == (None, 1)
        watched.end()
