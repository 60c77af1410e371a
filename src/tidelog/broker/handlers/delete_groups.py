"""DeleteGroups: forget groups that have no members, and their offsets.

v0    the first                               v2    flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.groups.removal import decide_delete_groups
from tidelog.broker.queues.administering import deleted
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: DeleteGroupsRequest, call: Call) -> None:
    shared = [one for one in dict.fromkeys(request.groups_names) if broker.is_share_group(one)]
    if not shared:
        broker.commit(GROUPS_TOPIC.name, decide_delete_groups(broker.groups, request, call.ticket))
        return
    state = broker.queues.state
    empty = [one for one in shared if not state.members(one)]
    results = [
        DeletableGroupResult(group_id=one, error_code=0 if one in empty else ErrorCode.NON_EMPTY_GROUP)
        for one in shared
    ]
    request.groups_names = [one for one in request.groups_names if one not in shared]
    for one in empty:
        state.live.pop(one, None)
    try:
        broker.queues.commit(Decision(deleted(state, empty), [(_Others(broker, request, call), results)]))
    except StorageError:
        call.reply(_unwritten(shared))


class _Others:
    """Groups of other kinds in the same request: deleted when the share groups are."""

    def __init__(self, broker: Broker, request: DeleteGroupsRequest, call: Call) -> None:
        self._broker = broker
        self._request = request
        self._call = call

    def reply(self, results: list[DeletableGroupResult]) -> None:
        decision = decide_delete_groups(self._broker.groups, self._request, self._call.ticket)
        decision.replies[0][1].results.extend(results)
        self._broker.commit(GROUPS_TOPIC.name, decision)

    def drop(self) -> None:
        self._call.drop()


def _unwritten(groups: list[str]) -> DeleteGroupsResponse:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=one, error_code=code) for one in groups])
