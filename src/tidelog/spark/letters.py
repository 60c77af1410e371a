"""Dead letters of an output: records that its query has left out, read from the log once more and staged beside its
rows, so that one transaction has both (`commit.py`). In the driver, and without PySpark.

Rules:
- A letter is the record as it was, key, value, headers and timestamp, with the headers of a dead letter behind its own
  (`control/dead_letters.py`). Letters stand in the order of the log, partition by partition.
- The topic is made with the first letter. It has one partition.
- A record that is not there any more (compaction took it between) fails the micro-batch: Spark reads it again, without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.size_limits import SizeLimits
from tidelog.control.dead_letters import OWNER, SETTINGS, headers, told_of_error
from tidelog.control.reading import read
from tidelog.errors import PipelineFailed
from tidelog.record.columns import TARGET_SIZE, Row, encode
from tidelog.spark.left_out import Note
from tidelog.spark.routing import Routed

DECODED_BY, RAISED = "tidelog.spark.typed", "tidelog.errors.UndecodableValue"
PASSED_BY, TOLD = "tidelog.pass", "passed by command"
NEAR = 64  # offsets: records no further apart come by one fetch
ROW_BYTES = 64  # of a record, beside its own

Letter = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]


def letters(cluster: Cluster, topic: str, sink: str, notes: Iterable[Note]) -> Iterator[Routed]:
    """Batches for `staging.stage`."""
    topics.ensure(cluster, topic, partitions=1, configs=SETTINGS)
    target = SizeLimits(cluster).batch_bytes(topic, TARGET_SIZE)
    held: list[Letter] = []
    size = 0
    for note, row in _records(cluster, list(notes)):
        letter = letter_of(note, row, sink)
        bytes_of = _size(letter)
        if held and size + bytes_of > target:
            yield _batch(topic, held)
            held, size = [], 0
        held.append(letter)
        size += bytes_of
    if held:
        yield _batch(topic, held)


def letter_of(note: Note, row: Row, sink: str) -> Letter:
    place = {"topic": note.topic, "partition": note.partition, "offset": note.offset, OWNER: sink}
    by = (PASSED_BY, TOLD) if note.is_passed else (DECODED_BY, RAISED)
    told = headers(place, told_of_error("VALUE_CONVERTER", *by), note.reason)
    return row.key, row.value, [*row.headers, *told], row.timestamp


def _records(cluster: Cluster, notes: list[Note]) -> Iterator[tuple[Note, Row]]:
    """In the order of the notes, which is that of the log."""
    for wanted in _near(notes):
        at = wanted[0].at
        rows = read(cluster, {at: wanted[0].offset}, {at: wanted[-1].offset + 1})
        by_offset = {note.offset: note for note in wanted}
        found = [(by_offset[row.offset], row) for _, row in rows if row.offset in by_offset]
        if len(found) != len(wanted):
            gone = min(set(by_offset) - {row.offset for _, row in found})
            raise PipelineFailed(
                f"{at} offset {gone} was read a moment ago, and is gone: it was deleted or compacted away before it"
                " was written as a dead letter; the micro-batch is run again"
            )
        yield from found


def _near(notes: list[Note]) -> Iterator[list[Note]]:
    held: list[Note] = []
    for note in notes:
        if held and (note.at != held[-1].at or note.offset - held[-1].offset > NEAR):
            yield held
            held = []
        held.append(note)
    if held:
        yield held


def _size(letter: Letter) -> int:
    key, value, told, _ = letter
    return len(key or b"") + len(value or b"") + sum(len(n) + len(v or b"") for n, v in told) + ROW_BYTES


def _batch(topic: str, held: list[Letter]) -> Routed:
    return Routed(TopicPartition(topic, 0), len(held), encode(held))
