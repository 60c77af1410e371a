"""`tidelog tail TOPIC`: the last records of each partition, and with `--follow` those to come.

Without `--follow` it ends where the topic ended when it began. Records of several partitions come as they are
fetched: there is no order across partitions. What is not text is shown as escapes, so that no record can drive the
terminal; `--values` writes the bytes as they are into a file or a pipe.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.place import PLACE_HELP, OffsetSpec, not_there, parse_place, resolve
from tidelog.cli.record_json import field
from tidelog.cli.suggestions import partitions_of
from tidelog.cli.terminal import for_the_screen, paint, printable, warn
from tidelog.errors import BrokerError, UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.consumer import Consumer, Fetched
    from tidelog.client.metadata import TopicPartition
    from tidelog.record.columns import Row

EXAMPLES = """\
  tidelog tail orders                            the last 10 of each partition
  tidelog tail orders --follow --from latest     only what comes from now on
  tidelog tail orders --from 15m                 the last quarter of an hour
  tidelog tail orders --from earliest --json | jq .value
  tidelog tail orders --partition 2 --from 1500 --max 1
  tidelog tail orders --from earliest --values > values.txt
"""

DEFAULT_FROM = OffsetSpec("last", 10)
FOLLOW_WAIT_MS = 500
NULL = "(null)"


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("tail", "Show the records of a topic.", EXAMPLES, parent=reach)
    made.add_argument("topic", metavar="TOPIC", help="which")
    made.add_argument(
        "--from",
        dest="start",
        metavar="PLACE",
        type=parse_place,
        default=DEFAULT_FROM,
        help=f"{PLACE_HELP}, or -N for the last N of each partition (default: -10)",
    )
    made.add_argument("--follow", "-f", action="store_true", help="go on with what comes, until Ctrl-C")
    made.add_argument(
        "--partition", metavar="N", type=command.not_negative, action="append", help="only this one (may be repeated)"
    )
    made.add_argument("--max", metavar="N", type=command.positive, help="stop after so many records")
    made.add_argument(
        "--values", action="store_true", help="the values alone, a line each, byte for byte unless to a terminal"
    )
    made.add_argument("--committed", action="store_true", help="leave out open and aborted transactions")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    if options.json and options.values:
        raise UsageError("tail: --json or --values, not both")
    show = show_json_line if options.json else show_value if options.values else show_line
    left = options.max
    with command.connect(options) as cluster:
        for at, row in records(cluster, options):
            show(at, row)
            if left is not None:
                left -= 1
                if not left:
                    break
    return 0


def records(cluster: Cluster, options: Namespace) -> Iterator[tuple[TopicPartition, Row]]:
    from tidelog.client.consumer import Consumer

    partitions = chosen(partitions_of(cluster, options.topic), options.partition)
    ends = resolve(cluster, OffsetSpec("latest"), partitions, committed=options.committed)
    if options.start.kind == "offset":
        check_there(options.start.number, ends, follow=options.follow)
    consumer = Consumer(cluster, max_wait_ms=FOLLOW_WAIT_MS, read_committed=options.committed, prefetch=True)
    consumer.assign(begins(cluster, options, ends))
    while consumer.positions:
        if not options.follow:
            consumer.assign({at: offset for at, offset in consumer.positions.items() if offset < ends[at]})
        for fetched in fetch(consumer):
            for row in fetched.rows():
                if options.follow or row.offset < ends[fetched.at]:
                    yield fetched.at, row
        sys.stdout.flush()


def begins(cluster: Cluster, options: Namespace, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The last N are records, as they are shown, and not offsets."""
    from tidelog.control.last_records import starts_of_last

    if options.start.kind != "last":
        return resolve(cluster, options.start, ends)
    starts = resolve(cluster, OffsetSpec("earliest"), ends)
    return starts_of_last(cluster, options.start.number, starts, ends, committed=options.committed)


def check_there(offset: int, ends: dict[TopicPartition, int], *, follow: bool) -> None:
    """What no partition has is a mistake; what some do not have yet is said. To follow, all must have come so far."""
    short = [at for at, end in ends.items() if offset > end]
    if short and (follow or len(short) == len(ends)):
        at = max(short, key=lambda one: ends[one])
        hint = not_there(offset, len(ends) - len(short) + 1, "--partition N chooses one that has it")
        raise UsageError(f"offset {offset} is not in {at}, which ends at {ends[at]}{hint}")
    for at in short:
        warn(f"{at} ends at offset {ends[at]}, before {offset}: nothing of it is shown")


def fetch(consumer: Consumer) -> list[Fetched]:
    """Goes on at the start of what is left when retention has overtaken us."""
    from tidelog.wire.error_code import ErrorCode

    try:
        return consumer.fetch()
    except BrokerError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        starts = resolve(consumer.cluster, OffsetSpec("earliest"), consumer.positions)
        passed = {at: start for at, start in starts.items() if start > consumer.positions[at]}
        if not passed:
            raise
        for at, start in passed.items():
            gone = start - consumer.positions[at]
            warn(f"{at} begins at offset {start} now: {gone} offsets were deleted before they were read")
            consumer.seek(at, start)
        return []


def chosen(partitions: list[TopicPartition], wanted: list[int] | None) -> list[TopicPartition]:
    if wanted is None:
        return partitions
    missing = sorted(set(wanted) - {at.partition for at in partitions})
    if missing:
        raise UsageError(f"{partitions[0].topic!r} has no partition {missing[0]}; it has 0 to {len(partitions) - 1}")
    return [at for at in partitions if at.partition in wanted]


def show_line(at: TopicPartition, row: Row) -> None:
    place = f"{at.partition}:{row.offset}"
    pieces = [paint(place.ljust(10), "dim"), paint(time_text(row.timestamp), "dim")]
    pieces += [paint(text_of(row.key), "cyan"), text_of(row.value)]
    if row.headers:
        pieces.append(paint(" ".join(f"{printable(name)}={text_of(value)}" for name, value in row.headers), "dim"))
    print("  ".join(pieces))


def show_value(at: TopicPartition, row: Row) -> None:
    if sys.stdout.isatty():
        print("" if row.value is None else text_of(row.value))
    else:
        sys.stdout.buffer.write((row.value or b"") + b"\n")


def show_json_line(at: TopicPartition, row: Row) -> None:
    import json

    headers = [{"name": printable(name), **field("value", value)} for name, value in row.headers]
    place = {"topic": at.topic, "partition": at.partition, "offset": row.offset, "timestamp": row.timestamp}
    record = {**place, **field("key", row.key), **field("value", row.value), "headers": headers}
    print(for_the_screen(json.dumps(record, ensure_ascii=False)))


def text_of(data: bytes | None) -> str:
    """UTF-8 as text, other bytes as \\xNN, control characters as escapes."""
    return NULL if data is None else printable(data.decode("utf-8", "backslashreplace"))


def time_text(timestamp: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp % 1000:03d}Z"
