"""ShareGroupHeartbeat (KIP-932): join, stay in and leave a share group.

v1    the first that is not a preview; the client chooses the member id
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.queues.members import AskedHeartbeat
from tidelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: ShareGroupHeartbeatRequest, call: Call) -> None:
    if broker.overload_made is not None:
        broker.overload_made.blocking.heard(request.group_id, request.member_id, call.user)
    queues = broker.queues
    room = request.group_id in queues.state.groups or _has_room(broker)
    asked = AskedHeartbeat(
        request,
        call.client_id or "",
        f"/{call.peer_host}",
        broker.topics.by_name,
        queues.settings(request.group_id),
        broker.config.int("group.share.max.size"),
        taken=broker.groups.is_known(request.group_id),
        room=room,
    )
    queues.heard(asked, call.ticket)


def _has_room(broker: Broker) -> bool:
    return len(broker.groups.ids()) + len(broker.queues.state.groups) < broker.config.int("tidelog.max.groups")
