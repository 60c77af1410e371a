"""The owner of topics: one process that writes to them under a transactional id, and rebuilds what it knows from them.

    owner = Owner(cluster, "tidelog.capture.shop")
    owner.begin()                                       every earlier owner of the id is fenced from here on
    for row in owner.rows(positions): ...               what was committed before, up to the end as it is now
    with owner.transaction() as outgoing:               one transaction: all of it counts, or nothing
        outgoing.send(orders, [(key, value, headers, timestamp_ms), ...])       any number of times and partitions
        outgoing.send(positions, [(b"shop", position, (), now_ms)])
    outgoing.ends[orders]                               the offset after the last record that was written there
    owner.append(orders, records, size)                 the same of one batch, for a quarter of the time; or None

What a transaction raises, and what is known then:

    ProducerFenced          another owner began: nothing of it counts. Stop, or begin() to take the id back
    TransactionTimedOut     it was open for longer than `timeout_ms`: nothing of it counts. begin(), and make it smaller
    OutcomeUnknown          its commit was sent and not answered for `cluster.timeout_s`. begin() ends it one way or the
                            other; then read: what it wrote last is there, or nothing of it is
    any other error         nothing of it counts, and it was aborted. The next transaction may begin, unless the abort
                            was not answered either: then `transaction` asks for begin()

Rules:
- State is read after `begin`, never before it. `begin` returns when whatever the last owner left open is ended and can
  be read, and from then on nobody else writes under the id. So what was read stays the last word until this owner
  writes; one record of its own in each transaction (a position) says how far it has come.
- What may be sent again is: a batch keeps its sequence over lost connections and restarts of the broker, which drops
  what it has already, and an end is asked for until it is answered (`client/outbound.py`, `client/transactions.py`).
- Memory is flat over a transaction of any length: records go out by partition as they fill a batch, five requests to a
  leader at a time. The first batch that fails makes the next `send` raise.
- One batch of one partition is whole without a transaction. `append` writes it so where the broker is Tidelog, which
  asks the coordinator whose the id is before it takes the batch. Who appends names the partition in `begin`: then what
  the last owner appended can be read. After FORGETS_S without a transaction it gives None: by the last of them brokers
  tell that an id is not used any more.
- An owner makes no topics: one that does not exist is UNKNOWN_TOPIC_OR_PARTITION.
- An open transaction holds up readers of committed records of all its topics, and may be open for `timeout_ms` at most.
  So what is large is split by whoever knows where it may be.
- An owner belongs to one thread, like its cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import BATCH_BYTES, Delivery, Record
from tidelog.client.transactions import TIMEOUT_MS, State, Transactions
from tidelog.control.reading import read_all
from tidelog.control.timeouts import in_time
from tidelog.errors import AbortOnly, UsageError
from tidelog.record.columns import Row, encode

FORGETS_S = 3600.0


class Outgoing:
    """What goes out in one transaction."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._last: dict[TopicPartition, Delivery] = {}
        self.counts: dict[TopicPartition, int] = {}  # of records, by what was sent

    def send(self, at: TopicPartition, records: Iterable[Record]) -> None:
        """Records are (key, value, headers, timestamp in milliseconds); those of one partition keep their order."""
        topic, partition = at
        send, check_lost = self._transactions.producer.send, self._transactions.check_lost
        count = self.counts.get(at, 0)
        for key, value, headers, timestamp in records:
            check_lost()
            self._last[at] = send(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
            count += 1
        self.counts[at] = count

    def send_at_once(self, at: TopicPartition, records: Sequence[Record], size: int) -> None:
        """The same for many that are known to be of `size` bytes in all, a third of the cost: one batch if they fit."""
        if size > self._transactions.producer.batch_bytes:
            self.send(at, records)
            return
        self._transactions.check_lost()
        self.counts[at] = self.counts.get(at, 0) + len(records)
        batch = encode(records, compression=self._transactions.producer.compression)
        self._last[at] = self._transactions.produce(at, batch).at_index(len(records) - 1)

    def flush(self) -> None:
        """Returns when all that was sent is written, so that `ends` are known before the transaction is committed."""
        self._transactions.producer.flush(strict=False)
        self._transactions.check_lost()

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """The next offsets to be read, as a commit of the group that counts with the transaction."""
        self._transactions.send_offsets(group, offsets, metadata=metadata)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """To be asked for when the transaction is committed. Who reads up to them has read all of it."""
        ends = {at: delivery.offset + 1 for at, delivery in self._last.items()}
        unsaid = {at: LATEST for at, end in ends.items() if not end}  # of a batch that the broker had already
        return ends | {at: found.offset for at, found in list_offsets(self._transactions.cluster, unsaid).items()}


class Owner:
    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        compression: str = "none",
        batch_bytes: int = BATCH_BYTES,
        version: int | None = None,
    ) -> None:
        """`version` is the transaction version, what the cluster has finalized by default."""
        self._transactions = Transactions(
            cluster,
            transactional_id,
            timeout_ms=timeout_ms,
            compression=compression,
            batch_bytes=batch_bytes,
            version=version,
            auto_create=False,
        )
        self._appends = False
        self._ended_at = 0.0  # the last transaction, on the monotonic clock

    def begin(self, appends_to: Sequence[TopicPartition] = ()) -> None:
        """Takes the id, in any state: at the start, and after any error. `appends_to`: where `append` is used."""
        owner = self._transactions
        owner.start()
        self._appends = bool(appends_to) and owner.cluster.is_tidelog() and owner.identity.joins_by_produce
        if self._appends:
            owner.mark(appends_to)
        self._ended_at = time.monotonic()

    def append(self, at: TopicPartition, records: Sequence[Record], size: int) -> int | None:
        """Records that are known to be of `size` bytes in all, as one batch. The offset behind them when they are
        written; None where only a transaction will do. After an error begin() and read.
        """
        self._require_ready()
        owner, is_fresh = self._transactions, time.monotonic() - self._ended_at < FORGETS_S
        if not self._appends or not is_fresh or size > owner.producer.batch_bytes:
            return None
        delivery = owner.append(at, encode(records, compression=owner.producer.compression))
        end = delivery.at_index(len(records) - 1).offset + 1
        return end or list_offsets(owner.cluster, {at: LATEST})[at].offset  # of a batch that it had already

    def rows(self, at: TopicPartition) -> Iterator[Row]:
        """Every committed row of the partition up to its end as it is now; none where there is no such topic. Somebody
        else's transaction that is open there is waited for, for `cluster.timeout_s`: then `OpenTransaction`.
        """
        self._require_ready()
        return read_all(self._transactions.cluster, at)

    @contextmanager
    def transaction(self) -> Iterator[Outgoing]:
        """Commits at the end. An exception aborts, and is raised."""
        self._require_ready()
        owner = self._transactions
        what = f"a transaction of {owner.transactional_id!r}"
        try:
            with in_time(owner, what, "timeout_ms", "write less in a transaction"), owner.transaction():
                outgoing = Outgoing(owner)
                yield outgoing
            self._ended_at = time.monotonic()
        except AbortOnly as error:
            assert error.__cause__ is not None, "it says what was lost"
            raise error.__cause__ from None

    def _require_ready(self) -> None:
        owner = self._transactions
        if owner.state is not State.READY:
            raise UsageError(
                f"the owner of {owner.transactional_id!r} cannot go on: its transaction is {owner.state.value};"
                " begin() takes the id, and what was committed is to be read then"
            )
