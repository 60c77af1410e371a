"""Delayed delivery: when a record that asks for it is due. Ours, and not Kafka's.

    header                 value, as text
    tidelog-delay-ms       milliseconds after the record's timestamp
    tidelog-deliver-at     milliseconds since 1970

The last of them counts. Share groups get the record when it is due; whoever reads the log sees it at once. One that is
not a number, negative, or further away than the topic's `tidelog.delay.max.ms` is delivered at once, and counted.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.record.header import HeaderPairs

DELAY = "tidelog-delay-ms"
DELIVER_AT = "tidelog-deliver-at"
DIGITS_MAX = 18


class Due(NamedTuple):
    """`at_ms` None: at once."""

    at_ms: int | None
    malformed: bool = False


def due_of(headers: HeaderPairs, timestamp_ms: int, delay_max_ms: int) -> Due:
    asked = [(name, value) for name, value in headers if name in (DELAY, DELIVER_AT)]
    if not asked:
        return Due(None)
    name, value = asked[-1]
    text = (value or b"").strip()
    if not text.isdigit() or len(text) > DIGITS_MAX:
        return Due(None, malformed=True)
    at_ms = int(text) if name == DELIVER_AT else timestamp_ms + int(text)
    if at_ms - timestamp_ms > delay_max_ms:
        return Due(None, malformed=True)
    return Due(at_ms)
