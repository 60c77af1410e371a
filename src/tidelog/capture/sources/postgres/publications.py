"""The two publications of a capture: which tables are in which, and the statements that make it so.

    tidelog_NAME            all changes of tables whose old rows can be told
    tidelog_NAME_inserts    inserts and truncates of tables without a replica identity

A table without a replica identity (no primary key, or REPLICA IDENTITY NOTHING) must not be in the first one:
PostgreSQL would then refuse every UPDATE and DELETE of the application. That is also why no publication is
FOR ALL TABLES, where a table that is created tomorrow breaks its writer. Both exist from the
beginning, since the server looks for a publication as it was at the change that it sends, and fails for a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidelog.capture.sources.postgres.catalog import Catalog, ListedTable
from tidelog.capture.sources.postgres.reading import name_of
from tidelog.capture.sources.postgres.session import SqlSession

INSERTS = "insert, truncate"

_IDENTIFIED = """
SELECT r.id, bool_and(
    CASE c.relreplident WHEN 'f' THEN true
      WHEN 'd' THEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate)
      WHEN 'i' THEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident AND i.indimmediate)
      ELSE false END)
FROM unnest(%s::oid[]) AS r(id), LATERAL (
    SELECT relid FROM pg_partition_tree(r.id) WHERE isleaf OR level = 0 UNION SELECT r.id
) AS t(relid) JOIN pg_class c ON c.oid = t.relid GROUP BY r.id
"""
_PUBLISHED = """
SELECT p.pubname, n.nspname, c.relname FROM pg_publication p
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid LEFT JOIN pg_class c ON c.oid = r.prrelid
LEFT JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = ANY(%s)
"""

Names = frozenset[tuple[str, str]]  # of schema and table
Published = Mapping[str, Names]  # by publication; one that is not there is not in it


def publications_of(name: str) -> tuple[str, str]:
    return f"tidelog_{name}", f"tidelog_{name}_inserts"


def identified(session: SqlSession, tables: Sequence[ListedTable]) -> set[int]:
    """Those whose old rows the log can tell; of a partitioned table, all of whose partitions have it."""
    return {row[0] for row in session.query(_IDENTIFIED, [[table.id for table in tables]]) if row[1]}


def published(session: SqlSession, names: Sequence[str]) -> Published:
    found: dict[str, set[tuple[str, str]]] = {}
    for publication, schema, table in session.query(_PUBLISHED, [list(names)]):
        tables = found.setdefault(publication, set())
        if table is not None:
            tables.add((schema, table))
    return {publication: frozenset(tables) for publication, tables in found.items()}


def wanted(tables: Sequence[ListedTable], with_identity: set[int], names: tuple[str, str]) -> Published:
    whole, inserts = names
    return {
        whole: frozenset((table.schema, table.name) for table in tables if table.id in with_identity),
        inserts: frozenset((table.schema, table.name) for table in tables if table.id not in with_identity),
    }


def statements(before: Published, after: Published, inserts: str) -> list[str]:
    """What makes the publications so. A table that goes from one to the other is never in neither: an insert between
    would be lost. So both steps are one text, which the server runs as one transaction."""
    made: list[str] = []
    steps: dict[tuple[str, str], list[str]] = {}
    for publication, tables in after.items():
        options = "publish_via_partition_root = true"
        if publication == inserts:
            options = f"publish = '{INSERTS}', {options}"
        if publication not in before:
            names = ", ".join(f"ONLY {name_of(*table)}" for table in sorted(tables))
            made.append(
                f"CREATE PUBLICATION {name_of(publication)}{f' FOR TABLE {names}' if names else ''} WITH ({options})"
            )
            continue
        for table in tables - before[publication]:
            steps.setdefault(table, []).insert(0, added(table, publication))
        for table in before[publication] - tables:
            steps.setdefault(table, []).append(dropped(table, publication))
    return [*made, *("; ".join(steps[table]) for table in sorted(steps))]


def moved(table: tuple[str, str], to: str, of: str) -> str:
    return f"{added(table, to)}; {dropped(table, of)}"


def added(table: tuple[str, str], publication: str) -> str:
    return f"ALTER PUBLICATION {name_of(publication)} ADD TABLE ONLY {name_of(*table)}"


def dropped(table: tuple[str, str], publication: str) -> str:
    return f"ALTER PUBLICATION {name_of(publication)} DROP TABLE ONLY {name_of(*table)}"


def needed(session: SqlSession, catalog: Catalog, names: tuple[str, str], waiting: Collection[str] = ()) -> list[str]:
    """The statements that are still to be run. Tables that are `waiting`, by schema.table, stay where they are."""
    tables = catalog.listed()
    before, after = published(session, names), wanted(tables, identified(session, tables) if tables else set(), names)
    left = frozenset((one.schema, one.name) for one in tables if one.full_name in waiting)
    after = {name: (found - left) | (before.get(name, frozenset()) & left) for name, found in after.items()}
    return statements(before, after, names[1])
