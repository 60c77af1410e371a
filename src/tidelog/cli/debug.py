"""`tidelog debug QUERY --batch N`: one micro-batch of an app's query again, here: what went in, what came out; under a
debugger, or as a pytest file. The original checkpoint, topics and stores are only read.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.app_settings import CHECKPOINTS, settings_of
from tidelog.cli.main import FAILED, OK
from tidelog.cli.terminal import STARTING_SPARK, count_text, printable, show_json, show_table, warn
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.pipelines.debugging import Case, Replayed, StateChange, TopicRecord
    from tidelog.pipelines.inputs import Reader

ROWS = 20
WIDTH = 80
LAST = "last"
EXAMPLES = """\
  tidelog debug revenue --app shop.py --batch 12
  tidelog debug revenue --app shop.py --batch last                     the one that fails
  tidelog debug revenue --app shop.py --batch 12 --break               stops in your function and in operators
  tidelog debug revenue --app shop.py --batch 12 --export test_batch_12.py
  tidelog debug revenue.v2 --app shop.py --batch 3                     a generation that is not live
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "debug",
        "Run one micro-batch of an app's query again, on this machine, and show it. Nothing but a copy is written.",
        EXAMPLES,
        parent=command.connection_options(),
    )
    made.add_argument("query", metavar="QUERY", help="the output whose query it is")
    made.add_argument("--app", required=True, metavar="APP", help="the Python file with your App, or FILE:NAME")
    made.add_argument("--batch", required=True, type=number_or_last, metavar="N", help="which micro-batch, or `last`")
    made.add_argument("--break", dest="stop", action="store_true", help="stop in your function and in operators (pdb)")
    made.add_argument("--export", metavar="FILE", help="write it as a pytest file, such as test_batch_12.py")
    made.add_argument("--checkpoints", metavar="DIR", help=f"where queries keep their place (default: {CHECKPOINTS})")
    made.add_argument("--memory", metavar="SIZE", help="the heap of Spark's driver, such as 2g")
    made.add_argument("--limit", type=command.positive, default=ROWS, metavar="N", help=f"rows to show ({ROWS})")
    command.add_set(made, "a setting of Spark's")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    check_export(options)
    from tidelog.pipelines.debugging import find
    from tidelog.pipelines.graph import graph_of
    from tidelog.pipelines.loading import load_app
    from tidelog.pipelines.running import reader_of, session_of

    app = load_app(options.app)
    graph = graph_of(app)
    settings = replace(settings_of(options, app), master=None)
    with settings.connect() as cluster:
        case = find(cluster, graph, options.query, options.batch, settings.checkpoints)
        warn(STARTING_SPARK)
        spark = session_of(graph, settings)
        try:
            return debug(case, reader_of(spark, graph, settings, cluster), options)
        finally:
            spark.stop()


def number_or_last(text: str) -> int | None:
    return None if text == LAST else command.not_negative(text)


def check_export(options: Namespace) -> None:
    if options.export and not Path(options.export).name.startswith("test_"):
        raise UsageError(f"debug: pytest looks for files called test_...; --export is {options.export}")
    if options.export and Path(options.export).suffix != ".py":
        raise UsageError(f"debug: --export writes a Python file, and {options.export} does not end in .py")
    if options.stop and options.json:
        raise UsageError("debug: --break talks on the terminal; leave --json out")


def debug(case: Case, reader: Reader, options: Namespace) -> int:
    from tidelog.pipelines.debugging import run_again, state_changes, with_code_of_now
    from tidelog.pipelines.operators.state.reading import read_states
    from tidelog.pipelines.stepping import calls_in, noting

    if options.stop:
        stop_in_function(case, reader)
    folder = Path(tempfile.mkdtemp(prefix="tidelog-debug-"))
    copy, steps = folder / "checkpoint", folder / "steps"
    try:
        steps.mkdir()
        case.history.copy_before(case.batch.number, copy)
        with noting(steps) if options.stop else nullcontext():
            frame = reader.result(case.target.node)
            target = with_code_of_now(case.target, frame)
            before = read_states(reader.spark, copy) if case.batch.number and case.history.has_state else []
            made = run_again(frame, target, copy, case.batch.number)
        after = read_states(reader.spark, copy) if made.error is None and case.history.has_state else []
        changes = state_changes(before, after, made)
        (show_as_json if options.json else show)(case, made, changes, options.limit)
        if options.stop:
            stop_in_steps(calls_in(steps))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.export:
        export(case, made, reader, options)
    return FAILED if made.error and not options.export else OK


# Shown ----------------------------------------------------------------------------------------------------------------


def show(case: Case, made: Replayed, changes: Sequence[StateChange], limit: int) -> None:
    batch, output = case.batch, case.target.node.output
    was = "committed" if batch.is_committed else "not committed: it was running, or has failed"
    print(f"micro-batch {batch.number} of {output.kind} {output.name}, begun {_when(batch.at_ms)}, {was}")
    if batch.watermark_ms:
        print(f"watermark {_when(batch.watermark_ms)}")
    print(f"\nin: {count_text(len(case.records), 'record')}")
    for at in case.unknown_beginnings:
        print(f"  {at}: nothing says where the query began; it is taken to be where the topic begins now")
    show_reads(case)
    for line in map(_record_line, case.records[:limit]):
        print(f"  {line}")
    _more(len(case.records), limit)
    if made.error is not None:
        print(f"\nit fails: {printable(made.error)}")
        return
    print(f"\nout: {count_text(len(made.rows), 'row')} of {output.name}")
    rows = [row.asDict(recursive=True) for row in made.rows[:limit]]
    if rows:
        show_table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])
    _more(len(made.rows), limit)
    print(f"\nfor topic {case.target.topic}: {count_text(len(made.records), 'record')}")
    for row in made.records[:limit]:
        print(f"  {_text(row.asDict().get('key'))}  {_text(row['value'])}")
    _more(len(made.records), limit)
    show_state(changes)
    took = made.progress.get("durationMs", {})
    told = ", ".join(f"{name} {ms} ms" for name, ms in sorted(took.items(), key=lambda item: -item[1]))
    print(f"\ntook {made.seconds:.1f} s from the start of the query: {told}")


def show_reads(case: Case) -> None:
    counts: dict[tuple[str, int], int] = {}
    for one in case.records:
        counts[one.topic, one.partition] = counts.get((one.topic, one.partition), 0) + 1
    rows = [
        (at.topic, at.partition, begin, end, counts.get((at.topic, at.partition), 0))
        for at, (begin, end) in case.ranges.items()
    ]
    if rows:
        show_table(("topic", "partition", "from", "to", "records"), rows)
    for read in case.batch.reads:
        if read.tick is not None:
            print(f"an idle input let time go on, to {_when(read.tick.time_ms)}")


def show_state(changes: Sequence[StateChange]) -> None:
    if not changes:
        return
    print("\nstate:")
    header = ("operator", "name", "rows before", "rows after", "updated", "removed", "counts")
    show_table(
        header,
        [(*one[:-1], ", ".join(f"{count} {name}" for name, count in one.counts.items()) or None) for one in changes],
    )


def show_as_json(case: Case, made: Replayed, changes: Sequence[StateChange], limit: int) -> None:
    from tidelog.testing.pipeline_app import plain_rows
    from tidelog.testing.pipeline_export import fields_of

    reads = [{**fields_of(one)} for one in case.records[:limit]]
    topic = [{"key": _plain(row.asDict().get("key")), "value": _plain(row["value"])} for row in made.records[:limit]]
    show_json(
        {
            "query": case.target.node.name,
            "batch": case.batch.number,
            "at_ms": case.batch.at_ms,
            "watermark_ms": case.batch.watermark_ms,
            "committed": case.batch.is_committed,
            "records_in": len(case.records),
            "in": reads,
            "rows_out": len(made.rows),
            "out": plain_rows(made.rows[:limit]),
            "topic": {"name": case.target.topic, "records": topic},
            "state": [{**one._asdict(), "counts": dict(one.counts)} for one in changes],
            "durations_ms": made.progress.get("durationMs", {}),
            "error": made.error,
        }
    )


def _more(count: int, limit: int) -> None:
    if count > limit:
        print(f"  ... and {count - limit} more; --limit shows more")


def _record_line(one: TopicRecord) -> str:
    return f"{one.topic}-{one.partition}@{one.offset}  {_when(one.timestamp_ms)}  {_text(one.key)}  {_text(one.value)}"


def _when(ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(data: Any) -> str:
    if data is None:
        return "-"
    text = bytes(data).decode(errors="backslashreplace") if isinstance(data, bytes | bytearray) else str(data)
    return printable(text)


def _plain(data: Any) -> str | None:
    return None if data is None else _text(data)


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, int):
        return value
    text = str(value)
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}..."


# Under a debugger -----------------------------------------------------------------------------------------------------


def stop_in_function(case: Case, reader: Reader) -> None:
    """With batch DataFrames of what the micro-batch read, which can be shown; or, where it reads another output, whose
    rows only a stream has, with those of the query itself.
    """
    from pdb import Pdb

    from tidelog.pipelines.debugging import frames_of
    from tidelog.pipelines.inputs import Span
    from tidelog.pipelines.stepping import stopping
    from tidelog.testing.pipeline_app import RecordsReader, topics_of

    node, function = case.target.node, case.target.node.output.function
    stopped = replace(node, output=replace(node.output, function=stopping(function, Pdb())))
    topics = topics_of(case.graph.app, node)
    if any(hasattr(one, "function") for one in node.reads):
        print("in your function, as the query is planned: its DataFrames are streams, and cannot be shown")
        reader.result(stopped)
        return
    print(f"in your function, with the rows of micro-batch {case.batch.number} as DataFrames: try p orders.show()")
    frames = frames_of(reader.spark, case.records, topics)
    given = reader.spark, reader.options, reader.graph, reader.topic_of, Span()
    made = RecordsReader(*given, frames=frames, shape_of=reader.shape_of)
    made.result(stopped)


def stop_in_steps(calls: Sequence[Any]) -> None:
    from pdb import Pdb

    from tidelog.pipelines.stepping import under

    if not calls:
        print("\nno operator of Tidelog's has run a step, so there is nothing more to stop in")
    for number, one in enumerate(calls, 1):
        name, now = type(one.fold).__name__, one.clock
        rows, state = count_text(len(one.rows), "row"), count_text(len(one.state), "row")
        print(f"\nstep {number} of {len(calls)}: {name}, {rows}, state of {state}, {now}")
        under(Pdb(), one.fold.step, one.state, one.rows, one.clock)


# As a test ------------------------------------------------------------------------------------------------------------


def export(case: Case, made: Replayed, reader: Reader, options: Namespace) -> None:
    from tidelog.pipelines.debugging import partitions_of, steps_of
    from tidelog.testing.pipeline import PipelineDriver
    from tidelog.testing.pipeline_app import plain_rows
    from tidelog.testing.pipeline_export import Exported, check, write

    first, steps = steps_of(case)
    output = case.target.node.output
    file, _, variable = options.app.partition(":")
    made_of = Exported(
        Path(file).resolve(),
        variable,
        case.graph.app.name,
        output.name,
        case.batch.number,
        first,
        partitions_of(steps),
        steps,
        plain_rows(made.rows),
        made.error,
    )
    with PipelineDriver(reader.spark) as driver:
        made_of = replace(made_of, error=check(driver, made_of, case.graph.app))
    written = write(made_of, Path(options.export))
    print(f"written: {', '.join(map(str, written))}; run it by `pytest {options.export}`", file=sys.stderr)
