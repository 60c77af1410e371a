"""A view as a table: the rows of its store, page by page in the order of the key.

    boolean BOOLEAN       string  VARCHAR     date       DATE
    long    BIGINT        binary  BLOB        timestamp  TIMESTAMP, in UTC
    double  DOUBLE        json    VARCHAR     decimal    DECIMAL(38, 18); what does not fit fails the question

Rules:
- The first store of the view that can be opened is read, by `Store.read`, whatever its kind. Its URL came by a record:
  what it may have of this machine the asker has said (`views/stores/allowing.py`).
- Columns are those of the generation that the store shows. A store that shows another one between two pages fails the
  question: its keys, and so the place to go on from, may be others.
- Each page is of one instant. A view that changes while it is read may give pages of several, as any paging does.
- Who asks must be allowed to read the view's topic: a store knows no users.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tidelog.control.urls import redacted
from tidelog.errors import NotShown, TidelogError, UsageError
from tidelog.schema.column_types import c_format
from tidelog.schema.declaration import Column, Declaration, Row, json_text
from tidelog.sql.c_stream import ArrowBatch, ArrowField, ArrowPiece, ArrowTable, binary_of
from tidelog.views.stores.allowing import Allowed, allowed_stores, harm_of, open_recorded, refusal
from tidelog.views.stores.store import PAGE_ROWS_MAX, Ask, Store

if TYPE_CHECKING:
    from tidelog.control.catalog import View
    from tidelog.record.header import Buffer

PRECISION, SCALE = 38, 18
AGAIN_S = 2.0  # after which who was told to may ask again
EPOCH_DAY = date(1970, 1, 1).toordinal()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def view_table(view: View, columns: frozenset[str] | None, allowed: Allowed = allowed_stores) -> ArrowTable:
    store = open_one(view, allowed)
    try:
        generation, declared = shown_by(store, view.name)
    finally:
        store.close()
    every = declared.columns
    wanted = [column for column in every if columns is None or column.name.lower() in columns] or [every[0]]
    fields = [ArrowField(column.name, c_format(column.type, PRECISION, SCALE)) for column in wanted]
    return ArrowTable(fields, lambda: _batches(open_one(view, allowed), view.name, generation, declared, wanted))


def shown_by(store: Store, view: str) -> tuple[int, Declaration]:
    """Not the catalog's: a rebuild is live there before every store shows it, and what it shows has its own columns."""
    generation = store.shown()
    declared = None if generation is None else store.generations().get(generation)
    if generation is None or declared is None:
        raise _rebuilt(view)
    return generation, declared


def _batches(
    store: Store, view: str, generation: int, declared: Declaration, columns: Sequence[Column]
) -> Iterator[ArrowBatch]:
    try:
        after = None
        while True:
            page = store.read(Ask(after=after, limit=PAGE_ROWS_MAX))
            if page.place.generation != generation:
                raise _rebuilt(view)
            if page.rows:
                yield ArrowBatch(len(page.rows), tuple(piece_of(column, page.rows) for column in columns))
                after = declared.key_of(page.rows[-1])
            if not page.more or not page.rows:
                return
    finally:
        store.close()


def _rebuilt(view: str) -> UsageError:
    return UsageError(f"view {view} was switched to another generation while it was read; ask again")


def open_one(view: View, allowed: Allowed) -> Store:
    """A view that a store has begun, or is about to begin, and does not show yet may be waited for: NotShown."""
    faults, refusals, begun = [], [], 0
    for url in view.stores:
        try:
            if harm_of(url) is not None and (refused := refusal(url, allowed())) is not None:
                refusals.append(refused)
            elif (store := _showing(url, view.name, allowed)) is not None:
                return store
            else:
                faults.append(f"{redacted(url)} shows nothing of it yet")
                begun += 1
        except (TidelogError, OSError, ImportError) as error:
            faults.append(f"{redacted(url)}: {error}")
    if refusals and not faults:
        raise UsageError(f"view {view.name}: {'; '.join(refusals)}")
    said = ", ".join([*faults, *refusals]) or "it has none"
    if begun and begun == len(faults) + len(refusals):
        raise NotShown(
            f"view {view.name} has no store that can be read here ({said}): its first rows are on their way, or its app"
            f" does not run; try again in {AGAIN_S:g} s"
        )
    raise UsageError(f"view {view.name} has no store that can be read here ({said}); is its applier running?")


def _showing(url: str, view: str, allowed: Allowed) -> Store | None:
    """A store is reached when it is asked first, and not before."""
    store = open_recorded(url, view, allowed)
    try:
        if store.shown() is not None:
            return store
    except BaseException:
        store.close()
        raise
    store.close()
    return None


def piece_of(column: Column, rows: Sequence[Row]) -> ArrowPiece:
    values = [row.get(column.name) for row in rows]
    if column.type in BYTES_OF:
        to_bytes = BYTES_OF[column.type]
        return ArrowPiece(len(values), binary_of([None if value is None else to_bytes(value) for value in values]))
    validity = _bits(value is not None for value in values)
    if column.type == "boolean":
        return ArrowPiece(len(values), (validity, _bits(bool(value) for value in values)))
    return ArrowPiece(len(values), (validity, FIXED[column.type](values)))


def _bits(flags: Iterator[bool] | Any) -> bytes:
    text = "".join("1" if flag else "0" for flag in flags)
    return int(text[::-1] or "0", 2).to_bytes((len(text) + 7) // 8, "little")


def _decimals(values: Sequence[Any]) -> Buffer:
    return b"".join(_decimal(value) for value in values)


def _decimal(value: Decimal | None) -> bytes:
    sign, digits, exponent = (value or Decimal(0)).as_tuple()
    if not isinstance(exponent, int):
        raise UsageError(f"{value} does not fit DECIMAL({PRECISION},{SCALE}); cast it where it is made")
    whole = int("".join(map(str, digits)))
    shift = exponent + SCALE
    scaled = whole * 10**shift if shift >= 0 else whole // 10**-shift
    if (shift < 0 and scaled * 10**-shift != whole) or scaled >= 10**PRECISION:
        raise UsageError(f"{value} does not fit DECIMAL({PRECISION},{SCALE}); round it where it is made")
    signed: int = -scaled if sign else scaled
    return signed.to_bytes(16, "little", signed=True)


def _micros(at: datetime) -> int:
    since = at - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


BYTES_OF: dict[str, Callable[[Any], bytes]] = {
    "string": str.encode,
    "binary": bytes,
    "json": lambda value: json_text(value).encode(),
}
FIXED: dict[str, Callable[[Sequence[Any]], Any]] = {
    "long": lambda values: array("q", [0 if value is None else value for value in values]),
    "double": lambda values: array("d", [0 if value is None else value for value in values]),
    "decimal": _decimals,
    "date": lambda values: array("i", [0 if value is None else value.toordinal() - EPOCH_DAY for value in values]),
    "timestamp": lambda values: array("q", [0 if value is None else _micros(value) for value in values]),
}
