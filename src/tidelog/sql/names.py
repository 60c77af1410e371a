"""Which topic or view a table's name means. Pure.

    orders                 the topic, or the view, of this name
    "shop.orders"          the same with dots or dashes, in quotes; a name with one dot may do without: shop.orders
    topics.orders          the topic, where a view has the name too; views.orders is the view
    orders$latest          of a topic, the latest record of each key; latest('orders') is the same

Rules:
- A name that is exactly so counts before one that differs by case alone; one that could be two things is refused.
- What its user may not see is not there: a topic that may exist and is not to be told of makes no name ambiguous. It is
  what a name means where nothing else has exactly this name, and reading it is refused, whether it exists or not.
- Topics of the broker and of Tidelog itself (`__consumer_offsets`, `__tidelog.views`, `_schemas`) are topics as others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.errors import UsageError
from tidelog.schema.column_types import quoted
from tidelog.sql.statement import LATEST, TableName

TOPICS, VIEWS = "topics", "views"
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NEAR_MAX = 3
LISTED = "`tidelog topics` and `tidelog views` list what there is, or .tables at the prompt"


class Target(NamedTuple):
    kind: str  # TOPICS or VIEWS
    name: str
    latest: bool = False


def candidates(table: TableName) -> list[str]:
    """Names of topics that it may mean, exactly."""
    name = table.name.removesuffix(LATEST)
    return [name] if table.schema in ("", TOPICS, VIEWS) else [f"{table.schema}.{name}"]


def target_of(
    table: TableName, topics: Iterable[str], views: Iterable[str], hidden: Iterable[str] = ()
) -> Target | None:
    """None where nothing has this name. `hidden`: topics of which the broker tells this user nothing."""
    name = candidates(table)[0]
    latest = table.name.endswith(LATEST)
    kinds = {TOPICS: [TOPICS], VIEWS: [VIEWS]}.get(table.schema, [TOPICS, VIEWS])
    there = {TOPICS: set(topics), VIEWS: set(views)}
    found = [Target(kind, name) for kind in kinds if name in there[kind]]
    if not found and TOPICS in kinds and name in hidden:
        found = [Target(TOPICS, name)]
    if not found:
        found = [Target(kind, one) for kind in kinds for one in sorted(there[kind]) if one.lower() == name.lower()]
    if len(found) > 1:
        could = " or ".join(f'{one.kind}."{one.name}"' for one in found)
        raise UsageError(f"{name} could be {could}; write which")
    if not found:
        return None
    if latest and found[0].kind == VIEWS:
        raise UsageError(f"{found[0].name} is a view, which has one row for each key as it is; leave {LATEST} out")
    return found[0]._replace(latest=latest)


def nearest(table: TableName, topics: Iterable[str], views: Iterable[str]) -> str:
    """What to do about a name that nothing has, as the end of an error."""
    from difflib import get_close_matches

    name = candidates(table)[0]
    known = {one.lower(): one for one in (*topics, *views) if name.startswith("_") or not one.startswith("_")}
    near = [as_written(known[one]) for one in get_close_matches(name.lower(), known, n=NEAR_MAX)]
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{meant}{LISTED}"


def as_written(name: str) -> str:
    """In a question."""
    return name if PLAIN.fullmatch(name) else quoted(name)
