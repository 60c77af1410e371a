r"""Rows of a table by COPY, so that a value has the same text as in the stream, and the same readers serve.

    1\tten\t\\N\n       a line per row; \\N is null; a backslash begins an escape: \b \f \n \r \t \v \\

Ranges of keys are compared by the database, row by row (`(a, b) > (1, 'x')`), in the order of its own collations and
operators: a comparison of ours, or one column at a time, would pass over rows. The ends of a range come as JSON texts,
and go back as literals of the column's own type.
"""

from __future__ import annotations

import re
import select
from collections.abc import Iterator, Sequence
from typing import Any

from tidelog.capture.change import Values
from tidelog.capture.sources.postgres.catalog import Known
from tidelog.capture.sources.postgres.pgoutput import FAULTS, MalformedChange, Readers
from tidelog.capture.sources.postgres.session import SqlSession

WAIT_MS = 500
NULL = rb"\N"
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def name_of(*parts: str) -> str:
    """A quoted name."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def literal_of(text: str) -> str:
    """A quoted constant, which a backslash does not change whatever the server's settings are."""
    quoted = text.replace("'", "''").replace("\\", "\\\\")
    return f" E'{quoted}'" if "\\" in text else f"'{quoted}'"


def key_select(known: Known, sample: str = "", *, last: bool = False) -> str:
    """The keys alone, by their order; `last`: the largest."""
    keys = [name_of(name) for name in known.table.key]
    order = ", ".join(f"{key} DESC" if last else key for key in keys)
    return f"SELECT {', '.join(keys)} FROM {from_of(known)} {sample} ORDER BY {order}" + (" LIMIT 1" if last else "")


def row_select(
    known: Known, after: Values | None, to: Values | None, size: int | None = None, row_filter: str | None = None
) -> str:
    columns = ", ".join(name_of(column.name) for column in known.table.columns)
    conditions = [f"({row_filter})"] if row_filter else []
    if after is not None:
        conditions.append(f"{_keys(known)} > {_constants(known, after)}")
    if to is not None:
        conditions.append(f"{_keys(known)} <= {_constants(known, to)}")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    order = f" ORDER BY {', '.join(name_of(name) for name in known.table.key)}" if known.table.key else ""
    return f"SELECT {columns} FROM {from_of(known)}{where}{order}" + (f" LIMIT {size}" if size is not None else "")


def from_of(known: Known) -> str:
    """Without the tables that inherit from it, which are tables of their own; with the partitions, which are not."""
    name = name_of(known.table.schema, known.table.name)
    return name if known.partitioned else f"ONLY {name}"


def has_ranges(known: Known) -> bool:
    return bool(known.table.key) and all(kind.plain is not None for kind in known.key_kinds())


def copied(session: SqlSession, connection: Any, select_text: str) -> Iterator[bytes]:
    """The lines of COPY. A connection whose lines were not read to their end is closed."""
    from psycopg import pq
    from psycopg.errors import error_from_result

    pg = connection.pgconn
    poll = select.poll()
    poll.register(pg.socket, select.POLLIN)
    done = False
    try:
        with session.telling():
            pg.send_query(f"COPY ({select_text}) TO STDOUT".encode())
            while pg.flush():
                poll.poll(WAIT_MS)
            while pg.is_busy():
                poll.poll(WAIT_MS)
                pg.consume_input()
            result = pg.get_result()
            if result is None or result.status != pq.ExecStatus.COPY_OUT:
                raise error_from_result(result)
            while True:
                size, data = pg.get_copy_data(1)
                if size > 0:
                    yield bytes(data)
                elif size == 0:
                    poll.poll(WAIT_MS)
                    pg.consume_input()
                else:
                    break
            result = pg.get_result()
            if result is not None and result.status != pq.ExecStatus.COMMAND_OK:
                raise error_from_result(result)
            while pg.get_result() is not None:
                pass
        done = True
    finally:
        if not done:
            connection.close()


def values_of(line: bytes, readers: Readers) -> Values:
    fields = line[:-1].split(b"\t")
    if len(fields) != len(readers):
        raise MalformedChange(f"a row has {len(fields)} values, and its table {len(readers)} columns")
    try:
        if b"\\" not in line:
            return tuple([reader(field) for field, (reader, _) in zip(fields, readers, strict=True)])
        return tuple(
            "null" if field == NULL else reader(_unescaped(field) if b"\\" in field else field)
            for field, (reader, _) in zip(fields, readers, strict=True)
        )
    except FAULTS as error:
        raise MalformedChange(f"a row cannot be read: {error!r}") from error


def key_readers(known: Known) -> Readers:
    return [(kind.read, kind.unavailable) for kind in known.key_kinds()]


def _unescaped(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), field)


def _keys(known: Known) -> str:
    return f"({', '.join(name_of(name) for name in known.table.key)})"


def _constants(known: Known, values: Values) -> str:
    declared = {column.name: column.declared for column in known.table.columns}
    kinds: Sequence[Any] = known.key_kinds()
    constants = [
        f"{literal_of(kind.plain(value))}::{declared[name]}"
        for name, kind, value in zip(known.table.key, kinds, values, strict=True)
    ]
    return f"({', '.join(constants)})"
