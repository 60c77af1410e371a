"""A value as Kafka Connect's JSON has it, to what a column of Tidelog has, for views, feeds and captures. Pure.

{"type":"int32","name":"io.debezium.time.Date"}: 19723     date        "2024-01-01"
{"type":"bytes","name":"...Decimal"}: "AeI="               decimal     "4.82"
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tidelog.schema.column_types import KINDS, LONG
from tidelog.schema.connect import FORMS, SCALE, ColumnType

FIRST_DAY = date(1970, 1, 1)
FIRST = datetime(1970, 1, 1, tzinfo=UTC)


def kind_of(form: ColumnType) -> str:
    """The type of a view's column; an interval, which a view does not have, is its microseconds."""
    return KINDS[FORMS[form.form].kind].view or LONG


def said(form: ColumnType, value: Any) -> Any:
    """A value as a view's JSON has it."""
    if value is None:
        return None
    made = _SAID.get(form.form)
    if made is not None:
        return made(form, value)
    if form.form == "list":
        inner = dict(form.parts)["items"]
        return [said(inner, one) for one in value] if isinstance(value, list) else value
    return value


def _day(_: ColumnType, value: Any) -> str:
    return (FIRST_DAY + timedelta(days=value)).isoformat()


def _micros(_: ColumnType, value: Any) -> str:
    return (FIRST + timedelta(microseconds=value)).isoformat()


def _millis(_: ColumnType, value: Any) -> str:
    return (FIRST + timedelta(milliseconds=value)).isoformat()


def _decimal(form: ColumnType, value: Any) -> str:
    scale = int(dict(form.parameters).get(SCALE, "0"))
    return _digits(value, scale)


def _any_decimal(_: ColumnType, value: Any) -> str:
    return _digits(value["value"], int(value["scale"]))


def _digits(text: str, scale: int) -> str:
    number = int.from_bytes(b64decode(text), "big", signed=True)
    return f"{Decimal(number).scaleb(-scale):f}"


def _zoned(_: ColumnType, value: Any) -> str:
    return datetime.fromisoformat(value).astimezone(UTC).isoformat()


def _parsed(_: ColumnType, value: Any) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


_SAID: dict[str, Callable[[ColumnType, Any], Any]] = {
    **dict.fromkeys(("date", "connect_date"), _day),
    "timestamp_ntz": _micros,
    **dict.fromkeys(("timestamp_ms", "connect_timestamp"), _millis),
    "timestamp": _zoned,
    "decimal": _decimal,
    "any_decimal": _any_decimal,
    "json": _parsed,
}
