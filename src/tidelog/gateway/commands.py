"""POST /stores/NAME/entities/ID/commands/TYPE: a command to an entity of an event store. And what became of one.

    200   done: its receipt, and `after`, with which a view is asked for what came of it (read your own write)
    400   it is not a command of the store, or not a value of its type, or has a member that its type does not have
    409   the decider refused it (`refused` has the typed reason), or the history is closed
    412   the history is not at the `expected` version
    422   the id was used for another command
    500   the history cannot be read, or the app's decider raised an error
    504   no owner has answered in time: it may be done, or not. Sent again under the same id it is done once

Rules:
- The gateway has no code of an app. It sends the command by topic, as the request's user, and hands the owner's answer
  on (`sourcing/asking.py`). So whoever may write `NAME.commands` and read `NAME.replies` may send, as by any client.
- `Idempotency-Key` is the command's id; without one it gets an id of its own, which a client that loses the answer
  does not know. So a client that may try again gives one.
- Every member counts: who misspells one is told. A command that another program puts into the topic may have members
  that its type does not have: senders and owners are not renewed at the same time.
- Where users log in, `who` is the user, and nobody says another name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from tidelog.client.cluster import UNKNOWN_TOPIC
from tidelog.errors import BrokerError, OutcomeUnknown, UsageError
from tidelog.gateway.limits import AFTER_MAX_S
from tidelog.gateway.route import Answer, Call, Parameter, Refusal, Route, Schema, as_json
from tidelog.gateway.views.asking import timeout_of
from tidelog.sourcing.asking import ask_owner
from tidelog.sourcing.command_record import TOGETHER
from tidelog.sourcing.event_record import TEXT_MAX, CommandContext
from tidelog.sourcing.requests import CLOSE, DECIDE, FIND, HISTORY_EXISTS, NO_HISTORY, Expected, Request
from tidelog.sourcing.store_topics import StoreTopics, checked_name

OWN = TOGETHER.partition(".")[0] + "."
STATUS_OF = {"WrongVersion": 412, "CommandConflict": 422, "HistoryClosed": 409, "UsageError": 400}
"""Others are 500: the history, or the app, has a fault."""


def send(call: Call) -> Answer:
    type = call.path["type"]
    if type.startswith(OWN) and type != CLOSE:
        raise Refusal(400, f"{type!r} is not a command; commands have the names of the app's classes, or {CLOSE}")
    fields = call.json()
    if not isinstance(fields, dict):
        raise Refusal(400, f"the body is {_kind(fields)}; send an object with the fields of {type}")
    if type == CLOSE and fields:
        raise Refusal(400, f"{CLOSE} does not have a member {next(iter(fields))!r:.200}; it has none")
    value = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    request = Request(
        CLOSE if type == CLOSE else DECIDE,
        call.path["id"],
        call.headers.get("idempotency-key") or uuid4().hex,
        type=type,
        value=b"{}" if type == CLOSE else value,
        expected=_expected(call.query.get("expected")),
        context=_context(call),
        strict=True,
    )
    return answer_of(ask(call, request), StoreTopics(call.path["name"]))


def find(call: Call) -> Answer:
    request = Request(FIND, call.path["id"], call.path["command"])
    answered = ask(call, request)
    if "receipt" in answered and answered["receipt"] is None:
        raise Refusal(404, f"{request.entity!r} has done no command {request.id!r}, or does not remember it any more")
    return answer_of(answered, StoreTopics(call.path["name"]))


def ask(call: Call, request: Request) -> Mapping[str, Any]:
    """The owner's answer, as it is by topic."""
    name, timeout_s = call.path["name"], timeout_of(call.query)
    with call.cluster() as cluster:
        try:
            return ask_owner(cluster, StoreTopics(checked_name(name)), request, timeout_s)
        except OutcomeUnknown as error:
            raise Refusal(504, str(error)) from error
        except BrokerError as error:
            if error.code in UNKNOWN_TOPIC:
                raise Refusal(404, f"store {name!r} is not there") from error
            raise


def answer_of(answered: Mapping[str, Any], named: StoreTopics) -> Answer:
    """Of a command: pure."""
    if "refused" in answered:
        refused = answered["refused"]
        told = {"error_code": 409, "message": str(refused.get("message") or refused.get("reason"))}
        return as_json({**told, "refused": {"type": refused.get("type"), "reason": refused.get("reason")}}, status=409)
    if "error" in answered:
        return error_answer(answered["error"])
    receipt = answered["receipt"]
    wrote = receipt["offset"] >= 0
    after = {"after": f"{named.events}:{receipt['partition']}:{receipt['offset']}"} if wrote else {}
    return as_json({"receipt": receipt, **after})


def error_answer(error: Mapping[str, Any]) -> Answer:
    status = 500 if error.get("raised") else STATUS_OF.get(error["type"], 500)
    versions = {name: error[name] for name in ("expected", "actual") if name in error}
    told = {"error_code": status, "message": str(error["message"])}
    return as_json({**told, "error": {"type": error["type"], **versions}}, status=status)


def _context(call: Call) -> CommandContext:
    texts = {name: call.query.get(name) for name in ("who", "correlation", "causation")}
    for name, text in texts.items():
        if text is not None and len(text.encode()) > TEXT_MAX:
            raise Refusal(400, f"{name} has more than {TEXT_MAX} bytes")
    if call.gateway.login and call.credentials is not None:
        if texts["who"] is not None:
            raise Refusal(400, "who is the user that is logged in; leave it out")
        texts["who"] = call.credentials.user
    return CommandContext(texts["correlation"], texts["causation"], texts["who"])


def _expected(text: str | None) -> Expected:
    if text is None or text in (NO_HISTORY, HISTORY_EXISTS):
        return text
    if not text.isdecimal() or len(text) > 18:
        raise UsageError(f"expected is {text[:50]!r}; it is a version, {NO_HISTORY} or {HISTORY_EXISTS}")
    return int(text)


def _kind(value: Any) -> str:
    kinds = {list: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")


RECEIPT: Schema = {
    "type": "object",
    "properties": {
        "receipt": {"type": "object", "additionalProperties": True},
        "after": {"type": "string"},
    },
}
TIMEOUT = Parameter("timeout", f"Seconds to wait for the answer, {AFTER_MAX_S:g} at most", {"type": "number"})
NOT_THERE = {404: "The store is not there", 504: "No owner has answered in time"}
FAULT = "The history cannot be read, or the app's decider raised an error"

ROUTES = (
    Route(
        "POST",
        "/stores/{name}/entities/{id}/commands/{type}",
        send,
        "A command to an entity; the header Idempotency-Key is its id",
        query=(
            Parameter("expected", f"The version that the history must have; {NO_HISTORY}, or {HISTORY_EXISTS}"),
            Parameter("who", "Who wants it; where users log in it is the user"),
            Parameter("correlation", "What it belongs to"),
            Parameter("causation", "The event that it is a reaction to"),
            TIMEOUT,
        ),
        body={"type": "object", "properties": {}, "additionalProperties": True},
        answer=RECEIPT,
        refusals={
            **NOT_THERE,
            400: "It is not a command of the store, or a parameter is not as it should be",
            409: "The decider refused it, or the history is closed",
            412: "The history is not at the expected version",
            422: "Its id was used for another command",
            500: FAULT,
        },
        tag="stores",
        strict=True,
        waits=True,
    ),
    Route(
        "GET",
        "/stores/{name}/entities/{id}/receipts/{command}",
        find,
        "What became of a command, by its id",
        query=(TIMEOUT,),
        answer=RECEIPT,
        refusals={**NOT_THERE, 404: "The store is not there, or has not done the command", 500: FAULT},
        tag="stores",
        strict=True,
        waits=True,
    ),
)
