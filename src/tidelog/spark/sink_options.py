"""What users write in `.option(...)` of the sink, read once into frozen data. Pure.

The names are those of Spark's Kafka connector where it has them. Case does not count.

    kafka.bootstrap.servers          where the brokers are
    topic                            where all rows go; without it each row says so in its column `topic`
    deliveryGuarantee                exactly-once, or at-least-once
    sinkName                         what the sink is called: its marks and its transactional id have this name
    generation                       of the view that the sink writes: a number, which its marks tell
    checkpointLocation               Spark's own; exactly once needs it here
    writeId                          of a batch write: one that was written under this id is not written again
    takeOverFrom                     the id of the query whose checkpoint was lost, to go on after it
    staging                          auto, or topic: what tasks hand to the driver is never in files
    sourceGroup                      the group that the query's source offsets are reported as, or none
    kafka.compression.type           none, gzip, snappy, lz4, zstd
    kafka.transaction.timeout.ms     how long a commit may take
    kafka.security.protocol, .sasl.*, .ssl.*, securityFile, securityVariable         as the source has them (`reach.py`)

What Kafka's producer would take but means nothing here is passed over; a name that nobody knows is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.client.transactions import TIMEOUT_MS
from tidelog.config import nearest
from tidelog.errors import ConfigError, UsageError
from tidelog.record.compression import code_of
from tidelog.spark.options import OF_SPARK
from tidelog.spark.query_log import check_readable
from tidelog.spark.reach import KAFKA, SECURITY_FILE, SECURITY_VARIABLE, Reach, read_reach

EXACTLY_ONCE, AT_LEAST_ONCE = GUARANTEES = ("exactly-once", "at-least-once")
NO_GROUP = "none"
AUTO, IN_TOPIC = STAGINGS = ("auto", "topic")
KNOWN = (
    "topic",
    "deliveryGuarantee",
    "sinkName",
    "generation",
    "writeId",
    "takeOverFrom",
    "sourceGroup",
    "staging",
    SECURITY_FILE,
    SECURITY_VARIABLE,
)
STREAM_ONLY = ("takeOverFrom", "sourceGroup")
REFUSED = {
    "key.serializer": "keys are bytes or text; cast them",
    "value.serializer": "values are bytes or text; cast them",
    "partitioner.class": "rows go by their key, as Kafka's default has it; say otherwise in the column partition",
    "transactional.id": "it is made from the sink's name; set sinkName",
}
# Of Kafka's producer, and without a meaning for this one: it always has acks=all and idempotence.
PASSED_OVER = (
    "acks",
    "batch.size",
    "buffer.memory",
    "delivery.timeout.ms",
    "enable.idempotence",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "partitioner.ignore.keys",
    "retries",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
)
COMPRESSION, TRANSACTION_TIMEOUT = "compression.type", "transaction.timeout.ms"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    reach: Reach
    topic: str | None
    guarantee: str
    sink: str | None
    checkpoint: str | None
    write_id: str | None
    take_over: str | None
    group: str | None  # as asked for; NO_GROUP for none
    query_name: str | None
    compression: str
    timeout_ms: int
    staging: str
    generation: int
    targets: tuple[str, ...] = ()  # topics that are the sink's although rows say where they go; marks tell their ends
    marked: bool = False  # a micro-batch after the first one finds a mark, or is refused

    @property
    def exactly_once(self) -> bool:
        return self.guarantee == EXACTLY_ONCE

    @property
    def made(self) -> tuple[str, ...]:
        """Topics that somebody has made for this sink, and that are not to come by being written to."""
        return () if not self.marked else self.targets if self.topic is None else (self.topic,)


def read_sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    options = {key.lower(): str(value) for key, value in given.items()}
    reach = read_reach(_of_producer_removed(options))
    _check_names(options, streaming=streaming)
    made = SinkOptions(
        reach=reach,
        topic=_text(options, "topic"),
        guarantee=_one_of(options, "deliveryGuarantee", GUARANTEES),
        sink=_text(options, "sinkName"),
        checkpoint=_text(options, "checkpointLocation"),
        write_id=_text(options, "writeId"),
        take_over=_text(options, "takeOverFrom"),
        group=_text(options, "sourceGroup"),
        query_name=_text(options, "queryName"),
        compression=_compression(options),
        timeout_ms=_timeout(options),
        staging=_one_of(options, "staging", STAGINGS),
        generation=_number(options, "generation", 0),
    )
    _check_together(made, streaming=streaming)
    return made


def _of_producer_removed(options: Mapping[str, str]) -> dict[str, str]:
    """What is left is as the source has it."""
    left = {}
    for key, value in options.items():
        name = key.removeprefix(KAFKA)
        if key.startswith(KAFKA) and name in REFUSED:
            raise ConfigError(f"option {key} is not supported; {REFUSED[name]}")
        if not (key.startswith(KAFKA) and name in (*PASSED_OVER, COMPRESSION, TRANSACTION_TIMEOUT)):
            left[key] = value
    return left


def _check_names(options: Mapping[str, str], *, streaming: bool) -> None:
    known = {name.lower() for name in KNOWN}
    for key in options:
        if key not in known and key not in OF_SPARK and not key.startswith(KAFKA):
            raise ConfigError(f"option {key} is not known; {nearest(key, KNOWN, 'leave it out')}")
    if streaming and "writeid" in options:
        raise UsageError("option writeId is for batch writes; a streaming query has sinkName")
    wrong = None if streaming else next((name for name in STREAM_ONLY if name.lower() in options), None)
    if wrong:
        raise UsageError(f"option {wrong} is for streaming queries; leave it out of a batch write")


def _check_together(options: SinkOptions, *, streaming: bool) -> None:
    if options.exactly_once and streaming and options.checkpoint is None:
        raise UsageError(
            "an exactly-once sink reads the query's id and source offsets from its checkpoint, and does not know where"
            ' that is; set .option("checkpointLocation", ...) on this writeStream (a default in the configuration does'
            " not reach the sink), or deliveryGuarantee to at-least-once"
        )
    if options.exactly_once and options.checkpoint is not None:
        check_readable(options.checkpoint)
    if options.write_id is not None and not options.exactly_once:
        raise UsageError("writeId is given and deliveryGuarantee is at-least-once; leave one of them out")


def _one_of(options: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    """The first by default."""
    given = options.get(name.lower(), known[0]).strip().lower().replace("_", "-")
    if given not in known:
        raise UsageError(f"option {name} is {given!r}; it is {' or '.join(known)}")
    return given


def _text(options: Mapping[str, str], name: str) -> str | None:
    text = options.get(name.lower())
    if text is not None and not text.strip():
        raise UsageError(f"option {name} is empty; give it a value, or leave it out")
    return None if text is None else text.strip()


def _compression(options: Mapping[str, str]) -> str:
    name = options.get(KAFKA + COMPRESSION, "none").strip().lower()
    code_of(name)
    return name


def _timeout(options: Mapping[str, str]) -> int:
    return _number(options, KAFKA + TRANSACTION_TIMEOUT, TIMEOUT_MS)


def _number(options: Mapping[str, str], name: str, otherwise: int) -> int:
    text = options.get(name, str(otherwise)).strip()
    if not (text.isascii() and text.isdigit()) or (name in options and not int(text)):
        raise UsageError(f"option {name} is {text!r}; it is a whole number above 0")
    return int(text)
