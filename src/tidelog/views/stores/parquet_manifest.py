"""The manifests of a view in Parquet: which files are the rows. Each is a file of its own; the highest number counts.

    FOLDER/VIEW/manifests/00000000000000000012.json      all generations, their files, places, and which one is shown
    FOLDER/VIEW/latest.json                              for other programs: what is shown, with whole paths
    FOLDER/VIEW/v3/2026-01-31-5f0c....parquet            rows; never changed once a manifest names it

Rules:
- A manifest is published by a hard link to the next number, which fails if somebody has published that: compare and
  write are one step, without a lock that a stopped process could hold.
- All that it names is synced before it is published, and so is its folder after: a power cut loses the last manifests,
  whole, or nothing.
- One that was followed by another more than the grace period ago is deleted, the oldest first; then files that no
  manifest names any more, if they are older than that too. So who publishes on a manifest that is no longer there has
  slept for longer than the grace period, whatever its number was.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from tidelog.errors import AnotherApplier, StorageError, UsageError
from tidelog.schema.declaration import Declaration, from_fields, to_fields
from tidelog.views.stores.location import Written
from tidelog.views.stores.places import ends_from_text, ends_to_text, mark_from_text, mark_to_text
from tidelog.views.stores.store import Place

VERSION = 1
DIGITS = 20
TRIES = 100


class ParquetFile(NamedTuple):
    path: str  # from the view's folder on
    day: str | None
    rows: int
    first: bytes  # of the keys in it, encoded
    last: bytes


class ParquetGeneration(NamedTuple):
    """A generation."""

    declared: Declaration
    place: Place
    files: tuple[ParquetFile, ...]


@dataclass(frozen=True, slots=True)
class ParquetManifest:
    number: int = 0
    shown: int | None = None
    generations: Mapping[int, ParquetGeneration] = field(default_factory=dict)

    def with_entry(self, generation: int, entry: ParquetGeneration) -> ParquetManifest:
        return replace(self, generations={**self.generations, generation: entry})

    def files(self) -> set[str]:
        return {one.path for entry in self.generations.values() for one in entry.files}


def to_text(manifest: ParquetManifest) -> str:
    generations = {str(number): _entry_fields(entry) for number, entry in manifest.generations.items()}
    return json.dumps({"v": VERSION, "shown": manifest.shown, "generations": generations}, separators=(",", ":"))


def from_text(number: int, text: str) -> ParquetManifest:
    fields = json.loads(text)
    if fields["v"] > VERSION:
        raise UsageError(f"a manifest has format {fields['v']}, and this Tidelog knows {VERSION}; use the newer one")
    generations = {int(one): _entry(int(one), entry) for one, entry in fields["generations"].items()}
    return ParquetManifest(number, fields["shown"], generations)


def _entry_fields(entry: ParquetGeneration) -> dict[str, Any]:
    return {
        "declared": to_fields(entry.declared),
        "ends": ends_to_text(entry.place.ends),
        "mark": mark_to_text(entry.place.mark),
        "files": [[one.path, one.day, one.rows, one.first.hex(), one.last.hex()] for one in entry.files],
    }


def _entry(generation: int, fields: Mapping[str, Any]) -> ParquetGeneration:
    place = Place(generation, ends_from_text(fields["ends"]), mark_from_text(fields["mark"]))
    files = [
        ParquetFile(path, day, rows, bytes.fromhex(first), bytes.fromhex(last))
        for path, day, rows, first, last in fields["files"]
    ]
    return ParquetGeneration(from_fields(fields["declared"]), place, tuple(files))


class Manifests:
    """Of one view, in its folder."""

    def __init__(self, said: Written, grace_s: float) -> None:
        self.folder = said.path
        self.said = said
        self.grace_s = grace_s
        self._manifests = self.folder / "manifests"
        self.known = ParquetManifest()  # the last that was read or published
        self._cleaned_at = 0.0

    def newest(self) -> ParquetManifest:
        for _ in range(TRIES):
            numbers = self._numbers()
            if not numbers:
                return ParquetManifest()
            if numbers[-1] == self.known.number:
                return self.known
            try:
                self.known = self._read(numbers[-1])
            except FileNotFoundError:  # deleted since: it was the newest a grace period ago
                continue
            return self.known
        raise StorageError(f"{self.said}: every manifest is deleted before it is read; is the grace period 0?")

    def _read(self, number: int) -> ParquetManifest:
        path = self._path(number)
        try:
            return from_text(number, path.read_text())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(
                f"{self.said.told(path)} is not a manifest ({error!r:.80}); delete {self.said}: it is built again"
            ) from None

    def change(self, edit: Callable[[ParquetManifest], ParquetManifest | None]) -> None:
        """`edit` is asked again if somebody else was quicker; None, or an error of it, leaves all as it is."""
        for _ in range(TRIES):
            old = self.newest()
            new = edit(old)
            if new is None:
                return
            if self._publish(replace(new, number=old.number + 1)):
                return
        raise AnotherApplier(f"{self.said}: others have published {TRIES} manifests meanwhile; stop all but one")

    def _publish(self, manifest: ParquetManifest) -> bool:
        if manifest.number == 1:
            make_folder(self._manifests)
        aside = self._manifests / f".{uuid4().hex}"
        write_synced(aside, to_text(manifest).encode())
        try:
            os.link(aside, self._path(manifest.number))
        except FileExistsError:
            return False
        finally:
            aside.unlink()
        sync_folder(self._manifests)
        self._check_awake(manifest.number)
        self.known = manifest
        self._tell()
        self._clean()
        return True

    def _check_awake(self, number: int) -> None:
        """A number that was published, followed and deleted long ago could be published again."""
        numbers = self._numbers()
        follows = number - 1 in numbers if number > 1 else numbers[-1] == 1 or 2 in numbers
        if not follows:
            self._path(number).unlink(missing_ok=True)
            raise AnotherApplier(f"{self.said}: manifest {number} was published long ago by another applier")

    def _tell(self) -> None:
        """Of the newest, and once more if another has come: who was stopped before it wrote would write an old one."""
        for _ in range(TRIES):
            manifest = self.newest()
            if manifest.shown is not None:
                self._write_latest(manifest.number, manifest.shown, manifest.generations[manifest.shown])
            if self._numbers()[-1] == manifest.number:
                return

    def _write_latest(self, number: int, generation: int, entry: ParquetGeneration) -> None:
        said = {
            "generation": generation,
            "manifest": number,
            "ends": json.loads(ends_to_text(entry.place.ends)),
            "files": [str((self.folder / one.path).absolute()) for one in entry.files],
        }
        aside = self.folder / f".{uuid4().hex}"
        write_synced(aside, json.dumps(said).encode())
        aside.replace(self.folder / "latest.json")

    # Cleaning up ------------------------------------------------------------------------------------------------------

    def _clean(self) -> None:
        """What is named by any manifest stays, also by one that came after the one that was published here."""
        if time.monotonic() - self._cleaned_at < self.grace_s / 4:
            return
        self._cleaned_at = time.monotonic()
        limit = time.time() - self.grace_s
        named: set[str] = set()
        for number in self._numbers():
            after = self._path(number + 1)
            if after.exists() and after.stat().st_mtime < limit:
                self._path(number).unlink(missing_ok=True)
            else:
                named |= self._named_by(number)
        for path in self._old_files(limit):
            if path.name.startswith(".") or str(path.relative_to(self.folder)) not in named:
                path.unlink(missing_ok=True)

    def _named_by(self, number: int) -> set[str]:
        try:
            return self._read(number).files()
        except FileNotFoundError:
            return set()

    def _old_files(self, limit: float) -> Iterator[Path]:
        for path in (*self.folder.glob("v*/*"), *self.folder.glob(".*"), *self._manifests.glob(".*")):
            try:
                if path.stat().st_mtime < limit:
                    yield path
            except FileNotFoundError:
                continue

    def _numbers(self) -> list[int]:
        try:
            names = [path.name for path in self._manifests.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(name[:DIGITS]) for name in names if name.endswith(".json"))

    def _path(self, number: int) -> Path:
        return self._manifests / f"{number:0{DIGITS}}.json"


def make_folder(folder: Path) -> None:
    """With those above it, each synced into the one above."""
    if folder.exists():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def write_synced(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
