"""What clients of a broker were told, kept beside it while it dies and comes back; then compared with what it has.

    sent     the writer is about to send it: it may be in the log, or not
    acked    the writer was told so, with an offset: it must be there, at that offset, as it was sent
    seen     a consumer got it: nobody may see what a crash can take back, so it must be there as well
    gone     the partition's beginning was moved by somebody who may do that; what is below it does not count

A value names its writer and its number. A writer sends its numbers upwards, so in a partition they come in that order
and, since no writer sends anew what may have been written, each of them once.

The lists are appended to by many threads and read when those have ended. A ledger says nothing of topics that may
forget (`tidelog.durability=memory` and a power cut): `check_forgetful` has the weaker rules for these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.errors import BrokerError
from tidelog.wire.error_code import ErrorCode


class Told(NamedTuple):
    at: TopicPartition
    offset: int
    value: bytes


class Name(NamedTuple):
    writer: str
    number: int


class Found(NamedTuple):
    """What a partition has: its first offset, and the values from there on, with their offsets."""

    start: int
    end: int
    values: dict[int, bytes]


class Ledger:
    def __init__(self) -> None:
        self.sent: dict[bytes, TopicPartition] = {}
        self.acked: list[Told] = []
        self.seen: list[Told] = []
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.retained: set[str] = set()  # topics whose beginning may move

    def commit(self, group: str, at: TopicPartition, offset: int) -> None:
        self.committed[group, at] = max(offset, self.committed.get((group, at), 0))

    def ends(self) -> dict[TopicPartition, int]:
        """How far each partition must reach at least."""
        ends: dict[TopicPartition, int] = {}
        for told in (*self.acked, *self.seen):
            ends[told.at] = max(ends.get(told.at, 0), told.offset + 1)
        return ends

    def check(self, log: Mapping[TopicPartition, Found]) -> None:
        """Of topics that forget nothing."""
        for at, found in log.items():
            self._check_partition(at, found)
        for told, how in [(one, "acked") for one in self.acked] + [(one, "seen by a consumer") for one in self.seen]:
            found = log.get(told.at)
            if found is not None and told.offset >= found.start:
                there = found.values.get(told.offset)
                assert there == told.value, (
                    f"{name_of(told.value)} was {how} at {told.at} {told.offset}, where there is"
                    f" {name_of(there) if there else 'nothing'}; the log is {found.start} to {found.end}"
                )

    def check_forgetful(self, log: Mapping[TopicPartition, Found]) -> None:
        """Of topics that may have lost their end, again and again: what is left is what was sent, in order."""
        for at, found in log.items():
            self._check_partition(at, found)

    def _check_partition(self, at: TopicPartition, found: Found) -> None:
        assert at.topic in self.retained or found.start == 0, f"{at} begins at {found.start} and nobody asked for it"
        offsets = range(found.start, found.end)
        assert list(found.values) == list(offsets), f"offsets of {at} are not dense: {_gaps(found)}"
        strange = [value for value in found.values.values() if self.sent.get(value) != at]
        assert not strange, f"{at} has what nobody sent there: {strange[:3]}"
        twice = [name_of(value) for value, times in Counter(found.values.values()).items() if times > 1]
        assert not twice, f"{at} has records twice: {twice[:5]}"
        last: dict[str, int] = {}
        for offset, value in found.values.items():
            writer, number = name_of(value)
            assert number > last.get(writer, -1), f"{at} {offset}: {writer} sent {number} before {last[writer]}"
            last[writer] = number


def value_of(writer: str, number: int, padding: bytes = b"") -> bytes:
    return b"%s/%d/" % (writer.encode(), number) + padding


def name_of(value: bytes) -> Name:
    writer, number, _ = value.split(b"/", 2)
    return Name(writer.decode(), int(number))


def read_all(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Found]:
    """Everything that these partitions have now; read anew where retention takes away what is being read."""
    partitions = list(partitions)
    while True:
        try:
            return _read_once(cluster, partitions)
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise


def _read_once(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, Found]:
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    log = {at: Found(starts[at].offset, ends[at].offset, {}) for at in partitions}
    consumer = Consumer(cluster)
    consumer.assign({at: found.start for at, found in log.items()})
    while any(consumer.positions[at] < found.end for at, found in log.items()):
        for fetched in consumer.fetch():
            found = log[fetched.at]
            found.values.update({row.offset: row.value or b"" for row in fetched.rows() if row.offset < found.end})
    return log


def _gaps(found: Found) -> str:
    missing = [offset for offset in range(found.start, found.end) if offset not in found.values]
    return f"{len(missing)} missing, {missing[:5]}; {len(found.values)} there of {found.start} to {found.end}"
