"""Membership in a share group (KIP-932): records are acquired one by one, and acknowledged one by one.

    joining    epoch 0: at first, and when the broker has forgotten us
    member     epoch > 0: partitions are assigned by heartbeats, each to everybody who subscribes to it
    left       epoch -1, told once

With each leader there is a *session*: its epoch is 0 in the first request and one more in each that follows, fetch or
acknowledgement. One that the broker does not know is opened anew; what was acquired under it is given to others.

Rules:
- A record that `fetch` gave is ours until `lock_ms` have passed, and then somebody else's: `acknowledge` tells which of
  them were not ours any more. `renew` gives it a whole lock from now on, if the broker can (v2 of the protocol).
- ACCEPT is done, RELEASE is for others to try, REJECT is for nobody. A broker counts deliveries and takes a record that
  was delivered too often for rejected.
- A batch that compaction or excision has been over has fewer records than offsets: what was acquired and is not there
  is said to be a GAP at once, or its locks would run out one after the other.
- Nothing is renewed and no heartbeat is sent but by who calls: `fetch` beats when that is due.
- A reader belongs to one thread, like its cluster. What is decided of an answer is in pure functions.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from tidelog.client.acknowledgements import Kinds, add_acknowledgements
from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.metadata import TopicPartition
from tidelog.client.refusal import check, may_pass
from tidelog.client.visible import visible
from tidelog.errors import BrokerError, Disconnected, UsageError
from tidelog.record.columns import Row, decode
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.message import Struct
from tidelog.wire.messages import share_fetch
from tidelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from tidelog.wire.messages.share_fetch import PartitionData, ShareFetchRequest, ShareFetchResponse
from tidelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
JOINING, LEAVING = 0, -1
OPENING, ENDING = 0, -1
LAST_EPOCH = 2**31 - 1
RENEWS_SINCE = 2
NO_MORE_THAN_ASKED = 1  # records; Kafka's default gives whole batches
FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
NO_SESSION = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)
NOT_OURS = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)

LONG_AGO = float("-inf")
Place = tuple[bytes, int]  # a topic's id, and a partition of it


class AcquiredRecord(NamedTuple):
    """A record that is ours for a while, and the how manieth delivery of it this is, from 1."""

    at: TopicPartition
    row: Row
    delivery: int


class ShareState(NamedTuple):
    epoch: int = JOINING
    assigned: frozenset[Place] = frozenset()
    interval_ms: int = 0


# Decisions ------------------------------------------------------------------------------------------------------------


def after(state: ShareState, answer: ShareGroupHeartbeatResponse, group: str) -> ShareState:
    """What a heartbeat's answer makes of it. One that does not pass raises: no right to read the group, say."""
    if answer.error_code in FORGOTTEN and state.epoch != JOINING:
        return ShareState()
    check(answer.error_code, f"a heartbeat in share group {group!r}", answer.error_message)
    assigned = state.assigned
    if answer.assignment is not None:
        given = answer.assignment.topic_partitions
        assigned = frozenset((bytes(one.topic_id), partition) for one in given for partition in one.partitions)
    return ShareState(answer.member_epoch, assigned, answer.heartbeat_interval_ms)


def next_epoch(epoch: int) -> int:
    return 1 if epoch == LAST_EPOCH else epoch + 1


def acquired(at: TopicPartition, data: PartitionData) -> tuple[list[AcquiredRecord], list[int]]:
    """Those records of the batches that are ours, and those offsets of ours that have no record. What is in the batches
    and was not acquired is somebody else's.
    """
    deliveries = {
        offset: one.delivery_count
        for one in data.acquired_records
        for offset in range(one.first_offset, one.last_offset + 1)
    }
    if not deliveries or not isinstance(data.records, memoryview):
        return [], []
    rows = [row for run in visible(data.records, ()) for row in decode(run).rows()]
    found = [AcquiredRecord(at, row, deliveries[row.offset]) for row in rows if row.offset in deliveries]
    return found, sorted(deliveries.keys() - {one.row.offset for one in found})


# The shell ------------------------------------------------------------------------------------------------------------


class ShareReader:
    def __init__(
        self, cluster: Cluster, group: str, topics: Sequence[str], *, max_records: int = 500, max_wait_ms: int = 500
    ) -> None:
        """`max_records` is how many one `fetch` acquires at most, of each leader."""
        if not topics:
            raise UsageError(f"a reader of share group {group!r} needs a topic")
        self.group = group
        self.member_id = str(uuid4())
        self.lock_ms = 0  # how long a record stays ours; the broker tells with the first fetch
        self.sessions_ended = 0  # by the broker, or with a connection: what was acquired before is not ours any more
        self._cluster = cluster
        self._topics = sorted(topics)
        self._max_records = max_records
        self._max_wait_ms = max_wait_ms
        self._state = ShareState()
        self._beaten_at = LONG_AGO
        self._names: dict[bytes, str] = {}
        self._sessions: dict[int, int] = {}  # the next epoch, by node
        self._asked: dict[int, frozenset[Place]] = {}  # what the session of a node is about
        self._reasons: dict[tuple[TopicPartition, int], str] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        known = [(self._names.get(topic_id), partition) for topic_id, partition in self._state.assigned]
        return frozenset(TopicPartition(name, partition) for name, partition in known if name is not None)

    def beat(self, *, at_once: bool = False) -> None:
        """A heartbeat, if one is due or wanted at once."""
        silent_ms = (time.monotonic() - self._beaten_at) * 1000
        if not at_once and self._state.epoch != JOINING and silent_ms < self._state.interval_ms:
            return
        before, joined = self._state.assigned, self._state.epoch != JOINING
        self._state = self._cluster.retry(self._beat)
        if self._state.epoch == JOINING:
            self._sessions.clear()  # who is not known as a member has no locks any more
            self.sessions_ended += joined
            self._state = self._cluster.retry(self._beat)
        self._beaten_at = time.monotonic()
        assigned = self._state.assigned
        if assigned - before or not {topic_id for topic_id, _ in assigned} <= self._names.keys():
            self._learn_names()

    def _learn_names(self) -> None:
        """And leaders, of partitions that are new to us. What was acquired of a topic that was made anew is gone."""
        known, found = self._ids(), self._cluster.ask_metadata(self._topics).topics
        self._names = {one.topic_id: name for name, one in found.items()}
        ids = self._ids()
        self.sessions_ended += any(name in ids and ids[name] != topic_id for name, topic_id in known.items())

    def fetch(self, max_wait_ms: int | None = None, max_records: int | None = None) -> list[AcquiredRecord]:
        """What was acquired; nothing if nothing came in time. It may come from one leader of several."""
        return self.exchange({}, max_wait_ms, max_records)[0]

    def exchange(
        self, kinds: Kinds, max_wait_ms: int | None = None, max_records: int | None = None
    ) -> tuple[list[AcquiredRecord], list[tuple[TopicPartition, int]]]:
        """`acknowledge` and `fetch` in one request to each leader: what was acquired, what was not ours any more."""
        self.beat()
        wait_ms = self._max_wait_ms if max_wait_ms is None else max_wait_ms
        led = self._led()
        asked = {at for places in led.values() for at in places}
        lost = self.acknowledge({at: told for at, told in kinds.items() if at not in asked})
        if not led:
            time.sleep(min(wait_ms, max(1, self._state.interval_ms)) / 1000)
            return [], lost
        # With several leaders nobody is waited for: who has nothing would keep the records of the others from us.
        patience = wait_ms if len(led) == 1 else 0
        found: list[AcquiredRecord] = []
        for node_id, places in led.items():
            told = {at: kinds[at] for at in places if kinds.get(at)}
            given, refused = self._fetch(node_id, places, patience, max_records, told)
            found += given
            lost += refused
        self._forget_reasons(kinds)
        if not found and len(led) > 1:
            select.select([], [], [], wait_ms / 1000)
        return found, lost

    def _led(self) -> dict[int, list[TopicPartition]]:
        """Our partitions by who leads them now: not those of a topic that was deleted, of which we hear soon."""
        led: dict[int, list[TopicPartition]] = {}
        for at in self.partitions:
            try:
                led.setdefault(self._cluster.leader_id(at), []).append(at)
            except BrokerError as error:
                if not may_pass(error.code):
                    raise
                self._look_anew()
        return led

    def acknowledge(self, kinds: Kinds) -> list[tuple[TopicPartition, int]]:
        """ACCEPT, RELEASE or REJECT by offset. Returns those that were not ours any more, for which it does not count.

        When it returns, what was accepted is on the broker's disk.
        """
        lost = self._each(kinds, self._acknowledge(kinds, renewing=False), renewing=False)
        self._forget_reasons(kinds)
        return lost

    def because(self, at: TopicPartition, offset: int, why: str) -> None:
        """Why a record is to be released or rejected: said with that, for its dead letter. Only Tidelog heeds it."""
        if self._cluster.is_tidelog():
            self._reasons[at, offset] = why

    def _forget_reasons(self, kinds: Kinds) -> None:
        for at, by_offset in kinds.items() if self._reasons else ():
            for offset in by_offset:
                self._reasons.pop((at, offset), None)

    def renew(self, records: Iterable[tuple[TopicPartition, int]]) -> list[tuple[TopicPartition, int]]:
        """A whole lock from now on. Returns those that were not ours any more."""
        kinds: dict[TopicPartition, dict[int, int]] = {}
        for at, offset in records:
            kinds.setdefault(at, {})[offset] = RENEW
        return self._each(kinds, self._acknowledge(kinds, renewing=True), renewing=True)

    def close(self) -> None:
        """What was acquired and not acknowledged is for others at once."""
        for node_id in list(self._sessions):
            request = ShareAcknowledgeRequest(group_id=self.group, member_id=self.member_id, share_session_epoch=ENDING)
            try:
                self._cluster.node(node_id).call(request, ShareAcknowledgeResponse)
            except (BrokerError, Disconnected):
                continue  # the session is gone with its connection
        self._sessions.clear()
        if self._state.epoch != JOINING:
            self._state = ShareState()
            request_to_leave = ShareGroupHeartbeatRequest(
                group_id=self.group, member_id=self.member_id, member_epoch=LEAVING
            )
            self._cluster.coordinator(self.group).call(request_to_leave, ShareGroupHeartbeatResponse)

    # Requests ---------------------------------------------------------------------------------------------------------

    def _beat(self) -> ShareState:
        coordinator = self._cluster.coordinator(self.group)
        if not coordinator.offers(ShareGroupHeartbeatRequest):
            raise UsageError(
                f"{coordinator.address} does not know share groups (KIP-932); Apache Kafka has them since 4.2"
            )
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self._state.epoch,
            subscribed_topic_names=self._topics,
        )
        return after(self._state, coordinator.call(request, ShareGroupHeartbeatResponse), self.group)

    def _fetch(
        self, node_id: int, led: Iterable[TopicPartition], wait_ms: int, max_records: int | None, kinds: Kinds
    ) -> tuple[list[AcquiredRecord], list[tuple[TopicPartition, int]]]:
        leader, most = self._cluster.node(node_id), max_records or self._max_records
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_records=most,
            batch_size=most,
            share_acquire_mode=NO_MORE_THAN_ASKED,
        )
        ids, told = self._ids(), kinds if node_id in self._sessions else {}
        self._name_places(request, node_id, frozenset((ids[at.topic], at.partition) for at in led))
        add_acknowledgements(request, told, ids, self._reasons)
        answer = self._ask(node_id, leader, request, ShareFetchResponse, wait_ms / 1000)
        if answer is None:
            return [], [(at, offset) for at in kinds for offset in kinds[at]]
        self.lock_ms = answer.acquisition_lock_timeout_ms or self.lock_ms
        found: list[AcquiredRecord] = []
        gaps: dict[TopicPartition, dict[int, int]] = {}
        refused = set(kinds)
        for topic in answer.responses:
            name = self._names.get(bytes(topic.topic_id))
            for data in topic.partitions:
                self._check(data.error_code, f"a share fetch of {name}[{data.partition_index}]", data.error_message)
                if name is not None:
                    at = TopicPartition(name, data.partition_index)
                    records, gone = acquired(at, data)
                    found += records
                    if gone:
                        gaps[at] = dict.fromkeys(gone, GAP)
                    if at in told and self._counts(at, data.acknowledge_error_code, data.acknowledge_error_message):
                        refused.discard(at)
        self._acknowledge(gaps, renewing=False)
        lost = [(at, offset) for at in refused for offset in kinds[at]]
        return found, self._each(kinds, lost, renewing=False)

    def _name_places(self, request: ShareFetchRequest, node_id: int, places: frozenset[Place]) -> None:
        """A session knows what it was told: only what has come and gone since is named."""
        known = self._asked.get(node_id, frozenset()) if node_id in self._sessions else frozenset()
        for topic_id, parts in _by_topic(places - known).items():
            named = [share_fetch.FetchPartition(partition_index=one) for one in parts]
            request.topics.append(share_fetch.FetchTopic(topic_id=topic_id, partitions=named))
        for topic_id, parts in _by_topic(known - places).items():
            request.forgotten_topics_data.append(share_fetch.ForgottenTopic(topic_id=topic_id, partitions=parts))
        self._asked[node_id] = places

    def _acknowledge(self, kinds: Kinds, *, renewing: bool) -> list[tuple[TopicPartition, int]]:
        lost: list[tuple[TopicPartition, int]] = []
        for node_id, led in self._cluster.by_leader([at for at in kinds if kinds[at]]).items():
            leader = self._cluster.node(node_id)
            if renewing and leader.version_of(ShareAcknowledgeRequest) < RENEWS_SINCE:
                raise UsageError(f"{leader.address} cannot renew locks of a share group; Apache Kafka can since 4.2")
            request = ShareAcknowledgeRequest(group_id=self.group, member_id=self.member_id, is_renew_ack=renewing)
            add_acknowledgements(request, {at: kinds[at] for at in led}, self._ids(), self._reasons)
            answer = None
            if node_id in self._sessions:
                answer = self._ask(node_id, leader, request, ShareAcknowledgeResponse, 0.0)
            told = {} if answer is None else self._told(answer)
            for at in led:
                if not self._counts(at, *told.get(at, (ErrorCode.INVALID_RECORD_STATE, None))):
                    lost += [(at, offset) for offset in kinds[at]]
        return lost

    def _counts(self, at: TopicPartition, code: int, message: str | None) -> bool:
        """Whether what was said of a partition's records counts. False: one of them, at least, is not ours any more."""
        if code in NOT_OURS:
            return False
        check(code, f"an acknowledgement of {at} by group {self.group!r}", message)
        return True

    def _each(
        self, kinds: Kinds, lost: list[tuple[TopicPartition, int]], *, renewing: bool
    ) -> list[tuple[TopicPartition, int]]:
        """Brokers refuse all of a partition's for the sake of one: those of several are said again, one by one."""
        alone = [(at, offset) for at, offset in lost if len(kinds[at]) == 1]
        for at, offset in lost:
            if len(kinds[at]) > 1:
                alone += self._acknowledge({at: {offset: kinds[at][offset]}}, renewing=renewing)
        return alone

    def _told(self, answer: ShareAcknowledgeResponse) -> dict[TopicPartition, tuple[int, str | None]]:
        return {
            TopicPartition(self._names[bytes(topic.topic_id)], one.partition_index): (one.error_code, one.error_message)
            for topic in answer.responses
            for one in topic.partitions
            if bytes(topic.topic_id) in self._names
        }

    def _ask(self, node_id: int, leader: Connection, request: Struct, kind: type[Struct], patience_s: float) -> Any:
        """The answer in the node's session; None when there is no such session any more: the next one opens it."""
        epoch = self._sessions.get(node_id, OPENING)
        request.share_session_epoch = epoch  # type: ignore[attr-defined]
        try:
            answer: Any = leader.receive(leader.send(request, kind, patience_s=patience_s))
        except Disconnected:
            self._end_session(node_id)
            self._cluster.forget()
            return None
        if answer.error_code:
            self._end_session(node_id)
            if answer.error_code in FORGOTTEN:
                self._state = ShareState()
            elif answer.error_code not in NO_SESSION:
                self._check(answer.error_code, f"a request of share group {self.group!r}", answer.error_message)
            return None
        self._sessions[node_id] = next_epoch(epoch)
        return answer

    def _end_session(self, node_id: int) -> None:
        if self._sessions.pop(node_id, None) is not None:
            self.sessions_ended += 1

    def _check(self, code: int, what: str, message: str | None) -> None:
        """What may pass is asked for again, of who leads by then."""
        if code and may_pass(code):
            self._look_anew()
        else:
            check(code, what, message)

    def _look_anew(self) -> None:
        """Who leads, and before that which partitions are ours."""
        self._cluster.forget()
        self._beaten_at = LONG_AGO

    def _ids(self) -> dict[str, bytes]:
        return {name: topic_id for topic_id, name in self._names.items()}


def _by_topic(places: Iterable[Place]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(places):
        found.setdefault(topic_id, []).append(partition)
    return found
