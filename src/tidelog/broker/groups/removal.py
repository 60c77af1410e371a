"""How groups and offsets go: by DeleteGroups, with their topics, and by age.

Retention: an offset goes `offsets.retention.minutes` after the later of its commit and the moment that the group
became empty. In a group with members only offsets of topics that none of them reads go. A group that has no offsets
left and has been empty for `offsets.retention.check.interval.ms` goes too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tidelog.broker.decision import Decision, Instant, NewRecord, Ticket
from tidelog.broker.groups.classic_group import CONSUMER_PROTOCOL_TYPE
from tidelog.broker.groups.commits import reader
from tidelog.broker.groups.consumer_group import changes
from tidelog.broker.groups.phases import GroupEvent, Phase
from tidelog.broker.groups.records import group_key, offset_key, pending_key
from tidelog.broker.groups.state import Groups
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def decide_delete_groups(state: Groups, request: DeleteGroupsRequest, ticket: Ticket) -> Decision:
    records: list[NewRecord] = []
    reply = DeleteGroupsResponse()
    for group_id in dict.fromkeys(request.groups_names):
        error_code = ErrorCode.NONE
        if not state.is_known(group_id):
            error_code = ErrorCode.GROUP_ID_NOT_FOUND
        elif has_members(state, group_id):
            error_code = ErrorCode.NON_EMPTY_GROUP
        else:
            records += _tombstones(state, group_id)
            records += [NewRecord(offset_key(group_id, *place), None) for place in state.offsets.get(group_id, {})]
            records += _pending_tombstones(state, group_id)
        reply.results.append(DeletableGroupResult(group_id=group_id, error_code=error_code))
    return Decision(records, [(ticket, reply)])


def _pending_tombstones(state: Groups, group_id: str, names: Collection[str] | None = None) -> list[NewRecord]:
    """What ends a group's pending offsets, of these topics or of all: their transactions find nothing to commit."""
    return [
        NewRecord(pending_key(group_id, producer_id, *place), None)
        for producer_id, offsets in state.pending.get(group_id, {}).items()
        for place in offsets
        if names is None or place[0] in names
    ]


def has_members(state: Groups, group_id: str, *, or_pending: bool = False) -> bool:
    consumer = state.consumer.get(group_id)
    if consumer is not None and consumer.members:
        return True
    classic = state.live_group(group_id)
    return classic is not None and bool(classic.members or (or_pending and classic.pending))


def _tombstones(state: Groups, group_id: str) -> list[NewRecord]:
    """The records after which an empty group is no more, but for its offsets."""
    group = state.live_group(group_id)
    if group is not None:
        group.move(GroupEvent.DELETED)
        state.live.classic.pop(group_id, None)
    records = list(changes(state.consumer.get(group_id), None))
    if group_id in state.classic:
        records.append(NewRecord(group_key("classic", group_id), None))
    return records


def decide_topics_deleted(state: Groups, names: Collection[str]) -> Decision:
    """A topic that is made anew begins at offset 0: what was committed for the old one must not survive it."""
    gone = set(names)
    records = [
        NewRecord(offset_key(group_id, name, index), None)
        for group_id, offsets in state.offsets.items()
        for name, index in offsets
        if name in gone
    ]
    for group_id in state.pending:
        records += _pending_tombstones(state, group_id, gone)
    return Decision(records, [])


def decide_retention(state: Groups, now: Instant) -> Decision:
    settings = state.live.settings
    records: list[NewRecord] = []
    for group_id in state.ids():
        offsets = state.offsets.get(group_id, {})
        since_ms = _empty_since(state, group_id)
        expired = [
            place
            for place, one in offsets.items()
            if one.expires_at(since_ms, settings.offsets_retention_ms) <= now.wall_ms
        ]
        is_needed = _needed(state, group_id) if expired else None
        old = [place for place in expired if is_needed is not None and not is_needed(place[0])]
        records += [NewRecord(offset_key(group_id, *place), None) for place in old]
        deserted = since_ms + settings.offsets_retention_check_interval_ms <= now.wall_ms
        empty = len(old) == len(offsets) and group_id not in state.pending
        if empty and deserted and not has_members(state, group_id, or_pending=True):
            records += _tombstones(state, group_id)
    return Decision(records, [])


def _needed(state: Groups, group_id: str) -> Callable[[str], bool]:
    """Whether somebody reads a topic, or may read it: mid-rebalance, or in a protocol that is not ours to read."""
    if not has_members(state, group_id):
        return lambda _topic: False
    classic = state.live_group(group_id)
    if classic is not None and (classic.phase is not Phase.STABLE or classic.protocol_type != CONSUMER_PROTOCOL_TYPE):
        return lambda _topic: True
    return reader(state, group_id)


def _empty_since(state: Groups, group_id: str) -> int:
    consumer, kept = state.consumer.get(group_id), state.classic.get(group_id)
    if consumer is not None:
        return consumer.since_ms
    return kept.since_ms if kept is not None else 0
