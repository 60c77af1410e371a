"""Folders of two partitions that have each other's names: each gets its own back.

A segment says which partition it was made for (`log/header_block.py`). Where all segments of a folder say another one,
and those of that one's folder say this, somebody has swapped the two, and nothing is missing.

    a -> b.orphaned      from here on a crash leaves a folder that is set aside under the name that it should have
    b -> a
    b.orphaned -> b
"""

from __future__ import annotations

from tidelog.log import identity as identity_file
from tidelog.log.files import Files
from tidelog.log.folder import ORPHANED_SUFFIX, DataFolder
from tidelog.log.header_block import HEADER_BLOCK, unpack_block
from tidelog.log.segment import LOG_SUFFIX, Name

PartitionPlace = tuple[bytes, int]


def put_back(folder: DataFolder, files: Files) -> list[tuple[PartitionPlace, PartitionPlace]]:
    """Returns the pairs."""
    owners = {place: owner_of(files, folder.partition(*place)) for place in folder.contents().partitions}
    pairs = [(place, owner) for place, owner in owners.items() if owner is not None and _is_pair(place, owner, owners)]
    for place, other in pairs:
        mine, theirs = folder.partition(*place), folder.partition(*other)
        files.rename(mine, theirs + ORPHANED_SUFFIX)
        files.sync_folder(folder.path)
        files.rename(theirs, mine)
        files.rename(theirs + ORPHANED_SUFFIX, theirs)
        files.sync_folder(folder.path)
    return pairs


def _is_pair(place: PartitionPlace, owner: PartitionPlace, owners: dict[PartitionPlace, PartitionPlace | None]) -> bool:
    """Each of the two once."""
    return place < owner and owners.get(owner) == place


def owner_of(files: Files, path: str) -> PartitionPlace | None:
    """The partition that all segments were made for; None where they do not say, or not the same, or where the folder's
    own file says another topic: then it was files that somebody moved, and not the folder.
    """
    names = [entry.name for entry in files.list(path) if Name.parse(entry.name) is not None]
    said = {_owner_of(files, f"{path}/{name}") for name in names if name.endswith(LOG_SUFFIX)}
    owner = said.pop() if len(said) == 1 else None
    identity = identity_file.load(files, path)
    return owner if owner is not None and identity is not None and identity.topic_id == owner[0] else None


def _owner_of(files: Files, path: str) -> PartitionPlace | None:
    fd = files.open(path)
    try:
        head = unpack_block(files.read(fd, HEADER_BLOCK, 0), path)
    finally:
        files.close(fd)
    return None if head is None or head.owner is None else (head.owner.topic_id, head.owner.partition)
