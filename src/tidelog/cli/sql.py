"""`tidelog sql "select ..."`: a question in SQL over topics and views; with `--follow`, a filter that goes on.

Without text it reads a question from standard input, or, on a terminal, is a small prompt. Rows are shown as a table
on a terminal and as JSON, a line each, anywhere else. Everything that it says of SQL is in `tidelog/sql/`.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.place import PLACE_HELP, OffsetSpec, parse_place
from tidelog.cli.row_formats import FORMATS, Shown
from tidelog.cli.terminal import warn
from tidelog.errors import NotShown, TidelogError, UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.sql.session import Asking

EXAMPLES = """\
  tidelog sql "select product, sum(amount) from orders group by 1"
  tidelog sql 'select * from "shop.orders" limit 10'
  tidelog sql "select * from orders where amount > 100" --follow
  tidelog sql "select * from latest('profiles')" --format csv > profiles.csv
  tidelog sql "select count(*) from orders" --from 1h
  tidelog sql                                    a prompt: .tables lists what there is
"""
PATIENCE_S, LOOK_S = 60.0, 0.3  # for a view that is not shown yet
PROMPT, GOES_ON = "tidelog> ", "    ...> "
PROMPT_HELP = "a question ends with a semicolon; .tables lists topics and views, .quit leaves"


def parser() -> command.Parser:
    reach = command.connection_options()
    about = "Ask in SQL over topics and views. Fields of JSON, Avro and Protobuf values are columns."
    made = command.command_parser("sql", about, EXAMPLES, parent=reach)
    made.add_argument("query", metavar="QUERY", nargs="?", help="one SELECT (default: from standard input)")
    made.add_argument("--follow", "-f", action="store_true", help="go on with what comes, until Ctrl-C; filters only")
    begins = f"where topics begin: {PLACE_HELP}, or -N for the last N"
    made.add_argument("--from", dest="start", metavar="PLACE", type=parse_place, help=begins)
    ends = "where they end, itself not read; the same places"
    made.add_argument("--to", dest="end", metavar="PLACE", type=parse_place, help=ends)
    made.add_argument("--latest", action="store_true", help="of each topic the latest record of each key")
    made.add_argument("--raw", action="store_true", help="Kafka's columns alone, key and value as bytes")
    made.add_argument("--strict", action="store_true", help="fail at a value that its columns cannot have")
    made.add_argument("--uncommitted", action="store_true", help="also read open and aborted transactions")
    made.add_argument(
        "--external-access", action="store_true", help="let the question read files and use DuckDB's extensions"
    )
    made.add_argument("--format", choices=FORMATS, help="how rows are shown (default: table on a terminal, else json)")
    command.add_allowed(made)
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    if options.json and options.format not in (None, "json"):
        raise UsageError("sql: --json or --format, not both")
    if options.query is None and sys.stdin.isatty():
        return prompt(options)
    query = sys.stdin.read() if options.query is None else options.query
    if not query.strip():
        raise UsageError("the query is missing; write one, such as tidelog sql 'select * from orders limit 10'")
    if options.follow:
        follow(query, options)
    else:
        ask(query, options)
    return 0


def ask(query: str, options: Namespace, patience_s: float = PATIENCE_S) -> None:
    """A view whose first rows are on their way is waited for: `tidelog run` has just been started."""
    deadline, told = time.monotonic() + patience_s, False
    while True:
        try:
            ask_once(query, options)
            return
        except NotShown as error:
            if time.monotonic() >= deadline:
                raise
            if not told:
                warn(f"{str(error).partition(';')[0]}; waiting for up to {patience_s:g} s")
            told = True
            time.sleep(LOOK_S)


def ask_once(query: str, options: Namespace) -> None:
    from tidelog.sql.session import Question

    question = Question(query, lambda: command.connect(options), asking(options))
    try:
        names, rows = question.rows()
        with Shown(format_of(options), names) as shown:
            shown.rows(rows)
    finally:
        question.close()


def follow(query: str, options: Namespace) -> None:
    from tidelog.sql.following import follow

    shown: Shown | None = None
    start = options.start or OffsetSpec("latest")
    for names, rows in follow(query, lambda: command.connect(options), asking(options, start)):
        shown = shown or Shown(format_of(options), names, every=True)
        shown.rows(rows)


def asking(options: Namespace, start: OffsetSpec | None = None) -> Asking:
    from tidelog.sql.session import Asking
    from tidelog.sql.span import BEGINNING, END, Bound, Options

    begin, end = start or options.start, options.end
    return Asking(
        BEGINNING if begin is None else Bound(*begin),
        END if end is None else Bound(*end),
        options.latest,
        options.external_access,
        Options(not options.uncommitted, options.raw, options.strict),
        command.allowed(options),
    )


def format_of(options: Namespace) -> str:
    if options.json:
        return "json"
    chosen: str = options.format or ("table" if sys.stdout.isatty() else "json")
    return chosen


# --- the prompt ------------------------------------------------------------------------------------------------------


def prompt(options: Namespace) -> int:
    """One line after another; a fault is said, and the prompt goes on."""
    import readline  # noqa: F401  lines can be edited and called back

    print(PROMPT_HELP)
    text = ""
    while True:
        try:
            line = input(GOES_ON if text else PROMPT)
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:
            text = ""
            print()
            continue
        if not text and line.strip().startswith("."):
            if line.strip() in (".quit", ".exit"):
                return 0
            dotted(line.strip(), options)
            continue
        text = f"{text}\n{line}".strip()
        if text.endswith(";"):
            answer(text, options)
            text = ""


def answer(text: str, options: Namespace) -> None:
    from tidelog.cli.main import complain

    try:
        (follow if options.follow else ask)(text, options)
    except KeyboardInterrupt:
        print()
    except (TidelogError, OSError) as error:
        complain(str(error), 1)


def dotted(line: str, options: Namespace) -> None:
    from tidelog.cli.main import complain

    if line != ".tables":
        print(PROMPT_HELP)
        return
    try:
        with command.connect(options) as cluster:
            show_tables(cluster)
    except (TidelogError, OSError) as error:
        complain(str(error), 1)


def show_tables(cluster: Cluster) -> None:
    from tidelog.cli.terminal import show_table
    from tidelog.sql.session import list_tables

    show_table(("kind", "name"), list_tables(cluster))
