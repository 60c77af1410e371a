"""Requests and answers as records of `NAME.commands` and `NAME.replies`; `docs/formats/events.md`.

Rules:
- What counts together is one record, so that it is there as a whole or not at all.
- A reply says all that an answer in the process would: receipt, state, the typed reason of a refusal, an error by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.client.producer import Headers
from tidelog.errors import (
    CommandConflict,
    HistoryClosed,
    HistoryFault,
    OutcomeUnknown,
    Refused,
    UnknownEvent,
    UsageError,
    WrongVersion,
)
from tidelog.record.columns import Row
from tidelog.sourcing.decider import Decider
from tidelog.sourcing.event_record import NOTHING, TEXT_MAX, CommandContext
from tidelog.sourcing.raised import told
from tidelog.sourcing.requests import (
    CLOSE,
    DECIDE,
    FIND,
    HISTORY_EXISTS,
    NO_HISTORY,
    PAST,
    STATE,
    EntityState,
    Expected,
    Joint,
    PastAnswer,
    Receipt,
    Request,
    check_names,
)

TOGETHER = "tidelog.together"
HANDED_ON = "handed-on"  # the header of a command that lay in a wrong partition
STRICT: tuple[str, bytes] = ("strict", b"1")  # the header of a command whose members are all to be known
OWN_KINDS = (FIND, STATE, CLOSE, PAST)
ERRORS: dict[str, type[Exception]] = {
    one.__name__: one
    for one in (HistoryClosed, CommandConflict, HistoryFault, OutcomeUnknown, UnknownEvent, UsageError)
}
SHOWN = 500


def encode_command(joint: Joint, to: bytes) -> tuple[bytes, bytes | None, Headers]:
    """Key, value and headers."""
    first = joint.requests[0]
    headers: list[tuple[str, bytes | None]] = [("command", first.id.encode()), ("to", to), *first.context.headers()]
    if len(joint.requests) > 1:
        fields = [_fields(request) for request in joint.requests]
        return first.key, _text(fields), [("type", TOGETHER.encode()), *headers]
    kind = first.type if first.kind == DECIDE else first.kind
    if first.expected is not None:
        headers.append(("expected", str(first.expected).encode()))
    if first.strict:
        headers.append(STRICT)
    return first.key, first.value, [("type", kind.encode()), *headers]


def _fields(request: Request) -> dict[str, Any]:
    value = json.loads(request.value or b"{}")
    return {
        "entity": request.entity,
        "type": request.type,
        "command": request.id,
        "expected": request.expected,
        "value": value,
    }


def decode_command(row: Row) -> Joint:
    """What is not a command is a `UsageError`."""
    try:
        found = {name: (data or b"").decode() for name, data in row.headers}
        metadata = json.loads(found["metadata"]) if "metadata" in found else NOTHING
        if not isinstance(metadata, Mapping):
            raise ValueError(f"metadata is {metadata!r}")
        context = CommandContext(found.get("correlation"), found.get("causation"), found.get("who"), metadata)
        if found["type"] == TOGETHER:
            requests = [
                _request(one["type"], one["entity"], one["command"], one.get("expected"), _text(one["value"]), context)
                for one in json.loads(row.value or b"")
            ]
        else:
            entity = (row.key or b"").decode()
            requests = [_request(found["type"], entity, found["command"], found.get("expected"), row.value, context)]
            requests[0].strict = STRICT in row.headers
        to = found["to"].encode() if "to" in found else None
        if len(to or b"") > TEXT_MAX:
            raise ValueError(f"`to` has more than {TEXT_MAX} bytes")
        return Joint(tuple(requests), row.offset + 1, to)
    except KeyError as error:
        raise UsageError(f"the record at offset {row.offset} is not a command: it has no {error}") from error
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the record at offset {row.offset} is not a command: {error!r}") from error


def _request(
    type: str, entity: str, id: str, expected: Expected, value: bytes | None, context: CommandContext
) -> Request:
    if expected is not None and expected not in (NO_HISTORY, HISTORY_EXISTS):
        expected = int(expected)
    kind = type if type in OWN_KINDS else DECIDE
    request = Request(kind, entity, id, type=type, value=value, expected=expected, context=context)
    check_names(request)
    return request


# Replies


def reply_that_fits(
    decider: Decider[Any], values: Sequence[Any], error: BaseException | None, topic: str, room: int
) -> bytes:
    """What cannot be told is said to be so: a reply that cannot be written would hold up the partition for ever."""
    try:
        data = encode_reply(decider, values, error)
        if len(data) <= room:
            return data
        why = f"has {len(data)} bytes, too many for {topic}; raise max.message.bytes of the topic"
    except Exception as fault:  # of a state, or of a reason
        why = f"cannot be told as JSON: {ascii(fault)[:SHOWN]}"
    if any(isinstance(value, Receipt) for value in values):
        return encode_reply(decider, (), OutcomeUnknown(f"it is done, and its answer {why}; find() has the receipt"))
    return encode_reply(decider, (), UsageError(f"the answer {why}; nothing was done"))


def encode_reply(decider: Decider[Any], values: Sequence[Any], error: BaseException | None) -> bytes:
    """`values` are of all requests that count together, mostly one."""
    if error is not None:
        return _text(_error_fields(decider, error))
    fields = [_value_fields(decider, value) for value in values]
    return _text(fields[0] if len(fields) == 1 else {"together": fields})


def _error_fields(decider: Decider[Any], error: BaseException) -> dict[str, Any]:
    if isinstance(error, Refused):
        return {"refused": decider.refusal_fields(error)}
    if isinstance(error, WrongVersion):
        more = {"expected": error.expected, "actual": error.actual}
        return {"error": {"type": "WrongVersion", "message": str(error), **more}}
    name = type(error).__name__
    if name in ERRORS:
        return {"error": {"type": name, "message": str(error)}}
    return {"error": {"type": "UsageError", "message": f"the decider raised {told(error)}", "raised": True}}


def _value_fields(decider: Decider[Any], value: Any) -> dict[str, Any]:
    if isinstance(value, EntityState):
        return {"state": decider.states.fields(value.state), "version": value.version, "closed": value.closed}
    if isinstance(value, PastAnswer):
        return {"past": value._asdict()}
    return {"receipt": None if value is None else value._asdict()}


def settle_by_reply(decider: Decider[Any], joint: Joint, data: bytes) -> None:
    try:
        fields = json.loads(data)
        error = _error_of(decider, fields)
        several = fields.get("together", [fields])
        values = [None if error is not None else _value_of(decider, one) for one in several]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, HistoryFault) as fault:
        values, error = [], HistoryFault(f"the reply {data[:200]!r} cannot be read: {fault!r}")
    for at, request in enumerate(joint.requests):
        request.answer.settle(None if error is not None else values[at], error)


def _error_of(decider: Decider[Any], fields: dict[str, Any]) -> Exception | None:
    if "refused" in fields:
        return decider.refusal_from(fields["refused"])
    if "error" not in fields:
        return None
    said = fields["error"]
    if said["type"] == "WrongVersion":
        return WrongVersion(said["message"], said["expected"], said["actual"])
    return ERRORS.get(said["type"], HistoryFault)(said["message"])


def _value_of(decider: Decider[Any], fields: dict[str, Any]) -> Any:
    if "state" in fields:
        return EntityState(decider.states.from_fields(fields["state"]), fields["version"], fields["closed"])
    return None if fields["receipt"] is None else Receipt(**fields["receipt"])


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
