"""What a stateful operator is to the mechanism that runs it: a pure step over Arrow tables.

Users write folds, too (`docs/guide/own_operators.md`).

Rules:
- A step is given rows, all state rows of their keys (and of other keys, which it gives back), and the clock. It gives
  the state anew, whole: a state row that it leaves out is forgotten.
- All rows and all state of one key come in one step; different keys may come in different steps.
- Rows come in the order of arrival: a key's later row is behind its earlier one wherever the input has an order.
- A row that is for all keys (EVERY_KEY) comes to every step of its micro-batch, with all state that there is.
- With no rows, a step is a wake-up: the watermark has reached the `DUE` of some state row.
- Rows that are late come too. A row is late when its time is at or below the watermark; what that means is the fold's.
- The answer does not depend on how the input was cut into micro-batches, but for what was late.
- State outlives the code: `version` stands beside it. A fold whose version is above 1 is an `Upgrading` one, and reads
  what older ones wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

HASH = "_hash"  # int64: the hash of a row's key columns, in rows and in state alike
EVERY_KEY = -(2**63)  # the HASH of a row that is for all keys: every bucket gets it, and all its state with it
DUE = "_due"  # int64 or null, in state: the event time, in ms, at which the fold must look at the row again
SIDE = "_side"  # int8: which input a row is of, where an operator has several

END_OF_TIME = 2**62  # ms; the watermark of a batch: nothing more will come


class Clock(NamedTuple):
    """`watermark` is what rows of earlier micro-batches have reached, in ms; None before there is one.

    `now` is the wall clock of the micro-batch, in ms. Where there is a watermark, a micro-batch that is run again has
    the same; elsewhere it has a later one, and nothing that must be repeatable may rest on it.
    """

    watermark: int | None
    now: int

    @property
    def late(self) -> int | None:
        """Rows at or below this are late; None: none is. In a batch, nothing was put out before they came."""
        return None if self.watermark == END_OF_TIME else self.watermark


class Step(NamedTuple):
    """`counts` says what became of rows, by name (`in`, `aggregated`, `dropped`); the counts of all steps add up."""

    state: pa.Table
    output: pa.Table
    counts: Mapping[str, int] = {}


class Fold(Protocol):
    """A frozen dataclass: it travels to the workers, and its fields stand beside the state (`parameters.py`).

    The state's schema has `HASH` and `DUE`. What a step gives is looked at (`checking.py`).
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def state_schema(self) -> pa.Schema: ...

    @property
    def output_schema(self) -> pa.Schema: ...

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step: ...


@runtime_checkable
class Forgetting(Protocol):
    """What a fold has besides, if some of its state is forgotten by the clock, without an event time to be woken at.

    It is asked of the other keys, too, in whose pages a step reads and writes: what no step comes by stays, and does
    not grow. What a step puts out must not rest on it.
    """

    def forgotten(self, state: pa.Table, clock: Clock) -> npt.NDArray[np.bool_]:
        """Which rows of state are needed no more."""
        ...


@runtime_checkable
class Holding(Protocol):
    """What a fold has besides, if it holds rows until the watermark has come to them."""

    def held(self, state: pa.Table) -> int:
        """How many rows, or windows that are open, wait in this state and have not been put out."""
        ...


@runtime_checkable
class Upgrading(Protocol):
    """What a fold has besides, as soon as there is state of an older version of it."""

    def upgrade(self, state: pa.Table, version: int) -> pa.Table:
        """State that a fold of an older version wrote, as this one has it."""
        ...
