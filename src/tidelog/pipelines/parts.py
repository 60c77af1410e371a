"""A query of this process's Spark, as a part of a run. A thin shell.

- A query is stopped when its micro-batch ends, if it does so soon; what was cut off is done again, once.
- One whose thread died before Spark took it off its list of active queries is given up: no other of its name can be
  started in this process.
- Spark is asked seldom: each question is a round trip into the JVM, and a hundred entries of progress, five times a
  second and query, were a sixth of two cores. Whether it runs: once a second, and at once where the writer has noted an
  error. How far it is: every PROGRESS_S, and only what was not told before.
- Spark waits for the next trigger by the time of day: where that is set back by an hour, it would wait for an hour. So
  such a query is started again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidelog.clock import Jumps
from tidelog.control.counts import NOTHING, OPERATORS, RECORDS, Counts, held_in
from tidelog.control.metrics import lost_by_operator
from tidelog.errors import ViewChanged
from tidelog.parts.children import END_S
from tidelog.parts.part import Fault
from tidelog.parts.running import STOP_MAX_S
from tidelog.pipelines.faults import fault_of, is_told_in_a_line, with_remedies, without_plan
from tidelog.pipelines.losses import Losses
from tidelog.pipelines.observed import Observed, Prepared
from tidelog.pipelines.ordering import notices_of
from tidelog.pipelines.placing import Target
from tidelog.pipelines.progress import Lag, Progress, held_by_spark, is_micro_batch
from tidelog.pipelines.queries import Written, has_ended, has_found_nothing, start_query, told_since
from tidelog.pipelines.view_readers import command_of
from tidelog.spark.options import ELSEWHERE, GO_ON
from tidelog.spark.session import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

QUERY, APPLIER = "query", "applier"
BETWEEN_S = STOP_MAX_S - END_S  # for which a stop waits for the end of a micro-batch
ENDED = "the query ended without an error: it was stopped by others, or its thread died, and Spark's log says of what"
STUCK = "its thread has died, and Spark does not let it be started again in this process; restart that"
LOOK_S = 0.02
LOOKING = "Getting offsets"  # how Spark says that a trigger looks for what is new
ALIVE_S = 1.0
PROGRESS_S = 2.0


class QueryPart:
    kind = QUERY
    reports_as = None

    def __init__(
        self,
        target: Target,
        frame: Callable[[Target], DataFrame],
        options: Mapping[str, str],
        trigger: Mapping[str, Any],
        observed: Observed | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        """`observed`: who observes the frame, where that was made before. `prepared`: what it has the first time, if it
        is started soon.
        """
        self.target = target
        self.name = target.part
        self._frame = frame
        self._options = options
        self._trigger = trigger
        self._query: StreamingQuery | None = None
        self._written = Written()
        self._made_before = observed is not None
        self._prepared = prepared
        self.observed = observed or Observed(target.topic)
        self._jumps = Jumps()
        self._back_s = 0.0  # by which the clock was set back, and Spark may wait longer
        self._told: set[str] = set()  # what is told once, by its name
        self._due = dict.fromkeys(("alive", "progress"), 0.0)  # when Spark is to be asked next
        self._losses = Losses()
        self.progress = Progress()
        self.lag: Lag | None = None  # which its run looks up

    @property
    def file(self) -> str:
        return self.target.node.output.place.file

    @property
    def is_prepared(self) -> bool:
        """Then its start asks no broker, and calls no function of the app."""
        return self._prepared is not None

    def forget_prepared(self) -> None:
        self._prepared = None

    def start(self) -> None:
        prepared = self._prepared
        self.forget_prepared()
        if self.target.changed is not None:
            raise ViewChanged(self.target.changed)
        self._written = Written(rows=self._written.rows)
        if prepared is not None:
            self.observed = prepared.observed
            self.observed.topic = self.target.topic
            activate(prepared.frame.sparkSession)  # in a thread that may be new
        elif not self._made_before:
            self.observed = Observed(self.target.topic)  # its sums are looked up again: it may be of another generation
        self._jumps, self._back_s = Jumps(), 0.0
        self._due = dict.fromkeys(self._due, 0.0)
        with self.observed.declared():
            frame = self._frame(self.target) if prepared is None else prepared.frame
            self.observed.begin()
            how: dict[str, Any] = {"trigger": self._trigger, "written": self._written, "observed": self.observed}
            self._query = start_query(frame, self.target, self._options, **how)

    def look(self) -> Fault | None:
        assert self._query is not None
        if self._is_due("progress", PROGRESS_S):
            self._take_progress()
        self._tell()
        self._back_s -= min(0.0, self._jumps.look())
        if not self._is_due("alive", ALIVE_S) and not self._back_s and self._written.error is None:
            return None
        if not has_ended(self._query):
            return self._held_up(self._query)
        self._take_progress()
        fault = self._fault(self._query.exception())
        if self._query.isActive:  # still, though its thread is no more: by then Spark has said all that it will
            return fault._replace(message=f"{fault.message}; {STUCK}", final=True)
        return fault

    def _fault(self, error: object) -> Fault:
        if error is None and self._written.error is None:
            return Fault(ENDED, final=False)
        fault = fault_of(self._written.error, str(error), self.file)
        if self._written.error is None and not is_told_in_a_line(fault):  # else it was logged when it was raised
            logging.getLogger(__name__).error("%s: %s", self.name, without_plan(str(error)))
        way = _way_on(self.target)
        said = fault.message.replace(GO_ON, way).replace(ELSEWHERE, way)
        return fault._replace(message=with_remedies(said, self.target))

    def _held_up(self, query: StreamingQuery) -> Fault | None:
        """Where it waits, since the clock was set back: it is stopped then."""
        if not self._back_s or query.status["isTriggerActive"]:
            return None
        self._written.stopping = True
        query.stop()
        self._take_progress()
        return Fault(f"the clock was set back by {self._back_s:.0f} s, for which Spark would wait", final=False)

    def has_worked(self) -> bool:
        """Whether a micro-batch was committed since it was started, or a trigger found nothing to read."""
        return self._written.batch >= 0 or (self._query is not None and has_found_nothing(self._query))

    def stop(self) -> None:
        query = self._query
        if query is None:
            return
        if not query.isActive:
            query.stop()  # for its thread, which asks for Spark until it has ended
            return
        deadline, before = time.monotonic() + BETWEEN_S, _ended_batches(query)
        while query.isActive and time.monotonic() < deadline and _is_at_work(query):
            if _ended_batches(query) != before:
                break  # of a query that is always behind the next one has begun by now, and has done nothing yet
            time.sleep(LOOK_S)
        self._written.stopping = True
        query.stop()
        self._take_progress()

    def figures(self) -> dict[str, Any]:
        node = self.target.node
        told = self.progress.fields(int(time.time() * 1000), self._operators())
        told |= {"rows_out": self._written.rows, "left_out": self.counts.get(RECORDS, {})}
        time_of = next((one.time for one in node.reads if one.time is not None), None)
        return {
            "app": self.target.app,
            "output": {"kind": node.output.kind, "name": node.name, "topic": self.target.topic},
            "inputs": [one.topic if hasattr(one, "topic") else one.name for one in node.reads],
            "generation": self.target.generation,
            "fingerprint": node.fingerprint,
            "checkpoint": self.target.checkpoint,
            "answers": node.asked,
            "roads": dict(self._written.roads),
            "lateness_ms": None if time_of is None else time_of.lateness_ms,
            **told,
            "held": held_in(self.counts) | held_by_spark(self.progress.rows_by_operator, self._written.holding),
            "group": self.target.group,
            "lag": None if self.lag is None else self.lag.fields,
        }

    def fault_of(self, error: Exception) -> Fault:
        return fault_of(error, str(error), self.file)

    @property
    def counts(self) -> Counts:
        """Since the first micro-batch of its sink."""
        return self.observed.sums or NOTHING

    def _tell(self) -> None:
        for name, text in notices_of(self.target, self.counts.get(OPERATORS, {})).items():
            if name not in self._told:
                self._told.add(name)
                logging.getLogger(__name__).warning("%s: %s", self.name, text)
        for text in self._losses.news(self.counts, lost_by_operator(self._operators()), time.monotonic()):
            logging.getLogger(__name__).warning("%s: %s", self.name, text)

    def _operators(self) -> dict[str, Any]:
        """What became of rows: in operators of ours, and in Spark's own."""
        return {"operators": self.counts.get(OPERATORS, {}), "by_spark": self.progress.by_spark}

    def _is_due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._due[what]:
            return False
        self._due[what] = now + every_s
        return True

    def _take_progress(self) -> None:
        if self._query is not None:
            told = told_since(self._query, self.progress.last)
            self.progress.take(told)
            if told:
                self._written.count(max((int(one["batchId"]) for one in told if is_micro_batch(one)), default=-1))
                self._written.state_bytes = self.progress.state_bytes


def _way_on(target: Target) -> str:
    """After data loss: an app has no options of the source, and what is gone would be missing without a word."""
    return f"`{command_of(target.node)}` builds the {target.node.output.kind} from what the log has now"


def _is_at_work(query: StreamingQuery) -> bool:
    """Whether a micro-batch may be under way: one that is still looking for records has done nothing, and may wait for
    them.
    """
    status = query.status
    return bool(status["isTriggerActive"]) and not str(status["message"]).startswith(LOOKING)


def _ended_batches(query: StreamingQuery) -> Any:
    last = query.lastProgress
    return None if last is None else (last["batchId"], last["timestamp"])
