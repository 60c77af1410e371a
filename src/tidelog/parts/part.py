"""What a part is: it can be started, looked at and stopped, and tells its figures. Its supervisor does the rest.

All of it is called by the supervisor's one thread, but for `stop`: parts of a kind are stopped side by side. `start`
and `look` may raise, and `fault_of` says what that is; a part that cannot even be looked at has failed for good.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

APP = "app"  # the kind of a run of several parts
Say = Callable[..., None]  # an event, and its fields
Key = tuple[str, str]  # kind and name


class Fault(NamedTuple):
    """Of a part, as people are told it. A final one stays until somebody changes something. One that is superseded has
    ended because another took its place: the name is that one's by now, and so is what is told by it.
    """

    message: str
    final: bool
    file: str | None = None
    line: int | None = None
    superseded: bool = False

    @property
    def fields(self) -> dict[str, object]:
        return {"message": self.message, "file": self.file, "line": self.line}


class Part(Protocol):
    kind: str
    name: str

    @property
    def reports_as(self) -> str | None:
        """The name under which it tells its status itself, as a process of its own does. None: its supervisor tells."""

    def start(self) -> None: ...

    def look(self) -> Fault | None:
        """None while it runs."""

    def stop(self) -> None: ...

    def figures(self) -> dict[str, Any]:
        """What its report has beside its state: what it is about, and its numbers (`control/metrics.py`)."""

    def fault_of(self, error: Exception) -> Fault: ...


@runtime_checkable
class Proving(Protocol):
    """What a part has besides, if to be started is not to work. Others have worked when they were started."""

    def has_worked(self) -> bool:
        """Whether it has come to an end of its work, or found nothing to do, since it was started."""


@runtime_checkable
class OneOfSeveral(Protocol):
    """A part that others do the same work beside, in processes of their own. A command to `together` is one to each."""

    together: str
