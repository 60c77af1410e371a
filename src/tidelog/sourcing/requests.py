"""What is asked of a store, and what it answers: in a process by a `PendingAnswer`, by topic as JSON.

Rules:
- A request has an id before it is sent, given or made. Sending it again under that id is always safe, so whoever does
  not know what became of it (a crash, a time-out) may do so; the store does it by itself where an owner is lost.
- `expected`: a version that the history has; NO_HISTORY, HISTORY_EXISTS; None for any. It is checked by the owner when
  it decides, and never tried again.
- As records they are in `command_record.py`.
"""

from __future__ import annotations

from _thread import allocate_lock
from typing import Any, NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Record
from tidelog.errors import OutcomeUnknown, UsageError
from tidelog.sourcing.event_record import NO_CONTEXT, CommandContext

DECIDE, FIND, STATE, CLOSE = "decide", "tidelog.find", "tidelog.state", "tidelog.close"
PAST = "tidelog.past"
NO_HISTORY, HISTORY_EXISTS = "none", "exists"
ID_MAX = 200  # bytes of a command's id, and of an entity's

Expected = int | str | None


class Receipt(NamedTuple):
    """A command that was done. `offset` is that of its last event, -1 where it wrote none; `repeated`: it had been done
    before, and this is what it did then.
    """

    entity: str
    command: str
    version: int
    events: int
    partition: int
    offset: int
    repeated: bool = False


class EntityState(NamedTuple):
    state: Any
    version: int
    closed: bool


class PastAnswer(NamedTuple):
    """A state as JSON has it, of now or of then, for who has no code of the app. Personal fields are not shown.
    `changes` are (field, before, after) since another version, where that was asked for.
    """

    state: Any
    version: int
    closed: bool
    at_ms: int | None = None
    changes: list[tuple[str, Any, Any]] | None = None


class PendingAnswer:
    """What becomes of a request, for who waits for it in another thread."""

    __slots__ = ("_command", "_entity", "_error", "_lock", "_value")

    def __init__(self, entity: str, command: str) -> None:
        self._entity, self._command = entity, command  # not the request, which has this one: they would be a cycle
        self._value: Any = None
        self._error: BaseException | None = None
        self._lock = allocate_lock()  # free when there is an answer: a tenth of what a Future costs
        self._lock.acquire()

    @property
    def done(self) -> bool:
        return not self._lock.locked()

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """The first one counts."""
        if self._lock.locked():
            self._value, self._error = value, error
            self._lock.release()

    def result(self, timeout_s: float = -1) -> Any:
        if not self._lock.acquire(timeout=timeout_s):
            raise OutcomeUnknown(
                f"command {self._command!r} to {self._entity!r} was not answered for {timeout_s:g} s: it may be done,"
                " or not; ask find(), or send it again under the same id"
            )
        self._lock.release()
        if self._error is not None:
            raise self._error
        return self._value


class Request:
    """One command, or a question to the owner of an entity."""

    __slots__ = (
        "answer",
        "command",
        "context",
        "digest",
        "entity",
        "expected",
        "found",
        "id",
        "key",
        "kind",
        "strict",
        "type",
        "value",
    )

    def __init__(
        self,
        kind: str,
        entity: str,
        id: str,
        *,
        command: Any = None,
        type: str = "",
        value: bytes | None = None,
        digest: str = "",
        expected: Expected = None,
        context: CommandContext = NO_CONTEXT,
        strict: bool = False,
    ) -> None:
        """`strict`: a member that the command's type does not have is refused, and not left out."""
        self.kind, self.entity, self.id = kind, entity, id
        self.key = entity.encode() if isinstance(entity, str) else b""  # `check_names` refuses it
        self.command, self.type, self.value, self.digest = command, type, value, digest
        self.expected, self.context, self.strict = expected, context, strict
        self.found: PastAnswer | Exception | None = None  # of a question that was answered beside (`past_reading.py`)
        self.answer = PendingAnswer(entity, id)


class Joint(NamedTuple):
    """Requests that count together or not at all, mostly one. `position` is the next offset of the command topic where
    they came from there, and `to` whom to reply to; -1 where they came from this process, or where commands behind them
    may have been answered since. `onward` is a record for another owner, and `fault` why nothing is decided.
    """

    requests: tuple[Request, ...]
    position: int = -1
    to: bytes | None = None
    onward: tuple[TopicPartition, Record] | None = None
    fault: Exception | None = None


def check_names(request: Request) -> None:
    """What a caller can get wrong, before anything is done."""
    for what, text in (("an entity", request.entity), ("a command", request.id)):
        if not isinstance(text, str):
            raise UsageError(f"{what}'s id is {text!r:.50}; it is a text of 1 to {ID_MAX} bytes")
        try:
            size = len(text if text.isascii() else text.encode())
        except UnicodeEncodeError:
            raise UsageError(f"{what}'s id is {text[:50]!r}, which UTF-8 cannot have") from None
        if not 0 < size <= ID_MAX:
            raise UsageError(f"{what}'s id is {text[:50]!r}; it has 1 to {ID_MAX} bytes")
    expected = request.expected
    if not (expected is None or isinstance(expected, int) or expected in (NO_HISTORY, HISTORY_EXISTS)):
        raise UsageError(f"expected is {expected!r:.50}; it is a version, NO_HISTORY or HISTORY_EXISTS")
