"""`tidelog events show ENTITY --store NAME`: an entity's history: who did what, when and why; its state then.

The history itself needs no code: headers and fields are shown as they are stored, and a personal field as `(personal)`.
A state needs the app's decider (`--app`), which folds it.
"""

from __future__ import annotations

import argparse
import json
from argparse import Namespace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.main import OK
from tidelog.cli.terminal import show_json, show_table
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.sourcing.time_travel import PastState


def add(actions: argparse._SubParsersAction[command.Parser], reach: command.Parser) -> None:
    what = "an entity's history: who did what, when and why; its state at a version or a time"
    made = actions.add_parser("show", parents=[reach], help=what, description=f"{what[0].upper()}{what[1:]}.")
    made.add_argument("entity", metavar="ENTITY", help="its id")
    made.add_argument("--store", metavar="NAME", required=True, help="the event store")
    made.add_argument("--app", metavar="MODULE:STORE", help="the EventStore whose decider folds states; or FILE.py")
    made.add_argument("--version", metavar="N", type=command.not_negative, help="as it was after this event")
    made.add_argument("--at", metavar="TIME", type=time, help="as it was then: 2026-05-03T10:00Z")
    made.add_argument("--diff", action="store_true", help="what each event changed in the state")
    command.add_json(made)


def time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 2026-05-03T10:00Z") from error


def show(options: Namespace) -> int:
    from tidelog.sourcing.histories import rows_of
    from tidelog.sourcing.store_topics import StoreTopics
    from tidelog.sourcing.time_travel import as_entry, moment, reached

    wanted = moment(options.version, options.at)
    if options.diff and options.app is None:
        raise UsageError("events show: --diff compares states, which the app's decider folds; name it by --app")
    with command.connect(options) as cluster:
        found = list(rows_of(cluster, StoreTopics(options.store), options.entity))
        count = reached([record for record, _ in found], wanted)
        states = [] if options.app is None else states_of(cluster, options)[: count + 1]
    if not found:
        raise UsageError(f"{options.entity!r} has no history in store {options.store!r}")
    told = [as_entry(record, row) for record, row in found[:count]]
    changed = changes_of(states, options) if options.diff else []
    if options.json:
        show_json({"entity": options.entity, "version": count, "events": told, **as_json(states, changed, options)})
    else:
        show_text(told, states, changed, options)
    return OK


def states_of(cluster: Any, options: Namespace) -> list[PastState]:
    from tidelog.sourcing.finding_store import find_store
    from tidelog.sourcing.time_travel import states

    store = find_store(options.app)
    return list(states(cluster, store.topics, options.entity, store.folding))


def fields_of(state: PastState, options: Namespace) -> Any:
    from tidelog.sourcing.finding_store import find_store

    return find_store(options.app).decider.states.fields(state.state)


def changes_of(states: list[PastState], options: Namespace) -> list[list[Any]]:
    from tidelog.sourcing.time_travel import difference

    fields = [fields_of(one, options) for one in states]
    return [difference(before, after) for before, after in pairwise(fields)]


def as_json(states: list[PastState], changed: list[list[Any]], options: Namespace) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if states:
        told["state"] = fields_of(states[-1], options)
    if options.diff:
        told["changes"] = [[change._asdict() for change in of_one] for of_one in changed]
    return told


def show_text(
    told: list[dict[str, Any]], states: list[PastState], changed: list[list[Any]], options: Namespace
) -> None:
    rows = []
    for number, one in enumerate(told):
        why = " ".join(f"{name}={one[name]}" for name in ("command", "correlation", "causation") if one[name])
        if one["metadata"]:
            why += f" {json.dumps(one['metadata'], ensure_ascii=False)}"
        what = json.dumps(one["fields"], ensure_ascii=False)
        if options.diff:
            what = "; ".join(f"{change.field}: {change.before!r} -> {change.after!r}" for change in changed[number])
        rows.append((one["version"], one["at"], one["type"], one["who"] or "", what, why))
    headings = ("version", "at", "event", "who", "changes" if options.diff else "fields", "why")
    show_table(headings, rows)
    if states:
        print(
            f"state at version {states[-1].version}: {json.dumps(fields_of(states[-1], options), ensure_ascii=False)}"
        )
