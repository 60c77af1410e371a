"""One visible table: which APIs the broker answers, in which versions, by which handler.

The ApiVersions reply is made from it, so what is advertised is what is implemented. One minimum is lower than what is
decoded, because current librdkafka clients refuse a broker that does not name it (KAFKA-18659): Produce 0..2 are
advertised, never sent by any client that knows record batches, and end the connection if they are.

Handlers and messages are loaded on first use: a broker that only produces and consumes never loads the others.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.request_parts import divided
from tidelog.errors import MalformedMessage
from tidelog.wire.api import request_class
from tidelog.wire.codec import decode

if TYPE_CHECKING:
    from tidelog.broker.call import Call


class Entry(NamedTuple):
    name: str  # of the handler's module, and of the module of its messages
    min_version: int
    max_version: int
    advertised_min: int | None = None


APIS: dict[int, Entry] = {
    0: Entry("produce", 3, 13, advertised_min=0),
    1: Entry("fetch", 4, 18),
    2: Entry("list_offsets", 1, 11),
    3: Entry("metadata", 0, 13),
    8: Entry("offset_commit", 2, 10),
    9: Entry("offset_fetch", 1, 10),
    10: Entry("find_coordinator", 0, 6),
    11: Entry("join_group", 0, 9),
    12: Entry("heartbeat", 0, 4),
    13: Entry("leave_group", 0, 5),
    14: Entry("sync_group", 0, 5),
    15: Entry("describe_groups", 0, 6),
    16: Entry("list_groups", 0, 5),
    17: Entry("sasl_handshake", 0, 1),
    18: Entry("api_versions", 0, 4),
    19: Entry("create_topics", 2, 7),
    20: Entry("delete_topics", 1, 6),
    21: Entry("delete_records", 0, 2),
    22: Entry("init_producer_id", 0, 5),
    23: Entry("offset_for_leader_epoch", 2, 4),
    24: Entry("add_partitions_to_txn", 0, 5),
    25: Entry("add_offsets_to_txn", 0, 4),
    26: Entry("end_txn", 0, 5),
    27: Entry("write_txn_markers", 1, 2),
    28: Entry("txn_offset_commit", 0, 5),
    29: Entry("describe_acls", 1, 3),
    30: Entry("create_acls", 1, 3),
    31: Entry("delete_acls", 1, 3),
    32: Entry("describe_configs", 1, 4),
    33: Entry("alter_configs", 0, 2),
    34: Entry("alter_replica_log_dirs", 1, 2),
    35: Entry("describe_log_dirs", 1, 5),
    36: Entry("sasl_authenticate", 0, 2),
    37: Entry("create_partitions", 0, 3),
    42: Entry("delete_groups", 0, 2),
    43: Entry("elect_leaders", 0, 2),
    44: Entry("incremental_alter_configs", 0, 1),
    45: Entry("alter_partition_reassignments", 0, 1),
    46: Entry("list_partition_reassignments", 0, 0),
    47: Entry("offset_delete", 0, 0),
    48: Entry("describe_client_quotas", 0, 1),
    49: Entry("alter_client_quotas", 0, 1),
    50: Entry("describe_user_scram_credentials", 0, 0),
    51: Entry("alter_user_scram_credentials", 0, 0),
    55: Entry("describe_quorum", 0, 2),
    60: Entry("describe_cluster", 0, 2),
    61: Entry("describe_producers", 0, 0),
    65: Entry("describe_transactions", 0, 0),
    66: Entry("list_transactions", 0, 2),
    68: Entry("consumer_group_heartbeat", 0, 1),
    69: Entry("consumer_group_describe", 0, 1),
    74: Entry("list_config_resources", 0, 1),
    75: Entry("describe_topic_partitions", 0, 0),
    76: Entry("share_group_heartbeat", 1, 1),
    77: Entry("share_group_describe", 1, 1),
    78: Entry("share_fetch", 1, 2),
    79: Entry("share_acknowledge", 1, 2),
    90: Entry("describe_share_group_offsets", 0, 1),
    91: Entry("alter_share_group_offsets", 0, 0),
    92: Entry("delete_share_group_offsets", 0, 0),
}

PRODUCE = 0
FETCH = 1
API_VERSIONS = 18

Handler = Callable[[Any, Any, "Call"], Any]


class Dispatch:
    """Finds the handler and the decoder of a request, each loaded once."""

    def __init__(self) -> None:
        self._ready: dict[int, tuple[Any, Handler]] = {}

    def handle(self, broker: Any, frame: memoryview, body_position: int, call: Call) -> Any:
        ready = self._ready.get(call.api_key << 16 | call.version)
        if ready is None:
            ready = self._prepare(call)
        message, handler = ready
        request = None if message is None else decode(message, call.version, frame, body_position)[0]
        return handler(broker, request, call)

    def prepared(self, frame: memoryview, body_position: int, call: Call) -> tuple[Any, Handler]:
        """The request and its handler, for a session that looks at the one before it calls the other."""
        message, handler = self._ready.get(call.api_key << 16 | call.version) or self._prepare(call)
        request = None if message is None else decode(message, call.version, frame, body_position)[0]
        return request, handler

    def _prepare(self, call: Call) -> tuple[Any, Handler]:
        entry = APIS.get(call.api_key)
        version = call.version
        if entry is None or not entry.min_version <= version <= entry.max_version:
            if call.api_key == API_VERSIONS:
                # The body of a version that we do not know cannot be read and is not needed: None asks what we have.
                return None, _handler("api_versions")
            raise MalformedMessage(
                f"api key {call.api_key} version {version} from {call.peer_host} (client id {call.client_id!r})"
                " is not one that this broker advertises"
            )
        ready = request_class(call.api_key), divided(call.api_key, _handler(entry.name))
        self._ready[call.api_key << 16 | version] = ready
        return ready


def _handler(name: str) -> Handler:
    handler: Handler = import_module(f"tidelog.broker.handlers.{name}").handle
    return handler
