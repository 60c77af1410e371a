"""Random histories of a captured shop, by several writers at once: what each does is by its own seed."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from threading import Event, Thread
from typing import Any

from capture.databases import FAULTS, Shop, Writer

KEYS = 12
LARGE = 9_000  # bytes of a value that PostgreSQL keeps aside, and does not tell again


def large(chance: Random) -> str:
    """Of many different letters, so that it is large when it is compressed, too."""
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=LARGE))


def statement(shop: Shop, chance: Random) -> str:
    one, other = chance.randrange(KEYS), chance.randrange(KEYS)
    kind = chance.randrange(10)
    if kind < 3:
        return shop.upsert(one, chance.choice(["tea", "milk", ""]), chance.randrange(100), "")
    if kind < 4:
        return shop.upsert(one, "large", chance.randrange(100), large(chance))
    if kind < 6:
        return f"UPDATE orders SET price = price + {other} WHERE id = {one}"
    if kind < 7:
        return f"UPDATE orders SET price = price + 1 WHERE id < {one}"
    if kind < 8:
        free = f"NOT EXISTS (SELECT 1 FROM (SELECT id FROM orders) AS o WHERE o.id = {other})"
        return f"UPDATE orders SET id = {other} WHERE id = {one} AND {free}"
    return f"DELETE FROM orders WHERE id = {one}"


def step(shop: Shop, writer: Writer, chance: Random) -> None:
    """One transaction, or one statement alone."""
    kind = chance.randrange(12)
    if kind == 0:
        writer.run(shop.truncate)
    elif kind < 4:
        writer.run(statement(shop, chance))
    elif kind < 7:
        amount = chance.randrange(1, 100)
        with writer.transaction(chance.choice(["COMMIT", "COMMIT", "ROLLBACK"])):
            writer.run(f"UPDATE debit SET n = n + {amount} WHERE id = 1")
            writer.run(statement(shop, chance))
            writer.run(f"UPDATE credit SET n = n - {amount} WHERE id = 1")
    else:
        with writer.transaction(chance.choice(["COMMIT", "COMMIT", "ROLLBACK"])):
            for _ in range(chance.randrange(1, 6)):
                writer.run(statement(shop, chance))
            writer.run("SAVEPOINT s")
            writer.run(statement(shop, chance))
            if chance.randrange(2):
                writer.run("ROLLBACK TO SAVEPOINT s")
            writer.run(statement(shop, chance))


class Writers:
    """Threads that write until they are told to stop; each goes on after a fault, with a connection of its own."""

    def __init__(self, shop: Shop, seed: int, count: int = 3) -> None:
        self._shop = shop
        self._stop = Event()
        self.steps = 0
        self._threads = [Thread(target=self._write, args=(Random(seed * 100 + number),)) for number in range(count)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, chance: Random) -> None:
        writer: Writer | None = None
        while not self._stop.is_set():
            try:
                writer = writer or self._shop.writer()
                step(self._shop, writer, chance)
                self.steps += 1
            except FAULTS:
                if writer is not None:
                    with suppress(*FAULTS):
                        writer.run("ROLLBACK")
                    writer.close()
                writer = None
                self._stop.wait(0.02)
            self._stop.wait(chance.random() * 0.01)
        if writer is not None:
            writer.close()
