"""`tidelog ask NAME KEY`: what a running pipeline keeps of a key, or, with --view, the row that a view has.

Exit code 0 with an answer, 1 without one: the key is unknown, no answer came in time, or the pipeline does not run; the
message says which.
"""

from __future__ import annotations

import json
from argparse import SUPPRESS, Namespace
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.main import OK
from tidelog.cli.terminal import paint, show_json, show_table
from tidelog.errors import UnknownKey

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

EXAMPLES = """\
  tidelog ask visits ada                               what the operator of output visits keeps of the key ada
  tidelog ask visits '{"user": "ada", "page": "/"}'    of a key of several columns; or a list: '["ada", "/"]'
  tidelog ask shop.visits ada --timeout 2 --json
  tidelog ask revenue tea --view                       the row in the view's store
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "ask", "Ask a running pipeline, or a view.", EXAMPLES, parent=command.connection_options()
    )
    made.add_argument("name", metavar="NAME", help="the output: a view or a derived topic, or APP.OUTPUT")
    made.add_argument("key", metavar="KEY", help="its value, or JSON: a list or an object of several")
    made.add_argument("--view", action="store_true", help="read the view's store, and not the operator's state")
    made.add_argument("--store", metavar="URL", help="with --view: which store (default: the first of the view)")
    command.add_allowed(made)
    # What --timeout was called here before: it still counts, and is shown to nobody.
    made.add_argument("--wait", dest="timeout", type=command.seconds, default=SUPPRESS, help=SUPPRESS)
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    within_s = options.timeout
    options.timeout = max(within_s, command.DEFAULT_TIMEOUT_S)  # who wants a quick answer has no quicker broker
    with command.connect(options) as cluster:
        return _ask_view(cluster, options) if options.view else _ask_pipeline(cluster, options, within_s)


def _ask_pipeline(cluster: Cluster, options: Namespace, within_s: float) -> int:
    from tidelog.control.catalog import read_catalog
    from tidelog.views.asking import ask, pipeline_of

    found = ask(cluster, pipeline_of(read_catalog(cluster), options.name), key_of(options.key), within_s)
    if options.json:
        show_json({"rows": found.rows, "more": found.more})
        return OK
    _show(found.rows)
    if found.more:
        print(paint(f"and {found.more} more", "dim"))
    return OK


def _ask_view(cluster: Cluster, options: Namespace) -> int:
    from tidelog.cli.views import key_of, opened
    from tidelog.schema.declaration import row_to_json

    store, declared = opened(cluster, options.name, options)
    try:
        row, _ = store.get(key_of(declared, options.key))
    finally:
        store.close()
    if row is None:
        raise UnknownKey(f"view {options.name} has no row with the key {options.key[:100]!r}")
    told = row_to_json(declared, row)
    if options.json:
        show_json({"rows": [told], "more": 0})
    else:
        _show([told])
    return OK


def key_of(text: str) -> Any:
    """JSON, or text as it is said."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _show(rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    show_table(names, [[_cell(row.get(name)) for name in names] for row in rows])


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
