"""Records beside the rows, as Debezium writes them: transactions, heartbeats, logical messages, changes of schema.

    PREFIX.transaction             {"id":"751"} -> {"status":"BEGIN","id":"751","event_count":null,...}, then END
    __debezium-heartbeat.PREFIX    {"serverName":"shop"} -> {"ts_ms":MS}
    PREFIX.message                 {"prefix":"p"} -> {"op":"m","ts_ms":MS,"source":{...},...,"message":{...}}
    PREFIX                         {"databaseName":"shop"} -> {"source":{...},...,"ddl":null,"tableChanges":[...]}

Of a changed table the schema-change topic has names, declared types and Connect schemas: what all sources know. JDBC's
numbers of types are left out.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.capture.change import SourceTable
from tidelog.capture.envelope import TRANSACTION_BLOCK, compact

Pair = tuple[bytes, bytes]


def _field(name: str, kind: str, *, optional: bool) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


def _struct(name: str, fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": False, "name": name, "version": 1}


COUNT = {
    "type": "array",
    "items": {
        "type": "struct",
        "fields": [
            _field("data_collection", "string", optional=False),
            _field("event_count", "int64", optional=False),
        ],
        "optional": True,
        "name": "event.collection",
        "version": 1,
    },
    "optional": True,
    "field": "data_collections",
}
TRANSACTION_KEY = _struct(
    "io.debezium.connector.common.TransactionMetadataKey", [_field("id", "string", optional=False)]
)
TRANSACTION_VALUE = _struct(
    "io.debezium.connector.common.TransactionMetadataValue",
    [
        _field("status", "string", optional=False),
        _field("id", "string", optional=False),
        _field("event_count", "int64", optional=True),
        COUNT,
        _field("ts_ms", "int64", optional=False),
    ],
)
HEARTBEAT_KEY = _struct("io.debezium.connector.common.ServerNameKey", [_field("serverName", "string", optional=False)])
HEARTBEAT_VALUE = _struct("io.debezium.connector.common.Heartbeat", [_field("ts_ms", "int64", optional=False)])


def _written(content: Any, schema: Mapping[str, Any] | None) -> bytes:
    return compact(content if schema is None else {"schema": schema, "payload": content}).encode()


def begin(id: str, ts_ms: int, *, schemas: bool) -> Pair:
    content = {"status": "BEGIN", "id": id, "event_count": None, "data_collections": None, "ts_ms": ts_ms}
    return _transaction(content, schemas=schemas)


def end(id: str, counts: Mapping[str, int], ts_ms: int, *, schemas: bool) -> Pair:
    collections = [{"data_collection": name, "event_count": count} for name, count in counts.items()]
    told = {"event_count": sum(counts.values()), "data_collections": collections, "ts_ms": ts_ms}
    return _transaction({"status": "END", "id": id, **told}, schemas=schemas)


def _transaction(content: Mapping[str, Any], *, schemas: bool) -> Pair:
    key = _written({"id": content["id"]}, TRANSACTION_KEY if schemas else None)
    return key, _written(content, TRANSACTION_VALUE if schemas else None)


def heartbeat(prefix: str, now_ms: int, *, schemas: bool) -> Pair:
    key = _written({"serverName": prefix}, HEARTBEAT_KEY if schemas else None)
    return key, _written({"ts_ms": now_ms}, HEARTBEAT_VALUE if schemas else None)


def message(
    connector: str,
    source_schema: Mapping[str, Any],
    prefix: str,
    content: bytes,
    source: str,
    transaction: str,
    now_ms: int,
    *,
    schemas: bool,
) -> Pair:
    said = compact({"prefix": prefix, "content": b64encode(content).decode()})
    text = f'{{"op":"m","ts_ms":{now_ms},"source":{source},"transaction":{transaction},"message":{said}}}'
    if not schemas:
        return _written({"prefix": prefix}, None), text.encode()
    named = f"io.debezium.connector.{connector}.Message"
    inner = [_field("prefix", "string", optional=True), _field("content", "bytes", optional=True)]
    fields = [
        _field("op", "string", optional=False),
        _field("ts_ms", "int64", optional=True),
        {**source_schema, "field": "source"},
        TRANSACTION_BLOCK,
        {**_struct(named, inner), "field": "message"},
    ]
    key = _written({"prefix": prefix}, _struct(f"{named}Key", inner[:1]))
    return key, f'{{"schema":{compact(_struct(f"{named}Value", fields))},"payload":{text}}}'.encode()


def schema_change(
    database: str, schema: str, ddl: str | None, table: SourceTable | None, source: str, now_ms: int
) -> Pair:
    """Without Connect's schemas: what it tells differs from source to source."""
    said = compact(
        {
            "databaseName": database,
            "schemaName": schema,
            "ddl": ddl,
            "tableChanges": [] if table is None else [_told(table)],
        }
    )
    return _written({"databaseName": database}, None), f'{{"source":{source},"ts_ms":{now_ms},{said[1:]}'.encode()


def _told(table: SourceTable) -> dict[str, Any]:
    columns = [
        {
            "name": column.name,
            "typeName": column.declared,
            "typeExpression": column.declared,
            "position": at,
            "optional": bool(column.connect.get("optional")),
            "connect": dict(column.connect),
        }
        for at, column in enumerate(table.columns, 1)
    ]
    shown = {"primaryKeyColumnNames": list(table.key), "columns": columns}
    return {"type": "ALTER", "id": f'"{table.schema}"."{table.name}"', "table": shown}
