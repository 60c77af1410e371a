"""ShareAcknowledge (KIP-932): what a member of a share group says of records that it acquired, without asking for more.

    v1    accept, release, reject           v2    renewing locks

The reply leaves when what was acknowledged is synced. With the last epoch of its session (-1), whatever the member has
acquired and not acknowledged is available again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.queues.acknowledging import RENEW, RefusedAcks
from tidelog.broker.queues.sessions import ENDING, OPENING, ShareSession
from tidelog.broker.queues.state import Place
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: ShareAcknowledgeRequest, call: Call) -> None:
    queues = broker.queues
    session = _session(broker, request, call)
    if isinstance(session, RefusedAcks):
        queues.reply(call.ticket, ShareAcknowledgeResponse(error_code=session.code, error_message=session.message))
        return
    asked = [
        ((topic.topic_id, part.partition_index), part.acknowledgement_batches)
        for topic in request.topics
        for part in topic.partitions
    ]
    by_id = broker.topics.by_id
    unknown = {place: RefusedAcks(ErrorCode.UNKNOWN_TOPIC_ID, "") for place, _ in asked if place[0] not in by_id}
    known = [one for one in asked if one[0] not in unknown]
    refused = unknown | queues.acknowledge(session.group, session.member, known)
    if request.share_session_epoch == ENDING:
        queues.end_session(session)
    response = _response([place for place, _ in asked], refused)
    response.acquisition_lock_timeout_ms = queues.settings(session.group).lock_ms
    queues.reply(call.ticket, response)


def _session(broker: Broker, request: ShareAcknowledgeRequest, call: Call) -> ShareSession | RefusedAcks:
    group, member, epoch = request.group_id or "", request.member_id or "", request.share_session_epoch
    if not group or not member:
        return RefusedAcks(ErrorCode.INVALID_REQUEST, "the group id or the member id is missing")
    if epoch == OPENING:
        return RefusedAcks(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a share session is opened by a fetch")
    batches = [one for topic in request.topics for part in topic.partitions for one in part.acknowledgement_batches]
    if not request.is_renew_ack and any(RENEW in one.acknowledge_types for one in batches):
        return RefusedAcks(ErrorCode.INVALID_REQUEST, "locks are renewed in a request that says so")
    session = broker.queues.sessions.go_on(group, member, epoch, call.connection)
    if isinstance(session, ShareSession):
        return session
    return RefusedAcks(session, f"the share session of {member} is not at epoch {epoch}; open another")


def _response(places: list[Place], refused: dict[Place, RefusedAcks]) -> ShareAcknowledgeResponse:
    by_topic: dict[bytes, list[PartitionData]] = {}
    for place in dict.fromkeys(places):
        data = PartitionData(partition_index=place[1])
        if place in refused:
            data.error_code, data.error_message = refused[place]
        by_topic.setdefault(place[0], []).append(data)
    topics = [ShareAcknowledgeTopicResponse(topic_id=one, partitions=parts) for one, parts in by_topic.items()]
    return ShareAcknowledgeResponse(responses=topics)
