"""`tidelog apply VIEW --store URL`: an applier in this process, until SIGTERM or Ctrl-C.

It ends with 0 when it was told to, and with 1 when another one has taken its place. With `--share` it has some of the
view's partitions, beside all others that were started so; what others take over, it leaves to them.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.main import OK
from tidelog.cli.terminal import warn
from tidelog.errors import TidelogError, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from tidelog.client.cluster import Cluster
    from tidelog.views.applier import Applier

EXAMPLES = """\
  tidelog apply revenue --store sqlite:///shop.db
  tidelog apply revenue --store 'postgresql://app:${PASSWORD}@db/shop' --bootstrap kafka-1:9092
  tidelog apply revenue --store 'postgresql://app:${PASSWORD}@db/shop' --share    # as often as is useful

${NAME} in a URL is taken from the environment, and is never shown or kept.
"""
SHARED = "by all that share it; whole micro-batches of each partition, and one partition may be ahead of another"


def parser() -> command.Parser:
    made = command.command_parser(
        "apply",
        "Keep a view in a store: whole micro-batches, as the view's topic gets them.",
        EXAMPLES,
        parent=command.connection_options(),
    )
    made.add_argument("view", metavar="VIEW", help="which")
    made.add_argument("--store", metavar="URL", help="where it is kept (default: the first that the view declares)")
    made.add_argument(
        "--share", action="store_true", help="split the view's partitions with all others that are started so"
    )
    made.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    with command.connect(options) as cluster:
        cluster.is_tidelog()  # an address that is wrong is told at once; later a broker that is away is waited for
        return apply(cluster, options)


def apply(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.status import Reporter, take_away
    from tidelog.views.applier import Applier
    from tidelog.views.catalog import find_view
    from tidelog.views.stores.opening import name_of, open_store, redacted

    url = options.store or next(iter(find_view(cluster, options.view).stores), None)
    if url is None:
        raise UsageError(f"apply: view {options.view} declares no store; say --store URL")
    store, name = open_store(url, options.view), name_of(url)
    if options.share and store.alone:
        raise UsageError(f"apply: {redacted(url)} cannot be shared: {store.alone}; leave out --share")
    applier = Applier(
        cluster,
        options.view,
        store,
        store_name=name,
        report=lambda figures: reporter.tell({"store": redacted(url), **figures}),
        say=warn,
        shared=options.share,
    )
    part = f"{options.view}.{name}" if applier.member_id is None else f"{options.view}.{name}.{applier.member_id[:8]}"
    reporter = Reporter(cluster, "applier", part)
    stop_on_signals(applier, with_parent=options.with_parent)
    print(f"{options.view} is applied to {redacted(url)}; {SHARED if options.share else store.sees}", flush=True)
    try:
        applier.run()
    finally:
        store.close()
        if not applier.is_away and applier.member_id is None:
            reporter.tell({"store": redacted(url), **applier.figures(), "ended": True}, at_once=True)
        elif not applier.is_away:
            with suppress(TidelogError):  # its name was for this once
                take_away(cluster, "applier", part)
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
