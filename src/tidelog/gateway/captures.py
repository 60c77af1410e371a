"""POST /captures/NAME/snapshot: a running capture reads tables again while changes flow; or that rests, goes on, ends.

It is the command of `tidelog capture snapshot`, written as the request's user: whoever may write `__tidelog.commands`
may ask. What becomes of it is told in the capture's status (GET /parts/capture/NAME).
"""

from __future__ import annotations

from tidelog.capture.chunking import EXECUTE, WAYS, ask_for_snapshot
from tidelog.control.captures import read_captures
from tidelog.errors import UsageError
from tidelog.gateway.route import Answer, Call, Refusal, Route, as_json

TABLES_MAX = 10_000


def snapshot(call: Call) -> Answer:
    name = call.path["name"]
    with call.cluster() as cluster:
        known = read_captures(cluster)  # who may not is told so, and nothing of what the body should be
        tables, what = asked(call.json())
        if name not in known:
            raise Refusal(404, f"no capture is called {name[:100]!r}; GET /parts lists those that have reported")
        ask_for_snapshot(cluster, name, tables, what)
    return as_json({"capture": name, "what": what, "tables": tables})


def asked(said: object) -> tuple[list[str], str]:
    """The tables, and what is to be done."""
    if not isinstance(said, dict) or not set(said) <= {"tables", "what"}:
        raise UsageError('the body is not a snapshot; write {"tables": ["schema.table"]}, or {"what": "pause"}')
    tables, what = said.get("tables", []), said.get("what", EXECUTE)
    if not isinstance(tables, list) or len(tables) > TABLES_MAX or not all(isinstance(one, str) for one in tables):
        raise UsageError('tables is not a list of names; write {"tables": ["schema.table"]}')
    if not isinstance(what, str):
        raise UsageError(f"what is not a word; it is one of {', '.join(WAYS)}")
    return tables, what


ROUTES = (
    Route(
        "POST",
        "/captures/{name}/snapshot",
        snapshot,
        "Read tables of a running capture again, or pause, resume or stop that",
        strict=True,
        body={
            "type": "object",
            "properties": {
                "tables": {"type": "array", "items": {"type": "string"}},
                "what": {"type": "string", "enum": list(WAYS)},
            },
        },
        answer={
            "type": "object",
            "required": ["capture", "what", "tables"],
            "properties": {
                "capture": {"type": "string"},
                "what": {"type": "string"},
                "tables": {"type": "array", "items": {"type": "string"}},
            },
        },
        refusals={
            400: "The body is not a snapshot, or the capture has no such table",
            403: "The broker does not let this user write commands",
            404: "The capture is not there",
        },
        tag="tables",
        body_max_bytes=1 << 20,
    ),
)
