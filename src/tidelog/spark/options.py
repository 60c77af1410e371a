"""What users write in `.option(...)` of the source, read once into frozen data. Pure.

The names are those of Spark's Kafka connector, and mean the same, so that a change of the format is the whole
migration. Spark hands option names over in lower case or as written; here case does not count.

    kafka.bootstrap.servers                          where the brokers are
    subscribe | subscribePattern | assign            one of: names with commas, a pattern, {"topic": [0, 1]}
    startingOffsets                                  earliest, latest, or {"topic": {"0": 23, "1": -2}} (-2 earliest,
                                                     -1 latest)
    startingTimestamp, startingOffsetsByTimestamp    milliseconds for all, or by partition; before startingOffsets
    startingOffsetsByTimestampStrategy               error or latest, where no record is that young
    endingOffsets, endingTimestamp, endingOffsetsByTimestamp         of a batch read
    failOnDataLoss, includeHeaders                   true or false
    maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay      how much a micro-batch takes
    minPartitions, maxRecordsPerPartition            how it is cut into tasks
    groupIdPrefix, kafka.group.id, sourceGroup       the group that the query's offsets are reported as, or none; by
                                                     default `tidelog.` and the query's name (`reporting.py`)
    kafka.isolation.level                            read_uncommitted (as there) or read_committed
    kafka.security.protocol, .sasl.*, .ssl.*         how to reach the brokers, without secrets (`reach.py`)

Ours:

    securityFile, securityVariable                   where the secrets are
    alignment, alignBy, idleAfter                    partitions catch up together (`admission.py`)
    alignSchema, alignFormat, alignMessage,          how to read the values that `alignBy` names a field of
    alignRegistry, alignLoginVariable                (`value_times.py`)
    ticks                                            rows that let time go on while an input is silent (`ticks.py`)
    decode                                           values are decoded where they are read (`typed_values.py`)
    waitForRecords                                   a trigger that finds nothing new waits so long for a record; only
                                                     for a query with one source (`planning.py`)
    ticksUpTo                                        of a captured table: the sink whose marks say how far time is known

`maxOffsetsPerTrigger` has a default, and `unlimited` takes it away.

What Kafka's consumer would take but means nothing here is passed over; a name that nobody knows is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.config import nearest
from tidelog.errors import ConfigError, UsageError
from tidelog.spark.offsets import EARLIEST, LATEST, Offsets, parse_offsets, parse_partitions
from tidelog.spark.reach import SECURITY_FILE, SECURITY_VARIABLE, Reach, read_reach

MAX_OFFSETS_PER_TRIGGER = 2_000_000  # seconds of work: a long backlog is many micro-batches, each with its checkpoint
MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
POLL_TIMEOUT_MS = 120_000
IDLE_AFTER_MS = 10_000
RECORD_TIME = "timestamp"
GO_ON = "set failOnDataLoss to false to go on without it"  # what a query can do about data loss
ELSEWHERE = "write to another topic, by a sink of another name"  # and about the loss of what it has written

SUBSCRIBE, PATTERN, ASSIGN = CHOICES = ("subscribe", "subscribePattern", "assign")
KNOWN = (
    *CHOICES,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "sourceGroup",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    SECURITY_FILE,
    SECURITY_VARIABLE,
    "alignment",
    "alignBy",
    "alignSchema",
    "alignFormat",
    "alignMessage",
    "alignRegistry",
    "alignLoginVariable",
    "idleAfter",
    "ticks",
    "decode",
    "waitForRecords",
    "ticksUpTo",
)
OF_SPARK = ("path", "checkpointlocation", "queryname")  # what Spark itself may put among the options
ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

_TIME = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Choice(NamedTuple):
    """Which partitions: all of some topics, of those whose names match, or some by number."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


class AlignBy(NamedTuple):
    """What a record's time is, and how to find it in the value (`value_times.py`)."""

    field: str = RECORD_TIME
    schema: str | None = None
    format: str | None = None
    message: str | None = None
    registry: str | None = None
    login_variable: str | None = None

    @property
    def is_record_time(self) -> bool:
        return self == AlignBy()

    @property
    def path(self) -> list[str]:
        return self.field.split(".")


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where to start or end. One of them is set; `everywhere` is EARLIEST or LATEST."""

    everywhere: int | None = None
    offsets: Offsets | None = None
    timestamp: int | None = None
    timestamps: Offsets | None = None
    latest_if_none: bool = False  # where no record is as young as a timestamp: else an error
    option: str = field(default="", compare=False)  # that says so, for whoever has to mend it


@dataclass(frozen=True, slots=True)
class SourceOptions:
    reach: Reach
    choice: Choice
    starting: Boundary
    ending: Boundary
    fail_on_data_loss: bool
    headers: bool
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    min_partitions: int | None
    max_records: int | None
    group: str | None
    poll_timeout_ms: int
    metadata_ttl_ms: int
    alignment_ms: int | None
    align_by: AlignBy
    idle_after_ms: int
    ticks: bool
    decode: str | None
    wait_ms: int
    ticks_up_to: str | None = None


def read_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    options = {key.lower(): value for key, value in given.items()}
    check_names(given)
    if streaming and (wrong := next((key for key in ENDINGS if key.lower() in options), None)):
        raise UsageError(f"option {wrong} is for batch reads; a streaming query has no end: leave it out")
    reach = read_reach(given)
    starting = _boundary(options, "starting", LATEST if streaming else EARLIEST)
    ending = _boundary(options, "ending", LATEST)
    if not streaming:
        _check_batch(starting, ending)
    max_offsets, min_offsets = _limits(options)
    alignment = options.get("alignment")
    return SourceOptions(
        reach=reach,
        choice=_choice(options),
        starting=starting,
        ending=ending,
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        headers=_flag(options, "includeHeaders", False),
        max_offsets=max_offsets,
        min_offsets=min_offsets,
        max_delay_ms=_time(options, "maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        min_partitions=_positive(options, "minPartitions"),
        max_records=_positive(options, "maxRecordsPerPartition"),
        group=options.get("sourcegroup") or options.get("kafka.group.id") or options.get("groupidprefix"),
        poll_timeout_ms=_positive(options, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
        metadata_ttl_ms=_integer(options, "partition.metadata.cache.ttl.ms", -1),
        alignment_ms=None if alignment is None else _time(options, "alignment", 0),
        align_by=_align_by(options),
        idle_after_ms=_time(options, "idleAfter", IDLE_AFTER_MS),
        ticks=_flag(options, "ticks", False),
        decode=options.get("decode"),
        wait_ms=_time(options, "waitForRecords", 0),
        ticks_up_to=options.get("ticksupto"),
    )


def check_names(given: Mapping[str, str]) -> None:
    """Of options of a read, in batch or in a stream; secrets among them are refused."""
    read_reach(given)
    known = {name.lower() for name in KNOWN}
    for key in map(str.lower, given):
        if key not in known and key not in OF_SPARK and not key.startswith("kafka."):
            raise ConfigError(f"option {key} is not known; {nearest(key, KNOWN, 'leave it out')}")
    _check_registry({key.lower(): value for key, value in given.items()})


def _check_registry(options: Mapping[str, str]) -> None:
    """A login in its address is refused, whether or not anything is aligned: it stands in the plan either way."""
    if (url := options.get("alignregistry")) is not None:
        from tidelog.control.registry import registry_at

        registry_at(url, options.get("alignloginvariable"), named_by="the option alignLoginVariable")


def _choice(options: Mapping[str, str]) -> Choice:
    made = [name for name in CHOICES if name.lower() in options]
    if len(made) != 1:
        said = f"{' and '.join(made)} are given" if made else "no topic is given"
        raise UsageError(f"{said}; set one of the options {', '.join(CHOICES)}")
    text = options[made[0].lower()].strip()
    if made[0] == ASSIGN:
        return Choice(partitions=tuple(parse_partitions(text, ASSIGN)))
    if made[0] == PATTERN:
        return Choice(pattern=_pattern(text))
    topics = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
    if not topics:
        raise UsageError(f"option subscribe is {text!r}; name topics, with commas between them")
    return Choice(topics=topics)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"option subscribePattern is {text!r}, which is not a regular expression: {error}") from None
    if not text:
        raise UsageError("option subscribePattern is empty; give a regular expression")
    return text


def _boundary(options: Mapping[str, str], side: str, default: int) -> Boundary:
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise UsageError(f"option startingOffsetsByTimestampStrategy is {strategy!r}; it is error or latest")
    latest_if_none = strategy == "latest" or side == "ending"
    if f"{side}timestamp" in options:
        timestamp = _integer(options, name := f"{side}Timestamp", 0)
        return Boundary(timestamp=timestamp, latest_if_none=latest_if_none, option=name)
    if (text := options.get(f"{side}offsetsbytimestamp")) is not None:
        example = '{"topic": {"0": 1700000000000}}'
        timestamps = parse_offsets(text, name := f"{side}OffsetsByTimestamp", example)
        return Boundary(timestamps=timestamps, latest_if_none=latest_if_none, option=name)
    text = options.get(f"{side}offsets", "").strip()
    if not text:
        return Boundary(everywhere=default)
    everywhere = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if everywhere is not None:
        return Boundary(everywhere=everywhere)
    return Boundary(offsets=parse_offsets(text, name := f"{side}Offsets"), option=name)


def _check_batch(starting: Boundary, ending: Boundary) -> None:
    if starting.everywhere == LATEST or LATEST in (starting.offsets or {}).values():
        raise UsageError("startingOffsets is latest in a batch read, which would read nothing; start from earliest")
    if ending.everywhere == EARLIEST or EARLIEST in (ending.offsets or {}).values():
        raise UsageError("endingOffsets is earliest in a batch read, which would read nothing; end at latest")
    if starting.offsets is None or ending.offsets is None:
        return
    if starting.offsets.keys() != ending.offsets.keys():
        one_sided = ", ".join(map(str, sorted(starting.offsets.keys() ^ ending.offsets.keys())))
        raise UsageError(f"startingOffsets and endingOffsets differ in their partitions: {one_sided}; name all in both")
    for at, start in starting.offsets.items():
        if 0 <= ending.offsets[at] < start:
            raise UsageError(f"{at} starts at {start} and ends at {ending.offsets[at]}; it is to start before its end")


def _align_by(options: Mapping[str, str]) -> AlignBy:
    by = AlignBy(
        options.get("alignby", RECORD_TIME),
        options.get("alignschema"),
        options.get("alignformat"),
        options.get("alignmessage"),
        options.get("alignregistry"),
        options.get("alignloginvariable"),
    )
    if by.field == RECORD_TIME and by != AlignBy() and "alignby" not in options:
        raise UsageError("the options say how to read values, and not which field is their time; set alignBy")
    if by.schema is None and (by.format or by.message):
        raise UsageError("alignFormat and alignMessage are of alignSchema, which is not given; set it")
    if by.registry is None and by.login_variable:
        raise UsageError("alignLoginVariable is for alignRegistry, which is not given; set it")
    return by


def _limits(options: Mapping[str, str]) -> tuple[int | None, int | None]:
    least = _positive(options, "minOffsetsPerTrigger")
    if options.get("maxoffsetspertrigger", "").lower() == "unlimited":
        return None, least
    most = _positive(options, "maxOffsetsPerTrigger")
    if most is None:
        return max(MAX_OFFSETS_PER_TRIGGER, least or 0), least
    if least is not None and least > most:
        raise UsageError(f"minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger is {most}; lower the first")
    return most, least


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise UsageError(f"option {name} is {text!r}; it is true or false")
    return text == "true"


def _integer(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name.lower(), str(default)).strip()
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise UsageError(f"option {name} is {text!r}; it is a whole number")
    return int(text)


def _positive(options: Mapping[str, str], name: str) -> int | None:
    if name.lower() not in options:
        return None
    number = _integer(options, name, 0)
    if number <= 0:
        raise UsageError(f"option {name} is {number}; it is a whole number above 0")
    return number


def _time(options: Mapping[str, str], name: str, default: int) -> int:
    """Milliseconds: a bare number, or one with a unit as Spark writes them (100ms, 15m)."""
    text = options.get(name.lower())
    if text is None:
        return default
    if not (found := _TIME.fullmatch(text.strip())):
        raise UsageError(f"option {name} is {text!r}; write a time such as 500ms, 10s or 15m")
    return int(int(found[1]) * _MS[(found[2] or "ms").lower()])
