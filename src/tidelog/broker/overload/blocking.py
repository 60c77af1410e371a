"""`tidelog.overload.policy=block`: producers wait for the groups that a topic names. The loop's thread.

What is decided is `policy.judge`'s. Here is what it is told:

    records    from a group's commit, or the start of the partition if that is later, up to the last stable offset: what
               an open transaction has written counts when it ends, for before that nobody can read it. Of a share
               group: those that are not done, without the delayed, which are for nobody yet
    bytes, ms  looked up in a thread, LOOK_MS apart while the partition is written; in between, estimated from there
    alive      whether a group has a member or has committed; looked at every LOOK_ALIVE_MS while the topic is written

Not held, or it might wait for itself:

    a transactional producer that commits offsets of a watched group: as its open transaction or its last one that
    committed shows, and before that as long as nobody can know
    a principal who has logged in and is a member of a watched group

All of it is memory: after a restart a group has its whole time again, and so has a transactional id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.overload.policy import GroupLag, OverloadPolicy, WatchedGroup, grant, judge, watch
from tidelog.broker.overload.refusal import Overloaded
from tidelog.errors import OffsetOutOfRange, StorageError

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call
    from tidelog.broker.overload.shell import OverloadFigures
    from tidelog.broker.partition import Partition
    from tidelog.broker.transactions.state import Transaction
    from tidelog.log.backlog import Unread

LOOK_MS = 250
LOOK_ALIVE_MS = 1000
IDS_MAX = 10_000  # transactional ids, and members with a login, that are remembered
ANONYMOUS = "ANONYMOUS"
NOBODY_WAITS_MS = 1 << 30  # the time-out of a request that gets no answer


class UnreadSpan(NamedTuple):
    """What a group has before it: `records` of those between two offsets, which of a queue may be fewer than all."""

    first: int
    end: int
    records: int


class LookedUp(NamedTuple):
    """What was looked up of a group's unread records, and when."""

    first: int
    end: int
    bytes: int
    oldest_ms: int | None
    at_ms: int


class ProducerHolds:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._watched: dict[tuple[str, str], WatchedGroup] = {}  # by topic and group
        self._looked_ms: dict[str, int] = {}  # when the groups of a topic were last looked at
        self._found: dict[tuple[str, bytes, int], LookedUp | None] = {}  # None: a look is under way
        self._commits_with: dict[str, frozenset[str]] = {}  # groups in the last committed transaction, by id
        self._users: dict[tuple[str, str], str] = {}  # who logged in, by group and member

    # Batches ----------------------------------------------------------------------------------------------------------

    def admit(
        self,
        partition: Partition,
        policy: OverloadPolicy,
        call: Call,
        writer: str | None,
        acks: int,
        told: OverloadFigures,
    ) -> int:
        """For how long the connection is to rest, in ms, if the batch is stored. Overloaded if it is not to be."""
        now = self._broker.now()
        self._look_at_groups(partition, policy, now.monotonic_ms)
        lags = [lag for group in policy.groups if (lag := self._lag(partition, group, policy, now.wall_ms)) is not None]
        timeout_ms = call.timeout_ms if acks else NOBODY_WAITS_MS
        verdict = judge(lags, policy.limit, timeout_ms)
        lag = verdict.slowest
        if lag is None or self._is_free(policy, call, writer):
            return 0
        where = {"topic": partition.topic, "partition": partition.index, "group": lag.group, "records": lag.records}
        self._broker.logger.seldom("producers wait for a group", **where)
        if verdict.refused and not acks:
            raise Overloaded(0, "nobody is told")  # it is tried again
        connection = call.connection
        hold_ms, connection.credit = grant(connection.credit, verdict.hold_ms, timeout_ms, now.monotonic_ms)
        told.held_ms += hold_ms
        if verdict.refused:
            told.refused += 1
            raise Overloaded(hold_ms, _sentence(partition, policy, lag))
        told.held += 1
        return hold_ms

    def _lag(self, partition: Partition, group: str, policy: OverloadPolicy, now_ms: int) -> GroupLag | None:
        """None of a group that does not count."""
        watched = self._watched.get((partition.topic, group))
        if watched is not None and watched.dead:
            return None
        unread = self._unread(partition, group)
        if not unread.records or not policy.looks_up:
            return GroupLag(group, unread.records)
        return self._estimate(partition, group, unread, now_ms)

    def _unread(self, partition: Partition, group: str) -> UnreadSpan:
        log = partition.log
        end = log.stable_end
        if not self._broker.is_share_group(group):
            committed = self._broker.groups.offsets.get(group, {}).get((partition.topic, partition.index))
            first = log.start_offset if committed is None else max(committed.offset, log.start_offset)
            return UnreadSpan(first, end, max(0, end - first))
        queue = self._broker.queues.state.queue(group, (partition.topic_id, partition.index))
        if queue is None:
            return UnreadSpan(log.start_offset, end, max(0, end - log.start_offset))
        first = max(queue.window.first_left(), log.start_offset)
        left = queue.window.left(max(end, queue.window.end))
        return UnreadSpan(first, end, max(0, min(left, end - first)))

    # Bytes and time ---------------------------------------------------------------------------------------------------

    def _estimate(self, partition: Partition, group: str, span: UnreadSpan, now_ms: int) -> GroupLag:
        first, end, records = span
        place = (group, partition.topic_id, partition.index)
        found = self._found.get(place)
        if place not in self._found or (found is not None and not 0 <= now_ms - found.at_ms < LOOK_MS):
            self._look(place, partition, first, now_ms)
            found = self._found.get(place) or found
        if found is None:
            return GroupLag(group, records)
        size = found.bytes + partition.log.bytes_between(found.end, end)
        if found.first < first:
            size = size * (end - first) // max(1, end - found.first)
        size = size * records // (end - first)
        age = 0 if found.oldest_ms is None else max(0, now_ms - found.oldest_ms)
        if first >= found.end:  # it was written after that look
            age = min(age, max(0, now_ms - found.at_ms))
        return GroupLag(group, records, size, age)

    def _look(self, place: tuple[str, bytes, int], partition: Partition, first: int, now_ms: int) -> None:
        before = self._found.get(place)
        self._found[place] = None

        def looked(result: object, error: BaseException | None) -> None:
            unread: Unread | None = result if error is None else None  # type: ignore[assignment]
            if partition.dropped or unread is None:
                self._found.pop(place, None)
                if before is not None and not partition.dropped:
                    self._found[place] = before
                return
            self._found[place] = LookedUp(unread.first, unread.end, unread.bytes, unread.oldest_ms, now_ms)

        self._broker.scheduler.in_thread(lambda: _unread(partition, first, now_ms), looked)

    # Who lives --------------------------------------------------------------------------------------------------------

    def _look_at_groups(self, partition: Partition, policy: OverloadPolicy, now_ms: int) -> None:
        topic = partition.topic
        if now_ms - self._looked_ms.get(topic, -LOOK_ALIVE_MS) < LOOK_ALIVE_MS:
            return
        self._looked_ms[topic] = now_ms
        for stale in [place for place in self._watched if place[0] == topic and place[1] not in policy.groups]:
            del self._watched[stale]
        for group in policy.groups:
            before = self._watched.get((topic, group))
            commits = self._commits(group)
            behind = self._is_behind(topic, group)
            after = watch(before, commits, self._has_member(group), behind, now_ms, policy.dead_ms)
            self._watched[topic, group] = after
            if after.dead and not (before is not None and before.dead):
                self._broker.logger.warning(
                    "producers no longer wait for a group", topic=topic, group=group, silent_ms=now_ms - after.alive_ms
                )
            elif before is not None and before.dead and not after.dead:
                self._broker.logger.info("producers wait for a group again", topic=topic, group=group)

    def _is_behind(self, topic: str, group: str) -> bool:
        found = self._broker.topics.by_name.get(topic)
        open_ones = (self._broker.open_partition(topic, index) for index in range(found.partitions if found else 0))
        return any(self._unread(one, group).records for one in open_ones if one is not None and one.log.loaded)

    def _commits(self, group: str) -> int:
        """A number that is another one after every commit; of a share group, how many records are done."""
        if self._broker.is_share_group(group):
            windows = [queue.window for queue in self._broker.queues.state.queues.get(group, {}).values()]
            return sum(window.start + window.done for window in windows)
        return max((one.commit_ms for one in self._broker.groups.offsets.get(group, {}).values()), default=0)

    def _has_member(self, group: str) -> bool:
        groups = self._broker.groups
        if self._broker.is_share_group(group):
            return bool(self._broker.queues.state.members(group))
        consumer, classic = groups.consumer.get(group), groups.live_group(group)
        return bool((consumer and consumer.members) or (classic and classic.members))

    def forget(self) -> None:
        """What is known of topics that are gone."""
        topics = self._broker.topics
        for topic in [name for name in self._looked_ms if name not in topics.by_name]:
            del self._looked_ms[topic]
        for watched in [place for place in self._watched if place[0] not in topics.by_name]:
            del self._watched[watched]
        for found in [place for place in self._found if place[1] not in topics.by_id]:
            del self._found[found]

    def dead(self, topic: str) -> list[str]:
        return sorted(group for (name, group), one in self._watched.items() if name == topic and one.dead)

    # Who is not held --------------------------------------------------------------------------------------------------

    def ended(self, transaction: Transaction) -> None:
        """A transaction is going to be committed: so its id commits offsets of these groups, or of none."""
        self._commits_with.pop(transaction.transactional_id, None)
        self._commits_with[transaction.transactional_id] = transaction.groups
        _bound(self._commits_with)

    def heard(self, group: str, member: str, user: str | None) -> None:
        """A member of a group was heard of."""
        if user is not None and user != ANONYMOUS and any(name == group for _, name in self._watched):
            self._users[group, member] = user
            _bound(self._users)

    def _is_free(self, policy: OverloadPolicy, call: Call, writer: str | None) -> bool:
        if writer is not None and self._commits_for(policy, writer):
            return True
        user = call.user
        if user is None or user == ANONYMOUS:
            return False
        mine = [place for place, one in self._users.items() if one == user and place[0] in policy.groups]
        return any(self._is_member(*place) for place in mine)

    def _commits_for(self, policy: OverloadPolicy, writer: str) -> bool:
        known = self._commits_with.get(writer)
        if known is None:
            return True
        running = self._broker.transactions.state.transactions.get(writer)
        groups = known | running.groups if running is not None else known
        return not groups.isdisjoint(policy.groups)

    def _is_member(self, group: str, member: str) -> bool:
        groups = self._broker.groups
        if self._broker.is_share_group(group):
            return member in self._broker.queues.state.members(group)
        consumer, classic = groups.consumer.get(group), groups.live_group(group)
        return bool((consumer and member in consumer.members) or (classic and member in classic.members))


def _sentence(partition: Partition, policy: OverloadPolicy, lag: GroupLag) -> str:
    named = zip(("records", "bytes", "ms"), (lag.records, lag.bytes, lag.ms), policy.limit, strict=True)
    behind = ", ".join(f"{found} {unit} of {most}" for unit, found, most in named if most is not None)
    return (
        f"group {lag.group} is more than twice the limit behind in {partition.topic}-{partition.index} ({behind});"
        " nothing was stored, send it again when the group has read on (tidelog.overload.policy=block)"
    )


def _unread(partition: Partition, first: int, now_ms: int) -> Unread | None:
    """In a worker thread. None: it cannot be told now."""
    try:
        return partition.log.unread(first, now_ms)
    except (OffsetOutOfRange, OSError, StorageError):
        return None


def _bound(remembered: dict[str, frozenset[str]] | dict[tuple[str, str], str]) -> None:
    if len(remembered) > IDS_MAX:
        del remembered[next(iter(remembered))]  # type: ignore[arg-type]
