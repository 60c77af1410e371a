"""Views in a SQLite file with full text (FTS5): `sqlite+fts:///file.db?columns=title,body`, by default all texts.

    _tidelog_VIEW_vGENERATION          the rows, as in `sqlite.py`, with a number each: _tidelog_id
    _tidelog_VIEW_vGENERATION_words    the index: words to numbers of rows. It keeps no text
    _tidelog_words                     view, generation, columns: what is indexed

Rules:
- Triggers change the index with the rows, so it is part of the same transaction: whoever finds a word reads its row.
- `match` is words, all of which are to be found, in any of the columns; "a phrase" in double quotes; and `begin*`. It
  is taken apart here, and each piece is quoted: FTS5's own operators mean nothing. Case and accents do not count.
- Columns that are indexed are strings, and fixed for a generation.
"""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from tidelog.errors import UsageError
from tidelog.schema.column_types import STORED, STRING, quoted
from tidelog.schema.declaration import Declaration
from tidelog.views.stores.location import path_in
from tidelog.views.stores.sqlite import Kept, SqliteStore
from tidelog.views.stores.store import Ask

PREFIX = "sqlite+fts:///"
ID = "_tidelog_id"
MATCH_LENGTH_MAX = 1000
TERM = re.compile(r'"([^"]*)"(\*?)|([^\s"]+)')


def connect(filled: str, view: str, url: str) -> SqliteTextStore:
    path, query = path_in(filled, PREFIX), filled.partition("?")[2]
    if not path:
        raise UsageError("it has no file; write sqlite+fts:///relative.db or sqlite+fts:////absolute.db")
    asked = parse_qs(query, keep_blank_values=True)
    if set(asked) - {"columns"}:
        raise UsageError("it may have ?columns=NAME,NAME, and nothing else")
    columns = tuple(name for said in asked.get("columns", []) for name in said.split(",") if name)
    return SqliteTextStore(Path(path), view, columns, said=path_in(url, PREFIX))


class SqliteTextStore(SqliteStore):
    def __init__(self, path: Path, view: str, columns: tuple[str, ...], *, said: str | None = None) -> None:
        super().__init__(path, view, said=said)
        self._columns = columns

    def prepare(self, generation: int, declared: Declaration) -> None:
        super().prepare(generation, declared)
        with self._reading() as connection:
            kept = self._stored_columns(connection, generation)
        if self._columns and kept != list(self._columns):
            raise UsageError(
                f"generation {generation} of view {self.view} has its full text of {', '.join(kept) or 'nothing'} in"
                f" {self.said}, and the URL asks for {', '.join(self._columns)}; `tidelog rebuild {self.view} --app"
                " FILE` makes it"
            )

    def create(self, connection: sqlite3.Connection, generation: int, declared: Declaration) -> None:
        indexed = self._indexed(declared)
        columns = [f"{quoted(name)} {STORED[kind].sqlite}" for name, kind in declared.columns]
        keys = [f"{quoted(name)}" for name in declared.key]
        connection.execute(
            f"CREATE TABLE {self.table(generation)} ({ID} INTEGER PRIMARY KEY, {', '.join(columns)},"
            f" UNIQUE ({', '.join(keys)}))"
        )
        connection.execute(
            "CREATE TABLE IF NOT EXISTS _tidelog_words (view TEXT, generation INTEGER, columns TEXT,"
            " PRIMARY KEY (view, generation))"
        )
        connection.execute("INSERT INTO _tidelog_words VALUES (?, ?, ?)", (self.view, generation, json.dumps(indexed)))
        if indexed:
            self._create_index(connection, generation, indexed)

    def _create_index(self, connection: sqlite3.Connection, generation: int, indexed: list[str]) -> None:
        words, table = self._words(generation), self.table(generation)
        # Names of our own: FTS5 has words that no column may be called by.
        names = [f"c{number}" for number in range(len(indexed))]
        connection.execute(f"CREATE VIRTUAL TABLE {words} USING fts5({', '.join(names)}, content='')")
        into = f"INSERT INTO {words} (rowid, {', '.join(names)})"
        new = ", ".join(f"new.{quoted(name)}" for name in indexed)
        old = ", ".join(f"old.{quoted(name)}" for name in indexed)
        add = f"{into} VALUES (new.{ID}, {new});"
        remove = f"INSERT INTO {words} ({words}, rowid, {', '.join(names)}) VALUES ('delete', old.{ID}, {old});"
        # A row whose texts are as they were is left alone: most changes of most views are of numbers.
        changed = " OR ".join(f"old.{quoted(name)} IS NOT new.{quoted(name)}" for name in indexed)
        for event, when, steps in (("INSERT", "1", add), ("DELETE", "1", remove), ("UPDATE", changed, remove + add)):
            name = quoted(f"_tidelog_{self.view}_v{generation}_{event.lower()}")
            connection.execute(f"CREATE TRIGGER {name} AFTER {event} ON {table} WHEN {when} BEGIN {steps} END")

    def drop(self, connection: sqlite3.Connection, generation: int) -> None:
        connection.execute(f"DROP TABLE IF EXISTS {self._words(generation)}")
        connection.execute("DELETE FROM _tidelog_words WHERE view = ? AND generation = ?", (self.view, generation))
        super().drop(connection, generation)

    def conditions(self, kept: Kept, ask: Ask) -> tuple[list[str], list[Any]]:
        conditions, parameters = super().conditions(kept, ask._replace(match=None))
        if ask.match is not None:
            if not self._stored_columns(self._opened, kept.place.generation):
                raise UsageError(f"view {self.view} has no column of text to be searched in {self.said}")
            words = self._words(kept.place.generation)
            conditions.append(f"{ID} IN (SELECT rowid FROM {words} WHERE {words} MATCH ?)")
            parameters.append(query_of(ask.match))
        return conditions, parameters

    def _stored_columns(self, connection: sqlite3.Connection | None, generation: int) -> list[str]:
        """What is indexed; nothing too where a store without full text made the file."""
        if (
            connection is None
            or not connection.execute("SELECT 1 FROM sqlite_master WHERE name = '_tidelog_words'").fetchone()
        ):
            return []
        found = connection.execute(
            "SELECT columns FROM _tidelog_words WHERE view = ? AND generation = ?", (self.view, generation)
        ).fetchone()
        return [] if found is None else list(json.loads(found[0]))

    def _words(self, generation: int) -> str:
        return quoted(f"_tidelog_{self.view}_v{generation}_words")

    def _indexed(self, declared: Declaration) -> list[str]:
        texts = [name for name, kind in declared.columns if kind == STRING]
        if missing := [name for name in self._columns if name not in texts]:
            raise UsageError(
                f"view {self.view} has no string {', '.join(missing)} to be indexed in {self.said}; its strings are"
                f" {', '.join(texts) or 'none'}"
            )
        return list(self._columns) or texts


def query_of(match: str) -> str:
    """What FTS5 is asked: every word and phrase quoted."""
    if len(match) > MATCH_LENGTH_MAX:
        raise UsageError(f"match has {len(match)} characters; it may have {MATCH_LENGTH_MAX}")
    if match.count('"') % 2:
        raise UsageError(f"match {match!r} has a double quote without its other one; phrases stand between two")
    terms = []
    for phrase, phrase_more, word in TERM.findall(match.replace("\x00", " ")):
        said = phrase or word.rstrip("*")
        if not any(character.isalnum() for character in said):
            raise UsageError(f"match has {phrase or word!r}, which has no letter and no digit; give words to be found")
        terms.append(f'"{said}"' + ("*" if phrase_more or word.endswith("*") else ""))
    if not terms:
        raise UsageError("match has no word; give words to be found")
    return " AND ".join(terms)
