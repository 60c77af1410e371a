"""`tidelog apply VIEW --store URL`: an applier in this process, until SIGTERM or Ctrl-C.

It ends with 0 when it was told to, and with 1 when another one has taken its place. Its status says how it ended, also
where it never came to apply anything. It obeys `tidelog pause`, `resume` and `stop`; one that a run has started is
paused and stopped by that run (`parts/running.py`). With `--share` it has some of the view's partitions, beside all
others that were started so; what others take over, it leaves to them.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.main import OK
from tidelog.cli.terminal import warn
from tidelog.control.health import PAUSED, RUNNING, STARTING
from tidelog.control.status import STOP
from tidelog.errors import AnotherApplier, BrokerError, Disconnected, TidelogError, UsageError
from tidelog.parts.supervision import Watch, commanded
from tidelog.process import when_parent_ends

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from tidelog.client.cluster import Cluster
    from tidelog.views.applier import Applier

APPLIER = "applier"
PAUSED_LOOK_S = 0.2
LISTEN_EVERY_S = 1.0
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
    made.add_argument("--declared", metavar="URL", help="which of the stores that the view declares, by the catalog")
    command.add_allowed(made)
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
    from tidelog.control.catalog import find_view

    if options.store and options.declared:
        raise UsageError("apply: --store or --declared, not both")
    url = options.store or options.declared or next(iter(find_view(cluster, options.view).stores), None)
    if url is None:
        raise UsageError(f"apply: view {options.view} does not declare a store; give --store URL")
    telling = Telling(cluster, options.view, url, shared=options.share, obeys=not options.with_parent)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: telling.stop())
    if options.with_parent:
        when_parent_ends(telling.stop)
    try:
        while telling.is_to_run():
            _apply(cluster, options, url, telling)
    except Exception as error:
        telling.failed(error)
        raise
    telling.stopped()
    return OK


def _apply(cluster: Cluster, options: Namespace, url: str, telling: Telling) -> None:
    """Until it is told to end, or to rest."""
    from tidelog.control.catalog import find_view
    from tidelog.control.urls import redacted
    from tidelog.views.applier import Applier
    from tidelog.views.stores.allowing import open_recorded
    from tidelog.views.stores.opening import open_store

    with suppress(Disconnected, BrokerError):  # which the applier waits for
        find_view(cluster, options.view)  # a mistyped name is told before anything is made or said of it
    if options.store:
        store = open_store(url, options.view)
    else:
        store = open_recorded(url, options.view, command.allowed(options), write=True)
    if options.share and store.alone:
        raise UsageError(f"apply: {redacted(url)} cannot be shared: {store.alone}; leave out --share")
    applier = Applier(
        cluster,
        options.view,
        store,
        store_name=telling.store_name,
        report=telling.tell,
        say=warn,
        shared=options.share,
    )
    telling.begin(applier)
    print(f"{options.view} is applied to {redacted(url)}; {SHARED if options.share else store.sees}", flush=True)
    try:
        applier.run()
    finally:
        store.close()


class Telling:
    """What status has of an applier, up to how it ended, and what the applier is told.

    One that failed before it had told anything is a part if the view declares its store: somebody expects it there. Any
    other may be a mistyped name or URL. One that shares a view has a name for this once: its record goes with it.
    """

    def __init__(self, cluster: Cluster, view: str, url: str, *, shared: bool, obeys: bool) -> None:
        from tidelog.control.status import Commands, Reporter
        from tidelog.control.urls import redacted
        from tidelog.views.stores.opening import name_of

        self.store_name = name_of(url)
        self._cluster = cluster
        self._view, self._url = view, url
        self._about = {"view": view, "store": redacted(url)}
        self._part = f"{view}.{self.store_name}"
        self._shared = shared
        self._reporter = Reporter(cluster, APPLIER, self._part)
        self._commands = Commands(cluster) if obeys else None
        self._heard = False
        self._listen_at = 0.0
        self._watch = Watch(RUNNING)
        self._applier: Applier | None = None
        self._told = False
        self._error: object = None
        self._failed_ms: int | None = None

    def begin(self, applier: Applier) -> None:
        from tidelog.control.status import Reporter

        self._applier = applier
        if self._watch.state != RUNNING:  # by a signal, meanwhile
            applier.stop()
        if applier.member_id is not None:
            self._part = f"{self._view}.{self.store_name}.{applier.member_id[:8]}"
            self._reporter = Reporter(self._cluster, APPLIER, self._part)

    def stop(self) -> None:
        """From a signal handler or another thread."""
        self._obey(STOP)

    def is_to_run(self) -> bool:
        """Waits while it is paused. False when it is told to end, or has ended as it was told to."""
        ran = self._applier is not None
        self._listen()
        if ran and self._watch.state == RUNNING:
            return False
        while self._watch.state == PAUSED:
            self._reporter.tell({**self._about, "state": PAUSED})
            time.sleep(PAUSED_LOOK_S)
            self._listen()
        if self._watch.state == STARTING:
            self._watch = Watch(RUNNING)
        return self._watch.state == RUNNING

    def _listen(self) -> None:
        if self._commands is None or (now := time.monotonic()) < self._listen_at:
            return
        self._listen_at = now + LISTEN_EVERY_S
        with suppress(TidelogError):
            found = self._commands.next() if self._heard else self._commands.first()
            self._heard = True
            for one in found:
                if (one.kind, one.name) == (APPLIER, self._part):
                    self._obey(one.command)

    def _obey(self, command: str) -> None:
        self._watch = commanded(self._watch, command, time.monotonic())
        if self._applier is not None and self._watch.state != RUNNING:
            self._applier.stop()

    def tell(self, figures: Mapping[str, Any]) -> None:
        self._listen()
        self._told = True
        self._reporter.tell({**self._about, **figures, **self._last_error(figures.get("error"))})

    def _last_error(self, error: object) -> dict[str, int | None]:
        if error is not None and error != self._error:
            self._failed_ms = int(time.time() * 1000)
        self._error = error
        return {"last_error_ms": self._failed_ms}

    def stopped(self) -> None:
        from tidelog.control.health import STOPPED

        if self._applier is None or not self._applier.is_away:  # else nobody would answer, and who asked for it waits
            self._end({"state": STOPPED})

    def failed(self, error: Exception) -> None:
        from tidelog.control.health import FAILED

        if isinstance(error, AnotherApplier) and not self._shared:
            return  # the name is that one's by now, and so is what is told by it
        if self._told or self._is_declared():
            self._end({"state": FAILED, "error": str(error)})

    def _end(self, how: Mapping[str, Any]) -> None:
        from tidelog.control.status import take_away

        if not self._shared:
            figures = {} if self._applier is None else self._applier.figures()
            told = {**self._about, **figures, **how}
            self._reporter.tell({**told, **self._last_error(told.get("error")), "ended": True}, at_once=True)
        elif self._applier is not None:
            with suppress(TidelogError):
                take_away(self._cluster, APPLIER, self._part)

    def _is_declared(self) -> bool:
        from tidelog.control.catalog import VIEW, View, read_catalog

        with suppress(TidelogError):
            found = read_catalog(self._cluster).get((VIEW, self._view))
            return isinstance(found, View) and self._url in found.stores
        return False
