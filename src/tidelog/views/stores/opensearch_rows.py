"""Rows of a view as documents of OpenSearch, and what is asked of them. Pure.

    boolean    boolean                        string     text, and .keyword for what is to be equal or sorted
    long       long                           binary     binary
    double     double                         date       date
    decimal    double to be searched by       timestamp  date, to the millisecond to be searched by
    json       kept, not searched

Rules:
- The document itself is the row as JSON has it, exactly; the types above are for searching alone. A value that its type
  cannot take (NaN) is not searched by, and kept.
- A column's name is its field's, each character but letters, digits, `_` and `-` as %XX, and so is a leading `_`: dots
  would make objects of them.
- A document's id is its key's bytes in hexadecimal, or their hash where that is longer than ids may be.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from tidelog.errors import UsageError
from tidelog.schema.column_types import STORED, STRING
from tidelog.schema.declaration import Declaration, Row, from_fields, from_json, to_fields, to_json
from tidelog.views.changes import Change

KEY, GONE, AT = "_tidelog_key", "_tidelog_gone", "_tidelog_gone_ms"
KEY_BYTES_MAX = 16_000  # a term has 32,766 at most, and a byte is two of them
ID_BYTES_MAX = 250  # an id has 512 at most
WINDOW_ROWS = 20_000
FIELDS_MIN = 1_000
NOT_GONE = {"bool": {"must_not": {"term": {GONE: True}}}}
PLACES = {"settings": {"number_of_shards": 1, "auto_expand_replicas": "0-1"}, "mappings": {"dynamic": False}}


def index_of(declared: Declaration) -> dict[str, Any]:
    settings = {
        "number_of_shards": 1,
        "auto_expand_replicas": "0-1",
        "refresh_interval": "-1",
        "max_result_window": WINDOW_ROWS,
        "mapping.total_fields.limit": max(FIELDS_MIN, 4 * len(declared.columns)),
    }
    return {"settings": {"index": settings}, "mappings": mapping_of(declared)}


def mapping_of(declared: Declaration) -> dict[str, Any]:
    ours = {KEY: {"type": "keyword"}, GONE: {"type": "boolean"}, AT: {"type": "long"}}
    fields = {field_of(name): STORED[kind].opensearch for name, kind in declared.columns}
    return {"dynamic": False, "_meta": {"tidelog": to_fields(declared)}, "properties": {**ours, **fields}}


def declared_in(mapping: Mapping[str, Any]) -> Declaration:
    return from_fields(mapping["_meta"]["tidelog"])


def field_of(name: str) -> str:
    plain = "".join(one if one.isalnum() or one in "_-" else _escaped(one) for one in name)
    return _escaped("_") + plain[1:] if plain.startswith("_") else plain


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def id_of(key: bytes) -> str:
    return key.hex() if len(key) <= ID_BYTES_MAX else f"sha256-{sha256(key).hexdigest()}"


def lines_of(declared: Declaration, key: bytes, change: Change) -> tuple[str, str]:
    """Of a bulk request."""
    if len(key) > KEY_BYTES_MAX:
        raise UsageError(f"a key of {len(key)} bytes; a search index takes {KEY_BYTES_MAX}")
    action = {"_id": id_of(key), "version": change.offset + 1, "version_type": "external_gte"}
    if change.after is None:
        said: dict[str, Any] = {KEY: key.hex(), GONE: True, AT: int(time.time() * 1000)}
    else:
        said = {field_of(name): to_json(kind, change.after.get(name)) for name, kind in declared.columns}
        said[KEY] = key.hex()
    return json.dumps({"index": action}), json.dumps(said, separators=(",", ":"))


def row_in(declared: Declaration, source: Mapping[str, Any]) -> Row:
    return {name: from_json(kind, source.get(field_of(name))) for name, kind in declared.columns}


# Questions ------------------------------------------------------------------------------------------------------------


def page_behind(after: bytes | None, count: int, words: Mapping[str, Any] | None) -> dict[str, Any]:
    query: dict[str, Any] = {"must_not": [{"term": {GONE: True}}]}
    if after is not None:
        query["filter"] = [{"range": {KEY: {"gt": after.hex()}}}]
    if words is not None:
        query["must"] = [words]
    return {"size": count, "sort": [{KEY: "asc"}], "query": {"bool": query}, "track_total_hits": False}


def search_for(declared: Declaration, words: str) -> dict[str, Any]:
    """All of the words, each in any of the columns of text."""
    fields = [field_of(name) for name, kind in declared.columns if kind == STRING]
    if not fields:
        raise UsageError("this view has no column of text to search in")
    return {"multi_match": {"query": words, "fields": fields, "type": "cross_fields", "operator": "and"}}


def gone_before(time_ms: int) -> dict[str, Any]:
    return {"bool": {"filter": [{"term": {GONE: True}}, {"range": {AT: {"lt": time_ms}}}]}}
