"""Why a row could not be decoded, in words. The compiled part gives a number, a column, a byte and a detail."""

from __future__ import annotations

from collections.abc import Sequence

# In the order of `Fault` in columns.h.
FAULTS = (
    "it is fine",
    "memory ran out",
    "it ends too early",
    "something comes after its end",
    "a number in it does not end",
    "a number is out of range",
    "a length is negative",
    "a boolean is neither 0 nor 1",
    "a text is not UTF-8",
    "the union has no branch {detail}",
    "the enum has no symbol {detail} that the reader knows",
    "it is nested too deep",
    "it has more items than bytes",
    "the column has more than 2 GiB in one batch; make batches smaller",
    "the map has a key twice",
    "{reason}",
    "a field has a wire type that does not belong there",
    "it is not JSON",
    "the value is of another type",
    "an escape in a text is not valid in JSON",
    "the text is not a date",
    "the text is not a time",
    "the text is not base64",
)
REFUSED = FAULTS.index("{reason}")


def sentence(fault: int, path: str, byte: int, detail: int, reasons: Sequence[str]) -> str:
    """As `price: a number is out of range, at byte 17`."""
    reason = reasons[detail] if fault == REFUSED else ""
    said = FAULTS[fault].format(detail=detail, reason=reason)
    where = f"{path}: " if path else ""
    return f"{where}{said}" if fault == REFUSED else f"{where}{said}, at byte {byte}"
