"""Views as Parquet files, by day: `parquet:///folder?day=COLUMN`. DuckDB, pandas and Spark read them.

    day        a date or timestamp column: rows of one day are in files of their own; without it, all are of one
    grace      for how many seconds a file stays after no manifest names it (GRACE_S): how long a reader may take

Rules:
- A stretch rewrites the files that hold one of its keys, or into whose day and keys a new row falls, and no others.
  Rows in a file are sorted by key, and the files of a day follow one another by key, FILE_ROWS each at most.
- A row whose day changes leaves one file and enters another by one manifest (`parquet_manifest.py`).
- A reader holds on to one manifest: all that it reads is of one instant.
- Deciding which files to read and rewrite needs the keys alone; those of KNOWN_ROWS are kept in memory.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from errno import EDQUOT, ENOSPC
from heapq import merge
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from uuid import uuid4

from tidelog.control.marks import Ends
from tidelog.errors import AnotherApplier, DiskFullError, NotShown, StorageError, UsageError
from tidelog.schema.column_types import DATE, TIMESTAMP
from tidelog.schema.declaration import Declaration, Key, Row
from tidelog.views.changes import Stretch
from tidelog.views.stores.arrow_rows import KEY, rows_of, schema_of, table_of
from tidelog.views.stores.key_order import encoder
from tidelog.views.stores.location import Written, path_in, written
from tidelog.views.stores.parquet_manifest import (
    Manifests,
    ParquetFile,
    ParquetGeneration,
    ParquetManifest,
    make_folder,
    sync_folder,
)
from tidelog.views.stores.places import is_to_show, moved
from tidelog.views.stores.scanning import fill, refuse_match
from tidelog.views.stores.store import Ask, Page, Place, is_to_grow

if TYPE_CHECKING:
    import pyarrow

PREFIX = "parquet:///"
GRACE_S = 600.0
FILE_ROWS = 200_000
GROUP_ROWS = 10_000  # of a row group: what a look at one key reads
KNOWN_ROWS = 2_000_000
COMPRESSION = "zstd"
NO_DAY = "none"

Rows = dict[bytes, Row]


def connect(filled: str, view: str, url: str) -> ParquetStore:
    folder, options = path_in(filled, PREFIX), parse_qs(filled.partition("?")[2])
    if not folder or options.keys() - {"day", "grace"}:
        raise UsageError("write parquet:///FOLDER?day=COLUMN, and grace=SECONDS if need be")
    try:
        grace_s = float(options.get("grace", [str(GRACE_S)])[0])
    except ValueError:
        grace_s = -1.0
    if not 0 <= grace_s < math.inf:
        raise UsageError("its grace period is not a number of 0 or more; write seconds")
    day = options.get("day", [None])[0]
    return ParquetStore(Path(folder), view, day=day, grace_s=grace_s, said=path_in(url, PREFIX))


class ParquetStore:
    sees = "whole micro-batches: each is one manifest, linked into place last"
    alone = "a transaction is one manifest of the whole folder, so of two at once one would write its files again"

    def __init__(
        self, folder: Path, view: str, *, day: str | None = None, grace_s: float = GRACE_S, said: str | None = None
    ) -> None:
        """`said`: the folder as the URL was written."""
        self.view = view
        self.folder = folder / view
        self._day = day
        self.said = written(folder, said).below(view)
        self._manifests = Manifests(self.said, grace_s)
        self._keys: dict[str, Any] = {}  # by file: its keys, as an Arrow array; files do not change

    # What an applier does ---------------------------------------------------------------------------------------------

    def prepare(self, generation: int, declared: Declaration) -> None:
        if self._day is not None and dict(declared.columns).get(self._day) not in (DATE, TIMESTAMP):
            raise UsageError(f"day={self._day}: view {self.view} has no date or timestamp column of that name")

        def prepared(manifest: ParquetManifest) -> ParquetManifest | None:
            entry = manifest.generations.get(generation)
            if entry is None:
                return manifest.with_entry(generation, ParquetGeneration(declared, Place(generation, {}, None), ()))
            if not is_to_grow(entry.declared, declared, f"{self.said}: generation {generation} of view {self.view}"):
                return None
            return manifest.with_entry(generation, entry._replace(declared=declared))

        with _disk(self.said):
            self._manifests.change(prepared)

    def apply(self, generation: int, stretch: Stretch, *, before: Ends, show: bool = False) -> None:
        rewritten: tuple[tuple[ParquetFile, ...], tuple[ParquetFile, ...]] | None = None

        def applied(manifest: ParquetManifest) -> ParquetManifest:
            nonlocal rewritten
            entry = manifest.generations.get(generation)
            if entry is None:
                raise AnotherApplier(f"generation {generation} of view {self.view} is gone from {self.said}")
            place = moved(entry.place, stretch, before, view=self.view)
            if rewritten is None or rewritten[0] != entry.files or not self._are_kept(rewritten[1]):
                rewritten = entry.files, self._rewrite(entry, stretch)
            changed = manifest.with_entry(generation, entry._replace(place=place, files=rewritten[1]))
            shows = show and is_to_show(generation, changed.shown)
            return ParquetManifest(changed.number, generation if shows else changed.shown, changed.generations)

        with _disk(self.said):
            self._manifests.change(applied)
        named = self._manifests.known.files()
        self._keys = {path: keys for path, keys in self._keys.items() if path in named}

    def forget(self, generation: int) -> None:
        def forgotten(manifest: ParquetManifest) -> ParquetManifest | None:
            if manifest.shown == generation:
                raise UsageError(f"generation {generation} of view {self.view} is shown by {self.said}")
            if generation not in manifest.generations:
                return None
            rest = {number: entry for number, entry in manifest.generations.items() if number != generation}
            return ParquetManifest(manifest.number, manifest.shown, rest)

        with _disk(self.said):
            self._manifests.change(forgotten)

    # What readers do --------------------------------------------------------------------------------------------------

    def place(self, generation: int) -> Place | None:
        entry = self._newest().generations.get(generation)
        return None if entry is None else entry.place

    def shown(self) -> int | None:
        return self._newest().shown

    def generations(self) -> Mapping[int, Declaration]:
        return {number: entry.declared for number, entry in sorted(self._newest().generations.items())}

    def get(self, key: Key) -> tuple[Row | None, Place]:
        entry = self._shown_entry()
        wanted = encoder(entry.declared)(key)
        with _disk(self.said):
            for file in entry.files:
                if file.first <= wanted <= file.last:
                    keys = self._keys_of(file)
                    at = _position(keys, wanted)
                    if at < len(keys) and keys[at].as_py() == wanted:
                        return self._rows(entry.declared, file, at, at + 1)[0][1], entry.place
        return None, entry.place

    def read(self, ask: Ask) -> Page:
        refuse_match(ask, "a Parquet store")
        entry = self._shown_entry()
        with _disk(self.said):
            return fill(entry.declared, ask, entry.place, lambda after, count: self._next(entry, after, count))

    def files(self) -> list[Path]:
        """Of what is shown: all rows of it, at one instant, for who reads Parquet by other means."""
        return [self.folder / file.path for file in self._shown_entry().files]

    def close(self) -> None:
        self._keys.clear()

    def _newest(self) -> ParquetManifest:
        with _disk(self.said):
            return self._manifests.newest()

    def _shown_entry(self) -> ParquetGeneration:
        manifest = self._newest()
        if manifest.shown is None:
            raise NotShown(f"view {self.view} is not shown by {self.said} yet; its applier is building it")
        return manifest.generations[manifest.shown]

    def _are_kept(self, files: Iterable[ParquetFile]) -> bool:
        """Whether files that no manifest names yet are there, and for another grace period. Who sleeps between writing
        and publishing may find that one who applies another generation has cleaned up.
        """
        try:
            for file in files:
                os.utime(self.folder / file.path)
        except FileNotFoundError:
            return False
        return True

    # Rows of files ----------------------------------------------------------------------------------------------------

    def _next(self, entry: ParquetGeneration, after: bytes | None, count: int) -> Sequence[tuple[bytes, Row]]:
        """The first rows behind a key. Files of several days have keys that lie between one another's."""
        spans = []
        for file in entry.files:
            if after is None or file.last > after:
                start = 0 if after is None else _position(self._keys_of(file), after, behind=True)
                spans.append((file, start, min(file.rows, start + count)))
        runs = [self._run(file, start, end) for file, start, end in spans]
        chosen = [one for one, _ in zip(merge(*runs), range(count), strict=False)]
        taken: dict[str, int] = {}
        for _, path in chosen:
            taken[path] = taken.get(path, 0) + 1
        rows = [
            row
            for file, start, _ in spans
            if file.path in taken
            for row in self._rows(entry.declared, file, start, start + taken[file.path])
        ]
        return sorted(rows, key=lambda one: one[0])

    def _run(self, file: ParquetFile, start: int, end: int) -> Iterator[tuple[bytes, str]]:
        """Its keys in order, a few at a time: most of them are not among the first of all."""
        for at in range(start, end, 100):
            for key in self._keys_of(file)[at : min(at + 100, end)].to_pylist():
                yield key, file.path

    def _rows(self, declared: Declaration, file: ParquetFile, start: int, end: int) -> Sequence[tuple[bytes, Row]]:
        from pyarrow import parquet

        groups = range(start // GROUP_ROWS, (end - 1) // GROUP_ROWS + 1)
        with _whole(self.said, file), parquet.ParquetFile(self.folder / file.path) as opened:
            table = opened.read_row_groups(list(groups), use_threads=False)
        return rows_of(declared, table.slice(start - groups[0] * GROUP_ROWS, end - start))

    def _keys_of(self, file: ParquetFile) -> Any:
        found = self._keys.get(file.path)
        if found is None:
            from pyarrow import parquet

            with _whole(self.said, file):
                found = parquet.read_table(self.folder / file.path, columns=[KEY], partitioning=None).column(KEY)
            found = found.combine_chunks()
            self._know(file.path, found)
        return found

    def _know(self, path: str, keys: Any) -> None:
        """The oldest go for it."""
        while self._keys and sum(map(len, self._keys.values())) + len(keys) > KNOWN_ROWS:
            self._keys.pop(next(iter(self._keys)))
        self._keys[path] = keys

    # Rewriting --------------------------------------------------------------------------------------------------------

    def _rewrite(self, entry: ParquetGeneration, stretch: Stretch) -> tuple[ParquetFile, ...]:
        """Files of the generation after this stretch; what is new is written and synced."""
        encode = encoder(entry.declared)
        changed = {encode(key): change.after for key, change in stretch.latest().items()}
        if not changed:
            return entry.files
        rows = {key: row for key, row in sorted(changed.items()) if row is not None}
        left = self._left(entry.files, changed)
        falls = self._falls(entry.files, rows)
        files = [file for file in entry.files if file.path not in left and file.path not in falls]
        folder = self.folder / f"v{entry.place.generation}"
        make_folder(folder)
        by_path = {file.path: file for file in entry.files}
        for path in sorted({*left, *falls}):
            day, new = falls.get(path, (by_path[path].day if path in by_path else None, {}))
            old = by_path.get(path)
            files += self._write(entry, folder, day, old, left.get(path), new)
        sync_folder(folder)
        for file in files:
            os.utime(self.folder / file.path) if file.path not in by_path else None
        return tuple(sorted(files, key=lambda file: (file.day or "", file.first)))

    def _left(self, files: Iterable[ParquetFile], changed: Mapping[bytes, Row | None]) -> dict[str, Any]:
        """For each file that holds a changed key: which of its rows do not."""
        import pyarrow
        from pyarrow import compute

        wanted, low, high = pyarrow.array(list(changed), pyarrow.binary()), min(changed), max(changed)
        left = {}
        for file in files:
            if file.first <= high and low <= file.last:
                found = compute.is_in(self._keys_of(file), value_set=wanted)
                if compute.any(found).as_py():
                    left[file.path] = compute.invert(found)
        return left

    def _falls(self, files: Iterable[ParquetFile], rows: Rows) -> dict[str, tuple[str | None, Rows]]:
        """For each file, and for each day that has none, the new rows that fall into it."""
        of_day: dict[str | None, list[ParquetFile]] = {}
        for file in files:
            of_day.setdefault(file.day, []).append(file)
        firsts = {day: [file.first for file in found] for day, found in of_day.items()}
        falls: dict[str, tuple[str | None, Rows]] = {}
        for key, row in rows.items():
            day = self._day_of(row)
            found = of_day.get(day)
            path = f"new:{day}" if not found else found[max(0, bisect_right(firsts[day], key) - 1)].path
            falls.setdefault(path, (day, {}))[1][key] = row
        return falls

    def _day_of(self, row: Row) -> str | None:
        at = None if self._day is None else row.get(self._day)
        if isinstance(at, datetime):
            at = at.astimezone(UTC).date()
        return at.isoformat() if isinstance(at, date) else None

    def _write(
        self, entry: ParquetGeneration, folder: Path, day: str | None, old: ParquetFile | None, left: Any, new: Rows
    ) -> Iterator[ParquetFile]:
        """What is left of an old file and what is new, in files of at most FILE_ROWS."""
        import pyarrow
        from pyarrow import parquet

        table = table_of(entry.declared, new)
        if old is not None:
            with _whole(self.said, old):
                was = parquet.read_table(self.folder / old.path, partitioning=None)
            was = _grown(was if left is None else was.filter(left), schema_of(entry.declared))
            table = pyarrow.concat_tables([was, table]).sort_by(KEY)
        parts = -(-table.num_rows // FILE_ROWS)
        for part in range(parts):
            start, end = table.num_rows * part // parts, table.num_rows * (part + 1) // parts
            yield self._write_file(folder, day, table.slice(start, end - start).combine_chunks())

    def _write_file(self, folder: Path, day: str | None, table: pyarrow.Table) -> ParquetFile:
        from pyarrow import parquet

        path = folder / f"{day or NO_DAY}-{uuid4().hex}.parquet"
        with path.open("xb") as file:
            parquet.write_table(table, file, row_group_size=GROUP_ROWS, compression=COMPRESSION)
            file.flush()
            os.fsync(file.fileno())
        keys = table.column(KEY)
        name = str(path.relative_to(self.folder))
        self._know(name, keys.combine_chunks())
        return ParquetFile(name, day, table.num_rows, keys[0].as_py(), keys[-1].as_py())


def _position(keys: Any, key: bytes, *, behind: bool = False) -> int:
    """Where `key` stands in sorted keys, or would; `behind` it if asked."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        value = keys[middle].as_py()
        if value < key or (behind and value == key):
            low = middle + 1
        else:
            high = middle
    return low


def _grown(table: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    """A file that is older than a column has null there."""
    import pyarrow

    there = set(table.column_names)
    columns = [
        table.column(field.name) if field.name in there else pyarrow.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pyarrow.Table.from_arrays(columns, schema=schema)


@contextmanager
def _disk(said: Written) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(
            f"{said}: {said.told(error.filename or error)} is gone: this took longer than the grace period, or somebody"
            " deleted it; give a longer one (grace=SECONDS)"
        ) from None
    except OSError as error:
        full = error.errno in (ENOSPC, EDQUOT)
        raise (DiskFullError if full else StorageError)(f"{said}: {said.told(error)}") from None


@contextmanager
def _whole(said: Written, file: ParquetFile) -> Iterator[None]:
    from pyarrow import ArrowInvalid

    try:
        yield
    except ArrowInvalid as error:
        raise StorageError(
            f"{said}/{file.path} is damaged: {said.told(error)}; delete {said}: it is built again"
        ) from None
