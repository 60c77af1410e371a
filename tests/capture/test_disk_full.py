"""The disk of a database is full, where triggers write what is to be captured: the writer's own statement fails, whole.
And that of the broker: the capture waits until there is room.

What is in the table is in the topic, before and after; and what was refused is in neither.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

import tidelog
from against.apache_kafka import Missing
from capture.databases import COLUMNS, FAULTS, MariaDbShop, PostgresShop, Shop, SqliteShop
from capture.replaying import replayed, told
from capture.sources.mysql.mariadb_server import MariaDbServer
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture.running import Capture
from tidelog.capture.settings import CaptureSettings

NOTE = Random(1).randbytes(1_500).hex()  # PostgreSQL packs what repeats itself
LONG_S = 120.0
MOST = 20_000  # rows that no disk here has room for


def fill(shop: Shop, writer: object = None) -> int:
    """Rows, until one is refused; how many were taken. Every statement is a transaction."""
    writing = shop.writer() if writer is None else writer
    for number in range(1, MOST):
        try:
            writing.run(f"INSERT INTO orders VALUES ({number}, 'tea', {number}, '{NOTE}')")  # type: ignore[attr-defined]
        except FAULTS as error:
            assert "full" in str(error).lower() or "no space left" in str(error).lower(), error
            return number - 1
    raise AssertionError("the disk was never full")


def check_same(shop: Shop, bootstrap: str, taken: int) -> None:
    changes = told(bootstrap, shop.topic())
    assert replayed(changes, COLUMNS) == shop.rows()
    ids = [change["after"]["id"] for _, change in changes]
    assert ids == list(range(1, taken + 1)), "each once, and nothing that was refused"


@proves("D2", "cdc.31")
def test_a_full_sqlite_file_refuses_the_writer_and_goes_on_when_it_was_captured(
    tidelog_broker: tidelog.Broker, path: Path
) -> None:
    shop, bootstrap = SqliteShop(path), tidelog_broker.bootstrap
    writer = shop.writer()
    shop.make(writer)
    shop.capture(bootstrap).catch_up()
    ((pages,),) = writer.run("PRAGMA page_count")
    writer.run(f"PRAGMA max_page_count = {pages + 60}")
    taken = fill(shop, writer)
    assert taken > 5
    shop.capture(bootstrap).catch_up()
    check_same(shop, bootstrap, taken)
    writer.run(f"INSERT INTO orders VALUES ({taken + 1}, 'tea', 1, '')")  # what was captured has left room
    shop.capture(bootstrap).catch_up()
    check_same(shop, bootstrap, taken + 1)
    shop.close()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """Eight megabytes, where this machine lets us have them; PostgreSQL's own user gets there."""
    with tempfile.TemporaryDirectory(prefix="small") as folder:
        Path(folder).chmod(0o755)
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], capture_output=True)
        if made.returncode:
            pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
        yield Path(folder)
        subprocess.run(["umount", "-l", folder], check=True)


@proves("D2")
@pytest.mark.full
def test_a_full_disk_under_the_changelog_of_postgresql_refuses_the_writer(
    tidelog_broker: tidelog.Broker, logical_server: PostgresServer, small_disk: Path
) -> None:
    shop, bootstrap = PostgresShop(logical_server), tidelog_broker.bootstrap
    writer = shop.writer()
    shop.make(writer)
    shop.capture(bootstrap, method="triggers").catch_up()
    small_disk.chmod(0o755)
    place = small_disk / "space"
    place.mkdir()
    shutil.chown(place, logical_server._user or os.geteuid())
    ((changes,),) = writer.run(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname LIKE '\\_tidelog%'"
        " AND tablename = 'changes'"
    )
    writer.run(f"CREATE TABLESPACE small LOCATION '{place}'", f"ALTER TABLE {changes} SET TABLESPACE small")
    try:
        taken = fill(shop)
        assert taken > 5
        shop.capture(bootstrap, method="triggers").catch_up()
        check_same(shop, bootstrap, taken)
        # A disk without any room does not even let VACUUM write: somebody makes some.
        subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
        writer.run(f"VACUUM {changes}", f"INSERT INTO orders VALUES ({taken + 1}, 'tea', 1, '')")
        shop.capture(bootstrap, method="triggers").catch_up()
        check_same(shop, bootstrap, taken + 1)
    finally:
        writer.run(f"ALTER TABLE {changes} SET TABLESPACE pg_default", "DROP TABLESPACE small")
        shop.close()


@proves("D2")
@pytest.mark.external
@pytest.mark.full
def test_a_full_tablespace_of_mariadb_refuses_the_writer(tidelog_broker: tidelog.Broker, tmp_path: Path) -> None:
    small = ("--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M:autoextend:max:20M")
    try:
        server = MariaDbServer(tmp_path / "data", *small).start()
    except Missing as missing:
        pytest.skip(str(missing))
    shop, bootstrap = MariaDbShop(server), tidelog_broker.bootstrap
    try:
        shop.make(shop.writer())
        shop.capture(bootstrap, method="triggers").catch_up()
        taken = fill(shop)
        assert taken > 5
        shop.capture(bootstrap, method="triggers").catch_up()
        check_same(shop, bootstrap, taken)
    finally:
        shop.close()
        server.kill()


@proves("D2", "T6", "cdc.33")
@pytest.mark.full
def test_a_broker_whose_disk_is_full_is_waited_for_and_nothing_is_lost_or_told_twice(
    small_disk: Path, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop, deadline = SqliteShop(path), time.monotonic() + LONG_S
    writer = shop.writer()
    shop.make(writer)
    with tidelog.Broker(small_disk / "data") as broker:
        settings = CaptureSettings(url=shop.url, prefix="shop")
        Capture(settings, bootstrap=broker.bootstrap).catch_up()
        ballast = small_disk / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        with Capture(settings, bootstrap=broker.bootstrap, timeout_s=2.0):
            for number in range(1, 60):
                writer.run(f"INSERT INTO orders VALUES ({number}, 'tea', {number}, '{NOTE}')")
            while "it tries again" not in caplog.text:
                assert time.monotonic() < deadline, "nothing was refused"
                time.sleep(0.05)
            ballast.unlink()
            while len(told(broker.bootstrap, shop.topic())) < 59:
                assert time.monotonic() < deadline, caplog.text
                time.sleep(0.1)
        check_same(shop, broker.bootstrap, 59)
    shop.close()
