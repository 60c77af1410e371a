"""`tidelog store` and `tidelog events`, as users write them."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from against.patience import eventually
from cli.command import Command
from proving import proves
from sourcing.seats import SHORT_SESSIONS, Reserve, seats
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


@proves("E4", "P3")
@pytest.mark.slow
@pytest.mark.tidelog(settings=SHORT_SESSIONS)
def test_each_process_of_a_store_has_a_report_and_who_takes_over_clears_up(tidelog: Command, app: str) -> None:
    words = tidelog.line("store", "run", app)
    both = [subprocess.Popen(words, env=tidelog.environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    elder, younger = (f"seats.{gethostname()}-{one.pid}" for one in both)

    def owned() -> dict[str, Any]:
        told = [one for one in tidelog("status", "--json").json if one["kind"] == "store"]
        return {one["name"]: (one["state"], one["partitions"]) for one in told}

    try:
        found = eventually(owned, lambda found: sum(len(partitions) for _, partitions in found.values()) == 2)
        assert (set(found), {state for state, _ in found.values()}) == ({elder, younger}, {"running"})
        assert sorted(found[elder][1] + found[younger][1]) == [0, 1]
        assert {one["name"] for one in tidelog("status", "seats", "--json").json} == {elder, younger}
        assert tidelog("pause", "seats").out == "store seats is told to pause\n"
        eventually(owned, lambda found: {state for state, _ in found.values()} == {"paused"})
        assert tidelog("resume", "seats").code == 0
        eventually(owned, lambda found: all(of == "running" and len(some) == 1 for of, some in found.values()))
        both[0].kill()
        eventually(owned, lambda found: found == {younger: ("running", [0, 1])})
        both[1].send_signal(signal.SIGTERM)
        assert both[1].wait(WITHIN_S) == 0
        assert owned() == {younger: ("stopped", [])}
    finally:
        for one in both:
            one.kill()


FOLLOWERS = """
from tidelog.sourcing import Effects, ProcessManager, ReadModel
def project(rows, event, record):
    rows[record.entity] = {"who": event.who}
def mail(event, record, id):
    with open(__file__ + ".mails", "a") as mails:
        print(record.entity, id, file=mails)
welcome = ProcessManager("welcome", seats, lambda state, event: [], start="earliest")
mails = Effects("mails", seats, mail, start="earliest")
holders = ReadModel("holders", seats, project, key="seat", columns={"seat": "string", "who": "string"})
"""


@proves("E3")
@pytest.mark.slow
def test_what_follows_a_store_is_run_told_of_and_stopped(
    tidelog: Command, tidelog_broker: TestBroker, tmp_path: Path, app: str
) -> None:
    Path(app).write_text(APP + FOLLOWERS)
    assert "say --to URL" in tidelog("store", "follow", app).err
    assert (
        "has no ProcessManager, Effects or ReadModel called 'other'; it has welcome, mails, holders"
        in tidelog("store", "follow", f"{app}:other").err
    )
    with EventStore("seats", seats(), bootstrap=tidelog_broker.bootstrap, partitions=2) as store:
        words = tidelog.line("store", "follow", app, "--to", f"sqlite:///{tmp_path}/shop.db")
        running = subprocess.Popen(words, env=tidelog.environment, stdout=subprocess.PIPE, text=True)
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "process welcome, effects mails, read model holders run\n"
            store.send("A1", Reserve("anna"))
            eventually(lambda: shown(tidelog), lambda found: found == {"welcome": 1, "mails": 1, "holders": 1})
            assert json.loads(tidelog.ok("sql", "SELECT who FROM holders").out) == {"who": "anna"}
            assert len(Path(f"{app}.mails").read_text().splitlines()) == 1
            running.send_signal(signal.SIGTERM)
            assert running.wait(WITHIN_S) == 0
        finally:
            running.kill()
    states = {one["name"]: one["state"] for one in parts(tidelog)}
    assert {states[name] for name in ("welcome", "mails", "holders")} == {"stopped"}


def parts(tidelog: Command) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(tidelog.ok("status", "--json").out)
    return found


def shown(tidelog: Command) -> dict[str, Any]:
    """What each of them has done by its status."""
    counted = {"welcome": "rows_in", "mails": "rows_out", "holders": "rows"}
    return {one["name"]: one.get(counted[one["name"]]) for one in parts(tidelog) if one["name"] in counted}


@proves("E2")
def test_types_that_do_not_fit_fail_the_check(tidelog: Command, tidelog_broker: TestBroker, tmp_path: Path) -> None:
    with EventStore("seats", seats(), bootstrap=tidelog_broker.bootstrap, partitions=1) as store:
        store.send("A1", Reserve("anna"))
    (tmp_path / "old.py").write_text(APP.replace("decider()", "decider(events=[])"))
    checked = tidelog("events", "check", "seats", "--app", str(tmp_path / "old.py"))
    assert checked.code == 1
    assert "incompatible: the log has events 'Reserved'" in checked.out
    assert "unknown: partition 0, offset 0 of 'A1'" in checked.out


@proves("E2")
def test_one_mistake_in_a_class_is_some_lines_and_a_count(
    tidelog: Command, tidelog_broker: TestBroker, tmp_path: Path
) -> None:
    with EventStore("seats", seats(), bootstrap=tidelog_broker.bootstrap, partitions=1) as store:
        for number in range(9):
            store.send(f"A{number}", Reserve("anna"))
    (tmp_path / "old.py").write_text(APP.replace("decider()", "decider(events=[])"))
    checked = tidelog("events", "check", "seats", "--app", str(tmp_path / "old.py"))
    unknown = [line for line in checked.lines if line.startswith("unknown: ")]
    assert len(unknown) == 6 and "... and 4 more records of type Reserved" in unknown[-1]
    assert checked.lines[-1] == "9 records, 9 wrong"


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
        (["store", "access", "seats", "--follower", "crm"], "--follows NAME"),
    ],
)
def test_mistakes_are_told_with_what_to_do(tidelog: Command, words: list[str], said: str) -> None:
    done = tidelog(*words)
    assert done.code == 2
    assert said in done.err


@proves("E1")
def test_a_module_that_raises_is_told_with_its_line(tidelog: Command, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("one = 1\ntwo = one / 0\n")
    done = tidelog("store", "run", str(tmp_path / "broken.py"))
    assert done.code == 2
    assert "ZeroDivisionError('division by zero') (broken.py:2)" in done.err
