"""GET /stores/NAME/entities/ID: an entity's history in an event store: who did what, when, and why. And its states.

Rules:
- Events are shown as they are stored: the gateway has no code of an app, and no key, so personal fields are not shown.
  It is for whoever may read the topic of events: the broker is asked, as the request's user.
- States, of now and of then, are asked of the entity's owner, who has the code (`sourcing/past_reading.py`). So they
  are for whoever may send commands and read replies, and there while the store runs. Personal fields are not shown.
- A page has `limit` events at most; one that is full has `next`, the version to go on after.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from tidelog.client.cluster import UNKNOWN_TOPIC
from tidelog.errors import BrokerError, UsageError
from tidelog.gateway.commands import TIMEOUT, ask, error_answer
from tidelog.gateway.route import Answer, Call, Parameter, Refusal, Route, as_json
from tidelog.sourcing.histories import rows_of
from tidelog.sourcing.requests import PAST, Request
from tidelog.sourcing.store_topics import StoreTopics, checked_name
from tidelog.sourcing.time_travel import Moment, as_entry, moment, reached

LIMIT, LIMIT_MAX = 100, 10_000


def entity(call: Call) -> Answer:
    name, wanted = call.path["id"], moment(_number(call.query, "version"), _time(call.query))
    after, limit = _number(call.query, "after") or 0, _number(call.query, "limit") or LIMIT
    if limit > LIMIT_MAX:
        raise Refusal(400, f"limit is {limit}; at most {LIMIT_MAX}")
    with call.cluster() as cluster:
        try:
            found = list(rows_of(cluster, StoreTopics(checked_name(call.path["name"])), name))
        except BrokerError as error:
            if error.code in UNKNOWN_TOPIC:
                raise Refusal(404, f"store {call.path['name']!r} is not there") from error
            raise
    if not found:
        raise Refusal(404, f"{name!r} has no history in store {call.path['name']!r}")
    version = reached([record for record, _ in found], wanted)
    shown = found[after : min(version, after + limit)]
    more = {"next": after + limit} if after + limit < version else {}
    closed = any(record.closes for record, _ in found[:version])
    events = [as_entry(record, row) for record, row in shown]
    return as_json({"entity": name, "version": version, "closed": closed, "events": events, **more})


def state(call: Call) -> Answer:
    version, at, since = _number(call.query, "version"), _time(call.query), _number(call.query, "since")
    wanted = moment(version, at)
    asked = {"version": wanted.version, "at_ms": wanted.at_ms, "since": since}
    if since is None and wanted == Moment():
        asked = {}
    request = Request(PAST, call.path["id"], uuid4().hex, value=json.dumps(asked).encode())
    answered = ask(call, request)
    if "error" in answered:
        return error_answer(answered["error"])
    past = answered["past"]
    if not past["version"] and version != 0 and at is None:
        raise Refusal(404, f"{request.entity!r} has no history in store {call.path['name']!r}")
    told = {"entity": request.entity, "version": past["version"], "closed": past["closed"], "state": past["state"]}
    if past["at_ms"] is not None:
        told["at"] = datetime.fromtimestamp(past["at_ms"] / 1000, UTC).isoformat(timespec="milliseconds")
    if past["changes"] is not None:
        told["changes"] = [dict(zip(("field", "before", "after"), one, strict=True)) for one in past["changes"]]
    return as_json(told)


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise Refusal(400, f"{name} is {text!r}; it is a number from 0 on")
    return int(text)


def _time(query: Mapping[str, str]) -> datetime | None:
    try:
        return datetime.fromisoformat(query["at"]) if "at" in query else None
    except ValueError as error:
        raise UsageError(f"at is {query['at']!r}; write 2026-05-03T10:00Z") from error


ENTRY: dict[str, Any] = {"type": "object", "additionalProperties": True}

ROUTES = (
    Route(
        "GET",
        "/stores/{name}/entities/{id}",
        entity,
        "The history of an entity of an event store, up to a version or a time",
        query=(
            Parameter("version", "Up to this version", {"type": "integer"}),
            Parameter("at", "Up to this time: 2026-05-03T10:00Z"),
            Parameter("after", "Events after this version; `next` of an answer has it", {"type": "integer"}),
            Parameter("limit", f"How many events at most, {LIMIT} by default", {"type": "integer"}),
        ),
        answer={
            "type": "object",
            "properties": {
                "entity": {"type": "string"},
                "version": {"type": "integer"},
                "closed": {"type": "boolean"},
                "events": {"type": "array", "items": ENTRY},
                "next": {"type": "integer"},
            },
        },
        refusals={400: "A parameter is not as it should be", 404: "The store, or the history, is not there"},
        tag="stores",
        strict=True,
    ),
    Route(
        "GET",
        "/stores/{name}/entities/{id}/state",
        state,
        "The state of an entity, now, at a version or at a time, as the store's own code folds it",
        query=(
            Parameter("version", "After this version", {"type": "integer"}),
            Parameter("at", "At this time: 2026-05-03T10:00Z"),
            Parameter("since", "Also what changed since this version", {"type": "integer"}),
            TIMEOUT,
        ),
        answer={
            "type": "object",
            "properties": {
                "entity": {"type": "string"},
                "version": {"type": "integer"},
                "closed": {"type": "boolean"},
                "state": {},
                "at": {"type": "string"},
                "changes": {"type": "array", "items": ENTRY},
            },
        },
        refusals={
            400: "A parameter is not as it should be",
            404: "The store, or the history, is not there",
            504: "No owner has answered in time",
        },
        tag="stores",
        strict=True,
        waits=True,
    ),
)
