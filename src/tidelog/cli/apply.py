"""`tidelog apply VIEW --store URL`: an applier in this process, until SIGTERM or Ctrl-C.

It ends with 0 when it was told to, and with 1 when another one has taken its place.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.main import OK
from tidelog.cli.terminal import warn
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from tidelog.client.cluster import Cluster
    from tidelog.views.applier import Applier

EXAMPLES = """\
  tidelog apply revenue --store sqlite:///shop.db
  tidelog apply revenue --store 'postgresql://app:${PASSWORD}@db/shop' --bootstrap kafka-1:9092

${NAME} in a URL is taken from the environment, and is never shown or kept.
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "apply",
        "Keep a view in a store: whole micro-batches, as the view's topic gets them.",
        EXAMPLES,
        parent=command.connection_options(),
    )
    made.add_argument("view", metavar="VIEW", help="which")
    made.add_argument("--store", metavar="URL", help="where it is kept (default: the first that the view declares)")
    made.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    with command.connect(options) as cluster:
        cluster.is_tidelog()  # an address that is wrong is told at once; later a broker that is away is waited for
        return apply(cluster, options)


def apply(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.status import Reporter
    from tidelog.views.applier import Applier
    from tidelog.views.catalog import find_view
    from tidelog.views.stores.opening import name_of, open_store, redacted

    url = options.store or next(iter(find_view(cluster, options.view).stores), None)
    if url is None:
        raise UsageError(f"apply: view {options.view} declares no store; say --store URL")
    store, name = open_store(url, options.view), name_of(url)
    reporter = Reporter(cluster, "applier", f"{options.view}.{name}")
    applier = Applier(
        cluster,
        options.view,
        store,
        store_name=name,
        report=lambda figures: reporter.tell({"store": redacted(url), **figures}),
        say=warn,
    )
    stop_on_signals(applier, with_parent=options.with_parent)
    print(f"{options.view} is applied to {redacted(url)}; {store.sees}", flush=True)
    try:
        applier.run()
    finally:
        store.close()
        if not applier.is_away:
            reporter.tell({"store": redacted(url), **applier.figures(), "ended": True}, at_once=True)
    return OK


def stop_on_signals(applier: Applier, *, with_parent: bool) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: applier.stop())
    if with_parent:
        from threading import Thread

        def watch() -> None:
            while os.read(sys.stdin.fileno(), 1024):  # not by `sys.stdin`, whose lock the end of Python would wait for
                pass
            applier.stop()

        Thread(target=watch, daemon=True).start()
