"""A capture by triggers through the runner: what a consumer of committed records sees, also after kills."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest

import tidelog
from capture.captured import envelopes, folded
from capture.sources.postgres.following import Base
from capture.sources.postgres.triggers.test_order import writes
from proving import proves
from tidelog.capture import running
from tidelog.capture.sources.postgres.triggers.changelog import PostgresChangelog
from tidelog.cli.main import main
from tidelog.errors import TidelogError, UsageError

TABLES = ("CREATE TABLE kv (id int PRIMARY KEY, v text)", "CREATE TABLE other (id int PRIMARY KEY, n int)")


def capture(base: Base, broker: tidelog.Broker, **settings: Any) -> running.Capture:
    made: running.Capture = tidelog.capture(
        base.url, prefix="shop", bootstrap=broker.bootstrap, method="triggers", **settings
    )
    return made


class Killed(BaseException):
    """As a process ends that is killed."""


@proves("D2", "D3", "cdc.33")
@pytest.mark.slow
def test_a_capture_that_is_killed_again_and_again_tells_each_change_once(
    base: Base, tidelog_broker: tidelog.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    base.run("SET deadlock_timeout = '20ms'", *TABLES, "INSERT INTO kv SELECT g, 'first' FROM generate_series(1, 5) g")
    random, read = Random(3), PostgresChangelog.read
    monkeypatch.setattr(running, "READ_EVENTS", 3)
    monkeypatch.setattr(running, "ROWS", 4)

    def killed(self: PostgresChangelog, limit: int, wait_s: float) -> Any:
        if random.random() < 0.05:
            raise Killed
        return read(self, limit, wait_s)

    writers = [Thread(target=writes, args=(base.url, seed, 25)) for seed in range(3)]
    for writer in writers:
        writer.start()
    with monkeypatch.context() as patched:
        patched.setattr(PostgresChangelog, "read", killed)
        while any(writer.is_alive() for writer in writers):
            with suppress(Killed):
                capture(base, tidelog_broker).catch_up()
    capture(base, tidelog_broker, transactions=True).catch_up()
    writes(base.url, 4, 5)  # the others may all have been done before a snapshot was
    capture(base, tidelog_broker, transactions=True).catch_up()
    told = envelopes(tidelog_broker.bootstrap, "shop.public.kv")
    assert folded(told, ["id"]) == {row[:1]: row for row in base.ask("SELECT id, v FROM kv")}
    numbers = [one["source"]["sequence"] for one in told if one["source"]["snapshot"] == "false"]
    changed = [one for at, one in enumerate(numbers) if at == 0 or one != numbers[at - 1]]  # a changed key is two
    assert len(changed) == len(set(changed)) > 0


@proves("D2")
def test_the_command_checks_captures_and_removes_by_triggers(
    base: Base, tidelog_broker: tidelog.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    base.run(*TABLES, "INSERT INTO kv VALUES (1, 'a')")
    url, more = base.url, ["--method", "triggers", "--bootstrap", tidelog_broker.bootstrap]
    assert main(["capture", "check", url, *more]) == 0
    assert "2 tables will be captured by triggers" in capsys.readouterr().out
    assert main(["capture", "run", url, "--prefix", "shop", "--once", *more]) == 0
    assert [one["after"] for one in envelopes(tidelog_broker.bootstrap, "shop.public.kv")] == [{"id": 1, "v": "a"}]
    assert main(["capture", "remove", url, "--prefix", "shop", "--yes", *more[2:]]) == 0, "whatever the method was"
    assert "dropped the schema _tidelog_shop" in capsys.readouterr().out
    assert base.ask("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == [(0,)]


@proves("D2")
def test_a_method_that_a_database_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is triggers"):
        tidelog.capture(f"sqlite:///{tmp_path}/shop.db", prefix="shop", method="log")
    with pytest.raises(TidelogError, match="there is log, triggers"):
        tidelog.capture("postgresql://db/shop", prefix="shop", method="polling")
