"""The entities of a partition: those in use decoded, within a bound; the others as snapshots, in memory or in a file.

    hot     decoded, the least recently used first; after each batch at most `bound` of them, with COMMANDS_EACH
            remembered commands each on average
    cold    as snapshot values: at most `bound`, and COLD_BYTES, in memory; more than that, all in a SQLite file

Rules:
- The file is a cache of what the log has. It is made anew by every owner and never synced. It loses its name as soon as
  it is open, so that it goes with the owner however that ends: it may have what must be forgotten.
- `trim` is called between transactions, when what entities have is committed.
- `changed` has the names of entities whose last snapshot in the log is old.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tidelog.errors import HistoryFault
from tidelog.sourcing.entity import Folding, LoadedEntity

BOUND = 100_000  # entities by default
COMMANDS_EACH = 10
COLD_BYTES = 64 << 20
CACHE_KIB = 16 << 10  # of SQLite


class SnapshotFault(Exception):
    """A snapshot that cannot be read after all: the owner goes on without any."""


class ColdEntities:
    def __init__(self, bound: int, folder: str | None = None) -> None:
        self._bound, self._folder = bound, folder
        self._values: dict[str, bytes] = {}
        self._bytes = 0  # of them
        self._file: sqlite3.Connection | None = None
        self._rows = 0  # of the file: SQLite would read all of it to count them

    def __len__(self) -> int:
        return len(self._values) if self._file is None else self._rows

    @property
    def in_file(self) -> bool:
        return self._file is not None

    def get(self, name: str) -> bytes | None:
        if self._file is None:
            return self._values.get(name)
        found = self._file.execute("SELECT value FROM cold WHERE name = ?", (name,)).fetchone()
        return None if found is None else bytes(found[0])

    def items(self) -> Iterator[tuple[str, bytes]]:
        if self._file is None:
            yield from self._values.items()
            return
        last = ""
        while found := self._file.execute(
            "SELECT name, value FROM cold WHERE name > ? ORDER BY name LIMIT 1000", (last,)
        ).fetchall():
            yield from ((name, bytes(value)) for name, value in found)
            last = found[-1][0]

    def put(self, values: Iterable[tuple[str, bytes]]) -> None:
        if self._file is not None:
            self._put_into(self._file, list(values))
            return
        for name, value in values:
            self._bytes += len(value) - len(self._values.get(name, b""))
            self._values[name] = value
        if len(self._values) > self._bound or self._bytes > COLD_BYTES:
            self._spill()

    def drop(self, name: str) -> None:
        if self._file is None:
            self._bytes -= len(self._values.pop(name, b""))
        else:
            self._rows -= self._file.execute("DELETE FROM cold WHERE name = ?", (name,)).rowcount

    def close(self) -> None:
        self._values.clear()
        self._bytes = self._rows = 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self) -> None:
        with tempfile.TemporaryDirectory(prefix="tidelog-store-", dir=self._folder) as place:
            self._file = sqlite3.connect(Path(place) / "cold.db", isolation_level=None, check_same_thread=False)
            self._begin(self._file)
        values, self._values, self._bytes = self._values, {}, 0
        self._put_into(self._file, sorted(values.items()))

    def _put_into(self, file: sqlite3.Connection, values: Sequence[tuple[str, bytes]]) -> None:
        file.execute("BEGIN")
        before = file.total_changes
        file.executemany("INSERT OR IGNORE INTO cold VALUES (?, ?)", values)
        made = file.total_changes - before
        if made < len(values):
            file.executemany("UPDATE cold SET value = ?2 WHERE name = ?1", values)
        file.execute("COMMIT")
        self._rows += made

    @staticmethod
    def _begin(file: sqlite3.Connection) -> None:
        for pragma in (
            "journal_mode = OFF",
            "synchronous = OFF",
            "locking_mode = EXCLUSIVE",
            "temp_store = MEMORY",
            f"cache_size = -{CACHE_KIB}",
        ):
            file.execute(f"PRAGMA {pragma}")
        file.execute("CREATE TABLE cold (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID")


class Entities:
    def __init__(self, folding: Folding, *, bound: int = BOUND, folder: str | None = None) -> None:
        self._folding, self._bound = folding, bound
        self._hot: OrderedDict[str, LoadedEntity] = OrderedDict()
        self._remembered: dict[str, int] = {}  # commands, by hot entity
        self._commands = 0  # their sum
        self.cold = ColdEntities(bound, folder)
        self.changed: set[str] = set()

    def __len__(self) -> int:
        """About how many there are: one that is hot may be cold as well."""
        return max(len(self._hot), len(self.cold))

    @property
    def hot(self) -> int:
        return len(self._hot)

    def find(self, name: str) -> LoadedEntity:
        """One without a history is made, and kept when it has one."""
        found = self._hot.get(name)
        if found is not None:
            self._hot.move_to_end(name)
            return found
        value = self.cold.get(name)
        if value is None:
            return self._folding.fresh()
        try:
            found = self._hot[name] = self._folding.decode(name, value)
        except HistoryFault as error:
            raise SnapshotFault(str(error)) from error
        self._weigh(name, found)
        return found

    def keep(self, name: str, entity: LoadedEntity) -> None:
        """After a change."""
        self._hot[name] = entity
        self.changed.add(name)
        self._weigh(name, entity)

    def _weigh(self, name: str, entity: LoadedEntity) -> None:
        commands = len(entity.commands)
        self._commands += commands - self._remembered.get(name, 0)
        self._remembered[name] = commands

    @property
    def _is_above(self) -> bool:
        """One stays in any case."""
        return len(self._hot) > self._bound or (self._commands > self._bound * COMMANDS_EACH and len(self._hot) > 1)

    def trim(self) -> None:
        if not self._is_above:
            return
        evicted = []
        while self._is_above:
            name, entity = self._hot.popitem(last=False)
            if entity.fault is not None:
                self._hot[name] = entity  # a fault is in no snapshot
                if all(one.fault is not None for one in self._hot.values()):
                    break
                continue
            self._commands -= self._remembered.pop(name, 0)
            evicted.append((name, self._folding.encode(name, entity)))
        self.cold.put(evicted)

    def snapshots(self) -> Iterator[tuple[str, bytes]]:
        """Of entities that have changed; those with a fault stay as they are in the log."""
        for name in sorted(self.changed):
            entity = self._hot.get(name)
            value = self.cold.get(name) if entity is None else None
            if entity is not None and entity.fault is None:
                value = self._folding.encode(name, entity)
            if value is not None and (entity is None or entity.fault is None):
                yield name, value

    def close(self) -> None:
        self._hot.clear()
        self._remembered.clear()
        self._commands = 0
        self.cold.close()
