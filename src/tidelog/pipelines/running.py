"""`tidelog run`: all outputs of an app together, each query and each applier supervised by itself.

    prepared   functions have given DataFrames, views are in the catalog, topics made; a fault ends the run here, but
               for views that have changed, which are failed while the others run (`changed_views.py`)
    running    parts are kept running (`parts/running.py`); lag is looked up, views that were rebuilt are followed.
               Queries whose rows were prepared are started side by side, and all others in turn
    stopping   SIGTERM, SIGINT: queries after their micro-batch, then appliers: what was committed is still applied

One thread does all else. Its cluster is its own; Spark's threads and `foreachBatch` have theirs, and those that start
queries ask no broker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.client.cluster import Cluster
from tidelog.client.security import Security
from tidelog.control.catalog import read_catalog
from tidelog.control.counts import NOTHING
from tidelog.control.health import AT_WORK, FAILED, PAUSED, RUNNING
from tidelog.control.marks import read_mark
from tidelog.control.passed import passed_by
from tidelog.control.registry import registry_at
from tidelog.control.status import Command
from tidelog.parts.part import Fault, Key, Part, Say
from tidelog.parts.running import Supervisor
from tidelog.parts.supervision import Watch, should_start
from tidelog.pipelines.analysing import frames_of
from tidelog.pipelines.app import VIEW, Input
from tidelog.pipelines.appliers import appliers_of, changed_appliers
from tidelog.pipelines.captured_tables import CapturedShape, shape_of
from tidelog.pipelines.going_on import state_of
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.handover import Handover, Moved
from tidelog.pipelines.inputs import Reader
from tidelog.pipelines.loading import travelling_whole
from tidelog.pipelines.parts import QUERY, QueryPart
from tidelog.pipelines.placing import Target, live_topic, place_questions, place_view, topic_of_view
from tidelog.pipelines.placing_topics import How, place_topic
from tidelog.pipelines.progress import Lag, lag_of
from tidelog.pipelines.readiness import Readiness
from tidelog.pipelines.seeding import Seed, seed_of
from tidelog.pipelines.view_topic import check_result, declaration_of, is_keyed, keeps_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.class_archive import Making

CATALOG_EVERY_S = 1.0
LAG_EVERY_S = 2.0
ANSWER_S = 10.0  # for which the one thread waits for a broker, unless --timeout says otherwise
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.tidelog.quiet": "true",
    # Of every plan Spark writes a text for its UI, which nobody looks at; the shortest kind is the cheapest.
    "spark.sql.ui.explainMode": "simple",
}


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
    go_on: tuple[str, ...] = ()  # derived topics whose new code goes on from where the old one was

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
    from tidelog.spark.session import (
        leave_errors_to_us,
        leave_faults_to_us,
        leave_out_defaults,
        leave_out_status,
        leaving_signals,
        spark_session,
    )

    with leaving_signals():
        spark = spark_session(
            graph.app.name, master=settings.master, memory=settings.memory, settings={**QUIET, **settings.spark}
        )
    leave_errors_to_us()
    leave_faults_to_us(spark)
    leave_out_defaults(spark)
    leave_out_status(spark)
    travelling_whole(graph.app)
    return spark


def stop_session(spark: SparkSession, *, was_ready: bool) -> Making | None:
    """And has its classes archived, where that is not done yet and a run has loaded all that it needs: what is made
    then, by a process of its own.
    """
    from tidelog.spark import class_archive

    making = class_archive.begun_by(spark) if was_ready else None
    spark.stop()
    if making is not None:
        class_archive.start(making)
    return making


# Prepared -------------------------------------------------------------------------------------------------------------


def reader_of(spark: SparkSession, graph: Graph, settings: Settings, cluster: Cluster) -> Reader:
    def seed(sink: str, one: Input) -> Seed:
        assert one.start_from is not None
        return seed_of(cluster, sink, one.name, one.start_from)

    def shape(one: Input) -> CapturedShape:
        at, login = one.decoding.get("registry"), one.decoding.get("login_variable")
        registry = None if at is None else registry_at(at, login)
        return shape_of(cluster, graph.app.name, one.name, one.topic, one.key, one.value, registry)

    return Reader(
        spark,
        settings.options,
        graph,
        lambda output: live_topic(cluster, output),
        seed_of=seed,
        view_topic=lambda name: topic_of_view(cluster, name),
        passed_by=lambda name: passed_by(cluster, name),
        shape_of=shape,
    )


def prepare(cluster: Cluster, reader: Reader, settings: Settings) -> list[Target]:
    """Every output looked at, then placed, in the order in which they read each other."""
    frames = frames_of(reader, read_catalog(cluster))
    return [placed(cluster, reader, node, settings, frames.get(node.name)) for node in reader.graph.nodes]


def placed(
    cluster: Cluster, reader: Reader, node: Node, settings: Settings, looked_at: DataFrame | None = None
) -> Target:
    """`looked_at`: its rows, where they are known and were found to be right (`analysing.py`)."""
    frame = reader.result(node) if looked_at is None else looked_at
    check_result(node.output, frame)
    if node.asked:
        place_questions(cluster, reader.graph, node)
    if node.output.kind == VIEW:
        declared = declaration_of(node.output, frame.schema)
        why_not = why_not_grown(node.name, frame, settings.grown)
        where, stays = (settings.checkpoints, settings.store), settings.store_unnamed
        return place_view(cluster, reader.graph, node, declared, *where, why_not, stays=stays)
    keyed, state = is_keyed(node.output, frame), state_of(frame, node.fingerprint)
    how = How(keyed, state, goes_on=node.name in settings.go_on, by_batches=reader.span is not None)
    return place_topic(cluster, reader.graph, node, settings.checkpoints, how)


def why_not_grown(view: str, frame: DataFrame, grown: tuple[str, ...]) -> str | None:
    if keeps_state(frame):
        return "and its query keeps state, which has no place for them"
    if view not in grown:
        return f"and whether nothing else has changed cannot be told: if so, start once with --grown {view}, or"
    return None


def parts_of(targets: list[Target], reader: Reader, settings: Settings) -> list[Part]:
    def query(target: Target) -> QueryPart:
        prepared = reader.prepared.pop(target.node.name, None)
        return QueryPart(target, partial(_frame, reader), settings.options, settings.trigger, prepared=prepared)

    queries: list[Part] = [query(target) for target in targets]
    return queries + [applier for target in targets for applier in appliers_of(target, settings)]


def _start_error(part: QueryPart) -> Exception | None:
    try:
        part.start()
    except Exception as error:
        return error
    return None


def _frame(reader: Reader, target: Target) -> DataFrame:
    """Of the target as it is when the query is started: a rebuild may have handed it another generation."""
    return replace(reader, sink=target.sink).result(target.node)


# Running --------------------------------------------------------------------------------------------------------------


class Run(Supervisor):
    """All parts of an app, and what is to be done when one of its views was rebuilt."""

    def __init__(
        self,
        name: str,
        parts: list[Part],
        cluster: Cluster,
        say: Say,
        stopping: threading.Event | None = None,
        handover: Handover | None = None,
        appliers: Callable[[Target], list[Part]] | None = None,
        readiness: Readiness | None = None,
        when_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """`handover` looks for views that were rebuilt elsewhere, `appliers` gives those of their stores then.
        `when_ready` is called once, when what is to be read can be (`readiness.py`).
        """
        super().__init__(parts, cluster, say, stopping, app=name)
        self._cluster = cluster
        self._handover = handover
        self._appliers = appliers
        self._readiness = readiness
        self._when_ready = when_ready
        self.was_ready = False
        self._due = dict.fromkeys(("catalog", "lag"), 0.0)

    def steps(self, now: float) -> None:
        due = [
            part for part in self._queries() if part.is_prepared and should_start(self.watches[QUERY, part.name], now)
        ]
        if len(due) > 1:
            with ThreadPoolExecutor(len(due), "tidelog-start") as pool:
                errors = list(pool.map(_start_error, due))
            for part, error in zip(due, errors, strict=True):
                self.watches[QUERY, part.name] = self.begun(part, self.watches[QUERY, part.name], now, error)
        super().steps(now)
        for part in self._queries():
            part.forget_prepared()  # what is started later may find other generations, or records that were passed

    def turn(self, now: float) -> None:
        self._look_ready()
        self._follow(now)
        if now >= self._due["lag"]:
            self._due["lag"] = now + LAG_EVERY_S
            lags = self.link.ask(self._all_lags) or {}
            for part in self._queries():
                part.lag = lags.get(part.name)
            self.link.ask(self._look_up_sums)

    def _look_ready(self) -> None:
        at_work = [part for part in self._queries() if self.watches[part.kind, part.name].state in AT_WORK]
        if self._readiness is not None and at_work and self._readiness.is_ready(at_work):
            self._readiness = None
            self.was_ready = True
            self._when_ready()

    def obey(self, key: Key, one: Command) -> None:
        super().obey(key, one)
        self._due["catalog"] = 0.0  # what goes on may be of an old generation: that is looked at before it is started

    def _queries(self) -> list[QueryPart]:
        return [part for part in self.parts.values() if isinstance(part, QueryPart)]

    def _all_lags(self) -> dict[str, Lag | None]:
        """Of all queries, or an error of the first: what one does not get, the others would wait for in vain."""
        return {part.name: lag_of(self._cluster, part.target.group) for part in self._queries()}

    def _look_up_sums(self) -> None:
        """Of a query that has not committed yet: what its predecessors have counted."""
        for part in self._queries():
            if part.observed.sums is None:
                mark = read_mark(self._cluster, part.target.sink)
                found = NOTHING if mark is None else mark.counts
                part.observed.sums = found if part.observed.sums is None else part.observed.sums

    # Views that were rebuilt

    def _follow(self, now: float) -> None:
        if self._handover is None or now < self._due["catalog"]:
            return
        self._due["catalog"] = now + CATALOG_EVERY_S
        look, targets = self._handover.look, [part.target for part in self._queries()]
        for one in self.link.ask(lambda: list(look(targets))) or []:
            self._move(one, now)

    def _move(self, one: Moved, now: float) -> None:
        key = (QUERY, one.part)
        part, watch = self.parts[key], self.watches[key]
        assert isinstance(part, QueryPart)
        if (watch.state == FAILED and watch.fault == one.to) or (watch.state == PAUSED and one.waits):
            return  # it is told once
        if watch.state == RUNNING:
            self.stop([part])
        if isinstance(one.to, Fault):
            self.watches[key] = self.failed(part, watch, one.to, now)
            return
        part.target = one.to
        self.say("handed over", kind=part.kind, name=part.name, generation=one.to.generation)
        self.watches[key] = Watch(restarts=watch.restarts) if watch.state in (RUNNING, FAILED) else watch
        if self._appliers is not None:
            self._apply_to(one.to.node.name, self._appliers(one.to))

    def _apply_to(self, view: str, wanted: list[Part]) -> None:
        """A rebuild may have moved the view to other stores: nobody else would apply to them from now on."""
        gone, new = changed_appliers(self.parts, view, wanted)
        self.stop([self.parts[key] for key in gone])
        for key in gone:
            del self.parts[key], self.watches[key]
        for one in new:
            key = (one.kind, one.name)
            self.parts[key], self.watches[key] = one, Watch()
