"""How large a batch may be, asked of the broker when one is, or may be, too large.

A broker answers a batch above `max.message.bytes` with a code, and often without a number. A request above
`socket.request.max.bytes` it does not answer at all: it ends the connection, as after any other nonsense. So a batch
that most brokers would refuse (ASK_FROM_BYTES) is held against both before it is sent, and the error names what is too
small. Who may not look at settings sends it all the same.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.errors import BrokerError, TidelogError
from tidelog.wire.error_code import ErrorCode, name

ASK_FROM_BYTES = 1 << 20
ROOM_FOR_THE_REST = 1024  # of a request, beside its batch
ROOM_FOR_A_HEADER = 100  # of a batch, beside its records
OF_TOPIC, OF_BROKER = "max.message.bytes", "socket.request.max.bytes"


class Limit(NamedTuple):
    whose: str
    setting: str
    bytes: int
    remedy: str


class SizeLimits:
    """Remembers what it was told until `forget`."""

    __slots__ = ("_cluster", "_known")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[str, str], int | None] = {}

    def forget(self) -> None:
        self._known.clear()

    def batch_bytes(self, topic: str, wanted: int) -> int:
        """How much to gather for one batch of this topic: no more than it takes, so that none fails for another."""
        try:
            limit = self._ask("topic", topic, OF_TOPIC)
        except TidelogError:
            limit = None
        return wanted if limit is None else max(1, min(wanted, limit - ROOM_FOR_A_HEADER))

    def exceeded(self, at: TopicPartition, size: int, count: int) -> BrokerError | None:
        """Why a batch of so many bytes and records cannot be written there; None if it can, or nobody tells."""
        try:
            small = self._smaller_than(at, size)
        except TidelogError:
            return None
        if not small:
            return None
        code = ErrorCode.MESSAGE_TOO_LARGE
        what = f"a batch of {size} bytes for {at} is too large, {name(code)} ({int(code)})"
        limits = " and ".join(f"{limit.whose} takes {limit.setting}={limit.bytes}" for limit in small)
        smaller = "make the record smaller" if count == 1 else f"send its {count} records in smaller batches"
        remedies = " and ".join(limit.remedy for limit in small)
        return BrokerError(code, f"{what}: {limits}; {smaller}, or raise the limit: {remedies}")

    def _smaller_than(self, at: TopicPartition, size: int) -> list[Limit]:
        small = []
        topic = self._ask("topic", at.topic, OF_TOPIC)
        if topic is not None and topic < size:
            remedy = f"tidelog topics alter {at.topic} --set {OF_TOPIC}={size}"
            small.append(Limit(f"topic {at.topic}", OF_TOPIC, topic, remedy))
        if size >= ASK_FROM_BYTES:
            node = self._cluster.leader_id(at, auto_create=True)
            broker = self._ask("broker", str(node), OF_BROKER)
            if broker is not None and broker < size:
                remedy = f"tidelog up --set {OF_BROKER}={size + ROOM_FOR_THE_REST}"
                small.append(Limit(f"broker {node}", OF_BROKER, broker, remedy))
        return small

    def _ask(self, kind: str, resource: str, setting: str) -> int | None:
        from tidelog.client.admin import configs

        if (kind, resource) not in self._known:
            found = configs.describe(self._cluster, configs.KINDS[kind], resource, keys=[setting])
            text = next((one.value for one in found if one.name == setting), None)
            self._known[kind, resource] = int(text) if text and text.isdecimal() else None
        return self._known[kind, resource]
