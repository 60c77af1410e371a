"""Who starts whom: a broker, HTTP with the page, the events, then Spark; and the end of all of them, in turn.

    demo ─┬─ broker            a process; the log in FOLDER/log
          ├─ HTTP              a process (`serving.py`): the page is there before Spark is
          ├─ tidelog run       a process on Spark, with an applier for each view; checkpoints and views in FOLDER
          ├─ feeder            a thread: events as their time comes
          └─ watcher           a thread: what readers of the views see, and since when

Rules:
- Processes are parts (`parts/children.py`): they end when this one does, however it ends, and Ctrl-C is this process's
  alone, so that the end has an order: events, queries, HTTP, broker. None is started again: a demo shows what is.
- A folder goes on from where it was: log, checkpoints and views are all in it.
- A bounded run counts its minutes from when the views are live. Then it waits for what is under way, checks each view
  against its batch query, and tells.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tidelog import process
from tidelog.broker.embedded import Broker
from tidelog.client.cluster import Cluster
from tidelog.config import http_listener
from tidelog.demo import page, shop
from tidelog.demo.checking import QUERIES, check
from tidelog.demo.feeding import Feeder, make_topics
from tidelog.demo.summary import Summary, figures, lines_of
from tidelog.demo.watching import Watcher
from tidelog.errors import ListenError, TidelogError, UsageError
from tidelog.parts.children import ChildPart
from tidelog.spark.class_archive import SWITCH

HOST, KAFKA_PORT, HTTP_PORT = "127.0.0.1", 9092, 8642
NEEDED = ("pyspark", "pyarrow", "starlette", "uvicorn")
INSTALL = "pip install 'tidelog[spark,http]'"
TRIGGER = "500 milliseconds"  # three queries without a pause would keep a small machine busy for nothing
HEAP = "1g"
# A demo lives for minutes, in which compiling well does not pay; and one partition of state is one task a micro-batch.
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
JAVA_OPTIONS = ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS")  # of the JVM that works out a command, and of Spark's own
ONE_PARTITION = "spark.sql.shuffle.partitions=1"
LIVE_WITHIN_S = 300.0
SETTLED_WITHIN_S = 120.0
STOPPED_WITHIN_S = 60.0
LOOK_S = 0.1
LAST_LINES = 8

Say = Callable[[str], None]


class Plan(NamedTuple):
    folder: Path
    rate: float
    seed: int
    minutes: float | None = None  # None: until it is told to stop


def check_installed() -> None:
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise UsageError(f"{' and '.join(missing)} are not installed; {INSTALL}")


def run(plan: Plan, say: Say, show: Callable[[str], None], stopping: threading.Event) -> bool:
    """Whether all went well. `show` gets the page's address, once it is served."""
    with ExitStack() as ends:
        bootstrap = ends.enter_context(_broker(plan.folder, say)).bootstrap
        address, http = _http(plan.folder, bootstrap, say)
        ends.callback(http.stop)
        say(f"the page is at {address}{page.PATH}, the broker at {bootstrap}, all data in {plan.folder}")
        show(address + page.PATH)
        with Cluster(bootstrap, client_id="tidelog-demo") as cluster:
            number = make_topics(cluster)
        store = f"sqlite:///{plan.folder / 'views.db'}"
        app = _app(plan.folder, bootstrap, store)
        app.start()
        ends.callback(app.stop)
        say("Spark is starting, which takes some seconds; events are coming already")
        watcher = Watcher(store)
        feeder = Feeder(bootstrap, plan.seed, plan.rate, number, watcher.produced)
        for one in (feeder, watcher):
            one.start()
            ends.callback(one.stop)
        return _Running(plan, say, stopping, bootstrap, store, (app, http), feeder, watcher).to_the_end()


class _Running(NamedTuple):
    plan: Plan
    say: Say
    stopping: threading.Event
    bootstrap: str
    store: str
    children: tuple[ChildPart, ...]
    feeder: Feeder
    watcher: Watcher

    def to_the_end(self) -> bool:
        began = time.monotonic()
        if not self._wait(self.watcher.live.is_set, None if self.plan.minutes is None else LIVE_WITHIN_S):
            return self._cut_short("before the views were there")
        self.say(f"the views are live, after {time.monotonic() - began:.0f} s")
        if self.plan.minutes is None:
            self._wait(lambda: False)
            return self._cut_short("")
        if not self._wait_for_minutes(self.plan.minutes):
            return self._cut_short("before its time; nothing was checked")
        return self._tell(self._settled(time.monotonic() - began))

    def _wait_for_minutes(self, minutes: float) -> bool:
        self.say(f"measuring for {minutes * 60:.0f} s")
        until = time.monotonic() + minutes * 60
        return self._wait(lambda: time.monotonic() >= until)

    def _settled(self, seconds: float) -> Summary:
        self.feeder.stop()
        lag = self.watcher.lag
        if not self._wait(lambda: not any(self.watcher.lag.values()), SETTLED_WITHIN_S) and not self.stopping.is_set():
            self.say(f"the views have not caught up in {SETTLED_WITHIN_S:.0f} s: {self.watcher.lag}")
        with Cluster(self.bootstrap, client_id="tidelog-demo") as cluster:
            views = tuple(
                figures(check(cluster, view, self.store), lag[view], self.watcher.freshness[view].seconds)
                for view in QUERIES
            )
        return Summary(seconds, self.feeder.counts, views)

    def _tell(self, summary: Summary) -> bool:
        for line in ["", *lines_of(summary)]:
            self.say(line)
        return summary.equal and not any(self.watcher.lag.values())

    def _wait(self, done: Callable[[], bool], within_s: float | None = None) -> bool:
        """Whether it is done. Not, when it was told to stop, a part has ended, or the time is over."""
        until = None if within_s is None else time.monotonic() + within_s
        while not done():
            if self._fault() or self.stopping.wait(LOOK_S) or (until is not None and time.monotonic() > until):
                return False
        return True

    def _cut_short(self, when: str) -> bool:
        if fault := self._fault():
            raise TidelogError(fault)
        if not self.stopping.is_set():
            raise TidelogError(f"the views were not live in {LIVE_WITHIN_S:.0f} s; {self._last_lines('run')}")
        if when:
            self.say(f"stopped {when}")
        return self.plan.minutes is None

    def _fault(self) -> str | None:
        for child in self.children:
            if (fault := child.look()) is not None:
                return f"{child.kind} is not there: {fault.message}; {self._last_lines(child.kind)}"
        if self.feeder.error is not None:
            return f"no events can be sent: {self.feeder.error}"
        return None

    def _last_lines(self, kind: str) -> str:
        """The folder may be a temporary one, and gone when somebody would look."""
        log = _log(self.plan.folder, kind)
        lines = log.read_text(errors="replace").strip().splitlines()
        return f"the end of {log.name}: {' | '.join(lines[-LAST_LINES:])}"


# The processes --------------------------------------------------------------------------------------------------------


@contextmanager
def _broker(folder: Path, say: Say) -> Iterator[Broker]:
    with Broker(folder / "log", listen=f"{HOST}:{_free_port(KAFKA_PORT, say)}") as broker:
        yield broker


def _free_port(wanted: int, say: Say) -> int:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, wanted))
        except OSError:
            say(f"port {wanted} is taken; the broker takes a free one")
            return 0
    return wanted


def _http(folder: Path, bootstrap: str, say: Say) -> tuple[str, ChildPart]:
    """Where it is served, and who serves it: started, since it has the sockets then."""
    from tidelog.gateway.server import listen

    try:
        sockets = listen(http_listener(f"{HOST}:{HTTP_PORT}"))
    except ListenError:
        say(f"port {HTTP_PORT} is taken; HTTP takes a free one")
        sockets = listen(http_listener(f"{HOST}:0"))
    numbers = [one.fileno() for one in sockets]
    words = [sys.executable, "-m", "tidelog.demo.serving"]
    told = json.dumps({"bootstrap": bootstrap, "sockets": numbers}) + "\n"
    port = sockets[0].getsockname()[1]
    made = _child("http", words, folder, told.encode(), numbers)
    made.start()
    for one in sockets:
        one.close()
    return f"http://{HOST}:{port}", made


def _app(folder: Path, bootstrap: str, store: str) -> ChildPart:
    words = [sys.executable, "-m", "tidelog", "run", str(shop.__file__), "--bootstrap", bootstrap, "--store", store]
    words += ["--checkpoints", str(folder / "checkpoints"), "--trigger", TRIGGER, "--memory", HEAP, "--with-parent"]
    words += ["--set", ONE_PARTITION]
    return _child("run", words, folder)


def _child(kind: str, words: list[str], folder: Path, told: bytes = b"", sockets: Sequence[int] = ()) -> ChildPart:
    """What it says is in a file by its kind. It has a folder as its own, where no settings of the user's lie."""

    def start(words: list[str]) -> subprocess.Popen[bytes]:
        own = {name for name in os.environ if name.startswith("TIDELOG_")} - {SWITCH}
        environment = {name: value for name, value in os.environ.items() if name not in own}
        for name in JAVA_OPTIONS:  # what the user has set wins, since it stands behind
            environment[name] = f"{SHORT_LIFE} {environment.get(name, '')}".strip()
        with _log(folder, kind).open("wb") as said:
            return process.start(
                words,
                told=told,
                stdout=said,
                stderr=said,
                folder=folder,
                descriptors=sockets,
                environment=environment,
                dies=True,
            )

    return ChildPart(kind, "demo", words, {}, reports_as="demo", start=start, end_s=STOPPED_WITHIN_S)


def _log(folder: Path, kind: str) -> Path:
    return folder / f"{kind}.log"
