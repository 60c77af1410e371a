"""What long-running parts tell of themselves, and what they are told: two compacted topics, one the twin of the other.

    __tidelog.status      key    {"v":1,"kind":"query","name":"shop.revenue"}
                          value  {"at_ms":MS, figures}: how the part is; or null, of one that was taken away
    __tidelog.commands    key    as above: whom it is for
                          value  {"command":"pause","arguments":{},"at_ms":MS}

Rules (docs/formats/status.md has every field of every kind):
- A part writes at most once a second, and only what is news; its end it always tells. What it has told is told again
  at once where the time of day has been set: how old a report is, is known by `at_ms` alone. What a report says of the
  part's health is `health.py`'s to tell.
- Reports are notes: who cannot write one goes on, and says so once.
- The newest command to a part counts. `pause` and `resume` say how a part is to be, so they also count for one that
  starts later; all others are for those that run when they come, and are read from where the topic ended at the start.
- A broker of ours has the status topic; on any other both are made by the first who writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from json import dumps, loads
from typing import Any, NamedTuple

from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.consumer import check_readable
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.clock import Jumps
from tidelog.control.health import AGAIN_S
from tidelog.control.reading import read
from tidelog.errors import BrokerError, Disconnected, TidelogError

STATUS = TopicPartition("__tidelog.status", 0)
COMMANDS = TopicPartition("__tidelog.commands", 0)
VERSION = 1
TAIL_RECORDS = 5_000  # of the topic's end, in which every part that lives has reported
EVERY_S = 1.0

STORE = "store"  # the kind of a process with an event store
PAUSE, RESUME, STOP, REBUILD = "pause", "resume", "stop", "rebuild"
LASTING = (PAUSE, RESUME)


class Report(NamedTuple):
    kind: str
    name: str
    figures: dict[str, Any]

    def is_meant_by(self, name: str) -> bool:
        """Processes that run one event store have reports of their own, and are also meant by its name."""
        return name == self.name or (self.kind == STORE and name == self.figures.get("store"))


class Command(NamedTuple):
    kind: str
    name: str
    command: str
    arguments: Mapping[str, Any]
    at_ms: int


# Telling --------------------------------------------------------------------------------------------------------------


class Reporter:
    """Of one part. Its cluster belongs to the thread that tells."""

    def __init__(self, cluster: Cluster, kind: str, name: str) -> None:
        self._cluster = cluster
        self._key, self._name = _key(kind, name), f"{kind} {name}"
        self._told: Mapping[str, Any] | None = None
        self._told_at: float | None = None
        self._not_before = 0.0
        self._jumps = Jumps()
        self._warned = False
        self.in_vain = False  # whether nobody was there for what was told last

    def tell(self, figures: Mapping[str, Any], *, at_once: bool = False) -> bool:
        """Whether a record was written. `at_once` for what must not wait, such as the end of a part."""
        self.in_vain = False
        now = time.monotonic()
        if self._jumps.look():
            self._told_at = None
        if not at_once and (now < self._not_before or not is_due(self._told_at, now, news=figures != self._told)):
            return False
        self._told, self._told_at = dict(figures), now
        try:
            _write(self._cluster, STATUS, self._key, {"at_ms": int(time.time() * 1000), **figures})
        except TidelogError as error:
            self._not_before = time.monotonic() + AGAIN_S  # who tells has more to do than to wait for a broker
            self._warn(error)
            self.in_vain = isinstance(error, Disconnected)
            return False
        return True

    def _warn(self, error: TidelogError) -> None:
        if not self._warned:
            import logging

            logging.getLogger(__name__).warning("status of %s is not reported: %s", self._name, error)
        self._warned = True


def is_due(told_at: float | None, now: float, *, news: bool) -> bool:
    """Whether a report is to be written now."""
    return told_at is None or now - told_at >= (EVERY_S if news else AGAIN_S)


def take_away(cluster: Cluster, kind: str, name: str) -> None:
    """A part that is no more: its record goes with compaction."""
    _write(cluster, STATUS, _key(kind, name), None)


def send_command(cluster: Cluster, kind: str, name: str, command: str, **arguments: Any) -> None:
    told = {"command": command, "arguments": arguments, "at_ms": int(time.time() * 1000)}
    _write(cluster, COMMANDS, _key(kind, name), told)


def _write(cluster: Cluster, at: TopicPartition, key: bytes, value: Mapping[str, Any] | None) -> None:
    from tidelog.client.producer import Producer  # most who read reports write none

    _ensure(cluster, at.topic)
    with Producer(cluster) as producer:
        said = None if value is None else dumps(value, separators=(",", ":"), default=str).encode()
        producer.send(at.topic, said, key=key, partition=at.partition)


def _ensure(cluster: Cluster, topic: str) -> None:
    known = cluster.ask_metadata([topic]).topics.get(topic)
    if known is not None and known.led:
        return
    from tidelog.client.admin import topics

    topics.ensure(cluster, topic, partitions=1, configs={"cleanup.policy": "compact"})


def _key(kind: str, name: str) -> bytes:
    return dumps({"v": VERSION, "kind": kind, "name": name}, separators=(",", ":")).encode()


# Reading --------------------------------------------------------------------------------------------------------------


def read_status(cluster: Cluster) -> list[Report]:
    """Nothing where there is no such topic: beside Apache Kafka, or of a broker that has just started."""
    newest = _newest(cluster, STATUS)
    return [one for key, value in newest.items() if value is not None and (one := _report(key, value)) is not None]


def status_for(cluster: Cluster) -> list[Report]:
    """For a person, who is told where the broker does not let him read it: to see nothing would be to see that nothing
    runs.
    """
    try:
        check_readable(cluster, STATUS)
    except BrokerError as error:
        if error.code in UNKNOWN_TOPIC:
            return []
        raise
    return read_status(cluster)


class Commands:
    """Those to parts of some names, as they come."""

    def __init__(self, cluster: Cluster, position: int | None = None) -> None:
        """With `position` that of the next record: of a part that stores how far it has followed them."""
        self._cluster = cluster
        self._position = position  # None before the topic is there

    @property
    def position(self) -> int:
        """Behind all that were given; 0 where there is no topic yet."""
        return self._position or 0

    def first(self) -> list[Command]:
        """What counts for who starts now: the newest of each part, if it is lasting."""
        newest = _newest(self._cluster, COMMANDS)
        self._position = _end(self._cluster, COMMANDS)
        return [one for one in _commands(newest.items()) if one.command in LASTING]

    def next(self) -> list[Command]:
        """What has come since."""
        end = _end(self._cluster, COMMANDS)
        if end is None:
            return []
        begin = self._position or 0
        begin, self._position = begin if begin <= end else 0, end  # a topic that was made anew
        return _commands(_read(self._cluster, COMMANDS, begin, end))


def end_of_commands(cluster: Cluster) -> int:
    return _end(cluster, COMMANDS) or 0


def _newest(cluster: Cluster, at: TopicPartition) -> dict[bytes, bytes | None]:
    end = _end(cluster, at)
    if end is None:
        return {}
    start = list_offsets(cluster, {at: EARLIEST})[at].offset
    return dict(_read(cluster, at, max(start, end - TAIL_RECORDS), end))


def _end(cluster: Cluster, at: TopicPartition) -> int | None:
    topic = cluster.ask_metadata([at.topic]).topics.get(at.topic)
    return None if topic is None or not topic.led else list_offsets(cluster, {at: LATEST})[at].offset


def _read(cluster: Cluster, at: TopicPartition, begin: int, end: int) -> list[tuple[bytes, bytes | None]]:
    rows = read(cluster, {at: begin}, {at: end}, committed=False)
    return [(row.key, row.value) for _, row in rows if row.key is not None]


def _fields(key: bytes, value: bytes) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """None for what cannot be read: a part that is newer than this reader may tell in another form, and beside another
    broker anybody's record may stand here. That is not a reason for a run to end.
    """
    try:
        named, said = loads(key), loads(value)
        known = named["v"] == VERSION and isinstance(named["kind"], str) and isinstance(named["name"], str)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return (named, said) if known and isinstance(said, dict) else None


def _report(key: bytes, value: bytes) -> Report | None:
    found = _fields(key, value)
    return None if found is None else Report(found[0]["kind"], found[0]["name"], found[1])


def _commands(rows: Iterable[tuple[bytes, bytes | None]]) -> list[Command]:
    told = [found for key, value in rows if value is not None and (found := _fields(key, value)) is not None]
    return [
        Command(named["kind"], named["name"], said["command"], said.get("arguments") or {}, _number(said.get("at_ms")))
        for named, said in told
        if isinstance(said.get("command"), str)
    ]


def _number(said: Any) -> int:
    return said if isinstance(said, int) else 0
