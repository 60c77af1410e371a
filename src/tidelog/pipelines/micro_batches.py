"""The micro-batches that a checkpoint still has, and a copy of it in which one of them is the next to run.

    offsets/<n>    how far micro-batch n reads; written before it runs
    commits/<n>    it is done
    state/...      <v>.delta, .snapshot, .zip, .changelog: state of version v, which is the state before micro-batch v

Spark runs again what has offsets and no commit. So the copy has all up to the offsets of n and the commit of n - 1, and
no state of a later version; whoever runs it repeats n, with the same offsets, over the same state.

Rules:
- The original is only read. Its query may run meanwhile: files that go while they are copied are left out.
- What cannot be repeated is refused, with the reason, before anything is copied.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import UsageError
from tidelog.spark.offsets import Offsets, from_json
from tidelog.spark.query_log import by_source
from tidelog.spark.ticks import Tick, tick_of

COMMITS, OFFSETS, STATE = "commits", "offsets", "state"
KEPT = 100  # micro-batches, by Spark's own setting
KEPT_BY = "spark.sql.streaming.minBatchesToRetain"
PARTITIONS = "spark.sql.shuffle.partitions"  # which the first micro-batch fixes
NUMBERED = re.compile(r"\.?(?P<number>\d+)(\.crc)?")
VERSIONED = re.compile(r"\.?(?P<number>\d+)(_[^.]*)?\.(delta|snapshot|zip|changelog)(\.crc)?")


class Read(NamedTuple):
    """Of one source in one micro-batch. A partition that is not in `begin` is read from where it begins."""

    begin: Offsets
    end: Offsets
    tick: Tick | None = None


class MicroBatch(NamedTuple):
    number: int
    at_ms: int  # when it began, which is its `current_timestamp()`
    watermark_ms: int
    reads: tuple[Read, ...]  # by source, in Spark's order
    is_committed: bool


def folder_of(checkpoint: str) -> Path:
    if "://" in checkpoint and not checkpoint.startswith("file:"):
        raise UsageError(f"{checkpoint} is not on this machine; copy it to a local folder, and give that")
    return Path(checkpoint.removeprefix("file://").removeprefix("file:"))


def not_a_checkpoint(folder: Path) -> UsageError:
    return UsageError(f"{folder} is not a checkpoint of a query that has run; is --checkpoints right?")


def state_partitions(checkpoint: str) -> int | None:
    """Of a checkpoint as it is; None where none is on this machine, or it does not say it."""
    try:
        return CheckpointHistory(checkpoint).state_partitions
    except (UsageError, OSError, ValueError, IndexError):
        return None


class CheckpointHistory:
    """What a checkpoint says of its micro-batches."""

    def __init__(self, checkpoint: str) -> None:
        self.folder = folder_of(checkpoint)
        if not (self.folder / OFFSETS).is_dir():
            raise not_a_checkpoint(self.folder)
        self.planned = _numbers(self.folder / OFFSETS)
        self.committed = _numbers(self.folder / COMMITS)

    @property
    def has_state(self) -> bool:
        return (self.folder / STATE).is_dir()

    @property
    def state_partitions(self) -> int | None:
        """Into how many the state of each operator is cut; None where there is none, or it is not said."""
        if not self.has_state or not self.planned:
            return None
        told = json.loads((self.folder / OFFSETS / str(self.planned[-1])).read_text().split("\n")[1])
        said = told.get("conf", {}).get(PARTITIONS)
        return None if said is None else int(said)

    def check(self, number: int) -> None:
        """Refuses a micro-batch that cannot be run again."""
        if not self.planned:
            raise UsageError(f"{self.folder} has no micro-batch yet")
        first, last = self.planned[0], self.planned[-1]
        if number > last:
            raise UsageError(f"micro-batch {number} does not exist yet; the last in {self.folder} is {last}")
        needed = [number, *([number - 1] if number else [])]
        if missing := [one for one in needed if one not in self.planned]:
            raise UsageError(
                f"micro-batch {number} needs the offsets of {missing[0]}, which are gone: the checkpoint has {first} to"
                f" {last}. Spark keeps {KEPT} ({KEPT_BY}); of those {first + (1 if first else 0)} and later can be run"
            )
        if number and number - 1 not in self.committed:
            raise UsageError(f"micro-batch {number - 1} was not committed, so nothing says what {number} began with")
        if number and self.has_state and number not in _versions(self.folder / STATE):
            raise UsageError(
                f"the state before micro-batch {number} is gone: Spark cleans up what is older than the last {KEPT}"
                f" ({KEPT_BY}); take a later one"
            )

    def micro_batch(self, number: int) -> MicroBatch:
        after = (self.folder / OFFSETS / str(number)).read_text()
        before = (self.folder / OFFSETS / str(number - 1)).read_text() if number - 1 in self.planned else None
        told = json.loads(after.split("\n")[1])
        earlier = {} if before is None else by_source(before)
        reads = tuple(_read(earlier.get(name), said) for name, said in by_source(after).items())
        times = (int(told["batchTimestampMs"]), int(told["batchWatermarkMs"]))
        return MicroBatch(number, *times, reads, number in self.committed)

    def copy_before(self, number: int, to: Path) -> None:
        """A checkpoint at `to` whose next micro-batch is this one."""
        for file in _files(self.folder):
            path = file.relative_to(self.folder)
            if _belongs(path, number):
                (to / path).parent.mkdir(parents=True, exist_ok=True)
                try:
                    shutil.copyfile(file, to / path)
                except FileNotFoundError:
                    continue  # the query runs, and has cleaned up
        (to / COMMITS).mkdir(parents=True, exist_ok=True)


def _belongs(path: Path, number: int) -> bool:
    """Whether the file was there, as it is, before micro-batch `number` ran."""
    if path.parts[0] in (OFFSETS, COMMITS):
        found = NUMBERED.fullmatch(path.name)
        last = number if path.parts[0] == OFFSETS else number - 1
        return found is not None and int(found["number"]) <= last
    if path.parts[0] == STATE:
        found = VERSIONED.fullmatch(path.name)
        return found is None or int(found["number"]) <= number
    return True


def _read(before: str | None, after: str) -> Read:
    begin, end = json.loads(before) if before else {}, json.loads(after)
    try:
        tick = tick_of(end)
        return Read(from_json(begin), from_json(end), None if tick == tick_of(begin) else tick)
    except (AttributeError, TypeError, ValueError):
        raise UsageError(f"a source has read up to {after[:60]}, which are not offsets of a topic") from None


def _numbers(folder: Path) -> list[int]:
    found = (NUMBERED.fullmatch(path.name) for path in folder.glob("*")) if folder.is_dir() else ()
    return sorted({int(one["number"]) for one in found if one is not None})


def _versions(folder: Path) -> set[int]:
    found = (VERSIONED.fullmatch(path.name) for path in folder.rglob("*"))
    return {int(one["number"]) for one in found if one is not None}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
