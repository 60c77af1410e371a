"""What of a checkpoint belongs to a sink's mark, and whether a query could go on with it.

The mark of micro-batch M is in the log. So is all that M and those before it have written, and nothing of a later one:

    M is committed    offsets and commits up to M, state up to version M + 1, which is the state behind M
    M is open         its transaction was under way. A restart of the broker commits or aborts it, and the checkpoint is
                      right either way: offsets up to M, commits up to M - 1, state up to M. Spark runs M again, and
                      the sink writes it, or finds its mark

Rules:
- Spark wants the offsets of M and M - 1, and a commit of one of them. If that of M is not there, as where the query was
  killed before it, M is run again, too.
- State of version V is the newest snapshot at or below V, and every change behind it up to V, of each partition of each
  operator. A snapshot of RocksDB counts if all files that it names are there, whole; else it is left out.
- A micro-batch without a mark has read nothing and written nothing. There may be many of them behind M, so that Spark
  has removed what was of M. One that was committed before the cut is as good as M: its mark would be in the log.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.control.marks import Mark
from tidelog.pipelines.micro_batches import COMMITS, NUMBERED, OFFSETS, STATE, VERSIONED

CHANGES, SNAPSHOTS = (".delta", ".changelog"), (".snapshot", ".zip")
FILES_OF_SNAPSHOTS = "SSTs"
OPERATOR, METADATA, SCHEMAS = re.compile(r"\d+"), "_metadata", "_stateSchema"
QUERY = "metadata"


class LastNumbers(NamedTuple):
    """The last number of each kind that belongs."""

    offsets: int
    commits: int
    state: int

    @classmethod
    def of(cls, mark: Mark, *, is_decided: bool, committed: int) -> LastNumbers:
        """`committed`: the last micro-batch whose commit was in the checkpoint before the cut; -1: none."""
        batch = max(mark.batch_id, committed)
        made = cls(batch, batch, batch + 1)
        return made if is_decided or committed >= mark.batch_id else made.again

    @property
    def again(self) -> LastNumbers:
        """For a last micro-batch that is run again."""
        return LastNumbers(self.offsets, self.offsets - 1, self.offsets)


class Chosen(NamedTuple):
    names: tuple[str, ...]  # paths in the checkpoint
    bounds: LastNumbers
    missing: str = ""  # what is not there, without which the query could not go on


def query_id(folder: Path) -> str | None:
    try:
        return str(json.loads((folder / QUERY).read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def chosen(folder: Path, bounds: LastNumbers) -> Chosen:
    names = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    if f"{COMMITS}/{bounds.offsets}" not in names:
        bounds = bounds.again
    kept = {name: path for name, path in names.items() if belongs(Path(name), bounds)}
    broken = {name for name, path in kept.items() if name.endswith(".zip") and not is_whole(path)}
    kept = {name: path for name, path in kept.items() if name not in broken}
    needed = set(_files_named(kept))
    left = tuple(name for name in kept if f"/{FILES_OF_SNAPSHOTS}/" not in name or name in needed)
    return Chosen(left, bounds, missing(left, bounds, _partitions(kept)))


def belongs(path: Path, bounds: LastNumbers) -> bool:
    """Whether the file was there, as it is, when the micro-batch of the bounds was done. Pure."""
    kind = path.parts[0]
    if kind in (OFFSETS, COMMITS):
        found = NUMBERED.fullmatch(path.name)
        last = bounds.offsets if kind == OFFSETS else bounds.commits
        return found is not None and int(found["number"]) <= last
    if kind == STATE and path.parent.as_posix().endswith(f"{METADATA}/v2"):
        found = NUMBERED.fullmatch(path.name)
        return found is not None and int(found["number"]) <= bounds.offsets
    if kind == STATE:
        found = VERSIONED.fullmatch(path.name)
        return found is None or int(found["number"]) <= bounds.state
    return True


def missing(names: tuple[str, ...], bounds: LastNumbers, partitions: Mapping[str, int]) -> str:
    """What a query needs to go on, and is not among these. `partitions`: how many each operator has. Pure."""
    offsets, commits = _numbers(names, OFFSETS), _numbers(names, COMMITS)
    last = bounds.offsets
    if last not in offsets or (last and last - 1 not in offsets):
        return f"the offsets of micro-batch {last} or the one before it"
    if last and bounds.commits not in commits:
        return f"the commit of micro-batch {bounds.commits}"
    version, stores = bounds.state, _stores(names)
    for operator, count in sorted(partitions.items()) if version else ():
        for partition in range(count):
            below = f"{STATE}/{operator}/{partition}"
            of_it = [names for folder, names in stores.items() if folder == below or folder.startswith(f"{below}/")]
            if not of_it or not all(_reaches(each, version) for each in of_it):
                return f"version {version} of the state in {below}"
    return ""


def _reaches(names: set[str], version: int) -> bool:
    parsed = [(int(found["number"]), f".{found[3]}") for found in map(VERSIONED.fullmatch, names) if found]
    snapshots = [number for number, kind in parsed if kind in SNAPSHOTS and number <= version]
    changes = {number for number, kind in parsed if kind in CHANGES}
    return set(range(max(snapshots, default=0) + 1, version + 1)) <= changes


def _numbers(names: tuple[str, ...], kind: str) -> set[int]:
    return {int(name.partition("/")[2]) for name in names if name.startswith(f"{kind}/") and name[-1].isdigit()}


def _stores(names: tuple[str, ...]) -> dict[str, set[str]]:
    """Names of versions by the folder that they are in; checksums of others do not count."""
    found: dict[str, set[str]] = {}
    for name in names:
        folder, _, last = name.rpartition("/")
        if name.startswith(f"{STATE}/") and not last.startswith(".") and VERSIONED.fullmatch(last):
            found.setdefault(folder, set()).add(last)
    return found


# What is in the files -------------------------------------------------------------------------------------------------


def _partitions(files: Mapping[str, Path]) -> dict[str, int]:
    """Of each operator, as Spark has written it down; the largest where several runs did."""
    found: dict[str, int] = {}
    for name, path in files.items():
        parts = name.split("/")
        if len(parts) > 3 and parts[0] == STATE and parts[2] == METADATA and not parts[-1].startswith("."):
            said: Any = json.loads(path.read_text().partition("\n")[2])
            count = max((int(one["numPartitions"]) for one in said.get("stateStoreInfo", ())), default=0)
            found[parts[1]] = max(count, found.get(parts[1], 0))
    return found


def is_whole(snapshot: Path) -> bool:
    """A snapshot of RocksDB, with all files that it names."""
    try:
        return all(path.stat().st_size == size for path, size in _named_by(snapshot))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return False


def _files_named(files: Mapping[str, Path]) -> Iterator[str]:
    for name, path in files.items():
        if name.endswith(".zip") and not Path(name).name.startswith("."):
            for one, _ in _named_by(path):
                yield f"{name.rpartition('/')[0]}/{FILES_OF_SNAPSHOTS}/{one.name}"


def _named_by(snapshot: Path) -> list[tuple[Path, int]]:
    with zipfile.ZipFile(snapshot) as packed:
        said: Any = json.loads(packed.read("metadata").partition(b"\n")[2])
    folder = snapshot.parent / FILES_OF_SNAPSHOTS
    return [(folder / str(one["dfsSstFileName"]), int(one["sizeBytes"])) for one in said.get("sstFiles", ())]
