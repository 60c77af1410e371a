"""Requests that name many things: worked off part by part, so that the loop serves everybody else in between.

Some APIs take a list of things that have nothing to do with each other: topics to create, groups to tell of. Their
handlers see a part of that list at a time, as a request of its own, and its reply is encoded as it comes. What is ready
of a long reply is bytes, not objects, which take ten times as much.

Rules:
- The loop works for STEP_S on one request, then for others. Meanwhile nothing more of its connection is handled, as in
  Kafka: what comes behind may rest on it. A part is a few milliseconds (`Row.at_once`).
- The reply is what it would have been in one go. Entries about the same thing are in the same part, so that a handler
  sees what is asked for twice. Where an API only reads (`reads`), one that says what another says is answered once.
- WAITING_PARTS parts at most wait for the disk.
- A reply that would be above REPLY_BYTES_MAX is not made: every entry is refused with INVALID_REQUEST. The answer about
  a single thing is whole, whatever its size. What changes something is always told.

    states        set by
    working       the constructor; the connection is muted
    refusing      the reply became too large: what was gathered is dropped, and each part gets a refusal
    over          the last part is answered; the reply is on its way, and the connection is heard again
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.call import Call
from tidelog.broker.limits import REPLY_BYTES_MAX, STEP_S, WAITING_PARTS
from tidelog.wire.api import response_class
from tidelog.wire.codec import encode_elements
from tidelog.wire.encoder import Gathered
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

Handler = Callable[[Any, Any, Call], Any]
TOO_LONG = f"the reply would have more than {REPLY_BYTES_MAX} bytes; ask for fewer things in one request"


class Row(NamedTuple):
    """How the list of a request becomes the list of its reply."""

    asked: tuple[str, ...]  # the fields that may have the list, by version
    told: str  # the field of the reply that has an entry for each
    at_once: int  # entries in a part
    same: tuple[str, ...] = ()  # the fields that say which thing it is; () where the reply goes by position
    name: str = ""  # of a list of bare names: the field of the reply's entry that has it
    reads: bool = False  # it changes nothing


DIVIDED: dict[int, Row] = {
    3: Row(("topics",), "topics", 50, ("name", "topic_id")),
    9: Row(("groups",), "groups", 1, ("group_id",), reads=True),
    15: Row(("groups",), "groups", 10, name="group_id", reads=True),
    19: Row(("topics",), "topics", 20, ("name",)),
    20: Row(("topics", "topic_names"), "responses", 50, ("name", "topic_id")),
    30: Row(("creations",), "results", 50),
    31: Row(("filters",), "filter_results", 10),
    32: Row(("resources",), "results", 10, ("resource_type", "resource_name"), reads=True),
    33: Row(("resources",), "responses", 50, ("resource_type", "resource_name")),
    37: Row(("topics",), "results", 50, ("name",)),
    42: Row(("groups_names",), "results", 10, name="group_id"),
    44: Row(("resources",), "responses", 50, ("resource_type", "resource_name")),
    49: Row(("entries",), "entries", 50),
    61: Row(("topics",), "topics", 1, ("name",), reads=True),
    65: Row(("transactional_ids",), "transaction_states", 10, name="transactional_id", reads=True),
    69: Row(("group_ids",), "groups", 10, name="group_id", reads=True),
    77: Row(("group_ids",), "groups", 10, name="group_id", reads=True),
}


def divided(api_key: int, handler: Handler) -> Handler:
    """The handler, or one that calls it for a part of a long request at a time."""
    row = DIVIDED.get(api_key)
    if row is None:
        return handler

    def handle(broker: Broker, request: Any, call: Call) -> Any:
        field = next((one for one in row.asked if getattr(request, one)), None)
        if field is None or len(getattr(request, field)) == 1:
            return handler(broker, request, call)
        parts = parts_of(row, getattr(request, field))
        if len(parts) == 1:
            return handler(broker, _with(request, field, parts[0]), call)
        _Division(row, handler, broker, call, request, [(field, part) for part in parts]).begin()
        return None

    return handle


def parts_of(row: Row, entries: list[Any]) -> list[list[Any]]:
    """The entries in parts. Those of the same thing stand together, where the first of them stood."""
    if not (row.same or row.name):
        return [entries[start : start + row.at_once] for start in range(0, len(entries), row.at_once)]
    things: dict[Any, list[Any]] = {}
    for entry in entries:
        thing = tuple([getattr(entry, one, entry) for one in row.same]) if row.same else entry
        things.setdefault(thing, []).append(entry)
    parts: list[list[Any]] = [[]]
    for same in things.values():
        if len(parts[-1]) >= row.at_once:
            parts.append([])
        parts[-1] += _once(same) if row.reads and len(same) > 1 else same
    return parts


def _once(entries: Iterable[Any]) -> list[Any]:
    return list({_frozen(entry): entry for entry in entries}.values())


def _frozen(value: Any) -> Any:
    """What a struct says, as something that can be compared and looked up."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    schema = getattr(type(value), "SCHEMA", None)
    if schema is None:
        return value
    return tuple([_frozen(getattr(value, field.name)) for field in schema.fields])


def _with(request: Any, field: str, part: list[Any]) -> Any:
    made = copy(request)
    setattr(made, field, part)
    return made


class _Part(Call):
    """The call of a part: its answer goes to the division. Everything else is the whole call's."""

    __slots__ = ("_answered",)

    def __init__(self, whole: Call, answered: Callable[[Any], None]) -> None:
        super().__init__(
            whole.connection, whole.api_key, whole.version, whole.correlation_id, whole.client_id, whole.buffer
        )
        self._answered = answered

    def reply(self, response: Any, gathered: str = "") -> None:
        if not self.done:
            self.done = True
            try:
                self._answered(response)
            except Exception as error:
                self.fault(error)


class _Division:
    def __init__(
        self, row: Row, handler: Handler, broker: Broker, call: Call, request: Any, parts: list[tuple[str, list[Any]]]
    ) -> None:
        self._row = row
        self._handler = handler
        self._broker = broker
        self._call = call
        self._request = request
        self._parts = parts
        self._next = 0
        self._waiting = 0
        self._running = False
        self._scheduled = False
        self._refusing = False
        self._over = False
        self._whole: Any = None  # the reply to the first part, which has what is beside the list
        self._answers: list[tuple[int, bytes]] = []  # the entries of each part, encoded, and how many they are
        self._size = 0

    def begin(self) -> None:
        self._restart()
        self._call.connection.mute()
        self._go_on()

    def _restart(self) -> None:
        self._next = self._waiting = self._size = 0
        self._answers = [(0, b"")] * len(self._parts)

    def _soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._broker.scheduler.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Works for STEP_S, or until parts must be waited for."""
        self._scheduled = False
        if self._call.connection.closed or self._over:
            return
        began = time.perf_counter()
        self._running = True
        try:
            while self._has_more():
                self._next += 1
                self._do(self._next - 1)
                if time.perf_counter() - began >= STEP_S:
                    break
        except Exception as error:
            self._call.fault(error)
            return
        finally:
            self._running = False
            self._call.worked(time.perf_counter() - began)
        if self._has_more():
            self._soon()
        elif self._next == len(self._parts) and not self._waiting:
            self._finish()

    def _has_more(self) -> bool:
        return self._next < len(self._parts) and self._waiting < WAITING_PARTS

    def _do(self, number: int) -> None:
        field, part = self._parts[number]
        self._waiting += 1
        refusing = self._refusing
        call = _Part(self._call, lambda response: self._answered(number, response, refusing))
        if refusing:
            call.reply(self._refusal(part))
            return
        response = self._handler(self._broker, _with(self._request, field, part), call)
        if response is not None:
            call.reply(response)

    def _answered(self, number: int, response: Any, refusing: bool) -> None:
        if refusing is not self._refusing:  # of a part that was under way when the reply became too large
            return
        self._waiting -= 1
        row, call = self._row, self._call
        call.amend_part(response, last=number == len(self._parts) - 1)
        entries = getattr(response, row.told)
        encoded = encode_elements(response_class(call.api_key), call.version, row.told, entries)
        self._answers[number] = len(entries), encoded
        self._size += len(encoded)
        if self._whole is None or number == 0:
            self._whole = response
        if row.reads and self._size > REPLY_BYTES_MAX and not refusing:
            self._refusing = True
            self._restart()
        if not self._running:
            # Not now: whoever calls may have other parts to answer, and go on as long as those beget more.
            self._soon()

    def _refusal(self, part: list[Any]) -> Any:
        from tidelog.broker.access.checks import element
        from tidelog.broker.access.refusing import mirrored, named

        row, call, code = self._row, self._call, ErrorCode.INVALID_REQUEST
        made = element(call.api_key, row.told)
        if row.name:
            refused = [named(made, row.name, one, code) for one in part]
        else:
            refused = [mirrored(made, one, code, call.version, TOO_LONG) for one in part]
        return response_class(call.api_key)(**{row.told: refused})

    def _finish(self) -> None:
        gathered = Gathered()
        for count, encoded in self._answers:
            gathered.add(count, encoded)
        setattr(self._whole, self._row.told, gathered)
        self._over = True
        self._call.reply(self._whole, self._row.told)
        self._call.connection.unmute()
