"""`tidelog store` and `tidelog events`, as users write them."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cli.command import Command
from proving import proves
from sourcing.seats import Reserve, seats
from tidelog.sourcing import EventStore
from tidelog.testing.broker import TestBroker

TESTS = Path(__file__).parent.parent
APP = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from sourcing.seats import seats as decider
from tidelog.sourcing import EventStore
seats = EventStore("seats", decider(), partitions=2)
"""
WITHIN_S = 60.0


@pytest.fixture
def tidelog(tidelog_broker: TestBroker) -> Command:
    return Command(tidelog_broker.bootstrap)


@pytest.fixture
def app(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(APP)
    return str(tmp_path / "shop.py")


@proves("E1", "E2")
@pytest.mark.slow
def test_a_store_is_run_looked_at_checked_and_stopped(tidelog: Command, tidelog_broker: TestBroker, app: str) -> None:
    words = tidelog.line("store", "run", app)
    running = subprocess.Popen(
        words, env=tidelog.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        look_at(tidelog, tidelog_broker, app, running.stdout.readline())
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=WITHIN_S)
        assert running.returncode == 0, errors
    finally:
        running.kill()


def look_at(tidelog: Command, broker: TestBroker, app: str, first_line: str) -> None:
    assert first_line == "store seats runs\n"
    deadline = time.monotonic() + WITHIN_S
    while tidelog("events", "check", "seats").code != 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with EventStore("seats", seats(), bootstrap=broker.bootstrap, serve=False) as store:
        assert store.send("A1", Reserve("anna")).version == 1
    while '"rows_out": 1' not in tidelog("status", "--json").out.replace('"rows_out":1', '"rows_out": 1'):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    checked = tidelog("events", "check", "seats")
    assert (checked.code, checked.out) == (0, "1 records, nothing wrong\n")
    as_json = json.loads(tidelog("events", "check", "seats", "--app", app, "--json").out)
    assert as_json == {"records": 1, "findings": [], "incompatible": []}


@proves("E2")
def test_types_that_do_not_fit_fail_the_check(tidelog: Command, tidelog_broker: TestBroker, tmp_path: Path) -> None:
    with EventStore("seats", seats(), bootstrap=tidelog_broker.bootstrap, partitions=1) as store:
        store.send("A1", Reserve("anna"))
    (tmp_path / "old.py").write_text(APP.replace("decider()", "decider(events=[])"))
    checked = tidelog("events", "check", "seats", "--app", str(tmp_path / "old.py"))
    assert checked.code == 1
    assert "incompatible: the log has events 'Reserved'" in checked.out
    assert "unknown: partition 0, offset 0 of 'A1'" in checked.out


@proves("E1")
def test_access_rules_are_printed_for_owners_and_senders(tidelog: Command) -> None:
    shown = tidelog("store", "access", "seats", "--owner", "shop", "--sender", "web").out
    assert "tidelog.store.seats." in shown and "User:shop" in shown
    senders = [line for line in shown.splitlines() if "User:web" in line]
    assert len(senders) == 4 and not any("seats.events" in line for line in senders)


@proves("E1")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["events", "check", "nowhere"], "has no topic nowhere.events"),
        (["store", "run", "nowhere.py"], "is not a file"),
        (["store", "run", "no_such_module_here"], "cannot be imported"),
        (["store", "access", "seats"], "--owner USER"),
    ],
)
def test_mistakes_are_told_with_what_to_do(tidelog: Command, words: list[str], said: str) -> None:
    done = tidelog(*words)
    assert done.code == 2
    assert said in done.err
