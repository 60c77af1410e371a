"""Tick rows: how an input that is silent lets time go on. Pure, but for the clock that is given.

Spark's watermark moves by rows alone. Where an input has none for a while, windows stay open and joins wait. With the
option `ticks`, a source that has been read to its end for `idleAfter` makes a row of its own, now and then:

    key, value, headers, topic   null
    partition, offset            -1
    timestamp                    the clock, less `idleAfter`
    timestampType                -1

Rules:
- An input ticks when all of its partitions have been read to their ends for `idleAfter`; one that is behind never does,
  and neither does a query that is bound to an end. Nor does an input with an open transaction under `read_committed`:
  records are there already, and will be seen later.
- Where the input is a captured table (`ticksUpTo`), a tick is not beyond the time up to which its capture has told all
  that was committed, by its marks (`--heartbeat`): a capture that is behind does not make late what it has yet to tell.
  Marks without that time bound nothing.
- A tick stands in the offsets, with its time, so that a micro-batch that is run again has the same row. It is a topic
  without partitions, and with a name that no topic can have: `{"clicks": {"0": 12}, "tick:1763236800000": {}}`. Whoever
  reads offsets by partition, Spark's Kafka connector among them, finds nothing in it: checkpoints can be exchanged.
- The next micro-batch with records leaves it out again.
- There is a tick for each fifth of `idleAfter`, and not more than one a second: each is a micro-batch, or two.
- A clock that is set forward is believed when it has stood for BELIEVED_AFTER_MS: a watermark never goes back, and what
  comes after a tick of tomorrow is late until then. One that is set back is believed at once, and so is the one that a
  query finds when it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.clock import SteadyClock
from tidelog.spark.arrow_rows import arrow_schema
from tidelog.spark.offsets import OffsetsJson

if TYPE_CHECKING:
    import pyarrow as pa

MARK = "tick:"
NOWHERE = -1  # the offset, partition and kind of timestamp of a tick row
LEAST_EVERY_MS = 1000
PARTS_OF_IDLENESS = 5
BELIEVED_AFTER_MS = 600_000


class Tick(NamedTuple):
    """What a task makes a tick row of, in place of a range of offsets."""

    time_ms: int


def bounded(tick: Tick, complete_ms: int | None) -> Tick:
    """Not beyond what is known to be complete."""
    return tick if complete_ms is None else Tick(min(tick.time_ms, complete_ms))


def tick_of(offsets: Mapping[str, Any]) -> Tick | None:
    return next((Tick(int(name.removeprefix(MARK))) for name in offsets if name.startswith(MARK)), None)


def with_tick(offsets: OffsetsJson, tick: Tick) -> OffsetsJson:
    return offsets | {f"{MARK}{tick.time_ms}": {}}


def tick_rows(tick: Tick, columns: Sequence[str]) -> pa.RecordBatch:
    import pyarrow as pa

    known = {"partition": NOWHERE, "offset": NOWHERE, "timestampType": NOWHERE, "timestamp": tick.time_ms * 1000}
    schema = arrow_schema(columns)
    return pa.RecordBatch.from_arrays([pa.array([known.get(one.name)], one.type) for one in schema], schema=schema)


class Idleness:
    """Since when an input is silent, and when it last ticked."""

    def __init__(self, idle_after_ms: int) -> None:
        self.idle_after_ms = idle_after_ms
        self.every_ms = max(LEAST_EVERY_MS, idle_after_ms // PARTS_OF_IDLENESS)
        self._since: float | None = None
        self._ticked: float | None = None
        self._clock = SteadyClock()

    def stir(self, *, now: float, clock_ms: int) -> None:
        """There is something to read."""
        self._look(now, clock_ms)
        self._since = None

    def tick(self, *, now: float, clock_ms: int) -> Tick | None:
        """For an input that is at its end now. `now` is in seconds of a clock that only goes forward."""
        clock_ms = self._look(now, clock_ms)
        if self._since is None:
            self._since, self._ticked = now, None
        last = self._since if self._ticked is None else self._ticked
        waits_ms = self.idle_after_ms if self._ticked is None else self.every_ms
        if (now - last) * 1000 < waits_ms:
            return None
        return Tick(clock_ms - self.idle_after_ms)

    def _look(self, now: float, clock_ms: int) -> int:
        self._clock.look(wall_ms=clock_ms, monotonic_ms=round(now * 1000))
        return self._clock.read(BELIEVED_AFTER_MS)

    def ticked(self, now: float) -> None:
        self._ticked = now
