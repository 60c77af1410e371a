"""Writing: records one by one, gathered into batches by partition, or batches that were encoded elsewhere.

Rules:
- Nothing is written behind the caller's back: there is no thread. A partition's records go out when they fill a batch,
  all of them when they are too many together, and at `flush`, which returns when every one is acked or failed.
- A record with a key goes where Java's producer puts it (murmur2); one without goes to one partition until its batch is
  full, then to the next. Order within a partition is the order of `send`.
- Idempotent unless told otherwise: a batch that was sent twice is written once (`outbound.py` has the whole story).
- With a `membership` all of it is part of a transaction, which somebody else begins and ends (`transactions.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from functools import partial

from tidelog.client.cluster import Cluster
from tidelog.client.identity import Membership
from tidelog.client.metadata import TopicPartition
from tidelog.client.outbound import Batch, Outbound
from tidelog.errors import TidelogError, UsageError
from tidelog.record.codec import check
from tidelog.record.columns import encode
from tidelog.record.partitioner import partition_of

ACKS_ALL, ACKS_LEADER, ACKS_NONE = -1, 1, 0
BATCH_BYTES = 256 << 10
GATHERED_BYTES_MAX = 32 << 20  # of all partitions together: a thousand topics with a few rows each are not a batch yet
ROW_OVERHEAD = 16  # about what lengths, deltas and attributes take

Headers = Sequence[tuple[str, bytes | None]]
Record = tuple[bytes | None, bytes | None, Headers, int]  # key, value, headers, timestamp in milliseconds


class Delivery:
    """What became of one record, or of one batch: known after `flush`."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch | None, index: int) -> None:
        self._batch = batch
        self._index = index

    def at_index(self, index: int) -> Delivery:
        """Of a batch: what became of one of its records."""
        return Delivery(self._batch, index)

    @property
    def acked(self) -> bool:
        return self._batch is not None and self._batch.acked

    @property
    def error(self) -> TidelogError | None:
        return self._batch.error if self._batch is not None else None

    @property
    def at(self) -> TopicPartition:
        assert self._batch is not None, "known when the batch is sent"
        return self._batch.at

    @property
    def offset(self) -> int:
        """-1 where it is not acked, or the broker did not say (acks=0, a batch that it already had)."""
        base = self._batch.base_offset if self._batch is not None else -1
        return base if base < 0 else base + self._index


class Gathering:
    """Records of one partition that wait to become a batch."""

    __slots__ = ("deliveries", "rows", "size")

    def __init__(self) -> None:
        self.rows: list[Record] = []
        self.deliveries: list[Delivery] = []
        self.size = 0


class Producer:
    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        idempotent: bool | None = None,
        compression: str = "none",
        batch_bytes: int = BATCH_BYTES,
        membership: Membership | None = None,
        auto_create: bool = True,
    ) -> None:
        """Idempotence needs acks=-1 and is on by default there; a `membership` needs it. With `auto_create` a topic
        that does not exist is made, where the broker allows that.
        """
        if (idempotent or membership is not None) and acks != ACKS_ALL:
            raise UsageError(f"acks={acks} cannot be idempotent; use acks=-1, or idempotent=False")
        if idempotent is None or membership is not None:
            idempotent = acks == ACKS_ALL
        self.cluster = cluster
        self.compression = compression
        self.batch_bytes = batch_bytes
        self._membership = membership
        self._auto_create = auto_create
        self._outbound = Outbound(
            cluster, acks=acks, idempotent=idempotent, membership=membership, auto_create=auto_create
        )
        self._gathered: dict[TopicPartition, Gathering] = {}
        self._gathered_bytes = 0
        self._partitions: dict[str, int] = {}
        self._sticky: dict[str, int] = {}
        self._turns: dict[str, int] = {}

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.flush()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Into its partition's batch. `timestamp` is in milliseconds, now by default."""
        if self._membership is not None:
            self._membership.check_open()
        size = ROW_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(data or b"") + 2 for name, data in headers)
        at = self._place(topic, key, partition)
        while at in self._gathered and self._gathered[at].size + size > self.batch_bytes:
            # A large record goes alone: were it refused, it would take the others with it.
            self._launch([at])
            at = self._place(topic, key, partition)
        gathering = self._gathered.setdefault(at, Gathering())
        delivery = Delivery(None, len(gathering.rows))
        gathering.rows.append((key, value, headers, int(time.time() * 1000) if timestamp is None else timestamp))
        gathering.deliveries.append(delivery)
        gathering.size += size
        self._gathered_bytes += size
        if gathering.size >= self.batch_bytes:
            self._launch([at])
        elif self._gathered_bytes >= GATHERED_BYTES_MAX:
            self._launch(list(self._gathered))
        return delivery

    def _place(self, topic: str, key: bytes | None, partition: int | None) -> TopicPartition:
        return TopicPartition(topic, self._choose(topic, key) if partition is None else partition)

    def send_batch(self, at: TopicPartition, batch: bytes | bytearray | memoryview) -> Delivery:
        """One batch, encoded elsewhere; a `bytearray` is used, and stamped, as it is. Waits when five are under way."""
        self._launch([at])
        made = self._batch(at, batch)
        self._outbound.launch([made])
        return Delivery(made, 0)

    def send_together(self, batches: Iterable[tuple[TopicPartition, bytes | bytearray | memoryview]]) -> list[Delivery]:
        """Batches of several partitions, encoded elsewhere: one request for each leader, where they fit into one."""
        made = [self._batch(at, batch) for at, batch in batches]
        self._launch([batch.at for batch in made])
        self._outbound.launch(made)
        return [Delivery(batch, 0) for batch in made]

    def _batch(self, at: TopicPartition, batch: bytes | bytearray | memoryview) -> Batch:
        data = batch if isinstance(batch, bytearray) else bytearray(batch)
        header = check(data)
        if header.size != len(data):
            raise UsageError(f"{len(data)} bytes are not one batch of {header.size}; send batches one by one")
        return Batch(at, data, header.count, self._deadline())

    def flush(self, *, strict: bool = True) -> None:
        """Returns when everything is acked or failed. `strict` raises the first failure since the last flush."""
        self._launch(list(self._gathered))
        self._outbound.settle()
        self._partitions.clear()
        failed, self._outbound.failed = self._outbound.failed, []
        if strict and failed:
            error = failed[0].error
            assert error is not None
            raise error

    def discard(self) -> None:
        """Forgets what was not sent, waits for what was: the transaction is not to be committed."""
        self._gathered.clear()
        self._gathered_bytes = 0
        self._sticky.clear()
        self._outbound.drop()

    def adopt(self, membership: Membership) -> None:
        """A transaction's next producer id and epoch; nothing is under way."""
        self._outbound.adopt(membership.identity)

    @property
    def has_written(self) -> bool:
        """Whether anything was sent under the present producer id and epoch."""
        return self._outbound.has_written

    def _launch(self, partitions: Iterable[TopicPartition]) -> None:
        batches = []
        for at in partitions:
            gathering = self._gathered.pop(at, None)
            if gathering is None:
                continue
            self._gathered_bytes -= gathering.size
            data = encode(gathering.rows, compression=self.compression)
            batch = Batch(at, data, len(gathering.rows), self._deadline())
            for delivery in gathering.deliveries:
                delivery._batch = batch
            batches.append(batch)
            if self._sticky.get(at.topic) == at.partition:
                del self._sticky[at.topic]
        if batches:
            self._outbound.launch(batches)

    def _deadline(self) -> float:
        return time.monotonic() + self.cluster.timeout_s

    def _choose(self, topic: str, key: bytes | None) -> int:
        count = self._partitions.get(topic)
        if count is None:
            found = self.cluster.retry(partial(self.cluster.topic, topic, auto_create=self._auto_create))
            count = self._partitions[topic] = len(found.partitions)
        if key is not None:
            return partition_of(key, count)
        if topic not in self._sticky:
            self._sticky[topic] = self._turn(topic, count)
        return self._sticky[topic]

    def _turn(self, topic: str, count: int) -> int:
        """Each batch without keys goes to the next partition; the first to any."""
        turn = self._turns.get(topic, int.from_bytes(os.urandom(4), "big"))
        self._turns[topic] = turn + 1
        return turn % count
