"""What becomes of a view's generations: begun, switched to, forgotten. Decisions about its record in the catalog. Pure.

    building    `begin`, by a run that declares the view for the first time, or by a rebuild; "live" is null
    live        `switch`, once it has caught up: "live" is where its topic ended then. This record is the switch
    old         `switch` to the next one; stores and feeds leave it
    gone        `forget`, after the feed horizon, or by command

Rules:
- The first generation of a view is live as soon as it is begun: nobody has another one to look at.
- A declaration that has changed may go on only if it grew (`declaration.grows_to`) and its plan is otherwise the same;
  otherwise the error names `tidelog rebuild`.
- A number is never given twice: stores and checkpoints of a generation that was given up may still be there. So a view
  that is taken out leaves a record without generations: nobody is shown it, and if it is declared again, it goes on
  after its last number.
- Who writes what is decided here holds the view (`control.catalog.Editor`), and read it after taking it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidelog.control.catalog import Generation, View
from tidelog.control.marks import Ends
from tidelog.errors import UsageError, ViewChanged
from tidelog.schema.declaration import Declaration, check_name, grows_to
from tidelog.views.stores.opening import checked

NOTHING: Mapping[str, Any] = {}


def new_view(name: str, *, app: str, inputs: Sequence[str], stores: Sequence[str]) -> View:
    return View(check_name(name), app, tuple(inputs), tuple(map(checked, stores)), (), None)


def of_topic(name: str, topic: str, declared: Declaration, partitions: int, stores: Sequence[str] = ()) -> View:
    """A view of a topic that any producer fills with changes. It has no marks: its own offsets are its place."""
    made = Generation(1, topic, "", "", partitions, declared, {})
    return View(check_name(name), "", (), tuple(map(checked, stores)), (made,), 1, newest=1)


def begin(
    view: View,
    declared: Declaration,
    fingerprint: str,
    partitions: int,
    folded_from: str | None = None,
    *,
    code: Mapping[str, str] = NOTHING,
    reads: Mapping[str, int] = NOTHING,
) -> View:
    """One more generation, to be built; from the rows of a topic of its own, or folded from another one."""
    if view.building is not None:
        raise UsageError(
            f"generation {view.building.number} of view {view.name} is being built; wait for it, or give it up with"
            f" `tidelog views forget {view.name} --generation {view.building.number}`"
        )
    number = max([view.newest, *(one.number for one in view.generations)]) + 1
    topic = f"{view.name}.v{number}"
    first = view.live is None
    sink = topic if folded_from is None else ""
    made = Generation(number, folded_from or topic, sink, fingerprint, partitions, declared, {} if first else None)
    made = replace(made, code=dict(code), reads=dict(reads))
    return replace(view, generations=(*view.generations, made), live=number if first else view.live, newest=number)


def go_on(
    view: View, declared: Declaration, fingerprint: str, code: Mapping[str, str] = NOTHING, what: str = ""
) -> View:
    """The live generation with today's declaration and code; refused where it is not the same, or that and more
    columns. `what` says what has changed in the code, where that is known.
    """
    current = view.current
    assert current is not None, "a view that was begun has a live generation"
    is_same = current.fingerprint == fingerprint
    if not grows_to(current.declared, declared) or (not is_same and current.declared == declared):
        raise ViewChanged(
            f"view {view.name} is declared otherwise than generation {current.number} was built"
            f" ({_difference(current, declared, what)}); `tidelog rebuild {view.name} --app FILE` builds a new one"
            " beside it"
        )
    grown = replace(current, declared=declared, fingerprint=fingerprint, code=dict(code or current.code))
    return view if grown == current else with_current(view, grown)


def with_current(view: View, current: Generation) -> View:
    """The live generation, said otherwise."""
    return replace(view, generations=tuple(current if one.number == view.live else one for one in view.generations))


def _difference(current: Generation, declared: Declaration, what: str) -> str:
    if current.declared.key != declared.key:
        return f"its key was {', '.join(current.declared.key)} and is {', '.join(declared.key)}"
    if current.declared.columns != declared.columns:
        return f"its columns were {_columns(current.declared)} and are {_columns(declared)}"
    if current.declared.horizon_ms != declared.horizon_ms:
        return f"its horizon was {current.declared.horizon_ms} ms and is {declared.horizon_ms}"
    return f"what computes it has changed{f': {what}' if what else ''}"


def _columns(declared: Declaration) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in declared.columns)


def check_own_rows(view: View, what: str) -> None:
    """`what` is told from the rows of a view's topic, which a view that is folded has not."""
    folded = next((one for one in view.generations if one.is_folded), None)
    if folded is not None:
        raise UsageError(
            f"view {view.name} is a read model of {folded.topic}, and its rows are in no topic: it has no {what}; read"
            f" {folded.topic} itself, or declare the view in an app"
        )


def switch(view: View, number: int, ends: Ends) -> View:
    """Generation `number` is live from these ends of its topic on."""
    if view.building is None or view.building.number != number:
        raise UsageError(f"generation {number} of view {view.name} is not being built; nothing to switch to")
    built = replace(view.building, live=dict(ends))
    return replace(view, generations=(*view.generations[:-1], built), live=number)


def forget(view: View, number: int) -> View:
    if number == view.live:
        raise UsageError(f"generation {number} of view {view.name} is live; it cannot be forgotten")
    return replace(view, generations=tuple(one for one in view.generations if one.number != number))


def take_out(view: View) -> View:
    """What is left of a view in the catalog: which number was its last."""
    newest = max([view.newest, *(one.number for one in view.generations)])
    return View(view.name, "", (), (), (), None, newest=newest)
