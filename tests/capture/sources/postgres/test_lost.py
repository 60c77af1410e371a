"""A server of its own that is killed, and one that has removed log that a slot needed."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from capture.conftest import LOGICAL
from capture.sources.postgres.following import SECONDS, Base, Folded, check_frames, told
from postgres_server import PostgresServer
from proving import proves
from tidelog.errors import Disconnected, SourceLost

KV = "CREATE TABLE kv (id int PRIMARY KEY, v text)"


@pytest.fixture
def small_server() -> Iterator[PostgresServer]:
    """It keeps little of its log for a slot."""
    sizes = {"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder).resolve(), LOGICAL | sizes)
        server.start()
        yield server
        server.stop()


@proves("cdc.6", "cdc.2")
@pytest.mark.slow
def test_a_killed_server_is_read_on_and_a_slot_that_it_lost_stops_capture(small_server: PostgresServer) -> None:
    with Base(small_server.url()) as base:
        base.run(KV)
        source, stream = base.started()
        base.run("INSERT INTO kv VALUES (1, 'a')")
        (position,) = check_frames(base.drain(stream))
        stream.confirm(position)
        base.run("INSERT INTO kv VALUES (2, 'b')")
        small_server.kill()
        with pytest.raises(Disconnected):
            while True:
                stream.read(10, SECONDS)
        stream.close()
        with pytest.raises(Disconnected):
            source.stream(position)
        small_server.start()
        base.writer = base.connection()
        stream = base.stream(source, position)
        assert told(base.drain(stream)) == [("kv", "c", None, {"id": 2, "v": "b"})]
        stream.close()
        _lose(base)
        assert source.lag().state == "lost"
        with pytest.raises(SourceLost, match=r"is lost: .* take a new snapshot"):
            source.stream(position)
        assert any("is lost" in each.what for each in source.check())
        snapshot = source.snapshot()  # makes the slot anew
        folded = Folded()
        for table in snapshot.tables():
            for rows in snapshot.rows(table, None, None, 100):
                folded.read(table, rows)
        snapshot.close()
        base.run("INSERT INTO kv VALUES (3, 'c')")
        folded.apply(base.drain(base.stream(source, snapshot.position)))
        assert folded.rows("kv") == [[1, "a"], [2, "b"], [3, "c"]]


def _lose(base: Base) -> None:
    for _ in range(40):
        base.run("SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000))", "SELECT pg_switch_wal()")
        base.run("CHECKPOINT")
        if base.ask("SELECT wal_status FROM pg_replication_slots")[0][0] == "lost":
            return
    raise AssertionError("the server has kept all of its log")


@proves("cdc.7", "cdc.2")
@pytest.mark.slow
def test_a_server_whose_disk_was_restored_is_not_read_on(small_server: PostgresServer, tmp_path: Path) -> None:
    """It has the slot and its own identifier again, and would pass over all that it writes up to our position."""
    with Base(small_server.url()) as base:
        base.run(KV)
        source, stream = base.started()
        stream.close()
        source.close()
        small_server.stop()
        subprocess.run(["cp", "-a", small_server.folder, tmp_path / "copy"], check=True)
        small_server.start()
        base.writer = base.connection()
        stream = base.stream(source, base.first)
        base.run("INSERT INTO kv SELECT n, repeat('x', 100) FROM generate_series(1, 1000) AS n")
        (position,) = check_frames(base.drain(stream))
        stream.confirm(position)
        stream.close()
        source.close()
        small_server.stop()
        subprocess.run(["find", small_server.folder, "-mindepth", "1", "-delete"], check=True)
        subprocess.run(["cp", "-a", f"{tmp_path / 'copy'}/.", small_server.folder], check=True)
        small_server.start()
        base.writer = base.connection()
        base.run("INSERT INTO kv VALUES (1, 'after')")
        with pytest.raises(SourceLost, match=r"ends at .*, before the stored position .*: .* take a new snapshot"):
            source.stream(position)
        taken = source.snapshot()
        folded = Folded()
        for table in taken.tables():
            folded.read(table, [row for rows in taken.rows(table, None, None, 10) for row in rows])
        taken.close()
        base.run("INSERT INTO kv VALUES (2, 'b')")
        folded.apply(base.drain(base.stream(source, taken.position)))
        assert folded.rows("kv") == [[1, "after"], [2, "b"]]
