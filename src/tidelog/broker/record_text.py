"""The text of what the broker's internal topics hold: keys and values are JSON without blanks. Pure.

A key begins with "v", the version of its form, and "kind". One of a newer version, or of a kind that is not known, is
refused: a fold never skips.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.errors import DataFolderError


def encode(value: Mapping[str, Any]) -> bytes:
    from json import dumps

    return dumps(value, separators=(",", ":")).encode()


def decode_key(key: bytes, topic: str, version: int, kinds: tuple[str, ...]) -> dict[str, Any]:
    parsed = decode(key)
    if parsed["v"] > version or parsed["kind"] not in kinds:
        raise DataFolderError(
            f"a record of kind {parsed['kind']!r}, version {parsed['v']}, in {topic} is newer than this Tidelog, which"
            f" knows version {version} of {', '.join(kinds)}; use the newer one"
        )
    return parsed


def decode(value: bytes) -> dict[str, Any]:
    from json import loads

    parsed: dict[str, Any] = loads(value)
    return parsed
