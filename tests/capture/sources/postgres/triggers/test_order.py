"""Transactions that commit in another order than they wrote in: what a reader by numbers would lose or turn around."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import psycopg
import pytest

from capture.sources.postgres.following import Base, told
from capture.sources.postgres.triggers.logged import KV, Reader, drained, started
from proving import proves
from tidelog.capture.change import Begin, RowChange

CHANGES = "_tidelog_t.changes"


class NaiveReader:
    """Reads on from the highest number that it saw: what most captures by triggers do."""

    def __init__(self, base: Base) -> None:
        self._base, self._last = base, 0
        self.seen: list[str] = []

    def look(self) -> None:
        for number, after in self._base.ask(f"SELECT id, after FROM {CHANGES} WHERE id > {self._last} ORDER BY id"):
            self._last = number
            self.seen.append(after)


def opened(base: Base, *statements: str) -> psycopg.Connection[Any]:
    """A transaction that has written, and has not ended."""
    connection = base.connection()
    connection.execute("BEGIN")
    for statement in statements:
        connection.execute(statement)  # type: ignore[call-overload]
    return connection


@proves("D2", "cdc.1")
def test_a_low_number_that_is_committed_late_is_not_passed_over(base: Base) -> None:
    base.run(KV)
    _, stream = started(base)
    naive = NaiveReader(base)
    late = opened(base, "INSERT INTO kv VALUES (1, 'late')")
    base.run("INSERT INTO kv VALUES (2, 'early')")
    naive.look()
    early = drained(stream)
    late.execute("COMMIT")
    naive.look()
    assert [after["id"] for _, _, _, after in told([*early, *drained(stream)])] == [2, 1]
    assert naive.seen == ["(2,early)"], "the naive reader was to be shown to lose the row"


@proves("D2", "cdc.1")
def test_a_transaction_with_a_low_number_may_change_a_row_last(base: Base) -> None:
    """By order of transaction ids below the oldest open one, the row would end as 'second' although it is 'third'."""
    base.run(KV, "INSERT INTO kv VALUES (1, 'first'), (2, 'a')")
    _, stream = started(base)
    low = opened(base, "UPDATE kv SET v = 'b' WHERE id = 2")
    held = opened(base, "INSERT INTO kv VALUES (3, 'held')")
    base.run("UPDATE kv SET v = 'second' WHERE id = 1")
    low.execute("UPDATE kv SET v = 'third' WHERE id = 1")
    low.execute("COMMIT")
    ids = [int(xid) for (xid,) in base.ask(f"SELECT xid::text FROM {CHANGES} ORDER BY id")]
    assert ids[2] == ids[0] < ids[1], "the row's last writer was to have the lower number"
    events = drained(stream)
    assert [after["v"] for _, _, _, after in told(events) if after["id"] == 1] == ["second", "third"]
    held.execute("COMMIT")
    assert [after["v"] for _, _, _, after in told(drained(stream))] == ["held"]


@proves("D2", "cdc.1")
def test_a_long_transaction_is_whole_and_does_not_hold_up_the_others(base: Base) -> None:
    base.run(KV)
    _, stream = started(base)
    long = opened(base, "INSERT INTO kv VALUES (1, 'a')")
    for number in range(2, 6):
        base.run(f"INSERT INTO kv VALUES ({number}, 'x')")
        long.execute(f"INSERT INTO kv VALUES ({number + 10}, 'b')")  # type: ignore[call-overload]
        assert [after["id"] for _, _, _, after in told(drained(stream))] == [number]
    long.execute("COMMIT")
    events = drained(stream)
    assert [after["id"] for _, _, _, after in told(events)] == [1, 12, 13, 14, 15]
    assert len([event for event in events if isinstance(event, Begin)]) == 1


@proves("D2", "cdc.16")
def test_what_is_rolled_back_or_prepared_is_not_told(base: Base) -> None:
    base.run(KV)
    _, stream = started(base)
    writer = opened(base, "INSERT INTO kv VALUES (1, 'a')", "SAVEPOINT s", "INSERT INTO kv VALUES (2, 'b')")
    writer.execute("ROLLBACK TO s")
    writer.execute("INSERT INTO kv VALUES (3, 'c')")
    assert drained(stream) == []
    writer.execute("COMMIT")
    opened(base, "INSERT INTO kv VALUES (4, 'd')").execute("ROLLBACK")
    assert [after["id"] for _, _, _, after in told(drained(stream))] == [1, 3]


def writes(url: str, seed: int, rounds: int) -> None:
    """Transactions on few rows, some long, some rolled back; a deadlock ends one, as it does in life."""
    random = Random(seed)
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(rounds):
            try:
                connection.execute("BEGIN")
                for _ in range(random.choice((1, 1, 2, 5))):
                    connection.execute(statement(random))  # type: ignore[call-overload]
                    if random.random() < 0.3:
                        connection.execute("SELECT pg_sleep(%s)", [random.random() / 50])
                connection.execute(random.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))
            except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
                connection.execute("ROLLBACK")


def statement(random: Random) -> str:
    key, value = random.randint(1, 6), random.randint(1, 99)
    return random.choice(
        (
            f"INSERT INTO kv VALUES ({key}, {value}) ON CONFLICT (id) DO UPDATE SET v = {value}",
            f"INSERT INTO kv VALUES ({key}, {value}) ON CONFLICT (id) DO UPDATE SET v = kv.v || {value}",
            f"UPDATE kv SET v = {value} WHERE id = {key}",
            f"DELETE FROM kv WHERE id = {key}",
            f"UPDATE kv SET id = {key} WHERE id = (SELECT min(id) FROM kv)",
            f"UPDATE other SET n = n + {value} WHERE id = {key}",
            "TRUNCATE other"
            if random.random() < 0.1
            else "INSERT INTO other SELECT g, 0 FROM generate_series(1,6) g ON CONFLICT DO NOTHING",
        )
    )


@proves("D2", "cdc.1", "cdc.2", "cdc.11", "cdc.16")
@pytest.mark.slow
@pytest.mark.parametrize("limit", [2, 1000])
def test_histories_of_several_writers_fold_to_the_tables(base: Base, limit: int) -> None:
    """Every change must fit what the ones before it made of its row: an order that is wrong for one row fails here."""
    base.run("SET deadlock_timeout = '20ms'", KV, "CREATE TABLE other (id int PRIMARY KEY, n int)")
    reader = Reader(base, limit)
    writers = [threading.Thread(target=writes, args=(base.url, 7 * limit + one, 25)) for one in range(4)]
    for writer in writers:
        writer.start()
    random = Random(limit)
    while any(writer.is_alive() for writer in writers):
        reader.read_some(random.randint(1, 40))
        if random.random() < 0.2:
            reader.again(confirmed=random.random() < 0.5)
    for writer in writers:
        writer.join()
    reader.read_all()
    assert reader.rows("kv") == base.ask("SELECT id, v FROM kv ORDER BY id")
    assert reader.rows("other") == base.ask("SELECT id, n FROM other ORDER BY id")
    told_ids = [events[0].id for events in reader.transactions if isinstance(events[0], Begin)]
    assert len(told_ids) == len(set(told_ids)) == len(reader.transactions), "no transaction comes twice or in parts"


@proves("D2", "cdc.3")
def test_a_large_transaction_comes_in_pieces_and_again_in_the_same_ones(base: Base) -> None:
    base.run(KV)
    source, stream = started(base)
    base.run("INSERT INTO kv SELECT g, 'x' FROM generate_series(1, 10) g", "DELETE FROM kv WHERE id = 1")
    first = stream.read(4, 0)
    position = first[0].position  # type: ignore[union-attr]
    assert "upto" in position, "its end is fixed before its first row is told"
    pieces = [stream.read(4, 0) for _ in range(4)]
    assert all(len([event for event in piece if isinstance(event, RowChange)]) <= 4 for piece in pieces)
    base.run("INSERT INTO kv VALUES (11, 'later')")
    again = source.stream(position)
    assert [again.read(4, 0) for _ in range(5)][1:] == pieces
    assert [op for _, op, _, _ in told(drained(again, 4))] == ["d", "c"]
