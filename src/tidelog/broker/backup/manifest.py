"""What a backup says of itself: the file `manifest` in its folder.

    DIR/manifest          one line of JSON, as below, then "crc 8a3fe1c0", the CRC-32C of that line in hex
    DIR/tree-N/           a data folder without `lock`, `format` and `clean`, as a clean stop would have left it
    DIR/tree-N.tmp/       one that is being made, or that was when a backup was killed; the next backup removes it

    {"v":1,"kind":"tidelog backup","tidelog":VERSION,"cluster_id":ID,"at_ms":MS,"tree":"tree-N",
     "partitions":[{"folder":"ID-INDEX","topic":T,"partition":P,"start":N,"end":N,"epoch":N,"size":BYTES,"position":N,
                    "files":[[NAME,BYTES,CRC],...],"holes":[[FIRST,END,SEGMENT,POSITION,END POSITION,PASSED,WHY],...]},
                   ...],
     "folds":[[NAME,BYTES,CRC],...],
     "apps":{"about":{...},"files":[[PATH,BYTES,CRC],...]}}         in tree-N/apps; with it "v" is 2

Rules:
- The manifest is written last, durably, when all that it lists is. So a folder with a manifest has a whole backup, and
  a backup that fails or is killed leaves the one before as it was.
- `at_ms` is the instant of the cut. A partition has every record from `start` up to and without `end`, but for those in
  its holes, which were damaged where they came from.
- What `apps` has belongs to the log of this backup (`companion.py`); `about` is for whoever restores it. A Tidelog that
  knows only version 1 would leave it out without a word, and so refuses it.
- CRC is the CRC-32C of a file's bytes.
- A backup may come from somebody else. So the names in it are those that Tidelog gives, or it is refused: no name leads
  out of the folder that is restored to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tidelog.errors import BackupError
from tidelog.log.clean_mark import CleanMark
from tidelog.log.facts import Hole
from tidelog.log.files import Files, replace_file
from tidelog.log.seal import sealed_json, unsealed_json

VERSION, WITH_APPS = 1, 2
KIND = "tidelog backup"
MANIFEST = "manifest"
TREE, TEMPORARY = "tree-", ".tmp"
APPS = "apps"  # the folder in a tree


class Kept(NamedTuple):
    """A file of a backup."""

    name: str
    size: int
    crc: int


class BackedUpPartition(NamedTuple):
    folder: str
    topic: str
    partition: int
    mark: CleanMark
    files: tuple[Kept, ...]
    holes: tuple[Hole, ...]

    @property
    def bytes(self) -> int:
        return sum(kept.size for kept in self.files)


class Apps(NamedTuple):
    """What was backed up with the log; names of files are paths in `tree-N/apps`."""

    about: dict[str, Any]
    files: tuple[Kept, ...]


class Manifest(NamedTuple):
    tidelog: str
    cluster_id: str
    at_ms: int
    tree: str
    partitions: tuple[BackedUpPartition, ...]
    folds: tuple[Kept, ...]
    apps: Apps | None = None

    @property
    def bytes(self) -> int:
        beside = (*self.folds, *(self.apps.files if self.apps is not None else ()))
        return sum(one.bytes for one in self.partitions) + sum(kept.size for kept in beside)

    @property
    def holes(self) -> list[tuple[BackedUpPartition, Hole]]:
        return [(one, hole) for one in self.partitions for hole in one.holes]


def write(files: Files, folder: str, manifest: Manifest) -> None:
    content = {
        "v": VERSION if manifest.apps is None else WITH_APPS,
        "kind": KIND,
        **manifest._asdict(),
        "partitions": [_partition_json(one) for one in manifest.partitions],
    }
    del content["apps"]
    content |= {} if manifest.apps is None else {"apps": manifest.apps._asdict()}
    replace_file(files, f"{folder}/{MANIFEST}", sealed_json(content))


def read(folder: str) -> Manifest:
    """Of a whole backup; what is not one is refused by name."""
    path = Path(folder, MANIFEST)
    if not path.is_file():
        raise BackupError(_why_none(folder))
    content = path.read_bytes()
    found = unsealed_json(content)
    if not isinstance(found, dict):
        raise BackupError(f"{folder}/{MANIFEST} is damaged; take the backup again, or use another one")
    if found.get("kind") != KIND:
        raise BackupError(f"{folder}/{MANIFEST} is not of a Tidelog backup; name the folder of one")
    if found["v"] > WITH_APPS:
        raise BackupError(f"{folder} is a backup of format {found['v']}, newer than {WITH_APPS}; use the newer Tidelog")
    partitions = tuple(_parse_partition(one) for one in found["partitions"])
    folds = tuple(Kept(*kept) for kept in found["folds"])
    apps = _parse_apps(found.get("apps"))
    _check_names(folder, found["tree"], partitions, folds, apps)
    return Manifest(found["tidelog"], found["cluster_id"], found["at_ms"], found["tree"], partitions, folds, apps)


def _parse_apps(found: Any) -> Apps | None:
    return None if found is None else Apps(found["about"], tuple(Kept(*kept) for kept in found["files"]))


def _check_names(
    folder: str, tree: object, partitions: tuple[BackedUpPartition, ...], folds: tuple[Kept, ...], apps: Apps | None
) -> None:
    """Of the tree, of its folders, and of the files in them."""
    names: list[object] = [file.name for one in partitions for file in one.files]
    names += [one.folder for one in partitions] + [one.name for one in folds]
    for one in apps.files if apps is not None else ():
        names += str(one.name).split("/")
    right_tree = isinstance(tree, str) and tree.startswith(TREE) and tree.removeprefix(TREE).isdecimal()
    strange = next((name for name in names if not _is_name(name)), None if right_tree else tree)
    if strange is not None or not right_tree:
        raise BackupError(
            f"{folder}/{MANIFEST} names {strange!r}, which is not a name of Tidelog's;"
            " `tidelog backup` did not make it, do not use it"
        )


def _is_name(name: object) -> bool:
    """Of a file or folder that lies where it is said to lie."""
    return isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and name.isprintable()


def _why_none(folder: str) -> str:
    if not Path(folder).is_dir():
        return f"folder {folder} does not exist; name that of a backup"
    if any(path.name.startswith(TREE) for path in Path(folder).iterdir()):
        return f"{folder} is a backup that was never finished; take it again"
    return f"{folder} is not a backup: it has no file {MANIFEST!r}"


def _partition_json(one: BackedUpPartition) -> dict[str, Any]:
    return {
        "folder": one.folder,
        "topic": one.topic,
        "partition": one.partition,
        "start": one.mark.start_offset,
        "end": one.mark.end_offset,
        "epoch": one.mark.leader_epoch,
        "size": one.mark.size_bytes,
        "position": one.mark.position,
        "files": one.files,
        "holes": one.holes,
    }


def _parse_partition(one: dict[str, Any]) -> BackedUpPartition:
    mark = CleanMark(one["start"], one["end"], one["epoch"], one["size"], one["position"])
    files = tuple(Kept(*kept) for kept in one["files"])
    return BackedUpPartition(
        one["folder"], one["topic"], one["partition"], mark, files, tuple(Hole(*h) for h in one["holes"])
    )
