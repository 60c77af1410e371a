"""The broker's side of overload: topics with a policy come here, others never do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.overload.blocking import ProducerHolds
from tidelog.broker.overload.dropping import Dropping
from tidelog.broker.overload.policy import DROP, OverloadPolicy

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call
    from tidelog.broker.partition import Partition


class OverloadFigures:
    """Of one topic, since the broker was started."""

    __slots__ = ("dropped", "held", "held_ms", "refused")

    def __init__(self) -> None:
        self.held = 0  # batches that were stored, and whose connection was held
        self.held_ms = 0
        self.refused = 0  # batches that were not stored
        self.dropped = 0  # records


class Overload:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._figures: dict[str, OverloadFigures] = {}
        self.blocking = ProducerHolds(broker)
        self.dropping = Dropping(broker, self)

    def admit(self, partition: Partition, policy: OverloadPolicy, call: Call, writer: str | None, acks: int) -> int:
        """Before a batch is appended: for how long its connection is to rest. BatchRefused if it is not to be."""
        if policy.kind == DROP:
            self.dropping.wrote(partition)
            return 0
        return self.blocking.admit(partition, policy, call, writer, acks, self.figures(partition.topic))

    def figures(self, topic: str) -> OverloadFigures:
        found = self._figures.get(topic)
        if found is None:
            found = self._figures[topic] = OverloadFigures()
        return found

    def turn(self) -> None:
        """Once a second."""
        self.dropping.turn()
        self.blocking.forget()
        for topic in [name for name in self._figures if name not in self._broker.topics.by_name]:
            del self._figures[topic]

    def told(self) -> dict[str, dict[str, Any]]:
        """By topic, for the broker's status."""
        return {topic: self._told(topic) for topic in sorted(self._figures.keys() | self.dropping.topics)}

    def _told(self, topic: str) -> dict[str, Any]:
        figures = self._figures.get(topic) or OverloadFigures()
        return {
            "held": figures.held,
            "held_ms": figures.held_ms,
            "refused": figures.refused,
            "dropped": figures.dropped,
            "lost": self.dropping.lost(topic),
            "dead": self.blocking.dead(topic),
        }
