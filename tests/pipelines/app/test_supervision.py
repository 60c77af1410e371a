"""Queries as parts: what their errors are told as, when Spark has to be left, and how far they are."""

from __future__ import annotations

import json
from traceback import format_exception
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from proving import proves
from tidelog import clock as time_of_day
from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Mark, Sources
from tidelog.errors import Disconnected, LostCheckpoint, PipelineFailed, UndecodableValue, UnknownSchema, UsageError
from tidelog.parts.part import Fault
from tidelog.pipelines.app import App
from tidelog.pipelines.faults import fault_of, is_told_in_a_line, with_remedies, without_plan
from tidelog.pipelines.graph import graph_of
from tidelog.pipelines.parts import ENDED, STUCK, QueryPart
from tidelog.pipelines.placing import Target
from tidelog.pipelines.progress import Progress
from tidelog.pipelines.queries import HANDED_MAX, Written, lost_checkpoint, noting_errors, told_since
from tidelog.pipelines.view_readers import command_of
from tidelog.spark.commit import Writing, is_due
from tidelog.spark.options import GO_ON
from tidelog.spark.routing import lost_target

THROUGH_SPARK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted.
=== Streaming Query ===
org.apache.spark.SparkException: Job aborted due to stage failure
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 100, in main
  File "/home/me/shop.py", line 17, in price
    raise ValueError("no price")
ValueError: no price

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""

TOO_BUSY = """Python worker failed to connect back.
=== Streaming Query ===
Identifier: orders [id = 1, runId = 2]
Current State: INITIALIZING"""


@proves("P1", "P3")
def test_an_error_of_the_users_function_names_its_line_and_is_final_unless_a_service_may_come_back() -> None:
    fault = fault_of(None, THROUGH_SPARK, "/home/me/shop.py")
    assert fault == Fault("ValueError: no price", True, "/home/me/shop.py", 17)
    away = THROUGH_SPARK.replace("ValueError: no price", "ConnectionRefusedError: [Errno 111] prices:80")
    assert not fault_of(None, away, "/home/me/shop.py").final
    ours = THROUGH_SPARK.replace("/home/me/shop.py", "/x/tidelog/spark/sink.py")
    assert not fault_of(None, ours, "/home/me/shop.py").final, "it may pass: nobody knows"


@proves("P1", "P3")
def test_an_error_in_a_users_operator_names_the_row_where_it_is_known() -> None:
    said = THROUGH_SPARK.replace("no price\n\n", "no price\nin the row {'product': 'tea'}\n\n")
    assert fault_of(None, said, "/home/me/shop.py").message == "ValueError: no price (in the row {'product': 'tea'})"


UNDECODABLE = (
    "column value of topic orders, partition 0, offset 17 cannot be decoded: it is not JSON, at byte 1;"
    " on_error='dead_letter' or 'null' goes on without it"
)


@proves("P1", "P3")
def test_a_record_that_cannot_be_decoded_is_told_in_one_line_with_remedies_that_work() -> None:
    said = THROUGH_SPARK.replace("ValueError: no price", f"tidelog.errors.UndecodableValue: {UNDECODABLE}")
    fault = fault_of(None, said, "/home/me/app.py")
    assert fault.final and is_told_in_a_line(fault)
    told = with_remedies(fault.message, target_of("revenue"))
    assert told.startswith("topic orders, partition 0, offset 17: value cannot be decoded: it is not JSON, at byte 1; ")
    assert "`tidelog pass revenue orders:0:17` and `tidelog resume shop.revenue` go on without it" in told
    assert "or declare on_error='dead_letter' or 'null' for stream 'orders' (test_supervision.py:" in told
    unknown = said.replace("UndecodableValue", "UnknownSchema")
    assert not fault_of(None, unknown, "/home/me/app.py").final, "a registry may get to know it"


@proves("P3")
@pytest.mark.parametrize(
    ("error", "text", "final"),
    [
        (LostCheckpoint("gone"), "", True),
        (UsageError("no key"), "", True),
        (Disconnected("away"), "", False),
        (UndecodableValue("bad"), "", True),
        (UnknownSchema("the registry has no schema 17"), "", False),
        (None, "Caused by: tidelog.errors.StateMismatch: written by another", True),
        (None, "[USER_RAISED_EXCEPTION] two rows of one key", True),
        (None, "tidelog.errors.Disconnected: away", False),
        (OSError("disk full"), "", False),
        (AnalysisException("[STREAMING_OUTPUT_MODE] not with this plan"), "", True),
        (AnalysisException("[PYTHON_DATA_SOURCE_ERROR] Python worker failed to connect back."), "", False),
        (None, f"{TOO_BUSY}\nLogical Plan:\nFilter (verdict = INCOMPATIBLE)", False),
    ],
)
def test_what_is_final(error: Exception | None, text: str, final: bool) -> None:
    assert fault_of(error, text, "shop.py").final is final


@proves("P3")
def test_what_stands_in_a_plan_does_not_make_a_fault_final_and_a_broker_that_is_away_is_named() -> None:
    plan = "Project [raise_error(USER_RAISED_EXCEPTION, map(errorMessage, _op of a changelog is -U))]"
    away = (
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform initialOffset:"
        " Traceback (most recent call last):\n"
        '  File "/x/tidelog/client/cluster.py", line 110, in any_node\n'
        '    raise Disconnected(f"no broker was reached")\n'
        "tidelog.errors.Disconnected: no broker was reached: no connection to 127.0.0.1:9092\n"
        " SQLSTATE: 38000\n=== Streaming Query ===\nIdentifier: people.v1 [id = 1, runId = 2]\n"
        f"Current Committed Offsets: {{}}\n\nCurrent State: ACTIVE\n\nLogical Plan:\n{plan}\n   +- LocalRelation\n"
    )
    fault = fault_of(None, away, "/home/me/shop.py")
    assert (fault.final, fault.message) == (
        False,
        "Disconnected: no broker was reached: no connection to 127.0.0.1:9092",
    )
    raised = away.replace("tidelog.errors.Disconnected: no", "[USER_RAISED_EXCEPTION] two rows of one key; no")
    assert fault_of(None, raised, "/home/me/shop.py").final, "what Spark says of the error itself still counts"
    stack = f"{away}\nJVM stacktrace:\norg.apache.spark.sql.AnalysisException: not with this plan"
    assert fault_of(None, stack, "/home/me/shop.py").final
    assert plan not in without_plan(away) and "no broker was reached" in without_plan(away)


@proves("P3")
def test_a_query_that_ended_without_a_word_is_told_so() -> None:
    assert fault_of(None, "", "shop.py").message == "it ended"


def target_of(output: str) -> Target:
    app = App("shop")
    app.stream("orders", value="id long")
    app.view("revenue", key="id")(lambda orders: orders)
    app.topic("big")(lambda orders: orders)
    node = graph_of(app).node(output)
    return Target(node, "shop", output, f"shop.{output}", f"/c/shop/{output}", generation=int(output == "revenue"))


def query_with(*, is_active: bool = False, is_alive: bool = False, exception: str | None = None) -> Any:
    """As Spark tells of a query, and of its thread."""
    thread = SimpleNamespace(isAlive=lambda: is_alive)
    running = SimpleNamespace(queryExecutionThread=lambda: thread)
    inner = SimpleNamespace(streamingQuery=lambda: running, recentProgress=list)
    return SimpleNamespace(isActive=is_active, exception=lambda: exception, _jsq=inner)


@proves("P3")
def test_a_query_that_ended_without_an_error_has_failed_and_is_tried_again() -> None:
    part = QueryPart(target_of("big"), cast("Any", None), {}, {})
    part._query = query_with(is_active=True, is_alive=True)
    assert part.look() is None
    part._query = query_with()
    assert part.look() is None, "it is asked once a second"
    part._due["alive"] = 0.0
    assert part.look() == Fault(ENDED, final=False)


@proves("P3")
def test_a_query_tells_the_group_by_which_its_lag_can_be_looked_up_when_it_has_ended() -> None:
    assert QueryPart(target_of("big"), cast("Any", None), {}, {}).figures()["group"] == "tidelog.shop.big"


@proves("P3")
def test_a_query_is_asked_seldom_and_at_once_where_its_writer_has_failed() -> None:
    part = QueryPart(target_of("big"), cast("Any", None), {}, {})
    part._query = query_with(is_active=True, is_alive=True)
    assert part.look() is None
    part._query, part._written.error = query_with(), Disconnected("no broker")
    assert part.look() == Fault("Disconnected: no broker", final=False)


@proves("P3")
@pytest.mark.parametrize(
    ("error", "said"), [(None, ENDED), (Disconnected("no broker"), "Disconnected: no broker")], ids=["none", "passing"]
)
def test_a_query_whose_thread_died_before_spark_could_say_so_has_failed_for_good(
    error: Exception | None, said: str
) -> None:
    """Spark has its name among those that are active, and refuses another of that: trying again is in vain."""
    part = QueryPart(target_of("big"), cast("Any", None), {}, {})
    part._query, part._written.error = query_with(is_active=True), error
    assert part.look() == Fault(f"{said}; {STUCK}", final=True)


@proves("P3")
def test_a_lost_checkpoint_is_said_once_in_what_spark_writes_to_its_log() -> None:
    written = Written()
    with pytest.raises(LostCheckpoint) as found, noting_errors(target_of("big"), written):
        raise LostCheckpoint("sink big is another query's; start it with a new checkpoint", "was lost")
    assert found.value is written.error
    told = "".join(format_exception(found.value))
    assert told.count("LostCheckpoint: ") == 1 and "its checkpoint in /c/shop/big was lost" in told


CANCELLED = "org.apache.spark.SparkException: Job 3 cancelled"
JAVA_FRAMES = "\tat org.apache.spark.scheduler.DAGScheduler.handleJobGroupCancelled(DAGScheduler.scala:1)\n" * 300


@proves("P3")
def test_an_error_of_the_jvm_goes_back_to_it_without_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark looks in it, by a deep regular expression, for what a stop does to a query: that must be found."""
    said = f"An error occurred while calling o7.collect.\n: {CANCELLED}\n{JAVA_FRAMES}"
    said += f"Caused by: java.lang.InterruptedException\n{JAVA_FRAMES}\t... 60 more\n"
    monkeypatch.setattr(Py4JJavaError, "__str__", lambda _: said)
    error, written = Py4JJavaError("", SimpleNamespace(_target_id="o8")), Written()
    with pytest.raises(PipelineFailed) as found, noting_errors(target_of("big"), written):
        raise error
    assert written.error is error
    told = "".join(format_exception(found.value))
    begun = told.index("py4j.protocol.Py4JJavaError: An error occurred while calling")
    assert f"{CANCELLED}\nCaused by: java.lang.InterruptedException" in told[begun:]
    assert len(told) - begun <= HANDED_MAX + 1 and "\tat " not in told


@proves("P3")
@pytest.mark.parametrize("stopping", [False, True], ids=["fails", "is stopped"])
def test_the_frames_of_an_error_of_the_jvm_are_logged_once_unless_its_query_is_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stopping: bool
) -> None:
    monkeypatch.setattr(Py4JJavaError, "__str__", lambda _: f"An error occurred\n: {CANCELLED}\n{JAVA_FRAMES}")
    error, written = Py4JJavaError("", SimpleNamespace(_target_id="o8")), Written(stopping=stopping)
    with pytest.raises(PipelineFailed), noting_errors(target_of("big"), written):
        raise error
    logged = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert len(logged) == (0 if stopping else 1)
    assert all(one.startswith("shop.big: ") and JAVA_FRAMES in one for one in logged)


@proves("P3")
def test_what_was_left_out_for_spark_is_still_told_of_an_error_of_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Py4JJavaError, "__str__", lambda _: THROUGH_SPARK)
    error = Py4JJavaError("", SimpleNamespace(_target_id="o8"))
    handed = "tidelog.errors.PipelineFailed: py4j.protocol.Py4JJavaError: An error occurred while calling o7.collect."
    fault = fault_of(error, handed, "/home/me/shop.py")
    assert fault == Fault("ValueError: no price", True, "/home/me/shop.py", 17)


@proves("P3", "E3")
@pytest.mark.parametrize(
    ("output", "way"), [("revenue", "`tidelog rebuild revenue --app "), ("big", "`tidelog rebuild big --app ")]
)
def test_an_app_whose_input_was_cut_is_told_what_it_can_do_and_no_option_that_it_has_not(output: str, way: str) -> None:
    part = QueryPart(target_of(output), cast("Any", None), {}, {})
    text = "tidelog.errors.DataLoss: orders[0] from 0 up to 20 and now has 12 up to 20; data may be lost: " + GO_ON
    part._query = query_with(exception=text)
    fault = part.look()
    assert fault is not None and fault.final
    assert way in fault.message and "now has 12 up to 20" in fault.message and "failOnDataLoss" not in fault.message


@proves("P3", "eo.14")
@pytest.mark.parametrize(
    ("output", "way"), [("revenue", "`tidelog rebuild revenue --app "), ("big", "`tidelog rebuild big --app ")]
)
def test_an_app_whose_topic_was_deleted_under_it_has_failed_for_good_and_is_told_what_it_can_do(
    output: str, way: str
) -> None:
    part = QueryPart(target_of(output), cast("Any", None), {}, {})
    part._query = query_with(exception=f"tidelog.errors.DataLoss: {lost_target(output, 'was deleted')}")
    fault = part.look()
    assert fault is not None and fault.final
    assert fault.message.startswith(f"DataLoss: topic {output}, where this query writes, was deleted; what it had")
    assert way in fault.message and "by a sink" not in fault.message


@proves("P3")
def test_a_query_is_started_again_when_the_clock_is_set_back_since_spark_waits_by_the_time_of_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(time=lambda: clock.now, monotonic=lambda: 0.0, now=10_000.0)
    monkeypatch.setattr(time_of_day, "time", clock)
    part, query = QueryPart(target_of("revenue"), cast("Any", None), {}, {}), query_with(is_active=True, is_alive=True)
    query.status, stopped = {"isTriggerActive": False}, list[bool]()
    query.stop = lambda: stopped.append(True)
    part._query = query
    for harmless in (10_000.0, 96_400.0, 96_399.0):
        clock.now = harmless
        assert part.look() is None
    clock.now, query.status["isTriggerActive"] = 10_000.0, True
    assert part.look() is None and not stopped, "its micro-batch comes to its end"
    query.status["isTriggerActive"] = False
    fault = part.look()
    assert fault == Fault("the clock was set back by 86399 s, for which Spark would wait", final=False)
    assert stopped


@proves("P3", "eo.6")
@pytest.mark.parametrize(
    ("output", "way"),
    [
        ("revenue", "`tidelog rebuild revenue --app {file}` rebuilds it from the log, and this run then goes on"),
        ("big", "`tidelog rebuild big --app {file}` rebuilds it from the log, "),
    ],
)
@pytest.mark.parametrize(
    ("query", "batch", "what"),
    [("new", 0, "was lost, or belongs to another query"), ("old", 3, "is older than what it has written")],
)
def test_an_app_whose_checkpoint_was_lost_is_told_its_folder_and_the_command_and_no_options_of_a_sink(
    output: str, way: str, query: str, batch: int, what: str
) -> None:
    target = target_of(output)
    mark = Mark(target.sink, "old", 3, Sources({TopicPartition("orders", 0): 7}), {}, 0)
    with pytest.raises(LostCheckpoint) as found:
        is_due(mark, Writing(target.sink, query, batch, Sources({TopicPartition("orders", 0): 9})))
    told = str(lost_checkpoint(target, found.value))
    assert told.startswith(f"{target.node.output.kind} {output}: its checkpoint in {target.checkpoint} {what}")
    assert "give --checkpoints" in told and way.format(file=command_of(target.node).split()[-1]) in told
    assert not [word for word in ("takeOverFrom", "startingOffsets", "a name of its own", "FILE") if word in told]


# Progress -------------------------------------------------------------------------------------------------------------


def told(batch: int, rows: int, ms: int | None = 0, **more: object) -> dict[str, object]:
    """`ms`: how long it took to write a micro-batch; None: there was none."""
    taken = {} if ms is None else {"durationMs": {"addBatch": ms, "triggerExecution": ms}}
    return {"batchId": batch, "timestamp": f"2026-01-01T00:00:{batch:02}.000Z", "numInputRows": rows, **taken, **more}


@proves("P3")
def test_progress_adds_up_what_spark_tells_and_counts_nothing_twice() -> None:
    progress = Progress()
    state = [
        {"operatorName": "stateStoreSave", "numRowsTotal": 7, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 1}
    ]
    first = told(0, 5, 100, processedRowsPerSecond=50.0)
    dedupe = {"operatorName": "dedupe", "numRowsUpdated": 4, "customMetrics": {"numDroppedDuplicateRows": 2}}
    second = told(1, 3, stateOperators=[*state, dedupe], eventTime={"watermark": "2026-01-01T00:00:00.000Z"})
    progress.take([first])
    progress.take([first, second])
    progress.take([first, second, told(2, 0)])
    progress.take([told(3, 0, None)])
    ours = {"tumbling": {"in": 9, "late": 2, "without_time": 1}, "changes": {"in": 7}}
    fields = progress.fields(1_767_225_610_000, {"operators": ours, "by_spark": progress.by_spark})
    assert progress.by_spark == {"stateStoreSave": {"late": 1}, "dedupe": {"duplicates": 2, "kept": 4}}
    assert (fields["batch"], fields["rows_in"], fields["state_rows"], fields["state_bytes"]) == (2, 8, 7, 100)
    assert (fields["watermark_behind_s"], fields["late_rows"], fields["batch_ms"]) == (10, 3, 0)


@proves("P3")
def test_rows_that_are_written_are_told_with_the_rows_that_they_were_made_of() -> None:
    part, entries = QueryPart(target_of("big"), cast("Any", None), {}, {}), Entries()
    part._query = query_with(is_active=True, is_alive=True)
    part._query._jsq.recentProgress = lambda: entries

    def figures() -> tuple[int, int]:
        part._due["progress"] = 0.0
        assert part.look() is None
        found = part.figures()
        return found["rows_in"], found["rows_out"]

    part._written.committed(0, 2)
    assert figures() == (0, 0), "Spark has not told of the micro-batch yet"
    entries.append(entry_of(told(0, 3)))
    assert figures() == (3, 2)
    entries.append(entry_of(told(1, 0, None)))  # nothing was found for ten seconds
    part._written.committed(1, 4)
    assert figures() == (3, 2)
    entries.append(entry_of({**told(1, 5), "timestamp": "2026-01-01T00:01:00.000Z"}))
    assert figures() == (8, 6)
    part._written.committed(2, 1)
    part._written.committed(3, 1)
    entries[:] = [entry_of({**told(3, 1), "timestamp": "2026-01-01T00:02:00.000Z"})]
    assert figures() == (9, 8), "Spark keeps its last hundred: what it does not tell any more was written all the same"


class Entries(list[Any]):
    """As py4j has them: each that is taken is a round trip."""

    taken = 0

    def __getitem__(self, place: Any) -> Any:
        self.taken += 1
        return super().__getitem__(place)


def entry_of(one: dict[str, object]) -> Any:
    return SimpleNamespace(timestamp=lambda: one["timestamp"], json=lambda: json.dumps(one))


@proves("P3")
def test_of_sparks_list_only_what_is_new_is_fetched() -> None:
    entries = Entries(entry_of(told(batch, 1)) for batch in range(50))
    query: Any = SimpleNamespace(_jsq=SimpleNamespace(recentProgress=lambda: entries))
    progress = Progress()
    progress.take(told_since(query, progress.last))
    assert (progress.rows_in, progress.batch, entries.taken) == (50, 49, 50)
    entries.append(entry_of(told(50, 4)))
    progress.take(told_since(query, progress.last))
    assert (progress.rows_in, progress.batch, entries.taken) == (54, 50, 52)


@proves("P3")
def test_a_watermark_that_has_not_begun_is_none() -> None:
    progress = Progress()
    progress.take([told(0, 1, eventTime={"watermark": "1970-01-01T00:00:00.000Z"})])
    assert progress.fields(0, {})["watermark_ms"] is None
