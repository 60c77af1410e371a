"""Views as Delta tables: `delta:///folder`. Whatever reads Delta reads them.

    FOLDER/VIEW/v3/          a Delta table: the rows of one generation
    FOLDER/VIEW/current      a symbolic link to the one that is shown, for other programs

What a commit's own information says beside Delta's (`tidelog`, JSON): the declaration, the ends, the mark, and `shown`:
0, or a number that is higher than that of any generation that was shown before. The highest one is shown; so the commit
that applies `live` is the switch, and the link follows it.

Rules:
- A stretch is one commit: a merge by `_tidelog_key`. It is written on the very version that the place was read from, or
  not at all (no retries by the library): compare and write are one step. The ends are Delta transactions too
  (application `tidelog:TOPIC:PARTITION`), which outlive the information of commits.
- A commit of somebody else (OPTIMIZE, VACUUM) has no `tidelog`; the last one that has counts. LOOK_BACK of theirs, or a
  checkpoint of theirs a day after ours, would hide it: then the store says so, and is to be rebuilt.
- The library does not sync files. They are synced here after the commit, before `apply` returns: after a power cut in
  between, a table may have a damaged last commit and is to be rebuilt; a killed process leaves nothing damaged.
- Every TIDY_COMMITS commits small files are made one (`delta_compaction.py`), and those that no version of the last
  day needs are deleted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from tidelog.control.marks import Ends
from tidelog.errors import AnotherApplier, NotShown, StorageError, UsageError
from tidelog.schema.declaration import Declaration, Key, Row, from_fields, to_fields
from tidelog.views.changes import Stretch
from tidelog.views.stores.arrow_rows import KEY, rows_of, schema_of, table_of
from tidelog.views.stores.delta_compaction import ASIDE, added_by, commit_of, compact, log_of, sync
from tidelog.views.stores.key_order import encoder
from tidelog.views.stores.location import path_in, written
from tidelog.views.stores.places import ends_from_text, ends_to_text, is_to_show, mark_from_text, mark_to_text, moved
from tidelog.views.stores.scanning import fill, refuse_match
from tidelog.views.stores.store import Ask, Page, Place, is_to_grow

PREFIX = "delta:///"
SAID = "tidelog"
GONE = "_tidelog_gone"
LOOK_BACK = 1000  # commits of others since ours
TRIES = 20
TIDY_COMMITS = 50
KEPT_HOURS = 24
LOG_KEPT = "interval 1 days"  # of commits before the last checkpoint, as long as files are

Table = Any  # deltalake.DeltaTable


def connect(filled: str, view: str, url: str) -> DeltaStore:
    folder = path_in(filled, PREFIX)
    if not folder or "?" in filled:
        raise UsageError("write delta:///relative/folder or delta:////absolute/folder")
    if "%" in folder:
        raise UsageError("the folder has a percent sign, which the Delta library takes for an escape; rename it")
    return DeltaStore(Path(folder), view, said=path_in(url, PREFIX))


class Entry(NamedTuple):
    """What the last commit of ours says of a generation."""

    declared: Declaration
    place: Place
    shown: int


class DeltaStore:
    sees = "whole micro-batches: each is one commit of Delta"
    alone = "a transaction is one commit to the table's one log, so of two at once one would write its files again"

    def __init__(self, folder: Path, view: str, *, said: str | None = None) -> None:
        """`said`: the folder as the URL was written."""
        self.view = view
        self.folder = folder.absolute() / view
        as_it_is = said is None or Path(said) == folder
        self.said = written(folder.absolute(), None if as_it_is else said).below(view)

    # What an applier does ---------------------------------------------------------------------------------------------

    def prepare(self, generation: int, declared: Declaration) -> None:
        for _ in range(TRIES):
            found = self._find(generation)
            if found is None:
                self._create(generation, declared)
                continue
            table, entry = found
            if not is_to_grow(entry.declared, declared, f"{self.said}: generation {generation} of view {self.view}"):
                with self._told(generation):
                    self._follow()  # who was to set the link may have been killed before
                return
            self._grow(table, entry, declared)
        raise AnotherApplier(f"{self.said}: another one prepares generation {generation} too")

    def _create(self, generation: int, declared: Declaration) -> None:
        from deltalake import DeltaTable

        entry = Entry(declared, Place(generation, {}, None), 0)
        with suppress(AnotherApplier), self._told(generation):
            DeltaTable.create(
                self._path(generation),
                schema_of(declared),
                configuration={"delta.logRetentionDuration": LOG_KEPT},
                commit_properties=_properties(entry),
            )

    def _grow(self, table: Table, entry: Entry, declared: Declaration) -> None:
        from deltalake import write_deltalake

        with suppress(AnotherApplier), self._told(entry.place.generation):
            grown = _properties(entry._replace(declared=declared))
            write_deltalake(
                table, schema_of(declared).empty_table(), mode="append", schema_mode="merge", commit_properties=grown
            )

    def apply(self, generation: int, stretch: Stretch, *, before: Ends, show: bool = False) -> None:
        source: Any = None
        for _ in range(TRIES):
            found = self._find(generation)
            if found is None:
                raise AnotherApplier(f"generation {generation} of view {self.view} is gone from {self.said}")
            table, entry = found
            after = entry._replace(place=moved(entry.place, stretch, before, view=self.view))
            if show and is_to_show(generation, self.shown()):
                after = after._replace(shown=1 + max(one.shown for one in self._entries().values()))
            if source is None:
                source = _source(entry.declared, stretch)
            with suppress(AnotherApplier), self._told(generation):
                self._commit(table, after, source)
                self._follow()
                return
        raise AnotherApplier(f"{self.said}: {TRIES} commits of others came between; stop what makes them")

    def _commit(self, table: Table, after: Entry, source: Any) -> None:
        from deltalake import write_deltalake

        version, properties = table.version(), _properties(after)
        if source.num_rows:
            values = {_quoted(name): f"s.{_quoted(name)}" for name in source.column_names if name != GONE}
            (
                table.merge(source, f"t.{KEY} = s.{KEY}", "s", "t", commit_properties=properties)
                .when_matched_delete(f"s.{GONE}")
                .when_matched_update(values)
                .when_not_matched_insert(values, predicate=f"NOT s.{GONE}")
                .execute()
            )
        if table.version() == version:  # nothing was changed by it, and then the library commits nothing
            nothing = schema_of(after.declared).empty_table()
            write_deltalake(table, nothing, mode="append", commit_properties=properties)
        _sync(Path(self._path(after.place.generation)), version + 1)
        if (version + 1) % TIDY_COMMITS == 0:
            self._tidy(table, after.place.generation)

    def _tidy(self, table: Table, generation: int) -> None:
        """Its commit says nothing of ours: it is nobody's place."""
        with suppress(AnotherApplier, StorageError), self._told(generation):
            if not compact(table, Path(self._path(generation))):
                return
            table.update_incremental()  # what is not in the table as it is known here would be deleted
            table.vacuum(retention_hours=KEPT_HOURS, dry_run=False, enforce_retention_duration=False)

    def forget(self, generation: int) -> None:
        if self._find(generation) is None:
            return
        if self.shown() == generation:
            raise UsageError(f"generation {generation} of view {self.view} is shown by {self.said}")
        # Renamed first: a table is there whole or not at all. What cannot be deleted is, when it is tidied.
        aside = self._aside()
        with self._told(generation):
            Path(self._path(generation)).rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def _follow(self) -> None:
        """The link for other programs, after what the commits say. Looked at again: who slept has set it back."""
        link = self.folder / "current"
        while (shown := self.shown()) is not None and (not link.is_symlink() or link.readlink() != Path(f"v{shown}")):
            aside = self._aside()
            aside.symlink_to(f"v{shown}")
            aside.replace(link)

    def _aside(self) -> Path:
        return self.folder / f"{ASIDE}{uuid4().hex}"

    # What readers do --------------------------------------------------------------------------------------------------

    def place(self, generation: int) -> Place | None:
        found = self._find(generation)
        return None if found is None else found[1].place

    def shown(self) -> int | None:
        entries = self._entries()
        newest = max(entries, key=lambda one: entries[one].shown, default=None)
        return None if newest is None or not entries[newest].shown else newest

    def generations(self) -> Mapping[int, Declaration]:
        return {number: entry.declared for number, entry in sorted(self._entries().items())}

    def get(self, key: Key) -> tuple[Row | None, Place]:
        table, entry = self._shown()
        wanted = _literal(encoder(entry.declared)(key))
        with self._told(entry.place.generation):
            rows = _rows(table, entry, f"{KEY} = {wanted}", 1)
        return (rows[0][1] if rows else None), entry.place

    def read(self, ask: Ask) -> Page:
        refuse_match(ask, "a Delta store")
        table, entry = self._shown()

        def following(after: bytes | None, count: int) -> Sequence[tuple[bytes, Row]]:
            return _rows(table, entry, "true" if after is None else f"{KEY} > {_literal(after)}", count)

        with self._told(entry.place.generation):
            return fill(entry.declared, ask, entry.place, following)

    def close(self) -> None:
        pass

    def _shown(self) -> tuple[Table, Entry]:
        number = self.shown()
        found = None if number is None else self._find(number)
        if found is None:
            raise NotShown(f"view {self.view} is not shown by {self.said} yet; its applier is building it")
        return found

    # Tables -----------------------------------------------------------------------------------------------------------

    def _path(self, generation: int) -> str:
        return str(self.folder / f"v{generation}")

    def _entries(self) -> dict[int, Entry]:
        numbers = [int(path.name[1:]) for path in self.folder.glob("v*") if path.name[1:].isdigit()]
        found = {number: self._find(number) for number in numbers}
        return {number: one[1] for number, one in found.items() if one is not None}

    def _find(self, generation: int) -> tuple[Table, Entry] | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with self._told(generation):
            if not log_of(Path(self._path(generation))).exists():
                return None
            try:
                table = DeltaTable(self._path(generation))
            except TableNotFoundError:
                return None
            said = _said(Path(self._path(generation)), table.version())
        if said is not None:
            return table, _entry(generation, said)
        raise StorageError(f"{self.said}/v{generation}: none of the last {LOOK_BACK} commits is Tidelog's")

    @contextmanager
    def _told(self, generation: int) -> Iterator[None]:
        from deltalake.exceptions import CommitFailedError, DeltaError

        where = f"{self.said}/v{generation}"
        try:
            yield
        except CommitFailedError as error:
            raise AnotherApplier(f"{where}: somebody else has committed: {self.said.told(error)}") from None
        except (DeltaError, OSError) as error:
            raise StorageError(f"{where}: {self.said.told(error)}") from None


def _said(table: Path, version: int) -> str | None:
    """What the last commit of ours says, up to this version. The library's `history` is of now, and may have commits
    that this version has not, under its number.
    """
    for number in range(version, max(version - LOOK_BACK, -1), -1):
        for line in commit_of(table, number).read_bytes().splitlines():
            info = json.loads(line).get("commitInfo") if b'"commitInfo"' in line else None
            if info is not None and SAID in info:
                return str(info[SAID])
    return None


def _properties(entry: Entry) -> Any:
    from deltalake import CommitProperties, Transaction

    said = {
        "declared": to_fields(entry.declared),
        "ends": ends_to_text(entry.place.ends),
        "mark": mark_to_text(entry.place.mark),
        "shown": entry.shown,
    }
    ends = [Transaction(f"tidelog:{at.topic}:{at.partition}", end) for at, end in entry.place.ends.items()]
    return CommitProperties({SAID: json.dumps(said)}, max_commit_retries=0, app_transactions=ends)


def _entry(generation: int, text: str) -> Entry:
    said = json.loads(text)
    place = Place(generation, ends_from_text(said["ends"]), mark_from_text(said["mark"]))
    return Entry(from_fields(said["declared"]), place, int(said["shown"]))


def _source(declared: Declaration, stretch: Stretch) -> Any:
    """The stretch's changes; of a row that is gone, only the key."""
    import pyarrow

    encode = encoder(declared)
    latest = {encode(key): change.after for key, change in stretch.latest().items()}
    table = table_of(declared, {key: after or {} for key, after in latest.items()})
    gone = pyarrow.array([after is None for after in latest.values()], pyarrow.bool_())
    return table.append_column(GONE, gone)


def _rows(table: Table, entry: Entry, condition: str, count: int) -> Sequence[tuple[bytes, Row]]:
    """Of one version, in the order of the key."""
    import pyarrow
    from deltalake import QueryBuilder

    found = (
        QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {condition} ORDER BY {KEY} LIMIT {count}")
    )
    return rows_of(entry.declared, pyarrow.table(found))


def _literal(key: bytes) -> str:
    return f"X'{key.hex()}'"


def _quoted(name: str) -> str:
    text = name.replace('"', '""')
    return f'"{text}"'


def _sync(table: Path, version: int) -> None:
    commit = commit_of(table, version)
    sync(*(table / name for name in added_by(commit)), table, commit, log_of(table))
