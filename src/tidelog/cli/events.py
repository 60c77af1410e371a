"""`tidelog events check|show`: what is wrong with a store's histories, whether an app's types fit; one of them."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from tidelog.cli import events_show
from tidelog.cli import options as command
from tidelog.cli.main import FAILED, OK
from tidelog.cli.terminal import paint, show_json

if TYPE_CHECKING:
    from tidelog.sourcing.checking import HistoryFinding

EXAMPLES = """\
  tidelog events check seats                           every record, by the types that the store has written down
  tidelog events check seats --app shop.py:seats       the same, as the app would read them; its types are compared
  tidelog events check seats --app shop.py --json      for CI: 1 where something is wrong
  tidelog events show A1 --store seats                 who did what to an entity, and why
  tidelog events show A1 --store seats --app shop.py --version 3         its state then
  tidelog events show A1 --store seats --app shop.py --at 2026-05-03T10:00Z
  tidelog events show A1 --store seats --app shop.py --diff              what each event changed
"""
SHOWN = 5


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("events", "Look at the histories of an event store.", EXAMPLES, parent=reach)
    actions = command.actions(made)
    what = "find records that no store wrote, versions, types and values that are wrong"
    checking = actions.add_parser("check", parents=[reach], help=what, description=f"{what[0].upper()}{what[1:]}.")
    checking.add_argument("store", metavar="STORE", help="its name")
    checking.add_argument("--app", metavar="MODULE:STORE", help="the EventStore whose types are to fit; or FILE.py")
    command.add_json(checking)
    events_show.add(actions, reach)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    return events_show.show(options) if options.action == "show" else check(options)


def check(options: Namespace) -> int:
    from tidelog.sourcing.checking import check as check_histories
    from tidelog.sourcing.declaring import declared
    from tidelog.sourcing.finding_store import find_store
    from tidelog.sourcing.store_topics import StoreTopics

    types = None if options.app is None else find_store(options.app).decider.types
    with command.connect(options) as cluster:
        stored = declared(cluster, StoreTopics(options.store)).schemas
        changes = [] if types is None else types.changes(stored)
        checked = check_histories(cluster, options.store, types)
    if options.json:
        findings = [one._asdict() for one in checked.findings]
        show_json({"records": checked.records, "findings": findings, "incompatible": changes})
        return FAILED if findings or changes else OK
    for change in changes:
        print(f"{paint('incompatible', 'red')}: {change}")
    _show(checked.findings)
    print(f"{checked.records} records, {len(checked.findings) or 'nothing'} wrong")
    return FAILED if checked.findings or changes else OK


def _show(findings: list[HistoryFinding]) -> None:
    """The first ones of each kind and event type: one mistake in a class is a finding in each of its records."""
    alike: dict[tuple[str, str | None], list[HistoryFinding]] = {}
    for one in findings:
        alike.setdefault((one.kind, one.type), []).append(one)
    for (kind, type), those in alike.items():
        for one in those[:SHOWN]:
            whose = "" if one.entity is None else f" of {one.entity!r}"
            print(f"{paint(kind, 'red')}: partition {one.partition}, offset {one.offset}{whose}: {one.what}")
        if len(those) > SHOWN:
            which = "" if type is None else f" of type {type}"
            print(f"{paint(kind, 'red')}: ... and {len(those) - SHOWN:,} more records{which}; --json has all of them")
