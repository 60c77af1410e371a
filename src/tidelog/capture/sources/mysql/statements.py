"""What a statement in the binlog does to tables: pure, over its text.

Rows come as row events. A statement's text is looked at for what has no rows: a table that is made, changed, renamed,
dropped or emptied; and for changes of rows that were logged as a statement, which nobody could turn into rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

Name = tuple[str, str]  # database, table

_COMMENT = re.compile(r"/\*M?!\d*(.*?)\*/|/\*.*?\*/|(?:--\s|#)[^\n]*", re.DOTALL)
_PART = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$\u0080-\uffff]+)"
_NAME = rf"{_PART}(?:\s*\.\s*{_PART})?"
_IF = r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"


def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(text.replace(" ", r"\s+"), re.IGNORECASE | re.DOTALL)


_TRUNCATE = _compiled(rf"TRUNCATE (?:TABLE )?({_NAME})")
_DROP = _compiled(rf"DROP TABLES? {_IF}({_NAME}(?:\s*,\s*{_NAME})*)")
_CREATE = _compiled(rf"CREATE (?:OR REPLACE )?TABLE {_IF}({_NAME})")
_REPLACE = _compiled(r"CREATE OR REPLACE ")
_ALTER = _compiled(rf"ALTER (?:ONLINE )?(?:IGNORE )?TABLE {_IF}({_NAME})(.*)")
_ALTER_RENAME = _compiled(rf"\bRENAME\s*(?:TO |AS |=\s*| )\s*({_NAME})\s*(?:,|\Z)")
_RENAME = _compiled(rf"RENAME TABLES? {_IF}(.*)")
_RENAMED = _compiled(rf"({_NAME})(?: (?:WAIT \d+|NOWAIT))? TO ({_NAME})")
_INDEX = _compiled(rf"(?:CREATE|DROP) (?:[A-Z]+ ){{0,2}}INDEX .*? ON ({_NAME})")
_DROP_DATABASE = _compiled(rf"DROP (?:DATABASE|SCHEMA) {_IF}({_PART})")
_WITHOUT_ROWS = _compiled(r"\b(?:TRUNCATE|DROP|EXCHANGE) PARTITION\b|\bIMPORT TABLESPACE\b")
_CHANGES_ROWS = _compiled(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD|WITH)\b")
_WORD = re.compile(r"[A-Z]+", re.IGNORECASE)


class Effect(NamedTuple):
    verb: str  # begin, commit, rollback, savepoint, truncate, table, database, rows, or "" for none of these
    tables: tuple[Name, ...] = ()  # that are changed or made
    gone: tuple[Name, ...] = ()  # that are dropped, or named otherwise from now on
    anew: bool = False  # its tables are others than those that had the names before
    unlogged: bool = False  # it also changed rows of which the binlog tells nothing: a partition that was dropped


def effect(statement: str, database: str) -> Effect:
    """Of a statement that ran with `database` as the default one."""
    text = _COMMENT.sub(lambda found: f" {found[1] or ''} ", statement).strip().rstrip(";")
    word = (_WORD.match(text) or [""])[0].upper()
    simple = _simple(word, text)
    if simple is not None:
        return simple
    if word == "TRUNCATE" and (found := _TRUNCATE.match(text)):
        return Effect("truncate", (_name(found[1], database),))
    if word == "DROP" and (found := _DROP_DATABASE.match(text)):
        return Effect("database", gone=((_bare(found[1]), ""),))
    return _of_table(text, database)


def _simple(word: str, text: str) -> Effect | None:
    if word == "ROLLBACK":
        return Effect("rollback_to" if re.match(r"ROLLBACK\s+(WORK\s+)?TO\b", text, re.IGNORECASE) else "rollback")
    if word == "XA":
        second = re.match(r"XA\s+([A-Z]+)", text, re.IGNORECASE)
        return Effect(
            {"START": "begin", "BEGIN": "begin", "COMMIT": "commit"}.get(second[1].upper() if second else "", "")
        )
    if word in {"BEGIN", "COMMIT", "SAVEPOINT"}:
        return Effect(word.lower())
    return Effect("rows") if _CHANGES_ROWS.match(text) else None


def _of_table(text: str, database: str) -> Effect:
    if found := _CREATE.match(text):
        return Effect("table", (_name(found[1], database),), anew=_REPLACE.match(text) is not None)
    if found := _DROP.match(text):
        return Effect("table", gone=tuple(_names(found[1], database)))
    if found := _ALTER.match(text):
        table, renamed = _name(found[1], database), _ALTER_RENAME.search(found[2])
        unlogged = _WITHOUT_ROWS.search(found[2]) is not None
        if renamed and renamed[1].upper() not in {"COLUMN", "INDEX", "KEY"}:
            return Effect("table", (_name(renamed[1], database),), (table,), True, unlogged)
        return Effect("table", (table,), unlogged=unlogged)
    if found := _RENAME.match(text):
        pairs = [(_name(old, database), _name(new, database)) for old, new in _RENAMED.findall(found[1])]
        made = {new for _, new in pairs}
        gone = tuple(old for old, _ in pairs if old not in made)
        return Effect("table", tuple(new for _, new in pairs), gone, anew=True)
    if found := _INDEX.match(text):
        return Effect("table", (_name(found[1], database),))
    return Effect("")


def _names(text: str, database: str) -> Iterator[Name]:
    return (_name(found, database) for found in re.findall(_NAME, text))


def _name(text: str, database: str) -> Name:
    first, *rest = re.findall(_PART, text)
    return (_bare(first), _bare(rest[0])) if rest else (database, _bare(first))


def _bare(part: str) -> str:
    return part[1:-1].replace(part[0] * 2, part[0]) if part[0] in '`"' else part
