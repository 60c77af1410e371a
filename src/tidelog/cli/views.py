"""`tidelog views [list|show|get|rows|as-of|forget]`: what views there are, what is in them, and what was."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.terminal import confirm, paint, show_json, show_table, warn
from tidelog.errors import NotShown, UnknownKey, UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from tidelog.client.cluster import Cluster
    from tidelog.control.catalog import Generation, View
    from tidelog.schema.declaration import Declaration, Key, Row
    from tidelog.schema.expression.tree import Expression
    from tidelog.views.stores.store import Store

EXAMPLES = """\
  tidelog views                                            every view, its generation and its stores
  tidelog views show revenue                               columns, generations, and how far each store is
  tidelog views get revenue tea                            one row
  tidelog views get orders-by-day '["2026-01-31", 7]'      by a key of several columns, as JSON
  tidelog views rows revenue --where "revenue > 100" --limit 20
  tidelog views as-of revenue --at 2026-01-31T12:00        recomputed from the log
  tidelog views forget revenue --generation 2 --yes        a generation that is not live
  tidelog views forget revenue                             the view: no app has it any more
"""
WAIT_S = 10.0
ROWS = 100


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("views", "List views, and read them.", EXAMPLES, parent=reach)
    actions = command.actions(made)

    def action(name: str, what: str) -> ArgumentParser:
        added = actions.add_parser(name, parents=[reach], help=what, description=f"{what[0].upper()}{what[1:]}.")
        if name != "list":
            added.add_argument("view", metavar="VIEW", help="which")
        command.add_json(added)
        return added

    action("list", "views with their stores (the default)")
    command.add_allowed(action("show", "columns, generations and how far each store is"))
    for name, what in (("get", "the row of one key"), ("rows", "rows in the order of the key")):
        added = action(name, what)
        added.add_argument("--store", metavar="URL", help="which store (default: the first that the view declares)")
        command.add_allowed(added)
        added.add_argument(
            "--after",
            "--applied",
            dest="applied",
            metavar="PLACE",
            help="wait until this is applied: TOPIC:PARTITION:OFFSET, or CAPTURE@POSITION of a database",
        )
        added.add_argument(
            "--within", metavar="SECONDS", type=command.seconds, default=WAIT_S, help=f"for that ({WAIT_S:g})"
        )
        if name == "get":
            added.add_argument("key", metavar="KEY", help="its value, or a JSON list of several")
        else:
            _add_rows(added)
            added.add_argument("--after-key", metavar="KEY", help="begin after this key")
    past = action("as-of", "rows as they were at a time, recomputed from the log")
    past.add_argument("--at", metavar="TIME", required=True, help="ISO 8601, @MILLISECONDS, or so long ago (2h)")
    _add_rows(past)
    gone = action("forget", "take a view out of the catalog, or give up a generation that is not live")
    gone.add_argument("--generation", metavar="N", type=command.positive, help="this one alone")
    gone.add_argument("--yes", action="store_true", help="do not ask")
    return made


def _add_rows(added: ArgumentParser) -> None:
    added.add_argument("--where", metavar="CONDITION", help='only rows of which this is true: "revenue > 100"')
    added.add_argument("--limit", metavar="N", type=command.positive, default=ROWS, help=f"at most ({ROWS})")


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments, default="list")
    action = {"list": list_views, "show": show, "get": get, "rows": rows, "as-of": past, "forget": forget}
    with command.connect(options) as cluster:
        return action[options.action](cluster, options)


def list_views(cluster: Cluster, options: Namespace) -> int:
    from tidelog.control.catalog import VIEW, View, read_catalog
    from tidelog.control.urls import redacted

    catalog = sorted(read_catalog(cluster).items())
    views = [one for (kind, _), one in catalog if kind == VIEW and isinstance(one, View)]
    found = [
        {
            "view": one.name,
            "app": one.app,
            "live": one.live,
            "building": one.building.number if one.building else None,
            "key": list(one.generations[-1].declared.key) if one.generations else [],
            "stores": [redacted(url) for url in one.stores],
        }
        for one in views
    ]
    if options.json:
        show_json(found)
    elif found:
        show_table(tuple(found[0]), [[_cell(value) for value in one.values()] for one in found])
    else:
        print("no views")
    return 0


def show(cluster: Cluster, options: Namespace) -> int:
    from tidelog.control.catalog import find_view

    view = find_view(cluster, options.view)
    described: dict[str, Any] = {
        "view": view.name,
        "app": view.app,
        "inputs": list(view.inputs),
        "live": view.live,
        "generations": [_generation(view, one) for one in view.generations],
        "stores": [_store(view, url, options) for url in view.stores],
    }
    if options.json:
        show_json(described)
        return 0
    print(f"{paint(view.name, 'bold')}  of {view.app}  from {', '.join(view.inputs) or '-'}")
    show_table(
        ("generation", "state", "topic", "partitions", "columns"), map(_generation_line, described["generations"])
    )
    if described["stores"]:
        print()
        show_table(("store", "shown", "ends", "mark"), map(_store_line, described["stores"]))
    for one in described["stores"]:
        if one["error"] is not None:
            print(f"\n{one['store']}: {one['error']}")
    return 0


def _generation(view: View, one: Generation) -> dict[str, Any]:
    state = "live" if one.number == view.live else "building" if one is view.building else "old"
    return {
        "number": one.number,
        "state": state,
        "topic": one.topic,
        "partitions": one.partitions,
        "columns": dict(one.declared.columns),
        "key": list(one.declared.key),
        "horizon_ms": one.declared.horizon_ms,
    }


def _generation_line(one: dict[str, Any]) -> Sequence[Any]:
    columns = ", ".join(f"{name} {kind}" for name, kind in one["columns"].items())
    return (one["number"], one["state"], one["topic"], one["partitions"], columns)


def _store(view: View, url: str, options: Namespace) -> dict[str, Any]:
    """How far it is; a store that is not reached is told, and the others are shown."""
    from tidelog.control.urls import redacted
    from tidelog.errors import TidelogError
    from tidelog.views.stores.allowing import open_recorded
    from tidelog.views.stores.store import generation_of

    told: dict[str, Any] = {"store": redacted(url), "shown": None, "ends": None, "mark": None, "error": None}
    try:
        store = open_recorded(url, view.name, command.allowed(options))
        try:
            shown = store.shown()
            place = None if shown is None else store.place(shown)
        finally:
            store.close()
    except TidelogError as error:
        return {**told, "error": str(error)}
    if shown is not None and place is not None:
        told |= {
            "shown": generation_of(shown),
            "ends": {str(at): end for at, end in sorted(place.ends.items())},
            "mark": None if place.mark is None else place.mark.batch_id,
        }
    return told


def _store_line(one: dict[str, Any]) -> Sequence[Any]:
    ends = None if one["ends"] is None else " ".join(f"{at}:{end}" for at, end in one["ends"].items())
    return (one["store"], one["shown"], ends, one["mark"])


def get(cluster: Cluster, options: Namespace) -> int:
    store, declared = opened(cluster, options.view, options)
    try:
        _wait(cluster, store, options)
        row, _ = store.get(key_of(declared, options.key))
    finally:
        store.close()
    if row is None:
        raise UnknownKey(f"view {options.view} has no row with the key {options.key[:100]!r}")
    _show_rows(declared, [row], options)
    return 0


def rows(cluster: Cluster, options: Namespace) -> int:
    from tidelog.views.stores.store import Ask

    store, declared = opened(cluster, options.view, options)
    try:
        _wait(cluster, store, options)
        after = None if options.after_key is None else key_of(declared, options.after_key)
        ask = Ask(where=_where(options), after=after, limit=options.limit)
        page = store.read(ask)
        found = list(page.rows)
        while page.more and len(found) < options.limit:  # a store may end its page early, where the view changes
            page = store.read(ask._replace(after=page.last, limit=options.limit - len(found)))
            found += page.rows
    finally:
        store.close()
    _show_rows(declared, found, options, more=page.more)
    return 0


def _wait(cluster: Cluster, store: Store, options: Namespace) -> None:
    if options.applied is not None:
        from tidelog.views.waiting import parse_after, wait

        try:
            after = parse_after(options.applied)
        except UsageError as error:
            raise UsageError(f"{error}; rows behind a key are --after-key KEY") from None
        wait(cluster, options.view, after, options.within, store=store)


def past(cluster: Cluster, options: Namespace) -> int:
    from tidelog.cli.place import parse_time
    from tidelog.schema.expression.checking import check
    from tidelog.schema.expression.evaluation import predicate
    from tidelog.views.as_of import as_of
    from tidelog.views.as_of import said as iso

    at_ms = parse_time(options.at)
    found = as_of(cluster, options.view, at_ms)
    if found.begins_ms is not None:
        warn(f"view {options.view} did not have a row at {iso(at_ms)}: it begins at {iso(found.begins_ms)}")
    wanted = found.rows
    if (where := _where(options)) is not None:
        counts = predicate(check(where, found.declared.columns))
        wanted = [row for row in wanted if counts(row) is True]
    _show_rows(found.declared, wanted[: options.limit], options, more=len(wanted) > options.limit)
    return 0


def forget(cluster: Cluster, options: Namespace) -> int:
    from tidelog.control import catalog
    from tidelog.views import lifecycle

    name, number = options.view, options.generation
    view = catalog.find_view(cluster, name)
    if number is None:
        return _take_out(cluster, view, options)
    if number not in {one.number for one in view.generations}:
        known = ", ".join(str(one.number) for one in view.generations)
        raise UsageError(f"view {name} has no generation {number}; it has {known}")
    lifecycle.forget(view, number)
    if not options.yes and not confirm(f"forget generation {number} of view {name}?"):
        raise UsageError(f"generation {number} of view {name} is kept; say --yes to forget without being asked")
    editor = catalog.Editor(cluster, name)
    latest = editor.view() or view
    editor.write(lifecycle.forget(latest, number))
    print(f"generation {number} of {name} is forgotten; its topic {view.generation(number).topic} can be deleted")
    return 0


def _take_out(cluster: Cluster, view: View, options: Namespace) -> int:
    """Refused while somebody has it: a run would go on writing to what nobody finds, and an applier would end."""
    from tidelog.control import catalog
    from tidelog.pipelines.view_readers import readers_of
    from tidelog.views import lifecycle

    _check_nobody_has(cluster, view)
    readers = sorted({one.name for one in readers_of(catalog.read_catalog(cluster), view, app="", outputs=())})
    read = f" (which {', '.join(readers)} {'reads' if len(readers) == 1 else 'read'})" if readers else ""
    if not options.yes and not confirm(f"take view {view.name}{read} out of the catalog?"):
        raise UsageError(f"view {view.name} is kept; say --yes to forget it without being asked")
    editor = catalog.Editor(cluster, view.name)
    latest = editor.view() or view
    _check_nobody_has(cluster, latest)  # while it was asked, somebody may have begun
    editor.write(lifecycle.take_out(latest))
    print(f"view {view.name}{read} is forgotten; what it has left behind:")
    show_table(("kind", "name"), _left_behind(cluster, latest))
    return 0


def _check_nobody_has(cluster: Cluster, view: View) -> None:
    import time

    from tidelog.control.health import SILENT_MS
    from tidelog.control.status import read_status
    from tidelog.pipelines.catching_up import appliers_heard, heard_run

    reports, now_ms = read_status(cluster), int(time.time() * 1000)
    if (run := heard_run(reports, view.app, [view.name], now_ms, within_ms=SILENT_MS)) is not None:
        raise UsageError(
            f"view {view.name} is written by a run of app {view.app} (process {run.pid}, {_heard(run.seconds)});"
            " stop it, take the view out of the app, and say it again"
        )
    if appliers := appliers_heard(reports, view.name, now_ms):
        raise UsageError(
            f"view {view.name} is applied by {', '.join(appliers)}; stop that, and say it again; if it was killed, half"
            " a minute after its last report by the clock here, or start it and stop it"
        )


def _heard(seconds: int) -> str:
    if seconds >= 0:
        return f"heard {seconds} s ago: if it was killed, wait for half a minute"
    return f"heard at {-seconds} s ahead of the clock here: if it was killed, wait for as long, or start it and stop it"


def _left_behind(cluster: Cluster, view: View) -> list[Sequence[str]]:
    """Topics that are there, and stores: who knows whether somebody reads them."""
    from tidelog.control.marks import topic_of
    from tidelog.control.status import read_status
    from tidelog.control.urls import redacted
    from tidelog.views.asking import Pipeline

    asked = Pipeline(view.app, view.name)
    named = [one.topic for one in view.generations] + [topic_of(one.sink) for one in view.generations if one.sink]
    named += [asked.questions, asked.replies]
    known = cluster.retry(lambda: cluster.ask_metadata(named)).topics
    left: list[Sequence[str]] = [("topic", one) for one in named if one in known and known[one].led]
    left += [("rows in", redacted(url)) for url in view.stores]
    told = (one.figures.get("checkpoint") for one in read_status(cluster) if one.name == asked.part)
    return left + [("checkpoint", str(folder)) for folder in told if folder]


# Rows -----------------------------------------------------------------------------------------------------------------


def opened(cluster: Cluster, view: str, options: Namespace) -> tuple[Store, Declaration]:
    """The store, and what it shows."""
    from tidelog.control.catalog import find_view
    from tidelog.control.urls import redacted
    from tidelog.views.stores.allowing import open_recorded
    from tidelog.views.stores.opening import open_store

    url: str | None = options.store or next(iter(find_view(cluster, view).stores), None)
    if url is None:
        raise UsageError(f"views: view {view} does not declare a store; give --store URL")
    store = open_store(url, view) if options.store else open_recorded(url, view, command.allowed(options))
    shown = store.shown()
    if shown is None:
        store.close()
        hint = "`tidelog status` shows how its query and its appliers are"
        raise NotShown(f"view {view} is not shown by {redacted(url)} yet; {hint}")
    return store, store.generations()[shown]


def _where(options: Namespace) -> Expression | None:
    from tidelog.schema.expression.parser import parse

    return None if options.where is None else parse(options.where)


def key_of(declared: Declaration, text: str) -> Key:
    """A JSON list of the key's values, or the one value as it is said."""
    from tidelog.schema.column_types import BOOLEAN, LONG
    from tidelog.schema.declaration import from_json

    kinds = [kind for _, kind in declared.columns[: len(declared.key)]]
    if len(kinds) > 1 or text.startswith("["):
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not isinstance(said, list) or len(said) != len(kinds):
            raise UsageError(f"the key is {', '.join(declared.key)}; write a JSON list of {len(kinds)}")
    elif kinds[0] in (LONG, BOOLEAN):
        try:
            said = [json.loads(text)]
        except ValueError:
            raise UsageError(f"{text!r} is not a {kinds[0]}") from None
    else:
        said = [text]
    return tuple(from_json(kind, one) for kind, one in zip(kinds, said, strict=True))


def _show_rows(declared: Declaration, found: Sequence[Row], options: Namespace, *, more: bool = False) -> None:
    from tidelog.schema.declaration import row_to_json

    told = [row_to_json(declared, row) for row in found]
    if options.json:
        show_json(told)
        return
    show_table([name for name, _ in declared.columns], [[_cell(value) for value in row.values()] for row in told])
    if more:
        print(paint(f"there are more; --limit {options.limit} were asked for", "dim"))


def _cell(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return " ".join(value) or None
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
