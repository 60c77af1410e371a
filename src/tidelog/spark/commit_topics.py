"""What a commit asks of topics: which there are and by which ids, where their partitions end, what of it is told to a
group. Without PySpark.

Rules:
- Ids of topics are compared with those of the last mark: one that was deleted and made anew is another topic.
- Ends are of every partition of every target; what no answer and no mark has told is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.client.admin import configs
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import TopicMetadata, TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control import marks
from tidelog.control.marks import Ends, Mark
from tidelog.errors import BrokerError, DataLoss, TidelogError
from tidelog.spark.discovery import INTERNAL
from tidelog.spark.options import GO_ON
from tidelog.spark.routing import lost_target, partitions_there
from tidelog.spark.staging import DURABILITY

if TYPE_CHECKING:
    from tidelog.spark.commit import Writing

MEMORY = "memory"


def ends_of(
    cluster: Cluster, writing: Writing, before: Mark | None, written: Ends, *, ask: bool = True
) -> dict[TopicPartition, int]:
    """For every partition of every target. `ask`: one may have more partitions than before."""
    old = {at.topic for at in before.ends} if before is not None else set()
    made = () if writing.marked else writing.topics
    topics = sorted({*writing.topics, *(at.topic for at in written), *old})
    if ask:
        cluster.retry(lambda: cluster.ask_metadata(topics))
    targets = set(written)
    for topic in topics:
        try:
            targets.update(cluster.partitions(topic, auto_create=topic in made))
        except BrokerError as error:
            if error.code not in UNKNOWN_TOPIC or topic not in old:
                raise
    told = before.ends if before is not None else {}
    untold = [at for at in targets if at not in written and at not in told]
    now = {at: found.offset for at, found in list_offsets(cluster, dict.fromkeys(untold, LATEST)).items()}
    return dict(marks.ends_after(before, written, sorted(targets), now))


def reported_of(cluster: Cluster, writing: Writing) -> dict[TopicPartition, int]:
    """The offsets of sources that are on this cluster: others cannot be a group's here."""
    if writing.group is None:
        return {}
    known: dict[str, set[int]] = {}
    for topic in {at.topic for at in writing.sources.offsets}:
        try:
            known[topic] = set(cluster.topic(topic).partitions)
        except BrokerError:
            continue
    return {at: n for at, n in writing.sources.offsets.items() if at.partition in known.get(at.topic, ())}


def named_in(writing: Writing) -> tuple[str, ...]:
    """Topics that it reads and writes, but for those of brokers and ours."""
    read = {at.topic for at in writing.sources.offsets if not at.topic.startswith(INTERNAL)}
    return tuple(sorted(read.union(writing.topics)))


def are_still(cluster: Cluster, writing: Writing, ids: Mapping[str, str]) -> bool:
    """Whether targets are those that `ids` says, by what the cluster has been told since: a producer asks anew when a
    broker does not know a topic by its id any more.
    """
    return all(cluster.topic(topic).topic_id.hex() == ids[topic] for topic in writing.topics if topic in ids)


def ids_of(cluster: Cluster, writing: Writing, before: Mark | None) -> dict[str, str]:
    """Of the topics that were read, as far as they are on this cluster, and of those that are written. One that is not
    what the last mark says was deleted, and made anew: from where the query was it would read on in another topic, or
    write on. One that had nothing yet has lost nothing: who starts the app makes it anew (`pipelines/placing.py`).
    """
    if not writing.marked:
        return {}
    named = named_in(writing)
    read = {at.topic for at in writing.sources.offsets}.intersection(named)
    known = _known(cluster, named, writing.topics)
    found = {topic: known[topic].topic_id.hex() for topic in named if topic in known and known[topic].has_id}
    told = {} if before is None else before.ids
    for topic in (topic for topic, one in found.items() if told.get(topic, one) != one):
        assert before is not None
        if topic in writing.topics and any(end for at, end in before.ends.items() if at.topic == topic):
            raise lost_target(topic, f"was deleted and created again after micro-batch {before.batch_id}")
        if topic in read:
            raise DataLoss(
                f"topic {topic} was deleted and created again after micro-batch {before.batch_id} had read the old one;"
                f" data may be lost: {GO_ON}"
            )
    return found


def _known(cluster: Cluster, topics: Sequence[str], targets: Sequence[str]) -> Mapping[str, TopicMetadata]:
    """Not as it was known before: it may be another. The broker that is asked may not know of all targets yet."""
    known = cluster.retry(lambda: cluster.ask_metadata(topics)).topics
    missing = [topic for topic in targets if topic not in known or not known[topic].led]
    for topic in missing:
        cluster.forget()
        partitions_there(cluster, topic)
    return cluster.retry(lambda: cluster.ask_metadata(topics)).topics if missing else known


# Warnings -------------------------------------------------------------------------------------------------------------

_looked_at: set[str] = set()


def warn_of_memory(cluster: Cluster, topics: Iterable[str]) -> None:
    """Once a topic and process."""
    for topic in set(topics) - _looked_at:
        _looked_at.add(topic)
        try:
            found = configs.describe(cluster, configs.TOPIC, topic, keys=[DURABILITY])
        except TidelogError:
            continue
        if any(one.name == DURABILITY and one.value == MEMORY for one in found):
            import logging

            logging.getLogger(__name__).warning(
                "topic %s is written exactly once and has %s=%s: a power cut may lose what a mark says is there; use a"
                " durable topic, or deliveryGuarantee at-least-once",
                *(topic, DURABILITY, MEMORY),
            )
