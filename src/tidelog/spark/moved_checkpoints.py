"""A checkpoint in another folder than the one that it was made in: the paths that Spark has written into it.

    state/<operator>/_metadata/v2/<micro-batch>    a line "v2", then JSON; "stateSchemaFilePaths" of each store are
                                                   whole paths of files in state/<operator>/_stateSchema

Spark looks for the schemas of `transformWithState` at those paths, wherever the checkpoint is: one that was moved
fails, and a copy goes on with the files of the original. So before a query starts, what does not lead into its own
checkpoint is written anew. Nothing else in a checkpoint has its path. Local folders only: others are not looked at.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

from tidelog.spark.query_log import location_of

STATE, METADATA, SCHEMAS = "state", "_metadata/v2", "stateSchemaFilePaths"
VERSION = "v2"
INSIDE = re.compile(r".*(/state/\d+/_stateSchema/.*)", re.DOTALL)


def settle(checkpoint: str) -> int:
    """How many files had to be written anew."""
    place = location_of(checkpoint)
    if not place.startswith("/"):
        return 0
    return sum(_settled(path, place) for path in sorted(Path(place, STATE).glob(f"*/{METADATA}/[0-9]*")))


def _settled(path: Path, place: str) -> bool:
    text = path.read_text()
    after = settled_text(text, place)
    if after == text:
        return False
    new = path.with_name(f".{path.name}.{uuid4()}.tmp")  # Spark's name for what is not whole yet
    with new.open("w") as file:
        file.write(after)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def settled_text(text: str, place: str) -> str:
    """With paths into the checkpoint at `place`; as it is where they lead there, or it is of another version. Pure."""
    version, _, content = text.partition("\n")
    if version != VERSION:
        return text
    said: Any = json.loads(content)
    stores = said.get("stateStoreInfo", []) if isinstance(said, dict) else []
    changed = False
    for store in stores:
        before = store.get(SCHEMAS) or []
        after = [_moved(one, place) for one in before]
        if after != before:
            store[SCHEMAS], changed = after, True
    return f"{version}\n{json.dumps(said, separators=(',', ':'))}" if changed else text


def _moved(path: str, place: str) -> str:
    found = INSIDE.fullmatch(path)
    if found is None or location_of(path) == f"{place}{found[1]}":
        return path
    return f"file:{place}{found[1]}"
