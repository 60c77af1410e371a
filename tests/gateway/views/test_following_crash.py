"""A gateway that is killed, a broker that ends: who comes back with his place misses and doubles nothing."""

from __future__ import annotations

import http.client
import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import tidelog
from crash.port import free_port
from gateway.serving import SECONDS, Client, GatewayProcess
from gateway.views.shop import Event, Follower, Shop, fold, shop
from proving import proves

ROUNDS = 3
PASSING = (EOFError, OSError, http.client.HTTPException)


def told(client: Client, name: str, last_id: str | None, count: int) -> tuple[list[Event], str | None]:
    """As a browser's EventSource: it comes back with the last place that it saw, until it has so many."""
    events: list[Event] = []
    deadline = time.monotonic() + SECONDS
    while len(events) < count:
        assert time.monotonic() < deadline
        try:
            with Follower(client, name, last_id) as follower:
                if follower.status != 200:
                    assert follower.status in (502, 503, 504), follower.answer.read()
                    time.sleep(0.1)
                    continue
                while len(events) < count:
                    last_id = follower.last_id
                    events.append(follower.next())
                    last_id = follower.last_id
        except PASSING:
            time.sleep(0.05)
    return events, last_id


def write(made: Shop, chance: random.Random, number: int) -> int:
    written = 0
    for _ in range(chance.randrange(1, 5)):
        rows = {f"p{chance.randrange(12)}": chance.choice([None, number]) for _ in range(6)}
        made.batch(rows)
        written += len(rows)
    return written


@proves("D7", "eo.15")
@pytest.mark.parametrize("seed", [1])
def test_a_killed_gateway_costs_nobody_a_change(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with tidelog.Broker() as broker, shop(broker.bootstrap, tmp_path, "revenue", partitions=3, applied=False) as made:
        gateway = GatewayProcess(broker.bootstrap, tmp_path / "log0")
        with Follower(gateway.client, "revenue") as first:
            place = first.last_id
        events: list[Event] = []
        left = 0
        for number in range(ROUNDS):
            left += write(made, chance, number)
            some, place = told(gateway.client, "revenue", place, chance.randrange(1, left))
            gateway.process.kill()
            gateway.process.wait()
            events += some
            left -= len(some)
            gateway = GatewayProcess(broker.bootstrap, tmp_path / f"log{number + 1}")
        rest, _ = told(gateway.client, "revenue", place, left)
        assert gateway.stop() == 0
    _check(events + rest, made)


@proves("D7", "eo.15")
def test_a_broker_that_ends_and_comes_back_costs_nobody_a_change(tmp_path: Path) -> None:
    chance = random.Random(3)
    listen = f"127.0.0.1:{free_port()}"
    with tidelog.Broker(tmp_path / "data", listen=listen) as broker, ExitStack() as kept:
        made = kept.enter_context(shop(broker.bootstrap, tmp_path, "revenue", partitions=3, applied=False))
        gateway = GatewayProcess(broker.bootstrap, tmp_path / "log")
        with Follower(gateway.client, "revenue") as first:
            place = first.last_id
        later = kept.pop_all()
    events: list[Event] = []
    left = 0
    for number in range(ROUNDS):
        with tidelog.Broker(tmp_path / "data", listen=listen):
            left += write(made, chance, number)
            some, place = told(gateway.client, "revenue", place, left if number == ROUNDS - 1 else left // 2)
            events += some
            left -= len(some)
    later.close()
    assert gateway.stop() == 0
    _check(events, made)


def _check(events: list[Event], made: Shop) -> None:
    assert len({event.id for event in events}) == len(events)
    assert fold({}, events) == made.now
