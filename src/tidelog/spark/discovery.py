"""Which partitions a query reads and which offsets its options mean, asked of the brokers. Runs where the driver plans.

Rules:
- Partitions are looked up at each trigger, unless `partition.metadata.cache.ttl.ms` says to remember them, so that new
  ones are read from their beginning as soon as they are there.
- Offsets in options name every partition that is read and no other; so do timestamps.
- Under read_committed the latest offset is the last stable one.
- A topic that was deleted and made anew is known by its id, for as long as this process lives.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicMetadata, TopicPartition
from tidelog.client.offsets import NOT_FOUND, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from tidelog.errors import BrokerError, UsageError
from tidelog.spark.offsets import EARLIEST, LATEST, Offsets
from tidelog.spark.options import ASSIGN, SUBSCRIBE, Boundary, Choice, SourceOptions
from tidelog.spark.reach import connect, is_present
from tidelog.wire.error_code import ErrorCode

LOOKS = 3
INTERNAL = "__tidelog."  # marks and stages of sinks, say: Apache Kafka does not know them for internal
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Discovery:
    """Connected when first asked; `close` it."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._cluster: Cluster | None = None
        self._partitions: list[TopicPartition] = []
        self._looked_at: float | None = None
        self.topic_ids: dict[str, bytes] = {}

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = connect(self.options.reach)
        return self._cluster

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def partitions(self) -> list[TopicPartition]:
        now, ttl = time.monotonic(), self.options.metadata_ttl_ms / 1000
        if self._looked_at is None or now - self._looked_at >= ttl:
            if self._cluster is not None and not is_present(self.options.reach, self._cluster):
                self.close()
            topics = self.cluster.retry(self._topics)
            self.topic_ids.update({topic.name: topic.topic_id for topic in topics if topic.has_id})
            self._partitions = self._chosen(topics)
            self._looked_at = now
        return self._partitions

    def _topics(self) -> list[TopicMetadata]:
        """Those that there are: one that is missing is an error at the start (`resolve`), and data loss later."""
        choice = self.options.choice
        self.cluster.forget()
        if choice.pattern is not None:
            everything = self.cluster.ask_metadata(None).topics.values()
            others = [one for one in everything if not one.internal and not one.name.startswith(INTERNAL)]
            found = [one for one in others if re.search(choice.pattern, one.name)]
        else:
            names = choice.topics or tuple({at.topic for at in choice.partitions})
            found = list(self.cluster.ask_metadata(names).topics.values())
        for topic in found:
            if topic.error_code and topic.error_code not in UNKNOWN:
                self.cluster.topic(topic.name)  # raises it, and `retry` knows what may pass
        return [topic for topic in found if topic.partitions]

    def _chosen(self, topics: Iterable[TopicMetadata]) -> list[TopicPartition]:
        there = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
        assigned = set(self.options.choice.partitions)
        return sorted(at for at in there if not assigned or at in assigned)

    def offsets(self, partitions: Iterable[TopicPartition], which: int) -> Offsets:
        """EARLIEST, LATEST, or the first offset at or after a time; NOT_FOUND where no record is that young."""
        isolation = READ_COMMITTED if self.options.reach.read_committed else READ_UNCOMMITTED
        wanted = dict.fromkeys(partitions, which)
        if not wanted:
            return {}
        found = list_offsets(self.cluster, wanted, isolation=isolation)
        return {at: one.offset for at, one in found.items()}

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Of those that there are: one may have been deleted since it was looked up."""
        wanted = list(partitions)
        try:
            return self.offsets(wanted, EARLIEST)
        except BrokerError as error:
            if error.code not in UNKNOWN:
                raise
        if len(wanted) == 1:
            return {}
        return {at: offset for one in wanted for at, offset in self.earliest([one]).items()}

    def latest(self) -> Offsets:
        for _ in range(LOOKS):
            try:
                return self.offsets(self.partitions(), LATEST)
            except BrokerError as error:
                if error.code not in UNKNOWN:
                    raise
                self._looked_at = None  # a topic was deleted since it was looked up
        return self.offsets(self.partitions(), LATEST)

    def has_open_transactions(self, latest: Offsets) -> bool:
        """Whether there are records beyond the ends that `read_committed` shows."""
        if not self.options.reach.read_committed:
            return False
        found = list_offsets(self.cluster, dict.fromkeys(latest, LATEST), isolation=READ_UNCOMMITTED)
        return any(one.offset > latest[at] for at, one in found.items())

    def resolve(self, boundary: Boundary) -> Offsets:
        """The offsets that an option means."""
        partitions = self.partitions()
        if missing := _missing(self.options.choice, partitions):
            option = SUBSCRIBE if self.options.choice.topics else ASSIGN
            raise UsageError(f"{missing} is not there to read; create it, or mend the option {option}")
        if boundary.everywhere is not None:
            return self.offsets(partitions, boundary.everywhere)
        if boundary.timestamp is not None:
            return self._at_times(dict.fromkeys(partitions, boundary.timestamp), boundary)
        given = boundary.timestamps if boundary.timestamps is not None else boundary.offsets
        assert given is not None
        _check_named(given, partitions, boundary.option)
        if boundary.timestamps is not None:
            return self._at_times(given, boundary)
        return self._relative(given)

    def _relative(self, given: Mapping[TopicPartition, int]) -> Offsets:
        resolved = dict(given)
        for which in (EARLIEST, LATEST):
            resolved.update(self.offsets([at for at, offset in given.items() if offset == which], which))
        return resolved

    def _at_times(self, times: Mapping[TopicPartition, int], boundary: Boundary) -> Offsets:
        isolation = READ_COMMITTED if self.options.reach.read_committed else READ_UNCOMMITTED
        found = {at: one.offset for at, one in list_offsets(self.cluster, times, isolation=isolation).items()}
        late = [at for at, offset in found.items() if offset == NOT_FOUND]
        if late and not boundary.latest_if_none:
            advice = "set startingOffsetsByTimestampStrategy to latest to start at their ends"
            young = f"is as young as {times[late[0]]}, the option {boundary.option}"
            raise UsageError(f"no record of {', '.join(map(str, late))} {young}; {advice}")
        return found | self.offsets(late, LATEST)


def _missing(choice: Choice, there: Iterable[TopicPartition]) -> str:
    """What a choice names and the brokers do not have. A pattern names nothing."""
    found = set(there)
    topics = {at.topic for at in found}
    named = [topic for topic in choice.topics if topic not in topics]
    return ", ".join([*map("topic {}".format, named), *(str(at) for at in choice.partitions if at not in found)])


def _check_named(given: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition], option: str) -> None:
    there = set(partitions)
    if missing := sorted(there - given.keys()):
        raise UsageError(
            f"option {option} leaves out {', '.join(map(str, missing))}; name every partition (of offsets, -2 is"
            " earliest and -1 latest)"
        )
    if unknown := sorted(given.keys() - there):
        raise UsageError(f"option {option} names {', '.join(map(str, unknown))}, which is not read; leave it out")
