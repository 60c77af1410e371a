"""A partition that lives, dies by power cuts and lives on, beside a record of what its clients were told.

`Story` runs random lives of one log on simulated disks. Everything is drawn from one seed, and the committer's
rounds are run by hand, so a seed that fails, fails again. What was acked is kept here; after every recovery it is
compared with what the log has. Idempotent producers behave as real ones: what was not acked is sent again, in
order.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EIO, ENOSPC
from pathlib import Path
from tempfile import TemporaryDirectory

from tidelog.errors import StorageError
from tidelog.log.clean_mark import CleanMark
from tidelog.log.commit import Committer
from tidelog.log.log import Log
from tidelog.log.settings import LogSettings
from tidelog.record import codec
from tidelog.record.columns import decode, encode
from tidelog.testing.disk import SimulatedDisk

NOW = 1_700_000_000_000
SETTINGS = LogSettings(segment_bytes=24_000, index_interval_bytes=600, producer_expiration_ms=1 << 50)
READ_BYTES = 5000
CLEAN_STOPS = 0.3
CRASHES = 0.7
CUT_OPERATIONS = (None, None, "sync", "write", "sync_folder", "rename", "truncate")


@contextmanager
def quick_folder() -> Iterator[Path]:
    """In memory where there is such a place: a simulated disk need not wait for the real one."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="tidelog-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@dataclass
class Sent:
    sequence: int
    value: bytes
    count: int


@dataclass
class Producer:
    """An idempotent producer with what it sent and was not told of."""

    producer_id: int
    next_sequence: int = 0
    unacked: list[Sent] = field(default_factory=list)
    in_flight: int = 0

    def new(self, value: bytes, count: int) -> Sent:
        sent = Sent(self.next_sequence, value, count)
        self.next_sequence += count
        self.unacked.append(sent)
        return sent


@dataclass
class Told:
    """What the clients know: batches by base offset, and what else may be there."""

    acked: dict[int, bytes] = field(default_factory=dict)
    possible: dict[int, set[bytes]] = field(default_factory=dict)
    delete_asked: int = 0
    delete_done: int = 0
    epoch: int = 0
    end: int = 0


class Story:
    def __init__(self, folder: Path, seed: int, settings: LogSettings = SETTINGS, faults: tuple[str, ...] = ()) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.settings = settings
        self.faults = faults
        self.told = Told()
        self.producers = [Producer(7), Producer(8)]
        self.lives = 0
        self.values = 0
        self.disk = SimulatedDisk(folder / "life0", seed=seed)
        self.log: Log | None = None
        self.clean: CleanMark | None = None
        self.committer = Committer(self.disk, lambda: None, threads=False)

    # One life ---------------------------------------------------------------------------------------------------------

    def live(self, steps: int, cut_after: int, operation: str | None = None) -> None:
        """Opens the log, works on it until the power goes or the steps are done."""
        self.disk.cut_power_at(cut_after, operation)
        try:
            self._open()
            self.check()
        except (OSError, StorageError):
            assert self.disk.is_off
            return
        for _ in range(steps):
            if self.disk.is_off:
                break
            self._step()
        self._drain()

    def _open(self) -> None:
        self.committer = Committer(self.disk, lambda: None, threads=False)
        for producer in self.producers:
            producer.in_flight = 0
        self.log = None
        clean, self.clean = self.clean, None
        self.log = Log.open(f"{self.disk.folder}/p", self.disk, self.settings, self.committer, clean=clean)

    def _step(self) -> None:
        assert self.log is not None
        choice = self.rng.random()
        try:
            if choice < 0.5:
                self._append()
            elif choice < 0.65:
                self.committer.write_round()
            elif choice < 0.68:
                self.committer.pool.wait()
            elif choice < 0.8:
                self.committer.sync_round()
            elif choice < 0.9:
                self._drain()
            elif choice < 0.92:
                self._delete()
            elif choice < 0.93:
                self._retain()
            elif choice < 0.95:
                self._read()
            elif choice < 0.96:
                assert self.log.scrub(20_000).holes == ()
            elif choice < 0.98 and self.faults:
                self._break()
            else:
                self.committer.flush()
                self.committer.background.wait()
        except (OSError, StorageError):
            assert self.disk.is_off

    def _drain(self) -> None:
        self.committer.pool.wait()
        self.committer.background.wait()
        self.committer.drain()

    def stop(self) -> None:
        """A clean stop, and the mark that it leaves; the power may still go on the way."""
        assert self.log is not None
        try:
            self.committer.settle()
            mark = self.log.close()
            self.disk.sync_all(str(self.disk.folder))
        except (OSError, StorageError):
            assert self.disk.is_off
            return
        if not self.disk.is_off:
            self.clean = mark

    def kill(self) -> None:
        """The process is gone, the power is not: what was written can still be read, synced or not."""
        self.lives += 1
        self.disk.mend()

    def crash(self) -> None:
        """The power is gone; another life begins on what is left. A mark that is on the disk stays good."""
        self.disk.cut_power()
        self._drain()
        self.lives += 1
        seed = self.rng.randrange(1 << 30)
        self.disk = SimulatedDisk(self.disk.crash(self.folder / f"life{self.lives}", seed), seed=seed)

    # What clients do --------------------------------------------------------------------------------------------------

    def _append(self) -> None:
        producer = self.rng.choice([None, *self.producers])
        self.values += 1
        value = b"%d-" % self.values + bytes(self.rng.choices(b"abcdefgh", k=self.rng.choice((5, 50, 900, 5000))))
        if producer is None:
            self._send(None, Sent(-1, value, self.rng.randint(1, 3)))
            return
        if producer.in_flight < len(producer.unacked):
            self._send(producer, producer.unacked[producer.in_flight])  # again, in order
        elif len(producer.unacked) < 5:
            self._send(producer, producer.new(value, self.rng.randint(1, 3)))

    def append_alone(self, value: bytes) -> None:
        """A batch of nobody in particular."""
        self._send(None, Sent(-1, value, 1))

    def _send(self, producer: Producer | None, sent: Sent) -> None:
        assert self.log is not None
        rows = [(None, b"%s/%d" % (sent.value, at), (), NOW) for at in range(sent.count)]
        identity = (producer.producer_id, 0) if producer else (-1, -1)
        data = encode(rows, producer_id=identity[0], producer_epoch=identity[1], base_sequence=sent.sequence)
        try:
            appended = self.log.append(memoryview(data), codec.check(data), NOW)
        except StorageError:
            return
        offset = appended.base_offset
        if appended.duplicate:
            stored = self._stored(offset)
        else:
            stored = bytes(data)
            self.told.possible.setdefault(offset, set()).add(stored)
        if producer:
            producer.in_flight += 1

        def done(error: StorageError | None) -> None:
            known = stored or self._stored(offset)
            if error is None and known is not None:
                self.told.acked[offset] = known
            if producer:
                producer.in_flight -= (
                    1  # those that fail are the last ones, so the next to be sent is the first of them
                )
                if error is None:
                    assert producer.unacked.pop(0) is sent

        self.log.when_visible(appended.last_offset + 1, done)

    def _stored(self, offset: int) -> bytes | None:
        """A batch as the log has it, if it is visible and not deleted."""
        assert self.log is not None
        if offset < self.log.start_offset:
            return None
        piece = self.log.read(offset, 1)
        return piece.read() if piece is not None else None

    def _delete(self) -> None:
        assert self.log is not None
        upto = self.rng.randint(self.log.start_offset, self.log.high_watermark)
        self.told.delete_asked = max(self.told.delete_asked, upto)

        def done(error: StorageError | None) -> None:
            if error is None:
                self.told.delete_done = max(self.told.delete_done, upto)

        self.log.delete_before(upto, done)

    def _retain(self) -> None:
        """Retention by time: now and then everything is old."""
        assert self.log is not None
        now = NOW + self.rng.choice((0, 2)) * self.settings.retention_ms
        self.log.apply_retention(now)
        self.told.delete_asked = max(self.told.delete_asked, self.log.start_offset)

    def _read(self) -> None:
        assert self.log is not None
        if self.log.high_watermark > self.log.start_offset:
            offset = self.rng.randrange(self.log.start_offset, self.log.high_watermark)
            piece = self.log.read(offset, READ_BYTES)
            assert piece is not None
            piece.warm()
            columns = decode(piece.read(), partial=False)
            assert columns.offsets[0] <= offset <= columns.offsets[-1]

    def _break(self) -> None:
        fault = self.rng.choice(self.faults)
        if fault == "full":
            self.disk.fail("write", OSError(ENOSPC, "no space left"), times=self.rng.randint(1, 3))
        elif fault == "write":
            self.disk.fail("write", OSError(EIO, "write failed"), name=".log")
        elif fault == "sync":
            self.disk.fail("sync", OSError(EIO, "sync failed"), name=".log")

    # What must hold ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """After an open: everything acked is there, offsets are dense, the rest is what was sent."""
        log, told = self.log, self.told
        assert log is not None
        assert told.delete_done <= log.start_offset <= told.delete_asked
        assert log.leader_epoch >= told.epoch
        assert log.end_offset == log.high_watermark
        found = self._batches()
        for offset, data in told.acked.items():
            if self._last_offset(offset, data) >= log.start_offset:
                assert found.get(offset) == data, f"acked batch at {offset} is not what was acked"
        for offset, data in found.items():
            assert data in told.possible[offset] or data == told.acked.get(offset), f"batch at {offset} was never sent"
        told.possible = {offset: {data} for offset, data in found.items()}
        told.acked.update(found)  # visible to consumers from now on, so it must stay
        told.epoch, told.end = log.leader_epoch, log.end_offset
        self._check_once(found)

    def _batches(self) -> dict[int, bytes]:
        """Everything that can be read, batch by batch, from the first offset to the last without a gap."""
        log = self.log
        assert log is not None
        found: dict[int, bytes] = {}
        offset = log.start_offset
        while offset < log.high_watermark:
            piece = log.read(offset, READ_BYTES)
            assert piece is not None
            piece.warm()
            data = piece.read()
            scan = codec.scan(data)
            assert scan.error is None
            for position, header in zip(scan.positions, scan.headers, strict=True):
                assert header.base_offset <= offset < header.next_offset
                assert not found or header.base_offset == offset, "offsets have a gap"
                found[header.base_offset] = data[position : position + header.size]
                offset = header.next_offset
        return found

    def _last_offset(self, offset: int, data: bytes) -> int:
        return offset + codec.peek(data).last_offset_delta

    def _check_once(self, found: dict[int, bytes]) -> None:
        """Of every idempotent producer, sequences follow each other: nothing twice, nothing left out."""
        for producer in self.producers:
            headers = [codec.peek(found[offset]) for offset in sorted(found)]
            mine = [header for header in headers if header.producer_id == producer.producer_id]
            for header, following in itertools.pairwise(mine):
                assert following.base_sequence == header.base_sequence + header.count

    def finish(self) -> None:
        """A last life without faults: clients send what they still have, and everything is there once."""
        self.disk.mend()
        self._open()
        self.check()
        for producer in self.producers:
            for sent in list(producer.unacked):
                self._send(producer, sent)
        self.committer.settle()
        assert all(not producer.unacked for producer in self.producers)
        self.told.possible.update({offset: {data} for offset, data in self.told.acked.items()})
        self.check()
        self.committer.stop()


def tell_story(folder: Path, seed: int, **options: object) -> Story:
    """A few lives with power cuts anywhere, also while the log recovers."""
    story = Story(folder, seed, **options)  # type: ignore[arg-type]
    for _ in range(story.rng.randint(1, 4)):
        operation = story.rng.choice(CUT_OPERATIONS)
        cut_after = story.rng.choice((3, 20, 100, 400)) if operation is None else story.rng.randint(1, 12)
        story.live(story.rng.randint(10, 150), cut_after, operation)
        if story.log is not None and story.rng.random() < CLEAN_STOPS:
            story.stop()
        if story.disk.is_off or story.rng.random() < CRASHES:
            story.crash()
        elif story.clean is None:
            story.kill()
    story.finish()
    return story
