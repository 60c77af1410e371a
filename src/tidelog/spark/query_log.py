"""What a checkpoint says of its query: its id, how far its sources are read by a micro-batch, and with which watermark.

Spark tells a Python sink neither, but writes both before a micro-batch runs:

    metadata              {"id":"..."}
    offsets/<batch>       v1, then a line of metadata, then one line for each source: its offset as JSON, "-" for none
                          v2: the same, and each source's line begins with its name and a colon

An offset in the form of the Kafka connector ({"topic":{"0":12}}) is offsets; what any other source has is a position in
its own words. Local paths are read as files, other places by Arrow's file systems (hdfs, s3, gs, abfs), which log in
with what the driver's environment has, not with Hadoop's settings.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tidelog.control.marks import NOTHING_HELD, SINK_LENGTH_MAX, Sources
from tidelog.errors import UsageError
from tidelog.spark.offsets import Offsets, from_json

METADATA, OFFSETS = "metadata", "offsets"
NOTHING_READ = "-"
VERSIONS = ("v1", "v2")
DIGEST_LENGTH = 12
ANY_TOPIC = "topics"  # in a sink's name, where each row says its topic

# What Hadoop's file systems are called, and Arrow's for the same places.
ARROW_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
    "abfs": "abfs",
    "abfss": "abfss",
}

_LOCAL = re.compile(r"file:(?://[^/]*)?(/.*)", re.IGNORECASE)
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
_PARTS = re.compile(r"([^:]+):(?://([^/]*))?(.*)", re.DOTALL)


def location_of(checkpoint: str) -> str:
    """One place has one name, however it is written."""
    if (found := _LOCAL.fullmatch(checkpoint)) or not _REMOTE.match(checkpoint):
        path = os.path.abspath(found[1] if found else checkpoint)  # noqa: PTH100  Spark follows no links either
        return "/" + path.lstrip("/")  # POSIX leaves two in front
    scheme, authority, path = _PARTS.fullmatch(checkpoint).groups("")  # type: ignore[union-attr]
    return f"{scheme.lower()}://{authority}{posixpath.normpath('/' + path.lstrip('/'))}"


def default_name(topic: str | None, checkpoint: str) -> str:
    """A sink's name, where none is given."""
    digest = hashlib.sha256(location_of(checkpoint).encode()).hexdigest()[:DIGEST_LENGTH]
    return f"{(topic or ANY_TOPIC)[: SINK_LENGTH_MAX - DIGEST_LENGTH - 1]}.{digest}"


def query_id_of(checkpoint: str) -> str:
    try:
        return str(json.loads(_read(checkpoint, METADATA))["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{checkpoint}/{METADATA} names no query: {error!r}; is it a checkpoint of Spark?") from error


class Planned(NamedTuple):
    """Of a micro-batch, before it runs: where the next one will begin to read, and its watermark, 0 if it has none."""

    sources: Sources
    watermark_ms: int


def planned_of(checkpoint: str, batch_id: int) -> Planned:
    text = _read(checkpoint, f"{OFFSETS}/{batch_id}")
    return Planned(parse_offsets_file(text), watermark_in(text))


def watermark_of(planned: Planned, *, holds: bool | None) -> int | None:
    """As a mark has it. `holds`: whether the query holds rows back for its watermark; None: nobody knows."""
    if holds is None:
        return planned.watermark_ms or None
    return planned.watermark_ms if holds else NOTHING_HELD


def sources_of(checkpoint: str, batch_id: int) -> Sources:
    """Where the next micro-batch will begin to read."""
    return planned_of(checkpoint, batch_id).sources


def watermark_in(text: str) -> int:
    """Of a file of offsets. One that does not say it is Spark's own matter: there is none."""
    try:
        return int(json.loads(text.split("\n")[1])["batchWatermarkMs"])
    except (IndexError, ValueError, KeyError, TypeError):
        return 0


def parse_offsets_file(text: str) -> Sources:
    offsets: Offsets = {}
    positions: dict[str, str] = {}
    for name, said in by_source(text).items():
        read = _kafka_offsets(said)
        if read is None:
            positions[name] = said
            continue
        for at, offset in read.items():
            # A topic that two sources read is read as far as the slower one is.
            offsets[at] = min(offset, offsets.get(at, offset))
    return Sources(offsets, positions)


def by_source(text: str) -> dict[str, str]:
    """How far each source is read, in its own words; sources that have read nothing are left out."""
    version, *rest = text.split("\n")
    if version not in VERSIONS:
        raise UsageError(f"a checkpoint has offsets of version {version[:20]!r}, and this Tidelog knows v1 and v2")
    return dict(_by_source(version, rest[1:]))


def _by_source(version: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        name, said = (str(number), line) if version == "v1" else (line.partition(":")[0], line.partition(":")[2])
        if said.strip() and said != NOTHING_READ:
            yield name, said


def _kafka_offsets(said: str) -> Offsets | None:
    try:
        read: Any = json.loads(said)
        found = from_json(read)
    except (ValueError, AttributeError, TypeError):
        return None
    return found if found and all(type(offset) is int for offset in found.values()) else None


def _read(checkpoint: str, name: str) -> str:
    place = location_of(checkpoint)
    if _REMOTE.match(place):
        return _read_remote(place, name)
    try:
        with open(f"{place}/{name}", encoding="utf-8") as file:  # noqa: PTH123  a path as written
            return file.read()
    except OSError as error:
        raise _unread(f"{place}/{name}", (error.strerror or "it is not there").lower()) from error


def check_readable(checkpoint: str) -> None:
    """Refuses a place that is not among those that can be read, before anything is looked for there."""
    place = location_of(checkpoint)
    if _REMOTE.match(place):
        arrow_uri(place)


def arrow_uri(place: str) -> str:
    """A place as Hadoop writes it, for Arrow."""
    scheme, _, rest = place.partition(":")
    if scheme not in ARROW_SCHEMES:
        raise UsageError(
            f"checkpointLocation is {place}, and an exactly-once sink cannot read {scheme}; put the checkpoint on a"
            f" local path or one of {', '.join(ARROW_SCHEMES)}, or set deliveryGuarantee to at-least-once"
        )
    return f"{ARROW_SCHEMES[scheme]}:{rest}"


def _read_remote(place: str, name: str) -> str:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        system, path = FileSystem.from_uri(arrow_uri(place))
        with system.open_input_stream(f"{path}/{name}") as file:
            return str(file.read().decode())
    except (OSError, pa.ArrowException) as error:
        raise _unread(f"{place}/{name}", str(error).partition("\n")[0].lower()) from error


def _unread(path: str, reason: str) -> UsageError:
    return UsageError(
        f"{path} of the checkpoint cannot be read: {reason}; an exactly-once sink needs it, where the driver runs (and"
        " asyncProgressTrackingEnabled off)"
    )
