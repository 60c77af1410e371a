"""OffsetCommit, OffsetFetch and OffsetDelete.

A commit is checked against the group (member and generation, or member id and epoch; neither, when the group has no
members) and refused as a whole, or taken partition by partition. Topic ids (version 10) have been turned into names
by the handler; a name that is empty was an unknown id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tidelog.broker.decision import Decision, Instant, NewRecord, Ticket
from tidelog.broker.groups.classic import Step, member_error
from tidelog.broker.groups.classic_group import CONSUMER_PROTOCOL_TYPE, LiveGroup, subscribed_topics
from tidelog.broker.groups.consumer_group import Group
from tidelog.broker.groups.phases import COMMIT, Phase
from tidelog.broker.groups.records import NO_EXPIRY, CommittedOffset, offset_key, offset_value
from tidelog.broker.groups.settings import MAX_GROUP_ID_LENGTH
from tidelog.broker.groups.state import Groups
from tidelog.broker.groups.subscriptions import is_subscribed
from tidelog.broker.record_text import encode
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

MEMBER_EPOCH_SINCE = 9
TOPIC_ID_SINCE = 10
GROUPS_IN_BATCHES_SINCE = 8
NOTHING_COMMITTED = CommittedOffset(-1, -1, "", 0)
AskedTopic = OffsetFetchRequestTopic | OffsetFetchRequestTopics


# Commit ----------------------------------------------------------------------------------------------------------


def decide_commit(state: Groups, request: OffsetCommitRequest, version: int, ticket: Ticket, now: Instant) -> Decision:
    refused = commit_error(state, request, version, now)
    taken: dict[tuple[str, int], OffsetCommitRequestPartition] = {}  # what is named twice is written once
    reply = OffsetCommitResponse()
    for topic in request.topics:
        answers = []
        for one in topic.partitions:
            error_code = _place_error(state, topic, one, version) or refused
            answers.append(OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error_code))
            if error_code == ErrorCode.NONE:
                taken[topic.name, one.partition_index] = one
        reply.topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    records = [
        NewRecord(offset_key(request.group_id, *place), encode(offset_value(_committed(request, one, now))))
        for place, one in taken.items()
    ]
    return Decision(records, [(ticket, reply)])


def _committed(request: OffsetCommitRequest, one: OffsetCommitRequestPartition, now: Instant) -> CommittedOffset:
    expire_ms = NO_EXPIRY if request.retention_time_ms < 0 else now.wall_ms + request.retention_time_ms
    metadata = one.committed_metadata or ""
    return CommittedOffset(one.committed_offset, one.committed_leader_epoch, metadata, now.wall_ms, expire_ms)


def _place_error(
    state: Groups, topic: OffsetCommitRequestTopic, one: OffsetCommitRequestPartition, version: int
) -> int:
    known = state.live.topics.get(topic.name)
    if known is None and version >= TOPIC_ID_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if known is None or not 0 <= one.partition_index < known.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(one.committed_metadata or "") > state.live.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def commit_error(state: Groups, request: OffsetCommitRequest, version: int, now: Instant) -> int:
    if len(request.group_id) > MAX_GROUP_ID_LENGTH:
        return ErrorCode.INVALID_GROUP_ID
    consumer = state.consumer.get(request.group_id)
    if consumer is not None:
        return _consumer_commit_error(consumer, request, version)
    classic = state.live_group(request.group_id)
    if classic is None and request.group_id in state.offsets:
        classic = LiveGroup(request.group_id)
    if classic is not None:
        return _classic_commit_error(state, classic, request, now)
    if request.generation_id_or_member_epoch < 0:
        # A consumer that manages its partitions by itself, or an administrator: a simple group.
        return ErrorCode.NONE if state.has_room_for(request.group_id) else ErrorCode.POLICY_VIOLATION
    return ErrorCode.GROUP_ID_NOT_FOUND if version >= MEMBER_EPOCH_SINCE else ErrorCode.ILLEGAL_GENERATION


def _consumer_commit_error(group: Group, request: OffsetCommitRequest, version: int) -> int:
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if version < MEMBER_EPOCH_SINCE and member.classic is None:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _classic_commit_error(state: Groups, group: LiveGroup, request: OffsetCommitRequest, now: Instant) -> int:
    generation = request.generation_id_or_member_epoch
    if generation < 0 and group.phase is Phase.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error_code = member_error(group, request.member_id, request.group_instance_id)
    if error_code == ErrorCode.NONE and generation != group.generation:
        error_code = ErrorCode.ILLEGAL_GENERATION
    if error_code == ErrorCode.NONE:
        error_code = COMMIT[group.phase]
    if error_code == ErrorCode.NONE:
        # Who commits is alive.
        Step(state, group, now).renew_session(group.members[request.member_id])
    return error_code


# Fetch -----------------------------------------------------------------------------------------------------------


def decide_fetch(state: Groups, request: OffsetFetchRequest, version: int, ticket: Ticket) -> Decision:
    if version >= GROUPS_IN_BATCHES_SINCE:
        groups = [_fetch_group(state, one, version) for one in request.groups]
        return Decision([], [(ticket, OffsetFetchResponse(groups=groups))])
    topics = []
    for name, found in _lookup(state, request.group_id, request.topics):
        partitions = [
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                metadata=one.metadata,
            )
            for index, one in found
        ]
        topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return Decision([], [(ticket, OffsetFetchResponse(topics=topics))])


def _fetch_group(state: Groups, request: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponseGroup:
    reply = OffsetFetchResponseGroup(group_id=request.group_id)
    reply.error_code = _fetch_error(state, request)
    if reply.error_code != ErrorCode.NONE:
        return reply
    asked = {topic.name: topic.topic_id for topic in request.topics or []}
    for name, found in _lookup(state, request.group_id, request.topics):
        known = state.live.topics.get(name)
        if known is None and version >= TOPIC_ID_SINCE:
            continue
        topic_id = known.topic_id if known is not None else asked.get(name, bytes(16))
        partitions = [_fetched(index, one) for index, one in found]
        reply.topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
    if version >= TOPIC_ID_SINCE:
        reply.topics += [_unknown_topic(one) for one in request.topics or [] if one.name not in state.live.topics]
    return reply


def _fetched(index: int, one: CommittedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=one.offset,
        committed_leader_epoch=one.leader_epoch,
        metadata=one.metadata,
    )


def _unknown_topic(asked: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    partitions = [
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        for index in asked.partition_indexes
    ]
    return OffsetFetchResponseTopics(topic_id=asked.topic_id, partitions=partitions)


def _fetch_error(state: Groups, request: OffsetFetchRequestGroup) -> int:
    group = state.consumer.get(request.group_id)
    if group is None or (request.member_id is None and request.member_epoch < 0):
        return ErrorCode.NONE
    member = group.members.get(request.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member.epoch == request.member_epoch else ErrorCode.STALE_MEMBER_EPOCH


def _lookup(
    state: Groups,
    group_id: str,
    topics: Iterable[AskedTopic] | None,
) -> list[tuple[str, list[tuple[int, CommittedOffset]]]]:
    """Topics with the offsets asked for; all that there are, when none are named."""
    offsets = state.offsets.get(group_id, {})
    if topics is not None:
        return [
            (
                topic.name,
                [(index, offsets.get((topic.name, index), NOTHING_COMMITTED)) for index in indexes],
            )
            for topic, indexes in _once(topics)
        ]
    by_topic: dict[str, list[tuple[int, CommittedOffset]]] = {}
    for (name, index), one in sorted(offsets.items()):
        by_topic.setdefault(name, []).append((index, one))
    return list(by_topic.items())


def _once(topics: Iterable[AskedTopic]) -> Iterator[tuple[AskedTopic, dict[int, None]]]:
    """Topics with the partitions that no topic before them has named: a small request cannot ask for any reply."""
    named: dict[tuple[str, bytes], set[int]] = {}
    for topic in topics:
        before = named.setdefault((topic.name, getattr(topic, "topic_id", b"")), set())
        indexes = dict.fromkeys(index for index in topic.partition_indexes if index not in before)
        before.update(indexes)
        if indexes or not topic.partition_indexes:
            yield topic, indexes


# Delete ----------------------------------------------------------------------------------------------------------


def decide_offset_delete(state: Groups, request: OffsetDeleteRequest, ticket: Ticket) -> Decision:
    group = state.live_group(request.group_id)
    if not state.is_known(request.group_id):
        return Decision([], [(ticket, OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))])
    if group is not None and group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return Decision([], [(ticket, OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))])
    gone: dict[tuple[str, int], None] = {}
    reply = OffsetDeleteResponse()
    offsets = state.offsets.get(request.group_id, {})
    is_read = reader(state, request.group_id)
    for topic in request.topics:
        subscribed = is_read(topic.name)
        known = state.live.topics.get(topic.name)
        answers = []
        for one in topic.partitions:
            error_code = ErrorCode.NONE
            if known is None or not 0 <= one.partition_index < known.partitions:
                error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed:
                error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif (topic.name, one.partition_index) in offsets:
                gone[topic.name, one.partition_index] = None
            answers.append(OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=error_code))
        reply.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    records = [NewRecord(offset_key(request.group_id, *place), None) for place in gone]
    return Decision(records, [(ticket, reply)])


def reader(state: Groups, group_id: str) -> Callable[[str], bool]:
    """Whether a member of the group subscribes to a topic, as far as the broker can know.

    What members of classic groups subscribe to is bytes of theirs, which are decoded here, once for all topics.
    """
    consumer = state.consumer.get(group_id)
    if consumer is not None:
        return lambda topic: is_subscribed(state, consumer, topic)
    group = state.live_group(group_id)
    if group is None or group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return lambda _topic: False
    read: set[str] = set()
    for member in group.members.values():
        protocol = group.protocol or member.kept.protocols[0].name
        topics = subscribed_topics(member.kept.metadata(protocol))
        if topics is None:  # a subscription that cannot be read may be one to anything
            return lambda _topic: True
        read |= topics
    return read.__contains__
