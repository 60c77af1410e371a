"""The state of all transactional ids: a fold over `__tidelog.transactions`, and beside it what lives in memory only.

    key      {"v":1,"kind":"transaction","id":T}
    value    {"state":"Ongoing","producer":P,"epoch":E,"last_epoch":L,"previous":P,"next":P,"timeout_ms":MS,
              "partitions":{TOPIC:[N,...]},"groups":[G,...],"started_ms":MS,"updated_ms":MS}
             a tombstone: the id is forgotten

    producer, epoch     whom the id belongs to; every lower epoch is fenced
    last_epoch          the epoch that its present holder had before, so that a request whose reply was lost can be told
                        from one of a fenced producer (KIP-360); -1 when somebody else took the id
    previous            the producer id before this one, when its epochs were used up; -1: none
    next                the producer id after the end of this transaction, for the same reason; -1: none
    started_ms          when the first partition or group was added; -1: never

Rules: a value is whole, so the topic may be compacted. Keys are written in this order of fields. `transactions` and
`by_producer` change in `apply` alone; `live` changes in decisions, and holds nothing that a restart may not begin anew:
an ongoing transaction gets its full time-out again, as a member of a group gets its session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.broker.decision import NewRecord
from tidelog.broker.record_text import decode, decode_key, encode
from tidelog.broker.transactions.settings import TransactionSettings
from tidelog.broker.transactions.states import MOVES, PREPARED, State, TransactionEvent

VERSION = 1
KIND = "transaction"
NO_PRODUCER = -1
NO_EPOCH = -1
NEVER = -1
MAX_EPOCH = 0x7FFF
LAST_EPOCH_FOR_CLIENTS = MAX_EPOCH - 1  # one is left to fence its holder with

PartitionName = tuple[str, int]


class Transaction(NamedTuple):
    transactional_id: str
    state: State
    producer_id: int
    epoch: int
    timeout_ms: int
    updated_ms: int
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER
    partitions: frozenset[PartitionName] = frozenset()
    groups: frozenset[str] = frozenset()
    started_ms: int = NEVER

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def is_exhausted(self) -> bool:
        """No further epoch may be given to a client under this producer id."""
        return self.epoch >= LAST_EPOCH_FOR_CLIENTS

    def move(self, event: TransactionEvent, now_ms: int, **changes: Any) -> Transaction:
        return self._replace(state=MOVES[self.state, event], updated_ms=now_ms, **changes)


@dataclass(slots=True)
class Live:
    settings: TransactionSettings = field(default_factory=TransactionSettings)
    deadlines: dict[str, int] = field(default_factory=dict)  # of ongoing transactions, monotonic milliseconds


@dataclass(slots=True)
class TransactionsState:
    transactions: dict[str, Transaction] = field(default_factory=dict)
    by_producer: dict[int, str] = field(default_factory=dict)  # follows from it
    live: Live = field(default_factory=Live, compare=False)

    def of_producer(self, producer_id: int) -> Transaction | None:
        transactional_id = self.by_producer.get(producer_id)
        return None if transactional_id is None else self.transactions[transactional_id]


def fresh() -> TransactionsState:
    return TransactionsState()


def apply(state: TransactionsState, key: bytes, value: bytes | None) -> Transaction | None:
    """Folds one record, and returns the transaction as it is now, so that the shell can go on with it."""
    transactional_id: str = decode_key(key, "__tidelog.transactions", VERSION, (KIND,))["id"]
    before = state.transactions.pop(transactional_id, None)
    if before is not None:
        state.by_producer.pop(before.producer_id, None)
    if value is None:
        return None
    transaction = _parse(transactional_id, decode(value))
    state.transactions[transactional_id] = transaction
    state.by_producer[transaction.producer_id] = transactional_id
    return transaction


def to_records(state: TransactionsState) -> Iterator[NewRecord]:
    for transaction in state.transactions.values():
        yield record(transaction)


def record(transaction: Transaction) -> NewRecord:
    partitions: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        partitions.setdefault(topic, []).append(index)
    content = {
        "state": transaction.state.value,
        "producer": transaction.producer_id,
        "epoch": transaction.epoch,
        "last_epoch": transaction.last_epoch,
        "previous": transaction.previous_producer_id,
        "next": transaction.next_producer_id,
        "timeout_ms": transaction.timeout_ms,
        "partitions": partitions,
        "groups": sorted(transaction.groups),
        "started_ms": transaction.started_ms,
        "updated_ms": transaction.updated_ms,
    }
    return NewRecord(_key(transaction.transactional_id), encode(content))


def tombstone(transactional_id: str) -> NewRecord:
    return NewRecord(_key(transactional_id), None)


def _parse(transactional_id: str, content: Mapping[str, Any]) -> Transaction:
    places = frozenset((topic, index) for topic, indexes in content["partitions"].items() for index in indexes)
    return Transaction(
        transactional_id=transactional_id,
        state=State(content["state"]),
        producer_id=content["producer"],
        epoch=content["epoch"],
        timeout_ms=content["timeout_ms"],
        updated_ms=content["updated_ms"],
        last_epoch=content["last_epoch"],
        previous_producer_id=content["previous"],
        next_producer_id=content["next"],
        partitions=places,
        groups=frozenset(content["groups"]),
        started_ms=content["started_ms"],
    )


def _key(transactional_id: str) -> bytes:
    return encode({"v": VERSION, "kind": KIND, "id": transactional_id})
