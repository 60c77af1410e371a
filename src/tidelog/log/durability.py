"""Whether acks of a partition wait for a sync, and how that changes while it is written. The loop's thread only.

Acks stop waiting for syncs only after the file of facts says so, for then an unclean stop raises the epoch. The other
way round, the file follows when all that was acked before is synced. Either may have to wait for the next commit, and
is `pending` until then.
"""

from __future__ import annotations

from tidelog.errors import StorageError
from tidelog.log.reading import Reading
from tidelog.log.tail import Tail
from tidelog.log.upkeep import Upkeep


class Durability:
    __slots__ = ("_reading", "_tail", "_upkeep", "pending")

    def __init__(self, tail: Tail, reading: Reading, upkeep: Upkeep) -> None:
        self._tail = tail
        self._reading = reading
        self._upkeep = upkeep
        self.pending = False

    def follow(self, durable: bool, high_watermark: int) -> None:
        """Goes as far towards what the settings say as is safe now."""
        facts, tail, volatile = self._reading.facts, self._tail, not durable
        tail.durable = not (volatile and facts.volatile)
        synced = tail.synced
        self.pending = volatile != facts.volatile
        if not self.pending or synced is None or synced.offset < high_watermark:
            return
        self.pending = False

        def saved(error: StorageError | None) -> None:
            if error is None and self._reading.facts.volatile == volatile:  # else the file is being changed again
                self._tail.durable = not volatile

        self._upkeep.change_facts(facts._replace(volatile=volatile), saved)
