"""Internal topics: where decisions are kept, and from where they come back.

An internal topic is a log of one partition whose records are folded into a state by `apply`. `commit` is the only
way in: it appends the records of a decision, applies them at once (the next decision sees them), and lets the
replies go when the log is synced up to what the state rested on when the decision was made. So no reply tells what
a power cut could take back, not even a reply that only read.

Recovery is the same fold: the newest snapshot, then the records behind it. A snapshot is made by folding again, in
a worker thread, from the last snapshot and the log alone; the loop never stops for it. What lies below the snapshot
before the last is cut from the log. So neither start-up nor disk grows with the number of decisions ever made, only
with the size of the state.

A snapshot file `TOPIC.NNNNNNNNNNNNNNNNNNNN.fold` in the data folder (the offset up to which it folds, 20 digits):

    8 bytes    magic "TIDESNAP"
    u16        format version, 1
    i64        offset: the records at and after it are not in the snapshot
    u32        CRC-32C of everything behind this header
    record batches, each record one of `to_records(state)`
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tidelog.broker.decision import Decision, NewRecord
from tidelog.errors import DataFolderError, HoleError, MalformedBatch, StorageError
from tidelog.log.facts import Hole
from tidelog.log.files import Files, read_file, remove_files, replace_file
from tidelog.log.log import Log
from tidelog.record.codec import check, crc32c, peek
from tidelog.record.columns import Columns, decode, encode

MAGIC = b"TIDESNAP"
SUFFIX = ".fold"
FORMAT_VERSION = 1
SNAPSHOT_EVERY_BYTES = 8 << 20
RECORDS_PER_BATCH = 1000
READ_BYTES = 4 << 20

_HEADER = struct.Struct(">8sHqI")


class TopicFold(NamedTuple):
    """What an internal topic folds into."""

    fresh: Callable[[], Any]
    apply: Callable[[Any, bytes, bytes | None], Any]
    to_records: Callable[[Any], Iterable[NewRecord]]


class InternalTopic:
    """Loop thread only, except `_fold_again`, which touches nothing but files."""

    log: Log

    def __init__(
        self, name: str, fold: TopicFold, on_lost: Callable[[StorageError], None], *, keeps_all: bool = False
    ) -> None:
        """`on_lost` is called when records that were applied could not be written: the state is ahead of the disk.

        With `keeps_all` the log is never cut: clients are to read all of it.
        """
        self.name = name
        self.state: Any = None
        self._fold = fold
        self._on_lost = on_lost
        self._keeps_all = keeps_all
        self._unsettled: deque[tuple[int, list[NewRecord]]] = deque()  # applied, not yet visible; with where each ends
        self._appended_bytes = 0
        self._snapshotting = False
        self.ahead = -1  # how far a snapshot goes that has more than the log: the log has lost its end

    def recover(self, log: Log, folder: str, files: Files, told: Callable[[Any], None] | None = None) -> None:
        """`told` is called with what `apply` says of each record behind the snapshot."""
        self.log = log
        self._folder = folder
        self._files = files
        self.state, begun = self._load(self.log.end_offset, told)
        if begun == self.log.start_offset > 0 and begun not in self._snapshots():
            # Somebody has decided to go on without what lay before it; from here on a snapshot has what is left.
            self.write_snapshot(self.log.end_offset, self.state)

    def commit(self, decision: Decision, wall_ms: int) -> list[Any]:
        """Returns what `apply` said of each record."""
        changes = self._append(decision.records, wall_ms) if decision.records else []
        if decision.replies:
            replies = decision.replies
            self.log.when_visible(self.log.end_offset, lambda error: _deliver(replies, error))
        return changes

    def _append(self, records: list[NewRecord], wall_ms: int) -> list[Any]:
        # One batch, whatever its size: the records of a decision are all there after a power cut, or none is.
        batch = encode([(record.key, record.value, (), wall_ms) for record in records])
        self.log.append(memoryview(batch), check(batch), wall_ms)
        self._appended_bytes += len(batch)
        self._unsettled.append((self.log.end_offset, records))
        self.log.when_visible(self.log.end_offset, self._settled)
        return [self._fold.apply(self.state, record.key, record.value) for record in records]

    def _settled(self, error: StorageError | None) -> None:
        """Of one batch, and so of all before it; or of the first that failed, and so of all behind it."""
        unsettled = self._unsettled
        if error is None:
            while unsettled and unsettled[0][0] <= self.log.high_watermark:
                unsettled.popleft()
            return
        lost = bool(unsettled) and unsettled[-1][0] > self.log.end_offset
        while unsettled and unsettled[-1][0] > self.log.end_offset:
            unsettled.pop()
        if lost:
            self._on_lost(error)

    def refold(self) -> None:
        """Back to what the log has, synced or about to be: what was applied and not written has never been."""
        self.state, _ = self._load(self.log.high_watermark)
        for _, records in self._unsettled:
            for record in records:
                self._fold.apply(self.state, record.key, record.value)

    # Snapshots ---------------------------------------------------------------------------------------------------

    def snapshot_due(self) -> bool:
        return self._appended_bytes >= SNAPSHOT_EVERY_BYTES and not self._snapshotting

    def snapshot(
        self,
        in_thread: Callable[[Callable[[], object], Callable[[object, BaseException | None], None]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """A snapshot that fails is no more than a longer start, and is tried again when the topic has grown."""
        self._snapshotting = True
        self._appended_bytes = 0
        upto = self.log.high_watermark

        def done(kept: object, error: BaseException | None) -> None:
            self._snapshotting = False
            if error is not None:
                failed(error)
            elif isinstance(kept, int) and not self._keeps_all:
                self.log.delete_before(kept)

        in_thread(lambda: self._fold_again(upto), done)

    def _fold_again(self, upto: int) -> int:
        """Writes the snapshot at `upto`, and returns the offset below which nobody needs the log."""
        state, _ = self._load(upto)
        self.write_snapshot(upto, state)
        return self._keep_two()

    def _keep_two(self) -> int:
        """Drops all snapshots but the last two, and returns the offset of the older one; 0 while there is only one."""
        found = sorted(self._snapshots())
        remove_files(self._files, [self._path(offset) for offset in found[:-2]])
        return found[-2] if len(found) > 1 else 0

    def write_snapshot(self, offset: int, state: Any) -> None:
        body = bytearray()
        records = list(self._fold.to_records(state))
        for start in range(0, len(records), RECORDS_PER_BATCH):
            body += encode([(record.key, record.value, (), 0) for record in records[start : start + RECORDS_PER_BATCH]])
        content = _HEADER.pack(MAGIC, FORMAT_VERSION, offset, crc32c(body)) + body
        replace_file(self._files, self._path(offset), content)

    def close(self) -> None:
        """At a clean stop: a snapshot at the end, so that the next start folds nothing but it."""
        if self.log.end_offset not in self._snapshots():
            self.write_snapshot(self.log.end_offset, self.state)
        self._keep_two()

    def _path(self, offset: int) -> str:
        return f"{self._folder}/{self.name}.{offset:020}{SUFFIX}"

    def _snapshots(self) -> list[int]:
        prefix = self.name + "."
        names = [entry.name for entry in self._files.list(self._folder)]
        return [
            int(name[len(prefix) : -len(SUFFIX)]) for name in names if name.startswith(prefix) and name.endswith(SUFFIX)
        ]

    # The fold ----------------------------------------------------------------------------------------------------

    def _load(self, upto: int, told: Callable[[Any], None] | None = None) -> tuple[Any, int]:
        state = self._fold.fresh()
        offset = self._load_snapshot(state, upto)
        for key, value in self._records(offset, upto):
            change = self._fold.apply(state, key, value)
            if told is not None:
                told(change)
        return state, offset

    def snapshot_ahead(self) -> Any:
        """The state as the snapshot has it that goes further than the log."""
        state = self._fold.fresh()
        self._load_snapshot(state, self.ahead)
        return state

    def _load_snapshot(self, state: Any, upto: int) -> int:
        for offset in sorted(self._snapshots(), reverse=True):
            body = self._snapshot_body(offset)
            if body is None:
                continue
            if offset > upto:
                self.ahead = max(self.ahead, offset)
                continue
            for row in decode(body).rows():
                assert row.key is not None, "every record of an internal topic has a key"
                self._fold.apply(state, row.key, row.value)
            return self._go_on(offset)
        return self._go_on(0)

    def _go_on(self, offset: int) -> int:
        """Where the records behind a snapshot begin. A fold never skips, unless somebody has decided so."""
        start = self.log.start_offset
        if offset >= start:
            return offset
        if any(hole.passed and hole.base_offset <= offset and start <= hole.end_offset for hole in self._holes()):
            return start
        raise DataFolderError(
            f"{self.name} begins at offset {start} and no snapshot reaches up to it;"
            " restore the data folder from a backup"
        )

    def _holes(self) -> tuple[Hole, ...]:
        if not self.log.loaded:
            self.log.load()
        return self.log.holes

    def _behind_passed(self, offset: int) -> int:
        for hole in sorted(self._holes()):
            if hole.passed and hole.base_offset <= offset < hole.end_offset:
                offset = hole.end_offset
        return offset

    def _snapshot_body(self, offset: int) -> bytes | None:
        """None for a snapshot that is not whole: an older one and the log behind it give the same state."""
        content = read_file(self._files, self._path(offset))
        if content is None or len(content) < _HEADER.size:
            return None
        magic, version, stated, checksum = _HEADER.unpack_from(content)
        if magic == MAGIC and version > FORMAT_VERSION:
            raise DataFolderError(
                f"{self._path(offset)} has format version {version} and this Tidelog reads up to {FORMAT_VERSION};"
                " use the newer one"
            )
        body = content[_HEADER.size :]
        return body if magic == MAGIC and stated == offset and crc32c(body) == checksum else None

    def _records(self, offset: int, upto: int) -> Iterator[tuple[bytes, bytes | None]]:
        while offset < upto and (offset := self._behind_passed(offset)) < upto:
            columns, behind_first = self._read(offset, upto)
            for row in columns.rows():
                if offset <= row.offset < upto:
                    assert row.key is not None, "every record of an internal topic has a key"
                    yield row.key, row.value
                    offset = row.offset + 1
            offset = max(offset, behind_first)

    def _read(self, offset: int, upto: int) -> tuple[Columns, int]:
        """The records, and the offset behind the first batch.

        A fold never skips: what cannot be read stops it, and only a person can decide to go on without.
        """
        try:
            piece = self.log.read(offset, READ_BYTES, limit=upto)
            if piece is None:
                raise StorageError(f"{self.name} is to be folded up to {upto} and cannot be read at {offset} now")
            data = piece.read()
            return decode(data), peek(data).next_offset  # the first batch may have no records
        except (HoleError, MalformedBatch) as error:
            raise DataFolderError(
                f"{self.name} is damaged at or after offset {offset}: {error}; restore the data folder from a backup,"
                f" or run: tidelog repair --data {self._folder} {self.name} 0 --skip, after which the broker starts and"
                " has forgotten what was decided there"
            ) from error


def _deliver(replies: list[tuple[Any, Any]], error: StorageError | None) -> None:
    for ticket, reply in replies:
        if error is None:
            ticket.reply(reply)
        else:
            ticket.drop()
