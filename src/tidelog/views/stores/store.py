"""What every store does: generations of one view side by side, one of them shown, stretches taken whole.

    absent      nothing of this generation is here
    aside       `prepare`d: written to and read by nobody but its applier, until it has caught up
    shown       the name of the view points at it (a SQL view, a key, an alias, a folder pointer)
    forgotten   `forget`: its rows and its ends are gone

Rules:
- `apply` is one transaction: compare, change, note the ends and the mark, and point the name at this generation where
  `show` says so. If the ends that are stored differ from `before`, another applier has been here: `AnotherApplier`, and
  nothing changes. Ends are compared and kept by partition, of those that are in `before` and in the stretch.
- A stretch that was applied is there after a crash, or it is not there at all. A store without transactions says
  what a reader may see (`sees`), and applying the same stretch again leads to the same rows.
- `read` gives rows and the place that they are at, both of one instant where the store can.
- A store object belongs to one thread. Two of them, in two processes, may have one view open.
- `prepare` of a generation that is there adds the columns that its declaration has grown by. One that has fewer is
  older: nothing is taken away. Where neither grows to the other, it is another view's: `ViewChanged`.
- A generation is never shown again in the place of a later one, whoever says so.
- A store's number of a generation is the catalog's, plus COPY for each time that it was built anew in this store: one
  that was left behind beyond the horizon is made again beside itself. Who tells readers a number tells `generation_of`.
- A page may have fewer rows than were asked for, even none, and be followed by more (`bounds.py`).
- A store that is not reached is `Disconnected`, one that fails a `StorageError`: who applies tries again.
- A URL may hold `${NAME}` for a secret: it is taken from the environment by who opens the store, and is in no error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from tidelog.control.marks import Ends, Mark
from tidelog.errors import ViewChanged
from tidelog.schema.declaration import Declaration, Key, Row, grows_to
from tidelog.schema.expression.tree import Expression
from tidelog.views.changes import Stretch

COPY = 1_000_000
PAGE_ROWS = 100
PAGE_ROWS_MAX = 10_000


def generation_of(stored: int) -> int:
    """The catalog's number of what a store has under `stored`."""
    return stored % COPY


def is_to_grow(kept: Declaration, declared: Declaration, what: str) -> bool:
    """Whether `declared` has columns that a generation has not, which is there by `kept`."""
    if grows_to(declared, kept):
        return False
    if not grows_to(kept, declared):
        raise ViewChanged(
            f"{what} is there with other columns: {_said(kept)}, and not {_said(declared)}. Was it filled from another"
            " cluster, or before the catalog was lost? Give the view another store, or delete what that one has of it"
        )
    return True


def _said(declared: Declaration) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in declared.columns)
    return f"{columns} by {', '.join(declared.key)}, with a horizon of {declared.horizon_ms} ms"


class Place(NamedTuple):
    """How far a generation is applied."""

    generation: int
    ends: Ends
    mark: Mark | None


class Ask(NamedTuple):
    """Which rows. They come in the order of the key, so that `after` is where the next page begins."""

    where: Expression | None = None  # as parsed; the store checks it against the generation that it shows
    after: Key | None = None
    limit: int = PAGE_ROWS
    match: str | None = None  # words to be found, in a store with full text
    within_s: float | None = None  # a store that filters rows here ends its page then; one of SQL gives up
    max_bytes: int | None = None  # of the rows' values, roughly; one row may have more


class Page(NamedTuple):
    rows: Sequence[Row]
    place: Place
    more: bool
    last: Key | None = None  # where `more` is true: what was looked at last. The next page begins behind it


class Store(Protocol):
    sees: str  # one sentence: what a reader may see of a micro-batch that is being applied
    alone: str  # why several appliers cannot share a view here; empty where they can

    def prepare(self, generation: int, declared: Declaration) -> None: ...

    def place(self, generation: int) -> Place | None:
        """None where this generation is absent; without ends where it is prepared and nothing was applied."""

    def shown(self) -> int | None:
        """The generation that readers see."""

    def generations(self) -> Mapping[int, Declaration]:
        """All that are here, whether or not they are shown."""

    def apply(self, generation: int, stretch: Stretch, *, before: Ends, show: bool = False) -> None: ...

    def forget(self, generation: int) -> None:
        """Not the one that is shown."""

    def get(self, key: Key) -> tuple[Row | None, Place]: ...

    def read(self, ask: Ask) -> Page:
        """`NotShown` where no generation is; `QueryTimedOut` where a query of SQL takes longer than `within_s`."""

    def close(self) -> None: ...


class KeyedStore(Store, Protocol):
    """One that gives an applier its own rows back, by key: what a fold goes on from (`views/folding.py`)."""

    def kept_row(self, generation: int, key: Key) -> Row | None:
        """Of any generation that is here, also one that is built aside."""
