"""What an owner makes of requests: checked, decided, applied, and the records that are to be written. Pure, but that it
changes the entities it is given: all of them or none.

    1  has the entity done this command already?      then the same receipt, whatever is expected
    2  is its history readable and open, and at the expected version?
    3  decide                                         Refused: nothing is written and nothing remembered
    4  fold the events into the state                 at once, so that the next command of the same batch sees it
    5  the records

Rules:
- Requests that count together are decided one after the other, each on what the ones before made, on copies; the copies
  count when all are decided. Where some were done before and others were not, that is a `CommandConflict`.
- An event that is too large for its topic is refused, with its command: it could not be written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tidelog.client.producer import Record
from tidelog.errors import CommandConflict, HistoryClosed, UsageError, WrongVersion
from tidelog.sourcing.digests import CommandDigests
from tidelog.sourcing.entity import Folding, LoadedEntity, Remembered
from tidelog.sourcing.event_record import headers_of
from tidelog.sourcing.event_types import CLOSED
from tidelog.sourcing.past_reading import answer_from
from tidelog.sourcing.requests import (
    CLOSE,
    DECIDE,
    FIND,
    HISTORY_EXISTS,
    NO_HISTORY,
    PAST,
    STATE,
    EntityState,
    Receipt,
    Request,
)

Find = Callable[[str], LoadedEntity]


class CommandOutcome(NamedTuple):
    """Of one request. `remembered` has its receipt's offset, when that is known; None where it has never written."""

    value: Any
    records: Sequence[Record] = ()
    remembered: Remembered | None = None


class Deciding:
    def __init__(self, folding: Folding, store: str, partition: int, *, largest: int, remembered: int) -> None:
        self._folding, self._decider, self._cipher = folding, folding.decider, folding.cipher
        self._partition, self._largest, self._remembered = partition, largest, remembered
        self._digests = CommandDigests(folding.cipher, store)

    def decide(
        self, find: Find, requests: Sequence[Request], now_ms: int
    ) -> tuple[dict[str, LoadedEntity], list[CommandOutcome]]:
        """The entities as they are after it, and an outcome for each request. What is raised is for all of them."""
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        if len(requests) == 1:
            (request,) = requests
            entity = find(request.entity)
            return {request.entity: entity}, [self._one(entity, request, now, now_ms)]
        after: dict[str, LoadedEntity] = {}
        outcomes = []
        for request in requests:
            if request.entity not in after:
                after[request.entity] = find(request.entity).copy()
            outcomes.append(self._one(after[request.entity], request, now, now_ms))
        done_before = [one for one in outcomes if isinstance(one.value, Receipt) and one.value.repeated]
        if done_before and any(one.records for one in outcomes):
            raise CommandConflict(
                f"of commands sent together, {done_before[0].value.command!r} was done before and others were not; send"
                " the same ones under the same ids, or all under new ones"
            )
        return after, outcomes

    def _one(self, entity: LoadedEntity, request: Request, now: datetime, now_ms: int) -> CommandOutcome:
        if request.kind == STATE:
            _check_readable(entity)
            return CommandOutcome(EntityState(entity.state, entity.version, entity.closed))
        if request.kind == PAST:
            _check_readable(entity)
            return CommandOutcome(answer_from(self._decider, entity, request.found))
        known = entity.commands.get(request.id)
        if request.kind == FIND:
            return CommandOutcome(None) if known is None else self._repeated(request, known)
        if request.kind == DECIDE:
            self._read(request)
        if known is not None:
            if not self._digests.may_be(known[0], request):
                raise CommandConflict(
                    f"{request.entity!r} has done another command under the id {request.id!r}; give each command an id"
                    " of its own"
                )
            return self._repeated(request, known)
        _check_readable(entity)
        _check_expected(entity, request)
        return (
            self._close(entity, request, now_ms) if request.kind == CLOSE else self._write(entity, request, now, now_ms)
        )

    def _read(self, request: Request) -> None:
        """A command that came by topic. Its value is written anew, so that the same command has the same digest however
        it was sent, whatever order or spaces its JSON had.
        """
        if request.command is None:
            request.command = self._decider.decode_command(request.type, request.value or b"{}", strict=request.strict)
            request.value = self._decider.encode_command(request.command)[1]
        request.digest = self._digests.of(request)

    def _write(self, entity: LoadedEntity, request: Request, now: datetime, now_ms: int) -> CommandOutcome:
        _check_open(entity, request)
        events = self._decider.decide(entity.state, request.command, now)
        if not events:
            return CommandOutcome(Receipt(request.entity, request.id, entity.version, 0, self._partition, -1))
        state, version, apply = entity.state, entity.version, self._decider.apply
        context = request.context.headers()
        records: list[Record] = []
        for number, event in enumerate(events):
            version += 1
            one, value = self._decider.types.encode(event, request.entity, version, self._cipher)
            state = apply(state, event)
            headers = headers_of(one.name, one.version, version, request.id, number, request.digest, context)
            self._check_size(request, one.name, value, context)
            records.append((request.key, value, headers, now_ms))
        return self._written(entity, request, state, records)

    def _close(self, entity: LoadedEntity, request: Request, now_ms: int) -> CommandOutcome:
        if entity.closed:
            return CommandOutcome(Receipt(request.entity, request.id, entity.version, 0, self._partition, -1))
        headers = headers_of(
            CLOSED, 1, entity.version + 1, request.id, 0, request.digest, request.context.headers(), closes=True
        )
        entity.closed = True
        return self._written(entity, request, entity.state, [(request.key, request.value or b"{}", headers, now_ms)])

    def _written(self, entity: LoadedEntity, request: Request, state: Any, records: list[Record]) -> CommandOutcome:
        first = entity.version + 1
        entity.state, entity.version = state, entity.version + len(records)
        remembered: Remembered = [request.digest, first, entity.version, -1]
        entity.remember(request.id, remembered, self._remembered)
        receipt = Receipt(request.entity, request.id, entity.version, len(records), self._partition, -1)
        return CommandOutcome(receipt, records, remembered)

    def _repeated(self, request: Request, known: Remembered) -> CommandOutcome:
        """It may have been done in the same batch, so that its offset comes later."""
        _, first, last, offset = known
        receipt = Receipt(request.entity, request.id, last, last - first + 1, self._partition, offset, repeated=True)
        return CommandOutcome(receipt, (), known)

    def _check_size(
        self, request: Request, name: str, value: bytes, context: Sequence[tuple[str, bytes | None]]
    ) -> None:
        size = len(value) + len(request.key) + sum(len(data or b"") for _, data in context)
        if size > self._largest:
            raise UsageError(
                f"an event {name} of {request.entity!r} has {size} bytes, and the largest may have {self._largest};"
                " keep what is large elsewhere and its place in the event, or raise max.message.bytes of the topic"
            )


def _check_readable(entity: LoadedEntity) -> None:
    if entity.fault is not None:
        raise type(entity.fault)(*entity.fault.args)


def _check_open(entity: LoadedEntity, request: Request) -> None:
    if entity.closed:
        raise HistoryClosed(
            f"the history of {request.entity!r} was closed at version {entity.version}; a new one has another id"
        )


def _check_expected(entity: LoadedEntity, request: Request) -> None:
    expected, actual = request.expected, entity.version
    if expected is None or expected == actual:
        return
    if (expected == NO_HISTORY and not actual) or (expected == HISTORY_EXISTS and actual):
        return
    raise WrongVersion(
        f"{request.entity!r} is at version {actual}, and command {request.id!r} expects {expected}; read it again, and"
        " decide whether the command still makes sense",
        expected,
        actual,
    )
