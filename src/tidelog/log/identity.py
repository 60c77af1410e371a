"""Whose a partition's folder is: the file `topic` in it, one line of JSON and its checksum.

    {"v":1,"topic":NAME,"id":HEX,"partitions":N,"configs":{...},"created_ms":MS}
    crc 8a3fe1c0                          CRC-32C of the first line, its line feed included, in hex

The log of topics says the same, and is what counts. This file is for the day on which that log is damaged: a folder
that nobody knows of can be given back to its topic (`tidelog repair adopt`).

It is on the disk before the first record of its folder counts. Name and id never change. Settings are written again
when they change, in the background; the number of partitions is what it was when the file was written, so there may be
more. A folder of an older version has no such file, and gets one when it is next opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tidelog.errors import DataFolderError
from tidelog.log.files import TEMPORARY, Files, put_file, read_file, replace_file, write_temporary
from tidelog.log.seal import COMPACT, sealed_json, unsealed_json

IDENTITY_NAME = "topic"
VERSION = 1
ID_BYTES = 16


class Identity(NamedTuple):
    topic: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str]
    created_ms: int


def pack(identity: Identity) -> bytes:
    content = {
        "v": VERSION,
        "topic": identity.topic,
        "id": identity.topic_id.hex(),
        "partitions": identity.partitions,
        "configs": dict(identity.configs),
        "created_ms": identity.created_ms,
    }
    return sealed_json(content, COMPACT)


def unpack(data: bytes, path: str) -> Identity | None:
    """None when the bytes are not what was written; raises when a newer Tidelog wrote them."""
    found = unsealed_json(data)
    if not isinstance(found, dict) or not isinstance(found.get("v"), int):
        return None
    if found["v"] > VERSION:
        raise DataFolderError(f"{path} has format {found['v']}, newer than {VERSION}; open it with a newer Tidelog")
    return _read(found)


def _read(found: dict[str, Any]) -> Identity | None:
    try:
        topic_id = bytes.fromhex(found["id"])
        made = Identity(found["topic"], topic_id, found["partitions"], found["configs"], found["created_ms"])
    except (KeyError, TypeError, ValueError):
        return None
    texts = isinstance(made.topic, str) and isinstance(made.configs, dict)
    return made if texts and len(topic_id) == ID_BYTES and isinstance(made.partitions, int) else None


def load(files: Files, folder: str) -> Identity | None:
    """None when there is none, or it cannot be read as what it was."""
    path = f"{folder}/{IDENTITY_NAME}"
    data = read_file(files, path)
    return unpack(data, path) if data is not None else None


def save(files: Files, folder: str, identity: Identity) -> None:
    replace_file(files, f"{folder}/{IDENTITY_NAME}", pack(identity))


def put(files: Files, folder: str, identity: Identity, *, durable: bool = True) -> None:
    """Into a folder that the caller syncs: a new one, which is synced once when all is in it."""
    put_file(files, f"{folder}/{IDENTITY_NAME}", pack(identity), durable=durable)


def says(found: Identity | None, identity: Identity) -> bool:
    """Whether nothing need be written again; how many partitions there are is not worth it."""
    return found is not None and found._replace(partitions=identity.partitions) == identity


def save_all(files: Files, folders: Sequence[str], identity: Identity) -> None:
    """Into many folders by one sync, where that is possible. One that goes meanwhile needs none."""
    written = []
    for folder in folders:
        path = f"{folder}/{IDENTITY_NAME}"
        with suppress(FileNotFoundError):
            write_temporary(files, path, pack(identity), durable=not files.can_sync_all)
            written.append(path)
    if written and files.can_sync_all:
        files.sync_all(folders[0].rpartition("/")[0])
    for path in written:
        with suppress(FileNotFoundError):
            files.rename(path + TEMPORARY, path)
