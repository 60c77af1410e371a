"""One record as one JSON object, the same out (`tail --json`) and in (`produce --json`): one can feed the other.

    {"topic": "orders", "partition": 0, "offset": 12, "timestamp": 1767225600000,
     "key": "42", "value": "{\\"total\\": 10}", "headers": [{"name": "trace", "value": "a1"}]}

`key`, `value` and a header's `value` are text or null. Bytes that are not UTF-8 come as `key_base64` or
`value_base64` instead. On the way in every field may be left out; `value` (and `key`) may be any JSON, of which the
compact text is written; `headers` may also be an object; `topic` and `offset` say where the record was and are
ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from tidelog.errors import UsageError

Headers = list[tuple[str, bytes | None]]
FIELDS = {"topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64", "headers"}
TIMESTAMP_LIMIT = 1 << 63


class NewRow(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp: int | None


def field(name: str, data: bytes | memoryview | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    raw = bytes(data)
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw).decode()}


def parse_row(line: str | bytes) -> NewRow:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        where = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f'not JSON{where}; every line is one object such as {{"key": "42", "value": "..."}}') from None
    if not isinstance(given, dict):
        raise UsageError(f'{json.dumps(given)[:40]} is not an object; write {{"value": ...}}')
    unknown = sorted(given.keys() - FIELDS)
    if unknown:
        raise UsageError(f"unknown field {unknown[0]!r}; fields are {', '.join(sorted(FIELDS))}")
    return NewRow(
        _bytes(given, "key"),
        _bytes(given, "value"),
        _headers(given.get("headers")),
        _whole(given, "partition", 1 << 31),
        _whole(given, "timestamp", TIMESTAMP_LIMIT),
    )


def _bytes(given: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in given:
        if name in given:
            raise UsageError(f"{name!r} and '{name}_base64' in one object; leave one out")
        try:
            return base64.b64decode(given[f"{name}_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise UsageError(f"'{name}_base64' is not base64") from None
    value = given.get(name)
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name!r} has half of a surrogate pair, which is not text; use '{name}_base64'") from None


def _headers(given: Any) -> Headers:
    if given is None:
        return []
    if isinstance(given, dict):
        given = [{"name": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list) or not all(isinstance(h, dict) and isinstance(h.get("name"), str) for h in given):
        raise UsageError('\'headers\' is neither an object nor a list of {"name": ..., "value": ...}')
    return [(header["name"], _bytes(header, "value")) for header in given]


def _whole(given: dict[str, Any], name: str, limit: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise UsageError(f"{name!r} is {json.dumps(value)[:40]}; it is a whole number from 0 on")
    return value
