"""GET /views, /views/NAME, /views/NAME/changes, /tables, /tables/NAME/changes and /parts: what each takes, and does.

Rules:
- A view's rows are for whoever may read its topic: the broker is asked, as the request's user, before a store is; and
  for the topics that the store itself has its rows from, since the catalog says what anybody says who may write it.
- A store that has a view and does not show it yet is 503: come back. A place that was waited for in vain is 504.
- Where a view has several stores, and one does not answer, the next one does (`open_stores.py`). So there a `next` has
  what was waited for, and its page's cursor: the next page may be another store's, which may be behind this one.
- A page is bounded by rows, by bytes and by the time that its store may take. One that is full in any way has a `next`,
  also where it has no rows yet: a store that filters rows one by one has looked at so many. A SQL query that takes
  longer is ended by its store, 504.
- What is answered has a `cursor`: who reads the view and then follows it from there misses nothing.
"""

from __future__ import annotations

import json
from typing import Any

from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.consumer import check_readable
from tidelog.client.metadata import TopicPartition
from tidelog.control.captures import CapturedTable, read_captures
from tidelog.control.catalog import VIEW, View
from tidelog.control.urls import redacted
from tidelog.errors import BrokerError, CursorExpired, NotShown, TidelogError
from tidelog.gateway.access import Credentials
from tidelog.gateway.limits import AFTER_MAX_S, PAGE_BYTES, READ_WITHIN_S
from tidelog.gateway.route import Answer, Call, Parameter, Refusal, Route, Stream, as_json
from tidelog.gateway.views import asking, parts
from tidelog.gateway.views.catalogs import Catalogs
from tidelog.gateway.views.feed import Feeds
from tidelog.gateway.views.open_stores import Opened, wait_for
from tidelog.gateway.views.rights import Rights
from tidelog.gateway.views.slot import Where
from tidelog.gateway.views.subscriber import Past, Subscriber
from tidelog.schema.connect import from_connect
from tidelog.schema.connect_values import kind_of
from tidelog.schema.declaration import Declaration, row_to_json
from tidelog.views.captured import PREFIX
from tidelog.views.feed_reading import FeedReader, oldest
from tidelog.views.feeds import Cursor, check_place, cursor_at, from_text, to_text
from tidelog.views.lifecycle import check_own_rows
from tidelog.views.stores.store import Ask, Page, Place, Store, generation_of
from tidelog.views.waiting import parse_after, shown_place

START = "start"


def views(call: Call) -> Answer:
    with call.cluster() as cluster:
        catalog = _catalogs(call).read(cluster, _who(call))
    found = [one for (kind, _), one in sorted(catalog.items()) if kind == VIEW and isinstance(one, View)]
    return as_json([_described(one) for one in found])


def view(call: Call) -> Answer:
    """Rows, or the one with a key."""
    limit, timeout_s = asking.limit_of(call.query), asking.timeout_of(call.query)
    after = parse_after(call.query["after"]) if "after" in call.query else None
    with call.cluster() as cluster:
        found = _readable(call, cluster, call.path["name"])
        rights = Rights(cluster, found, alone=_who(call) is None)

        def ask(store: Store) -> Answer:
            if (shown := store.shown()) is not None and (place := store.place(shown)) is not None:
                rights.check(place)  # also what is refused, or waited for, tells something of a store
            if after is not None:
                wait_for(cluster, found.name, after, timeout_s, store)
            return _asked(call, found, store, rights, limit)

        return _opened(call).answer(_stores_of(call, found), found.name, ask)


def changes(call: Call) -> Stream:
    return _followed(call, call.path["name"])


def table_changes(call: Call) -> Stream:
    return _followed(call, PREFIX + call.path["name"])


def tables(call: Call) -> Answer:
    with call.cluster() as cluster:
        captures = read_captures(cluster).values()
    found = sorted((table for capture in captures for table in capture.tables.values()), key=lambda one: one.topic)
    return as_json([_table(one) for one in found])


def _table(one: CapturedTable) -> dict[str, Any]:
    columns = {str(column["name"]): kind_of(from_connect(column["connect"])) for column in one.columns}
    told = {"capture": one.capture, "table": one.table, "connector": one.connector}
    return {"name": one.topic, **told, "columns": columns, "key": list(one.key)}


def _followed(call: Call, name: str) -> Stream:
    catalogs, gateway = _catalogs(call), call.gateway
    place = call.headers.get("last-event-id") or call.query.get("cursor")
    where = call.query.get("where")
    with call.cluster() as cluster:
        found = _readable(call, cluster, name)
        assert found.current is not None, "it is readable"
        check_own_rows(found, "feed")
        if where is not None:
            Where.of(where, found.current.declared)
        cursor = _checked_place(call, cluster, found, place)
    feed = gateway.kept("feeds", Feeds).get(name, _who(call))
    now = feed.begun().position
    past = gateway.kept("past", Past)
    subscriber = Subscriber(feed, past, catalogs, cursor or now, where, live=found.current, from_start=place == START)
    return Stream(subscriber.chunks(), headers=(("X-Accel-Buffering", "no"),))


# What they share ------------------------------------------------------------------------------------------------------


def _who(call: Call) -> Credentials | None:
    """In front of a broker without a login everybody is the same user."""
    return call.credentials if call.gateway.login else None


def _catalogs(call: Call) -> Catalogs:
    return call.gateway.kept("catalogs", lambda _: Catalogs())


def _readable(call: Call, cluster: Cluster, name: str) -> View:
    """The view, or the captured table, which the request's user may read."""
    found = _catalogs(call).view(cluster, _who(call), name)
    if found.current is None:
        raise NotShown(f"view {found.name} has no live generation yet; try again")
    try:
        check_readable(cluster, TopicPartition(found.current.topic, 0))
    except BrokerError as error:
        if error.code in UNKNOWN_TOPIC:
            raise NotShown(f"view {found.name} is begun, and its topic is not there yet; try again") from error
        raise
    return found


def _opened(call: Call) -> Opened:
    return call.gateway.kept("stores", lambda _: Opened())


def _stores_of(call: Call, found: View) -> list[str]:
    """Those that may be asked, in the view's order: words are looked for where there is full text."""
    if not found.stores:
        raise Refusal(404, f"view {found.name} has no store; follow it at /views/{found.name}/changes?cursor=start")
    allowed = [url for url in found.stores if call.gateway.may_open(url)]
    if not allowed:
        raise Refusal(
            403,
            f"view {found.name} is kept in {', '.join(map(redacted, found.stores))}, which this server may not open;"
            " name the store's URL in tidelog.http.stores, or start tidelog gateway with --store",
        )
    wordy = [url for url in allowed if url.startswith(("sqlite+fts:", "opensearch"))]
    return wordy if "match" in call.query and wordy else allowed


def _asked(call: Call, found: View, store: Store, rights: Rights, limit: int) -> Answer:
    shown = store.shown()
    declared = store.generations().get(shown) if shown is not None else None
    if declared is None:
        raise NotShown(
            f"view {found.name} is not shown by its store yet: its first rows are on their way, or its app does"
            " not run; try again"
        )
    if (wanted := asking.generation_of(call.query)) > generation_of(shown or 0):
        raise NotShown(
            f"view {found.name} is shown by its store as generation {generation_of(shown or 0)}, and {wanted} was asked"
            " for; try again"
        )
    if "key" in call.query:
        row, place = store.get(asking.key_of(declared, call.query["key"]))
        rights.check(place)
        _check_not_before(call, found, place)
        if row is None:
            raise Refusal(404, f"view {found.name} has no row with the key {call.query['key'][:100]!r}")
        return as_json({"row": row_to_json(declared, row), **_placed(found, place)})
    where = asking.where_of(declared, call.query["where"]) if "where" in call.query else None
    after = asking.after_key_of(declared, call.query["after_key"]) if "after_key" in call.query else None
    ask = Ask(where, after, limit, call.query.get("match"), READ_WITHIN_S, PAGE_BYTES)
    page = store.read(ask)
    rights.check(page.place)
    _check_not_before(call, found, page.place)
    return _paged(call, found, declared, page)


def _check_not_before(call: Call, found: View, place: Place) -> None:
    """That rows are not from before the cursor of the question: that may be of another store."""
    if "cursor" not in call.query:
        return
    wanted, at = from_text(call.query["cursor"], found.name), _cursor_of(found, place)
    check_place(found, wanted)
    if at is None or at.is_behind(wanted):
        raise NotShown(f"view {found.name} is shown by its store as it was before the cursor; try again")


def _paged(call: Call, found: View, declared: Declaration, page: Page) -> Answer:
    """As many of the rows as an answer has room for, one at least."""
    told, size = list[str](), 0
    for row in page.rows:
        text = json.dumps(row_to_json(declared, row), separators=(",", ":"))
        if told and size + len(text) > PAGE_BYTES:
            break
        told.append(text)
        size += len(text) + 1
    rest = _placed(found, page.place)
    last = declared.key_of(page.rows[len(told) - 1]) if len(told) < len(page.rows) else page.last
    if last is not None and (page.more or len(told) < len(page.rows)):
        several = len(_stores_of(call, found)) > 1
        rest["next"] = asking.next_link(found.name, call.query, declared, last, cursor=rest["cursor"], several=several)
    return Answer(f'{{"rows":[{",".join(told)}],{json.dumps(rest, separators=(",", ":"))[1:]}\n'.encode())


def _placed(found: View, place: Place) -> dict[str, Any]:
    cursor = _cursor_of(found, place)
    return {"generation": generation_of(place.generation), "cursor": None if cursor is None else to_text(cursor)}


def _cursor_of(found: View, place: Place) -> Cursor | None:
    number = generation_of(place.generation)
    of = next((one for one in found.generations if one.number == number), None)
    if of is None:
        return None
    return cursor_at(found, of, place.ends, 0 if place.mark is None else place.mark.time_ms)


def _checked_place(call: Call, cluster: Cluster, found: View, place: str | None) -> Cursor | None:
    """Where to begin; None for now. Refused here, while there still is a status to say so by."""
    if not place:
        return None
    if place == START:
        return oldest(cluster, found)
    cursor = from_text(place, found.name)
    try:
        FeedReader(cluster, found, cursor, wait_ms=1).step()
    except CursorExpired as expired:
        raise CursorExpired(str(expired), _place_of_store(call, cluster, found) or expired.start) from expired
    return cursor


def _place_of_store(call: Call, cluster: Cluster, found: View) -> str | None:
    """Where the rows are that a reader gets now: from there on nothing is missed. None of a captured table."""
    if not found.stores:
        return None
    try:
        place = _opened(call).answer(_stores_of(call, found), found.name, shown_place)
        if place is not None:
            Rights(cluster, found, alone=_who(call) is None).check(place)
    except TidelogError:
        return None
    cursor = None if place is None else _cursor_of(found, place)
    return None if cursor is None else to_text(cursor)


def _described(one: View) -> dict[str, Any]:
    return {
        "name": one.name,
        "app": one.app,
        "inputs": list(one.inputs),
        "stores": [redacted(url) for url in one.stores],
        "generation": one.live,
        "building": None if one.building is None else one.building.number,
        **_columns(None if one.current is None else one.current.declared),
    }


def _columns(declared: Declaration | None) -> dict[str, Any]:
    if declared is None:
        return {"columns": {}, "key": [], "horizon_ms": None}
    return {"columns": dict(declared.columns), "key": list(declared.key), "horizon_ms": declared.horizon_ms}


# The table ------------------------------------------------------------------------------------------------------------

OBJECT = {"type": "object"}
OBJECTS = {"type": "array", "items": OBJECT}
WHERE = Parameter("where", "Rows for which this holds: price > 10 and name like 'T%'")
ROWS = {
    "type": "object",
    "required": ["generation", "cursor"],
    "properties": {
        "rows": {"type": "array", "items": OBJECT},
        "row": OBJECT,
        "generation": {"type": "integer"},
        "cursor": {"type": ["string", "null"], "description": "Where to follow the changes from."},
        "next": {
            "type": "string",
            "description": "The path of the next page, if there may be one; also of a page with few rows, or none.",
        },
    },
}
PART = {
    "type": "object",
    "required": ["kind", "name", "runs", "figures"],
    "properties": {
        "kind": {"type": "string"},
        "name": {"type": "string"},
        "runs": {"type": "boolean"},
        "fault": {"type": ["string", "null"]},
        "figures": OBJECT,
    },
}
REFUSED = {403: "The broker does not let this user read it", 404: "The view or the row does not exist"}
NOT_YET = {503: "It is not shown yet, or too much is going on; Retry-After says when to come back"}

ROUTES = (
    Route("GET", "/views", views, "Views", answer=OBJECTS, tag="views", strict=True),
    Route(
        "GET",
        "/views/{name}",
        view,
        "Rows of a view in the order of its key, or the one with a key",
        query=(
            Parameter("key", "The value of the key; of several columns a list or an object, as JSON"),
            WHERE,
            Parameter("match", "Words to be found, in a store with full text"),
            Parameter("limit", "How many rows at most", {"type": "integer"}),
            Parameter("after_key", "Rows after this key; `next` of an answer has it"),
            Parameter(
                "generation", "Rows of this generation, which `switched` of a feed names, or later", {"type": "integer"}
            ),
            Parameter("cursor", "Rows as they were there, or later: of another answer; `next` of one may have it"),
            Parameter(
                "after",
                "TOPIC:PARTITION:OFFSET, a record that must have been applied first, or CAPTURE@POSITION of a database",
            ),
            Parameter("timeout", f"Seconds to wait for that, {AFTER_MAX_S:g} at most", {"type": "number"}),
        ),
        answer=ROWS,
        refusals={
            400: "A parameter is not as it should be",
            **REFUSED,
            **NOT_YET,
            504: "It was not applied, or not found, in time",
        },
        tag="views",
        strict=True,
        waits_by=("after",),
    ),
    Route(
        "GET",
        "/views/{name}/changes",
        changes,
        "Changes of a view as Server-Sent Events, from now or from a cursor on",
        query=(
            Parameter(
                "cursor",
                "Where to begin: of an answer or an event; `start` for all rows; the header"
                " Last-Event-ID counts before it",
            ),
            WHERE,
        ),
        answer={"type": "string"},
        gives=("text/event-stream",),
        refusals={
            400: "The cursor or the expression is not valid",
            **REFUSED,
            410: "The cursor is beyond the horizon; the header Tidelog-Cursor says where to go on after a new reading",
            **NOT_YET,
        },
        tag="views",
        strict=True,
    ),
    Route("GET", "/tables", tables, "Captured tables", answer=OBJECTS, tag="tables", strict=True),
    Route(
        "GET",
        "/tables/{name}/changes",
        table_changes,
        "Changes of a captured table as Server-Sent Events, by its topic, from now or from a cursor on",
        query=(
            Parameter(
                "cursor",
                "Where to begin: of an event; `start` for all of the topic; the header Last-Event-ID counts before it",
            ),
            WHERE,
        ),
        answer={"type": "string"},
        gives=("text/event-stream",),
        refusals={
            400: "The cursor or the expression is not valid",
            403: "The broker does not let this user read it",
            404: "No capture writes such a table",
            410: "The cursor is before the start of the topic",
            **NOT_YET,
        },
        tag="tables",
        strict=True,
    ),
    Route(
        "GET",
        "/parts",
        parts.parts,
        "Long-running parts, as they report",
        tag="parts",
        strict=True,
        answer={"type": "array", "items": PART},
    ),
    Route(
        "GET",
        "/parts/{kind}/{name}",
        parts.part,
        "Whether one part runs and has reported lately, for supervisors",
        answer=PART,
        refusals={404: "It has never reported", 503: "It does not run, or has not reported lately"},
        tag="parts",
        strict=True,
    ),
)
