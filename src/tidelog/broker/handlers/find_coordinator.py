"""FindCoordinator: which node looks after a group, a transactional id or a share group's partition. There is one node.

    v0    groups                                  v1    the kind of key: group, transaction; throttle time
    v3    flexible                                v4    many keys
    v5    TRANSACTION_ABORTABLE, never sent       v6    share groups (the key is group:topic id:partition)

The address is the one that this client came in by, so it can be reached again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

GROUP, TRANSACTION, SHARE = 0, 1, 2
MANY_KEYS_SINCE = 4
SHARE_SINCE = 6
NO_NODE = -1


def handle(broker: Broker, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    known = (GROUP, TRANSACTION, SHARE) if call.version >= SHARE_SINCE else (GROUP, TRANSACTION)
    error_code, message = ErrorCode.NONE, None
    (host, port), node_id = call.listener, broker.config.int("node.id")
    if request.key_type not in known:
        error_code, message = (
            ErrorCode.INVALID_REQUEST,
            f"{request.key_type} is not a kind of key in version {call.version}",
        )
        host, port, node_id = "", NO_NODE, NO_NODE
    if call.version >= MANY_KEYS_SINCE:
        found = [
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error_code, error_message=message)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)
    return FindCoordinatorResponse(error_code=error_code, error_message=message, node_id=node_id, host=host, port=port)
