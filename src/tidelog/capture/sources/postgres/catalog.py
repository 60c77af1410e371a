"""What the database says of its tables, and the tables of the contract that are made of it.

A relation message of the stream says names, types and which columns identify an old row, as of then. The catalog says
the rest (what may be null, defaults, labels, the order of a key), as of now. So names and types are the message's, and
the catalog's word is taken for a column that it knows by that name; one that was renamed since is found by its place
among those of its type that neither side knows by name. A table that is gone has what the message says.

A table's key is what identifies its rows in the log: the index that REPLICA IDENTITY USING INDEX names, else the
primary key. It is not always the primary key, because the log tells an old row by that index alone: a
delete that is keyed by anything else would have no key at all.

`Known` is a table with what reading its rows needs. It is the same object until its shape is another one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.capture.change import SourceColumn, SourceTable
from tidelog.capture.sources.postgres.columns import PostgresKind, Type, connect_of, kind_of
from tidelog.capture.sources.postgres.partitions import TablePartitions, id_of, partitions_of
from tidelog.capture.sources.postgres.pgoutput import Readers, Relation, RelationColumn
from tidelog.capture.sources.postgres.session import SqlSession

INDEX, FULL, NOTHING, DEFAULT = "i", "f", "n", "d"
COLUMN_LISTS = 150_000  # the first version that has them, and row filters
VECTORS = ("int2vector", "oidvector")  # arrays by name only: their text is another one

_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relreplident::text, c.relkind = 'p', c.relispartition,
       pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'USAGE'), has_table_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
  AND n.nspname !~ '^(pg_|_tidelog_)' AND n.nspname <> 'information_schema'
ORDER BY n.nspname, c.relname
"""
_UNLOGGED = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'u' ORDER BY 1, 2
"""
_FACTS = """
SELECT n.nspname, c.relname, c.relreplident::text,
       (SELECT array_agg(a.attname ORDER BY k.place)
        FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(number, place)
        JOIN pg_attribute a ON a.attnum = k.number
        WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND i.indisprimary),
       (SELECT array_agg(a.attname ORDER BY k.place)
        FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(number, place)
        JOIN pg_attribute a ON a.attnum = k.number
        WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND i.indisreplident AND k.place <= i.indnkeyatts),
       c.relkind = 'p'
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s
"""
_COLUMNS = """
SELECT a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attndims, pg_get_expr(d.adbin, d.adrelid),
       format_type(a.atttypid, a.atttypmod)
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum
"""
_TYPES = """
SELECT t.oid, t.typname, t.typtype::text, CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END, t.typdelim::text,
       t.typbasetype, t.typtypmod, t.typndims,
       (SELECT array_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid),
       pg_type_is_visible(t.oid)
FROM pg_type t WHERE t.oid = ANY(%s)
"""


class ListedTable(NamedTuple):
    """A table that could be captured."""

    id: int
    schema: str
    name: str
    identity: str
    partitioned: bool
    partition: bool  # of another one
    owner: str
    owned: bool  # by a role that we are, or are a member of
    readable: bool

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


class ColumnFacts(NamedTuple):
    name: str
    type: int
    modifier: int
    required: bool
    dimensions: int
    default: str | None
    declared: str


class TableFacts(NamedTuple):
    schema: str
    name: str
    identity: str
    primary_key: tuple[str, ...]
    identity_index: tuple[str, ...]
    columns: tuple[ColumnFacts, ...]
    partitioned: bool = False
    inside: TablePartitions | None = None  # None of a table that is not partitioned


class Known(NamedTuple):
    relation: Relation
    table: SourceTable
    kinds: tuple[PostgresKind, ...]
    readers: Readers
    partitioned: bool = False

    def key_kinds(self) -> list[PostgresKind]:
        names = [column.name for column in self.table.columns]
        return [self.kinds[names.index(name)] for name in self.table.key]


class Catalog:
    def __init__(self, session: SqlSession, patterns: Sequence[str], publications: Sequence[str]) -> None:
        self._session = session
        self._publications = publications
        self._patterns = [pattern_of(each) for each in patterns]
        self._said = list(patterns)
        self._known: dict[int, Known] = {}

    def matches(self, schema: str, name: str) -> bool:
        return any(pattern.fullmatch(f"{schema}.{name}") for pattern in self._patterns)

    def listed(self) -> list[ListedTable]:
        """The tables that match. A partition is told by its root, unless it alone matches."""
        rows = [ListedTable(*row) for row in self._session.query(_TABLES)]
        chosen = [row for row in rows if self.matches(row.schema, row.name)]
        roots = {row.id for row in chosen if row.partitioned}
        inside = self._partitions(sorted(roots)) if roots else set()
        return [row for row in chosen if row.id not in inside]

    def unlogged(self) -> list[tuple[str, str]]:
        """Those that match, and of which no log has a change."""
        return [(schema, name) for schema, name in self._session.query(_UNLOGGED) if self.matches(schema, name)]

    def unmatched(self, listed: Sequence[ListedTable]) -> list[str]:
        """Tables that are named in full, and are not there."""
        names = [said if "." in said else f"public.{said}" for said in self._said if "*" not in said]
        return [name for name in names if name not in {one.full_name for one in listed}]

    def known(self, relation: Relation) -> tuple[Known, bool]:
        """The table of a relation message, and whether its shape is another than it was before."""
        before = self._known.get(relation.id)
        facts = self._facts(relation.id)
        types = self._types([column.type for column in relation.columns])
        made = describe(relation, facts, types, before)
        if before is not None and same(before, made):
            return before, False
        self._known[relation.id] = made
        return made, before is not None

    def known_now(self, number: int, columns: Sequence[str] | None = None) -> Known | None:
        """The table as it is now, as the next relation message would tell it. None where there is none."""
        facts = self._facts(number)
        return None if facts is None else self.known(relation_of(number, facts, columns))[0]

    def known_table(self, table: SourceTable) -> Known:
        for known in self._known.values():
            if known.table is table:
                return known
        found = [row for row in self.listed() if row.full_name == table.full_name]
        known_now = self.known_now(found[0].id) if found else None
        if known_now is None:
            raise LookupError(table.full_name)
        return known_now

    def published_columns(self, listed: ListedTable) -> list[str] | None:
        """Those that the publications name, where somebody has given them a list; None: all."""
        found = self._published(listed.schema, listed.name)
        return None if found is None else list(found[0])

    def row_filter(self, table: SourceTable) -> str | None:
        found = self._published(table.schema, table.name)
        return None if found is None else found[1]

    def _published(self, schema: str, name: str) -> tuple[list[str], str | None] | None:
        if self._session.one("SELECT current_setting('server_version_num')::int") < COLUMN_LISTS:
            return None
        statement = (
            "SELECT attnames, rowfilter FROM pg_publication_tables"
            " WHERE pubname = ANY(%s) AND schemaname = %s AND tablename = %s"
        )
        found = self._session.query(statement, [list(self._publications), schema, name])
        return (found[0][0], found[0][1]) if found else None

    def _facts(self, number: int) -> TableFacts | None:
        found = self._session.query(_FACTS, [number])
        if not found:
            return None
        schema, name, identity, primary, index, partitioned = found[0]
        columns = tuple(ColumnFacts(*row) for row in self._session.query(_COLUMNS, [number]))
        inside = partitions_of(self._session, [number])[number] if partitioned else None
        return TableFacts(
            schema, name, identity, tuple(primary or ()), tuple(index or ()), columns, partitioned, inside
        )

    def _types(self, numbers: Sequence[int]) -> dict[int, Type]:
        types: dict[int, Type] = {}
        missing = set(numbers)
        while missing:
            rows = self._session.query(_TYPES, [sorted(missing)])
            for number, name, kind, element, delimiter, base, modifier, dimensions, labels, visible in rows:
                inner = 0 if name in VECTORS else element
                types[number] = Type(
                    number, name, kind, inner, delimiter, base, modifier, dimensions, tuple(labels or ()), visible
                )
            wanted = {each for found in types.values() for each in (found.element, found.base) if each}
            missing = wanted - set(types) if rows else set()
        return types

    def _partitions(self, roots: Sequence[int]) -> set[int]:
        statement = (
            "SELECT t.relid::oid FROM unnest(%s::oid[]) AS r(id), pg_partition_tree(r.id) AS t WHERE t.level > 0"
        )
        return {row[0] for row in self._session.query(statement, [list(roots)])}


def pattern_of(text: str) -> re.Pattern[str]:
    """`public.*`, `shop.orders`; a name without a schema is one of `public`; `*` alone is every table."""
    whole = "*.*" if text == "*" else text if "." in text else f"public.{text}"
    return re.compile(".*".join(re.escape(part) for part in whole.split("*")), re.DOTALL)


def describe(
    relation: Relation, facts: TableFacts | None, types: dict[int, Type], before: Known | None = None
) -> Known:
    """The table that a relation message tells, with what the catalog knows of it."""
    found = matched(relation.columns, facts.columns if facts is not None else ())
    kinds = []
    columns = []
    for told, fact in zip(relation.columns, found, strict=True):
        earlier = _earlier(told, before) if fact is None else None
        if earlier is not None:  # the catalog is ahead of the message, and what was known of the column still holds
            kind, column = earlier
        else:
            kind = kind_of(told.type, told.modifier, fact.dimensions if fact is not None else 0, types)
            optional = not (fact is not None and fact.required)
            connect = connect_of(kind, optional=optional, default=fact.default if fact is not None else None)
            column = SourceColumn(told.name, connect, fact.declared if fact is not None else "", kind.unavailable)
        kinds.append(kind)
        columns.append(column)
    key = key_of(relation, facts, found, before)
    id = id_of(relation.id, None if facts is None else facts.inside)
    table = SourceTable(relation.schema, relation.name, tuple(columns), key, id)
    readers = [(kind.read, kind.unavailable) for kind in kinds]
    return Known(relation, table, tuple(kinds), readers, facts is not None and facts.partitioned)


def _earlier(told: RelationColumn, before: Known | None) -> tuple[PostgresKind, SourceColumn] | None:
    if before is None:
        return None
    for at, column in enumerate(before.relation.columns):
        if column[:3] == told[:3]:
            return before.kinds[at], before.table.columns[at]
    return None


def matched(told: Sequence[RelationColumn], facts: Sequence[ColumnFacts]) -> list[ColumnFacts | None]:
    """For each column of a relation message what the catalog knows of it."""
    by_name = {fact.name: fact for fact in facts}
    names = {column.name for column in told}
    left = [fact for fact in facts if fact.name not in names]
    found: list[ColumnFacts | None] = []
    for column in told:
        fact = by_name.get(column.name)
        if fact is None:
            fact = next((each for each in left if each.type == column.type), None)
            if fact is not None:
                left.remove(fact)
        found.append(fact if fact is not None and fact.type == column.type else None)
    return found


def key_of(
    relation: Relation, facts: TableFacts | None, found: Sequence[ColumnFacts | None], before: Known | None
) -> tuple[str, ...]:
    """The columns that identify a row, in the order of the key."""
    identity = [column.name for column in relation.columns if column.identity]
    if relation.identity in (DEFAULT, INDEX):
        wanted = () if facts is None else facts.primary_key if relation.identity == DEFAULT else facts.identity_index
        ordered = _then(wanted, relation, found)
        return ordered if sorted(ordered) == sorted(identity) else tuple(identity)
    if facts is not None:
        return _then(facts.primary_key, relation, found)
    names = {column.name for column in relation.columns}
    return before.table.key if before is not None and names.issuperset(before.table.key) else ()


def relation_of(number: int, facts: TableFacts, columns: Sequence[str] | None = None) -> Relation:
    """The relation message that the server would send of a table as it is now; `columns` if not all are published."""
    inside = [column for column in facts.columns if columns is None or column.name in columns]
    by_identity = {DEFAULT: facts.primary_key, INDEX: facts.identity_index, NOTHING: ()}
    identity = by_identity.get(facts.identity, tuple(column.name for column in inside))
    told = tuple(RelationColumn(each.name, each.type, each.modifier, each.name in identity) for each in inside)
    return Relation(number, facts.schema, facts.name, facts.identity, told)


def same(before: Known, after: Known) -> bool:
    one, other = before.table, after.table
    return before.relation == after.relation and (one.columns, one.key) == (other.columns, other.key)


def _then(names: Sequence[str], relation: Relation, found: Sequence[ColumnFacts | None]) -> tuple[str, ...]:
    """Names of today as the message has them; () where one of them is not in it."""
    then = {fact.name: told.name for told, fact in zip(relation.columns, found, strict=True) if fact is not None}
    return tuple(then[name] for name in names) if all(name in then for name in names) else ()
