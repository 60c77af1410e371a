"""Offsets that a transaction commits: pending until it ends, then committed or gone.

TxnOffsetCommit writes *pending* offsets, by producer. Nobody is told them as committed; a consumer that asks for stable
offsets (OffsetFetch v7) is told to come again while there are any. When the transaction's outcome is on disk,
`decide_end` turns them into committed offsets, or drops them; its records reach the topic in one batch, so a second end
finds nothing to do.

An offset that was committed later than the pending one stays. As in Kafka, a member and a generation are checked where
the request names them, and a rebalance that waits for its assignment does not refuse the offsets of the last one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.broker.decision import Decision, Instant, NewRecord, Ticket
from tidelog.broker.groups.commits import MEMBER_EPOCH_SINCE, commit_error
from tidelog.broker.groups.records import CommittedOffset, offset_key, offset_value, pending_key
from tidelog.broker.groups.settings import MAX_GROUP_ID_LENGTH
from tidelog.broker.groups.state import Groups
from tidelog.broker.record_text import encode
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.offset_commit import OffsetCommitRequest
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

# What a plain commit is told, and what this one is: clients know no other codes here.
CODES: dict[int, int] = {
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorCode.NONE,
}


@dataclass(slots=True)
class Ended:
    """The reply to an end: NONE, or why it must be tried again."""

    error_code: int = ErrorCode.NONE


def decide_txn_commit(state: Groups, request: TxnOffsetCommitRequest, ticket: Ticket, now: Instant) -> Decision:
    """The transaction was looked at by the caller: it is open, and names this group."""
    refused = _error(state, request, now)
    taken: dict[tuple[str, int], TxnOffsetCommitRequestPartition] = {}  # what is named twice is written once
    reply = TxnOffsetCommitResponse()
    for topic in request.topics:
        answers = []
        for one in topic.partitions:
            index = one.partition_index
            error_code = _place_error(state, topic.name, one) or refused
            answers.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=error_code))
            if error_code == ErrorCode.NONE:
                taken[topic.name, index] = one
        reply.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    records = [
        NewRecord(pending_key(request.group_id, request.producer_id, *place), encode(offset_value(_pending(one, now))))
        for place, one in taken.items()
    ]
    return Decision(records, [(ticket, reply)])


def refuse_txn_commit(request: TxnOffsetCommitRequest, error_code: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error_code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _pending(one: TxnOffsetCommitRequestPartition, now: Instant) -> CommittedOffset:
    metadata = one.committed_metadata or ""
    return CommittedOffset(one.committed_offset, one.committed_leader_epoch, metadata, now.wall_ms)


def _place_error(state: Groups, topic: str, one: TxnOffsetCommitRequestPartition) -> int:
    known = state.live.topics.get(topic)
    if known is None or not 0 <= one.partition_index < known.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(one.committed_metadata or "") > state.live.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _error(state: Groups, request: TxnOffsetCommitRequest, now: Instant) -> int:
    if not 0 < len(request.group_id) <= MAX_GROUP_ID_LENGTH:
        return ErrorCode.INVALID_GROUP_ID
    if request.generation_id < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.NONE if state.has_room_for(request.group_id) else ErrorCode.POLICY_VIOLATION
    plain = OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    error_code = commit_error(state, plain, MEMBER_EPOCH_SINCE, now)
    return CODES.get(error_code, error_code)


def decide_end(state: Groups, producer_id: int, groups: Iterable[str], commit: bool, ticket: Ticket) -> Decision:
    records: list[NewRecord] = []
    for group_id in sorted(groups):
        for (topic, index), pending in state.pending.get(group_id, {}).get(producer_id, {}).items():
            records.append(NewRecord(pending_key(group_id, producer_id, topic, index), None))
            committed = state.offsets.get(group_id, {}).get((topic, index))
            if commit and (committed is None or committed.commit_ms <= pending.commit_ms):
                records.append(NewRecord(offset_key(group_id, topic, index), encode(offset_value(pending))))
    return Decision(records, [(ticket, Ended())])


def hide_unstable(state: Groups, reply: OffsetFetchResponse, group_id: str) -> None:
    """A reply to somebody who asked for stable offsets alone. `group_id` is for versions that ask for one group."""
    for topic in reply.topics:
        for one in topic.partitions:
            _hide(state, group_id, topic.name, one)
    for group in reply.groups:
        for asked in group.topics:
            for each in asked.partitions:
                _hide(state, group.group_id, asked.name, each)


def _hide(
    state: Groups, group_id: str, topic: str, one: OffsetFetchResponsePartition | OffsetFetchResponsePartitions
) -> None:
    if state.is_pending(group_id, (topic, one.partition_index)):
        one.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        one.committed_offset, one.committed_leader_epoch, one.metadata = -1, -1, ""
