"""`tidelog rebuild` as users run it: a process beside `tidelog run`, while orders are written and the view is read.

Readers look at the store and at HTTP all the time. Whatever they see is the view after one micro-batch of the
generation that they see, and neither goes back. A seed gives the orders and the moments at which the rebuild is killed.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.request import urlopen

import psutil
import pytest

from against.apache_kafka import die_with_parent
from against.patience import eventually
from against.tidelog_process import TidelogProcess
from crash.port import free_port
from pipelines.app.looking import PRODUCTS, SOURCES, TOPIC, VIEW, Input, Rows, in_order, rows_of
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.control import marks
from tidelog.control.catalog import find_view
from tidelog.control.status import Commands, read_status
from tidelog.errors import NotShown
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import PAGE_ROWS_MAX, Ask, generation_of

pytestmark = pytest.mark.full

PATIENCE_S = 300.0
BEFORE = 2_000  # orders that are there before anything starts
A_BATCH = 500  # of them, in a micro-batch of a rebuild, so that there are some to be killed in
QUERY = f"{VIEW}.{VIEW}"
LARGE = """

@app.topic("large", key="id")
def large(orders: DataFrame) -> DataFrame:
    return orders.where("amount > 90")
"""
OLD_CODE = Path(__file__).with_name("sums_app.py").read_text() + LARGE
NEW_CODE = OLD_CODE.replace('F.sum("amount")', '(-F.sum("amount"))')
PROGRESS = re.compile(r"^[\d,]+ of [\d,]+ records \(\d+ %\)", re.MULTILINE)
FOREIGN = ("Traceback", "Exception", "log level", "WARNING: ", "NativeCodeLoader")  # of Python, Spark and its workers
OTHER_CODE = f"view {VIEW} is generation 2 by now, which other code has built"


class Process:
    """A command of Tidelog's."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.log = folder / f"{words[0]}.{time.monotonic_ns()}.log"
        with self.log.open("wb") as said:
            line = [sys.executable, "-m", "tidelog", *words]
            self.process = subprocess.Popen(line, cwd=folder, stdout=said, stderr=said, preexec_fn=die_with_parent)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self, *, all_of_it: bool = True) -> None:
        """All of it, or the program alone, as who types `kill -9` does: what it had started finds out by itself."""
        with suppress(psutil.NoSuchProcess):
            program = psutil.Process(self.process.pid)
            for one in (*(reversed(program.children(recursive=True)) if all_of_it else ()), program):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.wait()


class Look(NamedTuple):
    generation: int
    rows: Rows


class Readers:
    """Threads that write orders, read the store, and ask over HTTP, until `stop`."""

    def __init__(self, given: Input, bootstrap: str, store: str, address: str) -> None:
        self.looks: dict[str, list[Look]] = {"store": [], "http": []}
        self.faults: list[str] = []
        self.read: marks.Sources = marks.Sources({}, {})
        self._given, self._bootstrap, self._store = given, bootstrap, store
        self._address = address
        self._ended, self._written = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=[one], daemon=True)
            for one in (self._write, self._look_at_store, self._look_at_http)
        ]
        for thread in self._threads:
            thread.start()

    def _guard(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:  # in a thread that nobody reads from
            self.faults.append(f"{body.__name__}: {error!r}")

    def _write(self) -> None:
        with Cluster(self._bootstrap) as cluster:
            while not self._written.wait(0.4):
                self._given.write(cluster, 5)

    def _look_at_store(self) -> None:
        with closing(open_store(self._store, VIEW)) as store:
            while not self._ended.wait(0.05):
                page = store.read(Ask(limit=PAGE_ROWS_MAX))
                assert page.place.mark is not None
                generation, read = generation_of(page.place.generation), page.place.mark.sources
                if any(read.offsets.get(at, 0) < end for at, end in self.read.offsets.items()):
                    self.faults.append(f"generation {generation} has read {read}, and {self.read} was seen before")
                self.read = read
                self.looks["store"].append(Look(generation, rows_of(page)))

    def _look_at_http(self) -> None:
        while not self._ended.wait(0.05):
            with urlopen(f"{self._address}/views/{VIEW}", timeout=PATIENCE_S) as answer:
                told: Any = json.load(answer)
            self.looks["http"].append(Look(told["generation"], {row["product"]: row for row in told["rows"]}))

    @property
    def generation(self) -> int:
        assert not self.faults, self.faults[:3]
        return min((looks[-1].generation for looks in self.looks.values() if looks), default=0)

    def await_rest(self) -> Rows:
        """No more orders; the rows of the store when it has all of them."""
        self._written.set()
        self._threads[0].join()
        eventually(lambda: (self.generation, in_order(self.read.offsets))[1] == self._given.ends, seconds=PATIENCE_S)
        seen = {name: len(looks) for name, looks in self.looks.items()}
        eventually(lambda: all(len(looks) > seen[name] + 1 for name, looks in self.looks.items()))
        return self.looks["store"][-1].rows

    def stop(self) -> None:
        for event in (self._written, self._ended):
            event.set()
        for thread in self._threads:
            thread.join()

    def check(self, states: dict[int, list[Rows]]) -> None:
        """Every look is a state that a micro-batch of its generation has left, and none before the one seen before."""
        assert not self.faults, self.faults[:3]
        for name, looks in self.looks.items():
            at = (0, 0)
            for look in looks:
                of = states[look.generation]
                begin = at[1] if look.generation == at[0] else 0
                found = next((number for number in range(begin, len(of)) if of[number] == look.rows), None)
                assert look.generation >= at[0] and found is not None, f"{name}, after {at}: {look}"
                at = (look.generation, found)
            counts = [sum(int(row["orders"]) for row in look.rows.values()) for look in looks]  # type: ignore[call-overload]
            assert counts == sorted(counts), f"rows went back in {name}"


class Shop:
    """A broker with HTTP, the app that runs, and readers, all with one folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, Random(f"{seed}/moments")
        self.given = Input(Random(seed))  # by a thread of its own, so with chance of its own
        port = free_port()
        self.broker = TidelogProcess(folder / "broker", {"tidelog.http.listener": f"127.0.0.1:{port}"}).start()
        self.cluster = Cluster(self.broker.bootstrap)
        self.store = f"sqlite:///{folder}/views.db"
        self.processes: list[Process] = []
        (folder / "old.py").write_text(OLD_CODE)
        (folder / "new.py").write_text(NEW_CODE)
        topics.create(self.cluster, TOPIC, partitions=SOURCES)
        self.given.write(self.cluster, BEFORE)
        self.before, self.since = self.given.ends, now()
        self.app = self.start("run", "old.py", "--only", VIEW, "--trigger", "300 milliseconds")
        eventually(self._is_shown, seconds=PATIENCE_S)
        self.readers = Readers(self.given, self.broker.bootstrap, self.store, f"http://127.0.0.1:{port}")

    def start(self, *words: str) -> Process:
        more = ["--bootstrap", self.broker.bootstrap, "--store", self.store, "--memory", "512m"]
        self.processes.append(Process(self.folder, *words, *more))
        return self.processes[-1]

    def rebuild(self, file: str, *words: str) -> Process:
        return self.start("rebuild", VIEW, "--app", file, "--batch-records", str(A_BATCH), *words)

    def _is_shown(self) -> bool:
        assert self.app.process.poll() is None, self.app.said()
        with suppress(NotShown), closing(open_store(self.store, VIEW)) as store:
            return len(store.read(Ask()).rows) == PRODUCTS
        return False

    def query(self) -> dict[str, Any]:
        told = read_status(self.cluster)
        return next((one.figures for one in told if (one.kind, one.name) == ("query", QUERY)), {})

    def is_told_to_pause(self) -> bool:
        return any((one.name, one.command) == (QUERY, "pause") for one in Commands(self.cluster).first())

    def batch(self, file: str, *words: str) -> Rows:
        """The same function over history, by the same command."""
        made = self.start("run", file, "--batch", "--show", "--json", "--only", VIEW, "--master", "local[1]", *words)
        assert made.wait() == 0, made.said()
        found = json.loads(next(line for line in made.said().splitlines() if line.startswith("{")))
        return {row["product"]: row for row in found["rows"]}

    def since_then(self) -> Rows:
        """The view over the orders that were written while it was rebuilt, of every product some."""
        first, every = self.given.after(self.before), self.given.after(self.given.ends)
        found: dict[str, Any] = {name: dict(row) for name, row in every.items()}
        for name, row in found.items():
            row.update({key: row[key] - first[name][key] for key in ("revenue", "orders")})
        return found

    def states(self, sign: dict[int, int]) -> dict[int, list[Rows]]:
        """What each micro-batch of each generation has left, by what its mark says that it has read."""
        found = {}
        for one in find_view(self.cluster, VIEW).generations:
            every = marks.read_marks(self.cluster, one.sink, marks.end_of_marks(self.cluster, one.sink))
            after = [self.given.after(in_order(mark.sources.offsets)) for mark in every]
            found[one.number] = [signed(rows, sign.get(one.number, 1)) for rows in after]
        return found

    def end(self) -> None:
        if hasattr(self, "readers"):
            self.readers.stop()
        for one in self.processes:
            one.kill()
        self.cluster.close()
        self.broker.kill()


def now() -> str:
    """Records have milliseconds: what is written before this is before it, what comes later is not."""
    time.sleep(0.002)
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def signed(rows: Rows, sign: int) -> Rows:
    return {name: {**row, "revenue": sign * int(row["revenue"])} for name, row in rows.items()}  # type: ignore[call-overload]


@pytest.fixture
def shop(tmp_path: Path, seed: int) -> Iterator[Shop]:
    made = Shop(tmp_path, seed)
    try:
        yield made
    finally:
        made.end()


# Killed ---------------------------------------------------------------------------------------------------------------


def kill_early(shop: Shop) -> None:
    """Before its first micro-batch, or about then."""
    killed = shop.rebuild("old.py")
    eventually(lambda: find_view(shop.cluster, VIEW).building, seconds=PATIENCE_S)
    time.sleep(shop.random.uniform(0, 0.5))
    killed.kill(all_of_it=False)


def kill_while_catching_up(shop: Shop) -> None:
    killed = shop.rebuild("old.py")
    building = eventually(lambda: find_view(shop.cluster, VIEW).building, seconds=PATIENCE_S)
    assert building is not None
    batch = shop.random.randint(1, 2)

    def is_there() -> bool:
        mark = marks.read_mark(shop.cluster, building.sink)
        return mark is not None and mark.batch_id >= batch

    eventually(is_there, seconds=PATIENCE_S)
    killed.kill(all_of_it=False)
    assert "gone on with" in killed.said(), "the one that was killed before had begun it"


def kill_near_the_switch(shop: Shop) -> None:
    """When the run has been told to pause: before the record that switches, or just behind it."""
    killed = shop.rebuild("old.py")
    eventually(shop.is_told_to_pause, seconds=PATIENCE_S)
    time.sleep(shop.random.uniform(0, 1.5))
    killed.kill()


@proves("E3", "F2", "F4", "eo.23", "eo.24", "eo.25")
@pytest.mark.timeout(900)
def test_the_old_view_serves_whenever_a_rebuild_is_killed_and_the_same_command_comes_to_the_switch(shop: Shop) -> None:
    for kill in (kill_early, kill_while_catching_up, kill_near_the_switch):
        kill(shop)
        print(f"{kill.__name__}: generation {find_view(shop.cluster, VIEW).live} is live")
        assert shop.app.process.poll() is None, shop.app.said()
    made = shop.rebuild("old.py")
    assert made.wait() == 0, made.said()
    view = find_view(shop.cluster, VIEW)
    assert view.live is not None and view.live > 1 and view.building is None
    assert PROGRESS.search(made.said()) and f"switched view={VIEW} generation={view.live}" in made.said()
    assert f"{VIEW} is generation {view.live} now, in {shop.store}\n" in made.said()
    assert "keeps it up to date from here on" not in made.said(), "somebody runs it"
    eventually(lambda: (shop.query().get("state"), shop.query().get("generation")) == ("running", view.live))
    eventually(lambda: shop.readers.generation == view.live, seconds=PATIENCE_S)
    rows = shop.readers.await_rest()
    shop.readers.check(shop.states({}))
    left = {one.name for one in read_status(shop.cluster) if one.kind in ("app", "query")}
    assert left == {VIEW, QUERY}, "nothing is left of those that were killed"
    assert shop.app.stop() == 0, shop.app.said()
    assert rows == shop.given.after(shop.given.ends) == shop.batch("old.py")


# New code -------------------------------------------------------------------------------------------------------------


@proves("E3", "F4", "P1", "B1", "eo.24", "eo.26", "command_line")
@pytest.mark.timeout(900)
def test_new_code_is_brought_in_beside_the_old_by_a_rebuild_and_a_run(shop: Shop) -> None:
    begun = shop.rebuild("new.py", "--parallelism", "3")
    eventually(lambda: " begun view=" in begun.said(), seconds=PATIENCE_S)
    begun.process.send_signal(signal.SIGINT)
    assert begun.wait() == 130 and "the same command goes on with generation 2" in begun.said(), begun.said()
    made = shop.rebuild("new.py", "--parallelism", "3")
    assert made.wait() == 0, made.said()
    for one in (begun, made):
        assert [word for word in FOREIGN if word in one.said()] == [], one.said()
    tasks = (shop.folder / "tidelog-checkpoints" / VIEW / f"{VIEW}.v2" / "offsets" / "0").read_text()
    assert '"spark.sql.shuffle.partitions":"3"' in tasks
    eventually(lambda: shop.query().get("state") == "failed", seconds=PATIENCE_S)
    message = shop.query()["error"]["message"]
    assert message.startswith(OTHER_CODE) and message.endswith("; start `tidelog run` with the new code")
    assert shop.app.stop() == 1 and OTHER_CODE in shop.app.said(), shop.app.said()
    shop.app = shop.start("run", "new.py", "--only", VIEW, "--master", "local[1]")
    rows = shop.readers.await_rest()
    shop.readers.check(shop.states({2: -1}))
    assert rows == signed(shop.given.after(shop.given.ends), -1)
    assert shop.query()["generation"] == 2 and shop.app.stop() == 0, shop.app.said()
    assert "large" not in topics.names(shop.cluster), "--only has left it out"
    assert shop.batch("new.py", "--from", shop.since, "--to", now()) == signed(shop.since_then(), -1)
