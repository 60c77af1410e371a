"""`tidelog produce TOPIC`: records from standard input, a line each, acked before it ends.

Lines are bytes and stay as they are, without their line feed. They go out in batches when much comes at once, and at
once when little comes: whenever nothing more waits on standard input, what there is is flushed. A line that fails
does not stop the others; it is reported with its number, and the exit code is 1. But where the broker cannot write, its
disk being full, every further line would wait for the same answer: the rest of the input is not read.
"""

from __future__ import annotations

import os
import select
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cli import options as command
from tidelog.cli.record_json import NewRow, parse_row
from tidelog.cli.suggestions import near_topic
from tidelog.cli.terminal import show_json, warn
from tidelog.errors import BrokerError, PeerError, TidelogError, UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.producer import Delivery, Producer

EXAMPLES = """\
  echo hello | tidelog produce orders
  tidelog produce orders < lines.txt
  printf '42:shipped\\n43:paid\\n' | tidelog produce orders --key-separator :
  echo '{"key": "42", "value": {"total": 10}, "headers": {"trace": "a1"}}' | tidelog produce orders --json
  tidelog tail orders --from earliest --json | tidelog produce copy --json --repartition
"""

ACKS = {"all": -1, "1": 1, "0": 0}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_BYTES = 1 << 20
LINES_BETWEEN_FLUSHES = 50_000
FAILURES_SHOWN = 20


class Failure(NamedTuple):
    line: int
    reason: str


class Tally:
    """Lines sent and not yet known, and what became of the others. `is_refused`: the broker cannot write any;
    `has_stopped`: so the input was left before its end.
    """

    __slots__ = ("acked", "failures", "has_stopped", "is_refused", "open", "read")

    def __init__(self) -> None:
        self.acked = 0
        self.read = 0  # lines that were sent, or could not be
        self.is_refused = self.has_stopped = False
        self.failures: list[Failure] = []
        self.open: list[tuple[int, Delivery]] = []

    def count(self) -> None:
        """After a flush."""
        for line, delivery in self.open:
            if delivery.acked:
                self.acked += 1
            else:
                self.failures.append(Failure(line, str(delivery.error)))
                self.is_refused = self.is_refused or cannot_write(delivery.error)
        self.open = []

    @property
    def is_to_be_counted(self) -> bool:
        """Before all are sent: the oldest has failed, and perhaps no other will do better."""
        return bool(self.open) and cannot_write(self.open[0][1].error)


def cannot_write(error: TidelogError | None) -> bool:
    """Whether the broker said so of itself, and not of the record."""
    from tidelog.wire.error_code import ErrorCode

    return isinstance(error, BrokerError) and error.code == ErrorCode.KAFKA_STORAGE_ERROR


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("produce", "Write records from standard input, a line each.", EXAMPLES, parent=reach)
    made.add_argument("topic", metavar="TOPIC", help="where to; made first where the broker allows that")
    made.add_argument("--key-separator", metavar="TEXT", help="what stands before the first TEXT of a line is the key")
    made.add_argument("--key", metavar="TEXT", help="the key of every record")
    made.add_argument(
        "--header",
        metavar="KEY=VALUE",
        type=command.key_value,
        action="append",
        default=[],
        help="a header of every record (may be repeated)",
    )
    made.add_argument(
        "--partition", metavar="N", type=command.not_negative, help="where every record goes (default: by key)"
    )
    made.add_argument(
        "--json",
        action="store_true",
        default=False,
        help="each line is an object with key, value, headers, partition, timestamp; the summary is JSON too",
    )
    made.add_argument("--repartition", action="store_true", help="do not heed the partition in JSON: choose by key")
    made.add_argument("--acks", choices=list(ACKS), default="all", help="what to wait for (default: all)")
    made.add_argument("--compression", choices=COMPRESSIONS, default="none", help="of the batches (default: none)")
    made.add_argument("--quiet", action="store_true", help="say nothing when all went well")
    return made


def run(arguments: list[str]) -> int:
    from tidelog.client.producer import Producer

    options = command.parse(parser(), arguments)
    if options.key is not None and options.key_separator is not None:
        raise UsageError("produce: --key or --key-separator, not both")
    if options.key_separator == "":
        raise UsageError("produce: --key-separator is empty; name the text between key and value")
    with command.connect(options) as cluster:
        producer = Producer(cluster, acks=ACKS[options.acks], compression=options.compression)
        tally = Tally()
        try:
            produce(cluster, producer, options, tally)
        except BaseException:
            if tally.acked or tally.open or tally.failures:
                report(tally, options)
            raise
        report(tally, options)
    return 1 if tally.failures else 0


def produce(cluster: Cluster, producer: Producer, options: Namespace, tally: Tally) -> None:
    from tidelog.client.size_limits import SizeLimits

    ensure_topic(cluster, options)
    producer.batch_bytes = SizeLimits(cluster).batch_bytes(options.topic, producer.batch_bytes)
    headers = [(name, value.encode()) for name, value in options.header]
    for number, line in lines(producer, tally):
        tally.read = number
        try:
            row = row_of(line, options)
            delivery = producer.send(
                options.topic,
                row.value,
                key=row.key,
                headers=[*headers, *row.headers],
                partition=options.partition if row.partition is None or options.repartition else row.partition,
                timestamp=row.timestamp,
            )
        except UsageError as error:
            tally.failures.append(Failure(number, str(error)))
        else:
            tally.open.append((number, delivery))
    settle(producer, tally)


def ensure_topic(cluster: Cluster, options: Namespace) -> None:
    """A broker that makes topics by itself says nothing; a slip of the fingers is not to go unseen."""
    from tidelog.wire.error_code import ErrorCode

    try:
        cluster.topic(options.topic)
    except PeerError as error:  # what may pass is tried again below
        new = isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        return
    made = cluster.retry(lambda: cluster.topic(options.topic, auto_create=True))
    if new and not options.quiet:
        count = len(made.partitions)
        meant = near_topic(cluster, options.topic)
        hint = f"; did you mean {meant}? `tidelog topics delete {options.topic}` removes it" if meant else ""
        warn(f"topic {options.topic} did not exist: created with {count} partition{'' if count == 1 else 's'}{hint}")


def lines(producer: Producer, tally: Tally) -> Iterator[tuple[int, bytes]]:
    """Numbered from 1. Settles what was sent before it waits for more."""
    source = sys.stdin.fileno()
    begun: list[bytes] = []  # the pieces of a line whose end has not come: a long one is joined once
    number = 0
    while chunk := os.read(source, READ_BYTES):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        if others:
            whole = [b"".join(begun), *others[:-1]]
            begun = others[-1:]
            for line in whole:
                number += 1
                yield number, line
        full = len(tally.open) >= LINES_BETWEEN_FLUSHES or tally.is_to_be_counted
        if full or not select.select([source], [], [], 0)[0]:
            settle(producer, tally)
        if tally.is_refused:
            tally.has_stopped = True
            return
    if rest := b"".join(begun):
        yield number + 1, rest


def settle(producer: Producer, tally: Tally) -> None:
    producer.flush(strict=False)
    tally.count()


def row_of(line: bytes, options: Namespace) -> NewRow:
    if options.json:
        row = parse_row(line)
        return row if row.key is not None or options.key is None else row._replace(key=options.key.encode())
    if options.key_separator is None:
        return NewRow(None if options.key is None else options.key.encode(), line, [], None, None)
    key, found, value = line.partition(options.key_separator.encode())
    if not found:
        raise UsageError(f"it has no {options.key_separator!r}, so it has no key")
    return NewRow(key, value, [], None, None)


def report(tally: Tally, options: Namespace) -> None:
    tally.failures.sort()
    if options.json:
        failed = [failure._asdict() for failure in tally.failures]
        if failed or not options.quiet:
            said = {"topic": options.topic, "acked": tally.acked, "unknown": len(tally.open), "failed": failed}
            show_json(said | ({"stopped_after": tally.read} if tally.has_stopped else {}))
        return
    for first, last, reason in runs(tally.failures)[:FAILURES_SHOWN]:
        where = f"line {first}" if first == last else f"lines {first} to {last}"
        print(f"tidelog: {where}: {reason}", file=sys.stderr)
    if tally.has_stopped:
        warn(f"stopped after line {tally.read}, because the broker cannot write; what follows it was not sent")
    if tally.failures or tally.open or not options.quiet:
        verb = "sent, acks=0 promises nothing" if options.acks == "0" else "acked"
        lost = f", {len(tally.failures)} failed" if tally.failures else ""
        unknown = f", {len(tally.open)} may have been written or not" if tally.open else ""
        print(f"{tally.acked} record{'' if tally.acked == 1 else 's'} {verb}{lost}{unknown}", flush=True)


def runs(failures: list[Failure]) -> list[tuple[int, int, str]]:
    """Neighbouring lines with one reason together."""
    made: list[tuple[int, int, str]] = []
    for line, reason in failures:
        if made and made[-1][1] == line - 1 and made[-1][2] == reason:
            made[-1] = (made[-1][0], line, reason)
        else:
            made.append((line, line, reason))
    return made
