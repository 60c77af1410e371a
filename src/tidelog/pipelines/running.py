"""`tidelog run`: all outputs of an app together, each query and each applier supervised by itself.

    prepared   functions have given DataFrames, views are in the catalog, topics made; a fault ends the run here, but
               for views that have changed, which are failed while the others run (`changed_views.py`)
    running    parts are started and looked at (`supervision.py`); status is told, commands are taken
    stopping   SIGTERM, SIGINT: queries after their micro-batch, then appliers; a last report; the end

One thread does all of it, but for parts that are stopped: those of a kind side by side, since each may take its time.
Its cluster is its own; Spark's threads and `foreachBatch` have theirs.

A broker that is away is waited for once, not once a question: until it answers again, which is looked for every AWAY_S,
shortly, nothing is asked and nothing reported, and parts are supervised as ever.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.client.cluster import Cluster
from tidelog.client.security import Security
from tidelog.clock import rest
from tidelog.control.status import REBUILD, Command, Commands, Reporter
from tidelog.errors import Disconnected, TidelogError, UsageError
from tidelog.pipelines import notifying
from tidelog.pipelines import supervision as watching
from tidelog.pipelines.app import VIEW, Input
from tidelog.pipelines.appliers import appliers_of, changed_appliers
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.handover import Handover, Moved
from tidelog.pipelines.inputs import Reader
from tidelog.pipelines.loading import travelling_whole
from tidelog.pipelines.parts import APPLIER, QUERY, STOP_MAX_S, Part, QueryPart
from tidelog.pipelines.placing import Target, live_topic, place_questions, place_topic, place_view, topic_of_view
from tidelog.pipelines.progress import Lag, lag_of
from tidelog.pipelines.seeding import Seed, seed_of
from tidelog.pipelines.supervision import FAILED, RUNNING, STOPPED, Fault, Watch, fault_of
from tidelog.pipelines.view_topic import check_result, declaration_of, is_keyed, keeps_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APP = "app"
LOOK_EVERY_S = 0.2
COMMANDS_EVERY_S = 1.0
CATALOG_EVERY_S = 1.0
LAG_EVERY_S = 2.0
ANSWER_S = 10.0  # for which the one thread waits for a broker, unless --timeout says otherwise
AWAY_S = 5.0  # until one that did not answer is looked for again
QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}

Say = Callable[..., None]  # an event, and its fields


@dataclass(frozen=True, slots=True)
class Settings:
    """How an app is run, whoever said so."""

    bootstrap: str
    checkpoints: str
    store: str | None = None
    store_unnamed: bool = False  # whether nobody has named it: it is for new views then, and others stay where they are
    store_by_folder: bool = False  # whether `store` is where it is only because this process was started there
    allowed_stores: tuple[str, ...] = ()  # which stores of the catalog are applied to (`views/stores/allowing.py`)
    master: str | None = None
    memory: str | None = None
    trigger_ms: int = 100
    security_file: str | None = None
    answer_s: float = ANSWER_S
    spark: Mapping[str, str] = field(default_factory=dict)
    grown: tuple[str, ...] = ()  # views whose new columns are all that has changed in them

    @property
    def options(self) -> dict[str, str]:
        """Of Spark's source and sink."""
        security = {} if self.security_file is None else {"securityFile": self.security_file}
        return {"kafka.bootstrap.servers": self.bootstrap, **security}

    @property
    def trigger(self) -> dict[str, Any]:
        return {"processingTime": f"{self.trigger_ms} milliseconds"}

    def connect(self) -> Cluster:
        security = None if self.security_file is None else Security.from_file(self.security_file)
        return Cluster(self.bootstrap, client_id="tidelog-run", security=security, timeout_s=self.answer_s)


def session_of(graph: Graph, settings: Settings) -> SparkSession:
    from tidelog.spark.session import leave_errors_to_us, spark_session

    spark = spark_session(
        graph.app.name, master=settings.master, memory=settings.memory, settings={**QUIET, **settings.spark}
    )
    leave_errors_to_us()
    travelling_whole(graph.app)
    return spark


# Prepared -------------------------------------------------------------------------------------------------------------


def reader_of(spark: SparkSession, graph: Graph, settings: Settings, cluster: Cluster) -> Reader:
    def seed(sink: str, one: Input) -> Seed:
        assert one.start_from is not None
        return seed_of(cluster, sink, one.name, one.start_from)

    return Reader(
        spark,
        settings.options,
        graph,
        lambda output: live_topic(cluster, output),
        seed_of=seed,
        view_topic=lambda name: topic_of_view(cluster, name),
    )


def prepare(cluster: Cluster, reader: Reader, settings: Settings) -> list[Target]:
    """Every output placed, in the order in which they read each other."""
    return [placed(cluster, reader, node, settings) for node in reader.graph.nodes]


def placed(cluster: Cluster, reader: Reader, node: Node, settings: Settings) -> Target:
    frame = reader.result(node)
    check_result(node.output, frame)
    if node.asked:
        place_questions(cluster, reader.graph, node)
    if node.output.kind == VIEW:
        declared = declaration_of(node.output, frame.schema)
        why_not = why_not_grown(node.name, frame, settings.grown)
        where, stays = (settings.checkpoints, settings.store), settings.store_unnamed
        return place_view(cluster, reader.graph, node, declared, *where, why_not, stays=stays)
    compact = is_keyed(node.output, frame)
    return place_topic(cluster, reader.graph, node, settings.checkpoints, compact=compact)


def why_not_grown(view: str, frame: DataFrame, grown: tuple[str, ...]) -> str | None:
    if keeps_state(frame):
        return "and its query keeps state, which has no place for them"
    if view not in grown:
        return f"and whether nothing else has changed cannot be told: if so, start once with --grown {view}, or"
    return None


def parts_of(targets: list[Target], reader: Reader, settings: Settings) -> list[Part]:
    queries: list[Part] = [
        QueryPart(target, partial(_frame, reader), settings.options, settings.trigger) for target in targets
    ]
    return queries + [applier for target in targets for applier in appliers_of(target, settings)]


def _frame(reader: Reader, target: Target) -> DataFrame:
    """Of the target as it is when the query is started: a rebuild may have handed it another generation."""
    return replace(reader, sink=target.sink).result(target.node)


# Running --------------------------------------------------------------------------------------------------------------


class Run:
    """Parts under supervision. `say` takes events for the log."""

    def __init__(
        self,
        name: str,
        parts: list[Part],
        cluster: Cluster,
        say: Say,
        stopping: threading.Event | None = None,
        handover: Handover | None = None,
        appliers: Callable[[Target], list[Part]] | None = None,
    ) -> None:
        """`handover` looks for views that were rebuilt elsewhere, `appliers` gives those of their stores then."""
        self.name = name
        self.parts = {(one.kind, one.name): one for one in parts}
        self.watches: dict[tuple[str, str], Watch] = dict.fromkeys(self.parts, Watch())
        self.stopping = stopping or threading.Event()
        self._cluster = cluster
        self._say = say
        self._commands = Commands(cluster)
        self._handover = handover
        self._appliers = appliers
        self._reporters = {key: Reporter(cluster, *key) for key in self.parts if key[0] == QUERY}
        self._itself = Reporter(cluster, APP, name)
        self._lags: dict[tuple[str, str], Lag | None] = {}
        self._started_ms = int(time.time() * 1000)
        self._due = dict.fromkeys(("commands", "catalog", "lag"), 0.0)
        self._heard = False  # what counts for who starts: until then, commands of long ago are not for this run
        self._away_until: float | None = None  # None: the broker answers

    def loop(self) -> int:
        """Until it is told to stop, or nothing is left to run. 0, or 1 where a part has failed for good."""
        self._listen(time.monotonic())
        notifying.notify(notifying.READY)
        while not self.stopping.is_set():
            now = time.monotonic()
            for key in self.parts:
                self._step(key, now)
            self._listen(now)
            self._follow(now)
            self._report(now)
            notifying.notify(notifying.ALIVE)
            if all(watch.ended for watch in self.watches.values()):
                break
            rest(self.stopping, LOOK_EVERY_S)
        self._end()
        return 1 if any(watch.state == FAILED for watch in self.watches.values()) else 0

    def _step(self, key: tuple[str, str], now: float) -> None:
        part, watch = self.parts[key], self.watches[key]
        if watching.should_start(watch, now):
            self.watches[key] = self._start(part, watch, now)
        elif watch.state == RUNNING:
            fault = self._looked_at(part)
            settled = watching.settled(watch, now)
            self.watches[key] = settled if fault is None else self._failed(part, settled, fault, now)

    def _looked_at(self, part: Part) -> Fault | None:
        """A part whose Spark has died cannot even be looked at: a supervisor of this process starts all anew."""
        try:
            return part.look()
        except Exception as error:
            return _fault_at_start(part, error)._replace(final=True)

    def _start(self, part: Part, watch: Watch, now: float) -> Watch:
        try:
            part.start()
        except Exception as error:
            return self._failed(part, watch, _fault_at_start(part, error), now)
        self._say("started", kind=part.kind, name=part.name, restarts=watch.restarts)
        return watching.started(watch, now)

    def _failed(self, part: Part, watch: Watch, fault: Fault, now: float) -> Watch:
        after = watching.failed(watch, fault, now)
        again = None if fault.final else round(after.not_before - now, 1)
        where = {} if fault.line is None else {"at": f"{fault.file}:{fault.line}"}
        self._say("failed", kind=part.kind, name=part.name, error=fault.message, **where, again_in_s=again)
        return after

    # Commands

    def _listen(self, now: float) -> None:
        if now >= self._due["commands"]:
            self._due["commands"] = now + COMMANDS_EVERY_S
            found = self._guarded(self._commands.next if self._heard else self._commands.first)
            self._heard = self._heard or found is not None
            self._obey(found or [])

    def _obey(self, commands: list[Command]) -> None:
        for one in commands:
            for key in self._meant(one):
                self._command(key, one)

    def _meant(self, one: Command) -> list[tuple[str, str]]:
        if one.kind == APP and one.name == self.name:
            return list(self.parts)
        return [key for key in self.parts if key == (one.kind, one.name)]

    def _command(self, key: tuple[str, str], one: Command) -> None:
        if one.command == REBUILD:
            self._say("not taken", command=one.command, name=one.name, use="`tidelog rebuild`")
            return
        before = self.watches[key]
        after = watching.commanded(before, one.command, time.monotonic())
        if after != before:
            self._say(one.command, kind=key[0], name=key[1])
        if before.state == RUNNING and after.state != RUNNING:
            self._stop([self.parts[key]])
        self.watches[key] = after
        self._due["catalog"] = 0.0  # what goes on may be of an old generation: that is looked at before it is started

    # Views that were rebuilt

    def _follow(self, now: float) -> None:
        if self._handover is None or now < self._due["catalog"]:
            return
        self._due["catalog"] = now + CATALOG_EVERY_S
        queries = [part for part in self.parts.values() if isinstance(part, QueryPart)]
        look = self._handover.look
        for one in self._guarded(lambda: list(look(part.target for part in queries))) or []:
            self._move(one, now)

    def _move(self, one: Moved, now: float) -> None:
        key = (QUERY, one.part)
        part, watch = self.parts[key], self.watches[key]
        assert isinstance(part, QueryPart)
        if watch.state == FAILED and watch.fault == one.to:
            return  # it is told once
        if watch.state == RUNNING:
            self._stop([part])
        if isinstance(one.to, Fault):
            self.watches[key] = self._failed(part, watch, one.to, now)
            return
        part.target = one.to
        self._say("handed over", kind=part.kind, name=part.name, generation=one.to.generation)
        self.watches[key] = Watch(restarts=watch.restarts) if watch.state in (RUNNING, FAILED) else watch
        if self._appliers is not None:
            self._apply_to(one.to.node.name, self._appliers(one.to))

    def _apply_to(self, view: str, wanted: list[Part]) -> None:
        """A rebuild may have moved the view to other stores: nobody else would apply to them from now on."""
        gone, new = changed_appliers(self.parts, view, wanted)
        self._stop([self.parts[key] for key in gone])
        for key in gone:
            del self.parts[key], self.watches[key]
        for one in new:
            key = (one.kind, one.name)
            self.parts[key], self.watches[key] = one, Watch()

    # Status

    def _report(self, now: float, *, at_once: bool = False) -> None:
        if now >= self._due["lag"]:
            self._due["lag"] = now + LAG_EVERY_S
            self._lags = self._guarded(self._all_lags) or {}
        for key, reporter in self._reporters.items():
            self._tell(reporter, self.figures(key), at_once=at_once)
        state = STOPPED if at_once else RUNNING
        states = {f"{kind} {name}": watch.state for (kind, name), watch in self.watches.items()}
        told = {"state": state, "pid": os.getpid(), "started_ms": self._started_ms, "parts": states}
        self._tell(self._itself, told, at_once=at_once)

    def _all_lags(self) -> dict[tuple[str, str], Lag | None]:
        """Of all queries, or an error of the first: what one does not get, the others would wait for in vain."""
        queries = [part for part in self.parts.values() if isinstance(part, QueryPart)]
        return {(part.kind, part.name): lag_of(self._cluster, part.target.name) for part in queries}

    def _tell(self, reporter: Reporter, figures: Mapping[str, Any], *, at_once: bool) -> None:
        if not self._is_away():
            reporter.tell(figures, at_once=at_once)
            if reporter.in_vain:
                self._away_until = time.monotonic() + AWAY_S

    def figures(self, key: tuple[str, str]) -> dict[str, Any]:
        watch, lag = self.watches[key], self._lags.get(key)
        return {
            "state": watch.state,
            "restarts": watch.restarts,
            "error": None if watch.fault is None else watch.fault.fields,
            **self.parts[key].figures(),
            "lag": None if lag is None else {"records": lag.records, "seconds": lag.seconds},
        }

    def _guarded(self, ask: Callable[[], Any]) -> Any:
        """What is asked of a broker that may be away: the run goes on without."""
        if self._is_away():
            return None
        try:
            return ask()
        except TidelogError as error:
            self._say("broker", error=str(error))
            if isinstance(error, Disconnected):
                self._away_until = time.monotonic() + AWAY_S
            return None

    def _is_away(self) -> bool:
        if self._away_until is None or time.monotonic() < self._away_until:
            return self._away_until is not None
        try:
            self._cluster.retry(lambda: self._cluster.ask_metadata(()), timeout_s=LOOK_EVERY_S)
        except TidelogError:
            self._away_until = time.monotonic() + AWAY_S
            return True
        self._away_until = None
        self._say("broker answers again")
        return False

    # The end

    def _end(self) -> None:
        notifying.notify(notifying.STOPPING)
        for kind in (QUERY, APPLIER):  # in this order: what queries have committed is still applied
            running = [key for key in self.parts if key[0] == kind and self.watches[key].state == RUNNING]
            self._stop([self.parts[key] for key in running], notifying.MORE_TIME)
        for key, watch in self.watches.items():
            if watch.state != FAILED:
                self.watches[key] = Watch(STOPPED, restarts=watch.restarts, fault=watch.fault)
        self._report(time.monotonic(), at_once=True)
        self._say("stopped", name=self.name)

    def _stop(self, parts: list[Part], *more: str) -> None:
        """At once: each may wait for the end of its micro-batch. Spark may have got the same signal, and be gone."""
        with ThreadPoolExecutor(max(1, len(parts)), "tidelog-stop") as pool:
            stopped = [(part, pool.submit(part.stop)) for part in parts]
            notifying.tell_until_done([one for _, one in stopped], notifying.ALIVE, *more, at_most_s=STOP_MAX_S)
        for part, outcome in stopped:
            if (error := outcome.exception()) is not None:
                self._say("was gone", kind=part.kind, name=part.name, error=str(error).split("\n")[0][:200])


def _fault_at_start(part: Part, error: Exception) -> Fault:
    file = part.file if isinstance(part, QueryPart) else ""
    final = isinstance(error, UsageError)
    found = fault_of(error, str(error), file)
    return found._replace(final=True) if final else found
