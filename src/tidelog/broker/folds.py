"""Folds of internal topics that the broker makes on first use: one table of them, and what all of them can do.

    __tidelog.groups          GroupCoordinator          soon after the start, at the latest
    __tidelog.transactions    TransactionCoordinator    soon after the start, where it has records
    __tidelog.queues          QueueCoordinator          soon after the start, where it has records
    __tidelog.access          Access                    at the start, where it is there or an authorizer is set
    __tidelog.excisions       ExcisionOrders            soon after the start, where it has records

Rules:
- After an unclean stop those that would be made soon are made at the start: damage is to stop it, not a client.
- A new one is a `Folded` with a row in MAKERS, and a property of the broker. Its modules are imported when it is made.
- The fold of topics is not one of these: everything rests on it, and it is made first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidelog.broker.decision import Decision
from tidelog.broker.internal import InternalTopic, TopicFold
from tidelog.broker.topics import (
    ACCESS_TOPIC,
    EXCISIONS_TOPIC,
    GROUPS_TOPIC,
    QUEUES_TOPIC,
    TRANSACTIONS_TOPIC,
    Topic,
)
from tidelog.errors import StorageError
from tidelog.log.files import Files
from tidelog.log.log import Log

if TYPE_CHECKING:
    from tidelog.broker.access.shell import Access
    from tidelog.broker.broker import Broker

OnLost = Callable[[StorageError], None]
FoldState = TypeVar("FoldState")


class Folded(Generic[FoldState]):
    """The shell of one fold: decisions go in by `commit`, and `state` is what they rest on."""

    def __init__(self, topic: Topic, fold: TopicFold, on_lost: OnLost, *, keeps_all: bool = False) -> None:
        self.internal = InternalTopic(topic.name, fold, on_lost, keeps_all=keeps_all)

    @property
    def state(self) -> FoldState:
        state: FoldState = self.internal.state
        return state

    def start(self, log: Log, data: str, files: Files) -> None:
        self.internal.recover(log, data, files)
        self.awaken()

    def refold(self) -> None:
        """Back to what the log has, which lost what was decided last."""
        self.internal.refold()
        self.awaken()

    def commit(self, decision: Decision) -> object:
        raise NotImplementedError

    def awaken(self) -> None:
        """After the fold: what is memory only begins anew, and what was under way goes on."""

    def settings_changed(self) -> None:
        pass

    def answer_waiting(self) -> None:
        """Before a stop: whoever waits is told to try again."""


def _groups(broker: Broker, on_lost: OnLost) -> Folded[Any]:
    from tidelog.broker.coordinator import GroupCoordinator

    return GroupCoordinator(broker, on_lost)


def _transactions(broker: Broker, on_lost: OnLost) -> Folded[Any]:
    from tidelog.broker.transaction_coordinator import TransactionCoordinator

    return TransactionCoordinator(broker, on_lost)


def _queues(broker: Broker, on_lost: OnLost) -> Folded[Any]:
    from tidelog.broker.queue_coordinator import QueueCoordinator

    return QueueCoordinator(broker, on_lost)


def _access(broker: Broker, on_lost: OnLost) -> Folded[Any]:
    from tidelog.broker.access.shell import Access

    return Access(broker, on_lost)


def _excisions(broker: Broker, on_lost: OnLost) -> Folded[Any]:
    from tidelog.broker.excision.shell import ExcisionOrders

    return ExcisionOrders(broker, on_lost)


# In the order in which they are refolded: who may do what is known first.
MAKERS: dict[str, Callable[[Broker, OnLost], Folded[Any]]] = {
    ACCESS_TOPIC.name: _access,
    GROUPS_TOPIC.name: _groups,
    TRANSACTIONS_TOPIC.name: _transactions,
    EXCISIONS_TOPIC.name: _excisions,
    QUEUES_TOPIC.name: _queues,
}


class Folds:
    """Those of one broker that are made by now, in the order of the table."""

    def __init__(
        self, broker: Broker, load: Callable[[Topic], Log], on_lost: OnLost, on_fatal: Callable[[Exception], None]
    ) -> None:
        """`load` is for one of the broker's own topics: it is read before its fold can be made."""
        self.on_access: Callable[[Access], None] | None = None  # the server's, when access is first needed
        self._broker = broker
        self._load = load
        self._on_lost = on_lost
        self._on_fatal = on_fatal
        self._made: dict[str, Folded[Any]] = {}

    def __iter__(self) -> Iterator[Folded[Any]]:
        return iter(self._made.values())

    def __contains__(self, topic: Topic) -> bool:
        return topic.name in self._made

    def of(self, topic: Topic) -> Any:
        """The fold of an internal topic, made now if it is not yet."""
        if topic not in self:
            try:
                self.make(topic)
            except (OSError, StorageError) as error:
                self._on_fatal(error)
                raise
        return self._made[topic.name]

    def make(self, topic: Topic) -> None:
        made = MAKERS[topic.name](self._broker, self._on_lost)
        # A client may have opened it by asking for its metadata: one folder has one log.
        made.start(self._load(topic), self._broker.data_folder, self._broker.files)
        have = {**self._made, topic.name: made}
        self._made = {name: have[name] for name in MAKERS if name in have}
        if topic is ACCESS_TOPIC and self.on_access is not None:
            self.on_access(have[topic.name])  # type: ignore[arg-type]

    def soon(self) -> Iterator[Topic]:
        """Those that are made without being asked for: an empty one of transactions is not worth it."""
        yield GROUPS_TOPIC
        for topic in (TRANSACTIONS_TOPIC, EXCISIONS_TOPIC):
            partition = self._broker.partition(topic.name, 0)
            if partition is not None and partition.log.end_offset > 0:
                yield topic
        if self._broker.has_queues:
            yield QUEUES_TOPIC
