"""`tidelog state CHECKPOINT`: what the operators of a pipeline have kept, from its checkpoint, also while it runs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.terminal import STARTING_SPARK, show_json, show_table, size_text, warn
from tidelog.errors import StorageError

if TYPE_CHECKING:
    from tidelog.pipelines.operators.state.reading import FoldState

EXAMPLES = """\
  tidelog state ./checkpoints/carts                  the operators of a query, how much each keeps, and its counts
  tidelog state ./checkpoints/carts --rows           what they keep, 20 rows of each
  tidelog state ./checkpoints/carts --rows --limit 1000 --operator 0 --json
  tidelog state ./checkpoints/carts --batch 117      as of an earlier micro-batch
"""
ROWS = 20
QUIET = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}


def parser() -> command.Parser:
    made = command.command_parser("state", "Show the state of a pipeline's operators.", EXAMPLES)
    made.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    made.add_argument("--operator", type=command.not_negative, metavar="N", help="only this one of Spark's numbers")
    made.add_argument("--batch", type=command.not_negative, metavar="N", help="as of this micro-batch, not the last")
    made.add_argument("--rows", action="store_true", help="show the rows, too")
    made.add_argument("--limit", type=command.positive, default=ROWS, metavar="N", help=f"rows of each ({ROWS})")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    if "://" not in options.checkpoint and not Path(options.checkpoint).is_dir():
        raise missing(options.checkpoint)
    states = [one for one in read(options) if options.operator in (None, one.operator)]
    if options.json:
        show_json([description(one, options) for one in states])
        return 0
    if not states:
        print(f"no query in {options.checkpoint} keeps state of Tidelog's; is that the checkpointLocation of one?")
        return 0
    show_table(("operator", "fold", "version", "buckets", "partitions", "rows", "pages", "size"), map(summary, states))
    for one in states:
        show_counts(one)
        if options.rows:
            show_rows(one, options.limit)
    return 0


def read(options: Namespace) -> list[FoldState]:
    from tidelog.pipelines.operators.state.reading import is_there, read_states
    from tidelog.spark.session import spark_session

    warn(STARTING_SPARK)
    spark = spark_session("tidelog state", settings=QUIET)
    if not is_there(spark, options.checkpoint):
        raise missing(options.checkpoint)
    return read_states(spark, options.checkpoint, batch=options.batch)


def missing(checkpoint: str) -> StorageError:
    return StorageError(
        f"{checkpoint} does not exist; give the checkpointLocation of a query, as tidelog-checkpoints/shop/revenue.v1"
    )


def summary(one: FoldState) -> tuple[Any, ...]:
    spread = (one.layout.buckets, one.layout.partitions)
    return (one.operator, one.fold, one.version, *spread, len(one.rows), one.pages, size_text(one.size))


def show_counts(one: FoldState) -> None:
    if one.counts:
        print(f"\noperator {one.operator}: " + ", ".join(f"{count} {name}" for name, count in one.counts.items()))


def show_rows(one: FoldState, limit: int) -> None:
    shown = one.rows.slice(0, limit).to_pylist()
    print(f"\noperator {one.operator}: {len(shown)} of {len(one.rows)} rows")
    if shown:
        show_table(one.rows.column_names, [list(row.values()) for row in shown])


def description(one: FoldState, options: Namespace) -> dict[str, Any]:
    known = {"operator": one.operator, "fold": one.fold, "version": one.version, **one.layout._asdict()}
    known |= {"rows": len(one.rows), "pages": one.pages, "bytes": one.size, "counts": dict(one.counts)}
    if options.rows:
        rows = one.rows.slice(0, options.limit).to_pylist()
        known["state"] = [{name: plain(value) for name, value in row.items()} for row in rows]
    return known


def plain(value: Any) -> Any:
    """As JSON has it: bytes in hex, times and decimals as text."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, bool | int | float | str | None) else str(value)
