"""A crash at every step of a command's way: what was answered is there, and nothing is there twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proving import proves
from sourcing.seats import SHORT_SESSIONS, Reserve, Seat, seats
from tidelog.client.cluster import Cluster
from tidelog.sourcing import EventStore
from tidelog.sourcing.checking import check
from tidelog.testing.broker import TestBroker

TESTS = Path(__file__).parent.parent
KILLED = -9
STEPS = [
    f"{when}.{name}"
    for name in ("decide", "append", "produce", "commit", "end", "settle")
    for when in ("before", "after")
]
COMMANDS = [f"c{number} seat{number} p{number}" for number in range(4)]


@proves("E4", "es.4")
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.tidelog(settings=SHORT_SESSIONS)
@pytest.mark.parametrize("step", [*STEPS, "before.checkpoint", "after.checkpoint"])
def test_a_crash_at_any_step_loses_and_repeats_nothing(tidelog_broker: TestBroker, topic: str, step: str) -> None:
    words = [sys.executable, str(TESTS / "sourcing" / "store_process.py"), tidelog_broker.bootstrap, topic, step]
    asked = "".join(f"{line}\n" for line in COMMANDS)
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    died = subprocess.run(words, env=environment, input=asked, text=True, capture_output=True, timeout=120)
    assert died.returncode == KILLED, died.stderr
    answered = [line.split()[0] for line in died.stdout.splitlines()[1:]]
    assert len(answered) < len(COMMANDS)
    with EventStore(topic, seats(), bootstrap=tidelog_broker.bootstrap, timeout_s=60) as store:
        for id in answered:
            number = id.removeprefix("c")
            assert store.find(f"seat{number}", id) is not None
        for line in COMMANDS:  # the client does not know what became of the rest, and sends all of it again
            id, entity, person = line.split()
            receipt = store.send(entity, Reserve(person), id=id)
            assert receipt.version == 1 and (receipt.repeated or id not in answered)
            assert store.state(entity).state == Seat(person, 1)
    with Cluster(tidelog_broker.bootstrap) as cluster:
        assert check(cluster, topic, seats().types) == (len(COMMANDS), [])
