"""The SQL of a capture by triggers: its tables, and the function that logs the changes of one table.

    schema _tidelog_NAME, with
    changes    id, xid, at, rel, sig, shape, op, before, after        one row a change
    shapes     rel, sig, described, key, schema, name, live           columns of a table, by their sum
    state      log, ready
    log_REL()  what the triggers of table REL call: "!tidelog_NAME" for rows, "!tidelog_NAME_t" for TRUNCATE

    op    c, u, d, t as in an envelope; w a watermark: `before` is the snapshot of its writer, `after` its text

Rules:
- `before` and `after` are a whole row as text, `(1,"a b",)`. No column is named, so no change of the table can make the
  function fail. Settings that decide how values are written are the function's own, whatever the writer's session has.
- What columns a row had is told by their sum `sig`, which each call makes anew from the catalog: a table may change
  between any two rows of one transaction. A sum that the function was not made for comes with the columns in `shape`.
- `id` is of a sequence without a cache: it is drawn while the row is locked, so that changes of one row have ids in
  their order. `xid` is the transaction's number, which reading goes by.
- Names begin with "!", because triggers fire by order of name: a trigger of the application that changes the same row
  once more is logged after the change that it was fired by.
- The function runs as its owner, so that writers need no right to the changelog.
- A changelog that was dropped does not fail a write: the change is not logged, and the reader finds its log gone. Any
  other failure (a full disk) fails the write: to go on would lose a change without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.capture.sources.postgres.reading import literal_of, name_of

OURS = "_tidelog_"
SETTINGS = (
    "search_path = pg_catalog, pg_temp",
    "datestyle = 'ISO'",
    "intervalstyle = 'postgres'",
    "timezone = 'UTC'",
    "bytea_output = 'hex'",
    "extra_float_digits = 3",
)
# `{}` is the table's number. The index gives columns in their order.
SUM = (
    "(SELECT pg_catalog.hash_array_extended(pg_catalog.array_agg(c.h), 0) FROM (SELECT pg_catalog.hash_record_extended("
    "ROW(a.attname, a.atttypid, a.atttypmod, a.attgenerated), 0) AS h FROM pg_catalog.pg_attribute a"
    " WHERE a.attrelid = {} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) c)"
)
DESCRIBED = (
    "(SELECT pg_catalog.json_agg(pg_catalog.json_build_array(a.attname, a.atttypid::bigint, a.atttypmod,"
    " a.attgenerated = '') ORDER BY a.attnum) FROM pg_catalog.pg_attribute a"
    " WHERE a.attrelid = {} AND a.attnum > 0 AND NOT a.attisdropped)::text"
)


class PostgresNames:
    """Of what a capture has in a database."""

    def __init__(self, capture: str) -> None:
        self.schema = f"{OURS}{capture}"
        self.changes, self.shapes, self.state = (name_of(self.schema, what) for what in ("changes", "shapes", "state"))
        self.row_trigger, self.truncate_trigger = f"!tidelog_{capture}", f"!tidelog_{capture}_t"

    def function(self, rel: int) -> str:
        return name_of(self.schema, f"log_{rel}")


def create_schema(names: PostgresNames) -> str:
    return f"CREATE SCHEMA IF NOT EXISTS {name_of(names.schema)}"


def create_tables(names: PostgresNames) -> Iterator[str]:
    yield (
        f"CREATE TABLE IF NOT EXISTS {names.changes} (id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),"
        " xid xid8 NOT NULL DEFAULT pg_current_xact_id(), at timestamptz NOT NULL DEFAULT clock_timestamp(),"
        ' rel oid, sig bigint, shape text, op "char" NOT NULL, before text, after text)'
        # Rows come and go: the room of those that are gone is to be used again soon.
        " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,"
        " autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_cost_delay = 0)"
    )
    yield f"CREATE INDEX IF NOT EXISTS changes_by_xid ON {names.changes} (xid, id)"
    yield (
        f"CREATE TABLE IF NOT EXISTS {names.shapes}"
        " (rel oid, sig bigint, described text NOT NULL, key text[] NOT NULL, schema text, name text,"
        " live boolean NOT NULL, PRIMARY KEY (rel, sig))"
    )
    yield f"CREATE TABLE IF NOT EXISTS {names.state} (log text NOT NULL, ready boolean NOT NULL)"


def create_function(names: PostgresNames, rel: int, sig: int) -> str:
    """For a table as it is now. Made anew for other columns; the triggers stay, and nobody waits."""
    settings = " ".join(f"SET {setting}" for setting in SETTINGS)
    insert = f"INSERT INTO {names.changes} (rel, sig, shape, op, before, after) VALUES ({rel}, s, d,"
    body = (
        "DECLARE s bigint; d text;\nBEGIN\n"
        f"IF to_regclass({literal_of(names.changes)}) IS NULL THEN RETURN NULL; END IF;\n"
        f"IF TG_OP = 'TRUNCATE' THEN {insert} 't', NULL, NULL); RETURN NULL; END IF;\n"
        f"s := {SUM.format('TG_RELID')};\n"
        f"IF s IS DISTINCT FROM {sig} THEN d := {DESCRIBED.format('TG_RELID')}; END IF;\n"
        f"IF TG_OP = 'INSERT' THEN {insert} 'c', NULL, NEW::text);\n"
        f"ELSIF TG_OP = 'UPDATE' THEN {insert} 'u', OLD::text, NEW::text);\n"
        f"ELSE {insert} 'd', OLD::text, NULL); END IF;\n"
        "RETURN NULL;\nEND"
    )
    return (
        f"CREATE OR REPLACE FUNCTION {names.function(rel)}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        f" {settings} AS {literal_of(body)}"
    )


def create_triggers(names: PostgresNames, rel: int, table: str) -> Iterator[str]:
    """They wait for the writers of the table that are under way, and others wait for them."""
    yield (
        f"CREATE OR REPLACE TRIGGER {name_of(names.row_trigger)} AFTER INSERT OR UPDATE OR DELETE ON {table}"
        f" FOR EACH ROW EXECUTE FUNCTION {names.function(rel)}()"
    )
    yield (
        f"CREATE OR REPLACE TRIGGER {name_of(names.truncate_trigger)} AFTER TRUNCATE ON {table}"
        f" FOR EACH STATEMENT EXECUTE FUNCTION {names.function(rel)}()"
    )


def log_rows(names: PostgresNames, rel: int, sig: int, rows_from: str) -> str:
    """Every row of a table, as created."""
    row = "_tidelog_row"
    chosen = f"SELECT {rel}, {sig}, 'c', {row}::text FROM {rows_from} {row}"
    return f"INSERT INTO {names.changes} (rel, sig, op, after) {chosen}"
