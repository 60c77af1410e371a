"""What groups keep in the internal topic `__tidelog.groups`, as JSON: one key for each thing that changes by itself.

    {"v":1,"kind":"classic","group":G}                          a classic group at its last completed rebalance
    {"v":1,"kind":"consumer","group":G}                         a KIP-848 group: its epoch, when it became empty, a hash
                                                                of its topics
    {"v":1,"kind":"member","group":G,"member":M}                a member of one: its subscription and epoch, what it
                                                                has, gives back and shall have; if it speaks the
                                                                classic protocol, what it said in JoinGroup
    {"v":1,"kind":"offset","group":G,"topic":T,"partition":P}   a committed offset
    {"v":1,"kind":"pending","group":G,"producer":I,"topic":T,"partition":P}
                                                                one that an open transaction of producer I commits

Rules: keys are written in this order of fields, so that equal keys are equal bytes. Opaque bytes are base64, topic
ids hexadecimal, partitions `{topic id: [partition, ...]}`. A key of a newer version, or of a kind that is not listed,
is refused: a fold never skips.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.record_text import decode_key, encode

if TYPE_CHECKING:
    from tidelog.broker.groups.consumer_group import Partitions

VERSION = 1
NO_EXPIRY = -1
KINDS = ("classic", "consumer", "member", "offset", "pending")


class CommittedOffset(NamedTuple):
    """How far a group has read a partition. Kept by topic name, as in Kafka, until the topic is deleted."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY  # set by the retention time that OffsetCommit 2 to 4 may carry

    def expires_at(self, empty_since_ms: int, retention_ms: int) -> int:
        return self.expire_ms if self.expire_ms != NO_EXPIRY else max(self.commit_ms, empty_since_ms) + retention_ms


def group_key(kind: str, group: str) -> bytes:
    return encode({"v": VERSION, "kind": kind, "group": group})


def member_key(group: str, member: str) -> bytes:
    return encode({"v": VERSION, "kind": "member", "group": group, "member": member})


def offset_key(group: str, topic: str, partition: int) -> bytes:
    return encode({"v": VERSION, "kind": "offset", "group": group, "topic": topic, "partition": partition})


def pending_key(group: str, producer_id: int, topic: str, partition: int) -> bytes:
    place = {"topic": topic, "partition": partition}
    return encode({"v": VERSION, "kind": "pending", "group": group, "producer": producer_id, **place})


def parse_key(key: bytes) -> dict[str, Any]:
    return decode_key(key, "__tidelog.groups", VERSION, KINDS)


def offset_value(committed: CommittedOffset) -> dict[str, Any]:
    value: dict[str, Any] = {
        "offset": committed.offset,
        "epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "at": committed.commit_ms,
    }
    if committed.expire_ms != NO_EXPIRY:
        value["expires"] = committed.expire_ms
    return value


def parse_offset(value: Mapping[str, Any]) -> CommittedOffset:
    return CommittedOffset(
        value["offset"], value["epoch"], value["metadata"], value["at"], value.get("expires", NO_EXPIRY)
    )


def pack_bytes(data: bytes) -> str:
    from base64 import b64encode

    return b64encode(data).decode()


def unpack_bytes(text: str) -> bytes:
    from base64 import b64decode

    return b64decode(text)


def pack_partitions(partitions: Partitions) -> dict[str, list[int]]:
    packed: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        packed.setdefault(topic.hex(), []).append(partition)
    return packed


def unpack_partitions(packed: Mapping[str, list[int]]) -> Partitions:
    return frozenset((bytes.fromhex(topic), partition) for topic, some in packed.items() for partition in some)
