"""Group commit: appends of all partitions become durable, a few system calls at a time, off the loop.

Two equal threads. Whoever is free takes what is queued and writes it, one `pwritev` per partition; then, if nobody is
syncing, it syncs what has been written, again and again until nothing is left, while the other thread writes what comes
in meanwhile. So a lone append goes to the disk without a hand-over between threads, and under load the next commit is
written while the last one is synced.

A commit of one partition is one `fdatasync`; of several, one `syncfs`, or, where that would write much that is somebody
else's, one `fdatasync` each in a small pool. New
segments are made in the pool, and only their own partition waits for that. What was acked without a sync is synced
every second by a thread of its own (`flusher`), behind no other work; what rests is recorded by another (idling.py).
Every result goes to the loop's thread through
`drain`, in order: `notify` (called by any thread) says that there is something to drain.

    queue     loop -> writer      appends, in order
    dirty     writer -> syncer    tails written and not synced
    outbox    any -> loop         (function, arguments), run by drain()
    moved     any -> `ends`       tails of which more is synced, or whose start has moved; taken out one by one
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from tidelog.errors import DiskFullError, GoneError, OfflineError, StorageError
from tidelog.log.files import Files
from tidelog.log.idling import Idling
from tidelog.log.index_cache import IndexCache
from tidelog.log.latency import Histogram
from tidelog.log.open_files import OpenFiles
from tidelog.log.pool import Pool
from tidelog.log.tail import (
    NO_DESCRIPTORS,
    Append,
    CannotTakeBack,
    Dirty,
    Extent,
    FileGone,
    SyncFailed,
    Tail,
    TailListener,
)

POOL_THREADS = 16  # for syncs and new segments
BACKGROUND_THREADS = 2  # for what no append waits for
SYNC_ALL_FROM = 2  # dirty partitions in one commit: one call takes two thirds of the time of two, a third of thirty's,
SYNC_ALL_BYTES = 32 << 20  # where no more than these wait to be written in the whole machine: it writes them all,
SYNC_ALL_ANYWAY_FROM = 32  # or where the partitions are so many that this costs less than to sync each
LOOK_INTERVAL = 0.1  # seconds between two looks at how many bytes wait
SYNC_ALL_SECONDS = 0.001  # for each partition; slower means that somebody else's bytes were synced too,
SYNC_ALL_PAUSES = 10.0, 600.0  # and for so many seconds each file is synced by itself; doubled when it happens again
FLUSH_INTERVAL = 1.0  # seconds between two syncs of partitions whose acks do not wait for one


class Committer:
    """`threads` False leaves the rounds, and `wait` of the pools, to the caller: for tests that must be repeatable."""

    def __init__(
        self,
        files: Files,
        notify: Callable[[], None],
        *,
        open_files_limit: int | None = None,
        threads: bool = True,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.files = files
        self.open_files = OpenFiles(files, open_files_limit)
        self.index_cache = IndexCache()
        self.commits = Histogram()  # how long each group commit took, told by whoever syncs
        self.pool = Pool(POOL_THREADS if threads else 0, "tidelog-sync", self._fault)
        self.background = Pool(BACKGROUND_THREADS if threads else 0, "tidelog-upkeep", self._fault)
        self.flusher = Pool(1 if threads else 0, "tidelog-flush", self._fault)
        self._recorder = Pool(1 if threads else 0, "tidelog-record", self._fault)
        self._idling = Idling()
        self._clock = clock
        self._notify = notify
        self._queue: deque[Append] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._awake = False
        self._dirty: deque[Dirty] = deque()
        self.moved: set[Tail] = set()
        self._lazy: dict[Tail, Dirty] = {}
        self._flush_at = 0.0
        self._sync_all_from = 0.0
        self._sync_all_pause = SYNC_ALL_PAUSES[0]
        self._look_at = 0.0
        self._much_waits = False
        self._outbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._notified = False
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stopping = False

    # The loop's thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for number in (1, 2):
            thread = threading.Thread(target=self._run, name=f"tidelog-commit-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def put(self, append: Append) -> None:
        self._queue.append(append)
        if not self._awake:
            self._awake = True
            self._wake.put(None)

    def drain(self) -> None:
        """Applies what the threads have finished."""
        self._notified = False
        outbox = self._outbox
        while outbox:
            function, arguments = outbox.popleft()
            function(*arguments)

    def stop(self) -> None:
        """Writes and syncs all that is queued, ends the threads, and drains."""
        self._stopping = True
        for _ in self._threads:
            self._wake.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self.settle()
        for pool in self._pools:
            pool.stop()
        self.drain()

    def settle(self) -> None:
        """Writes, syncs and drains all that is queued, in this thread. For `stop` and for tests without the threads."""
        assert not self._threads
        while self._queue or self._dirty or self._lazy or self._outbox or any(pool.busy for pool in self._pools):
            self.write_round()
            self.sync_round()
            self.flush()
            for pool in self._pools:
                pool.wait()
            self.drain()

    @property
    def _pools(self) -> tuple[Pool, ...]:
        return self.pool, self.background, self.flusher, self._recorder

    # Any thread -------------------------------------------------------------------------------------------------------

    def tell(self, function: Callable[..., None], *arguments: Any) -> None:
        """Has the loop's thread call the function when it drains."""
        self._outbox.append((function, arguments))
        if not self._notified:
            self._notified = True
            self._notify()

    # The two threads --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wait()
                self.write_round()
                while self._dirty and self._syncing.acquire(blocking=False):
                    try:
                        self.sync_round()
                    finally:
                        self._syncing.release()
        except BaseException as error:
            self._fault(error)

    def _fault(self, error: BaseException) -> None:
        self.tell(_raise, error)

    def _wait(self) -> None:
        """For something to write, or for the time to flush what nobody waits for or to record what rests."""
        lazy, idling = self._lazy, self._idling.pending
        if not lazy and not idling:
            self._wake.get()
            return
        due = self._flush_at if lazy else self._idling.turn_at
        wait = (min(due, self._idling.turn_at) if idling else due) - self._clock()
        if wait > 0:
            with suppress(Empty):
                self._wake.get(timeout=wait)
        now = self._clock()
        if self._lazy and now >= self._flush_at:
            self._flush_at = now + FLUSH_INTERVAL
            if not self.flusher.busy:  # else the disk is slower than that, and the next flush takes what came
                self.flusher.submit(self.flush)
        if now >= self._idling.turn_at:
            self.look_for_idle()

    def look_for_idle(self) -> None:
        """Has what rests recorded, if it is time."""
        idling, now = self._idling, self._clock()
        if not idling.pending or now < idling.turn_at:
            return
        if idling.turn(now) and not self._recorder.busy:  # else that is not done, and takes these as well
            self._recorder.submit(lambda: idling.settle(self.files, self._may_record_all, self._sync_failed))

    def _may_record_all(self, count: int) -> bool:
        return self._may_sync_all(count, self._clock())

    def note_idle(self, tail: Tail) -> None:
        """Its last commit is in no slot, and it may be that nothing is ever appended to it."""
        self._idling.note(tail)
        self._wake.put(None)

    def write_round(self) -> None:
        """Writes what is queued now."""
        with self._writing:
            self._awake = False
            tails = self._take_queue()
            for tail, appends in tails.items():
                self._write(tail, appends)

    def _take_queue(self) -> dict[Tail, list[Append]]:
        queue = self._queue
        tails: dict[Tail, list[Append]] = {}
        for _ in range(len(queue)):
            append = queue.popleft()
            appends = tails.get(append[0])
            if appends is None:
                tails[append[0]] = [append]
            else:
                appends.append(append)
        return tails

    def sync_round(self) -> None:
        """Commits what has been written until now."""
        entries = self._take_dirty()
        if not entries:
            return
        started = self._clock()
        if len(entries) >= SYNC_ALL_FROM and self._may_sync_all(len(entries), started):
            self._sync_all(entries)
        elif len(entries) > 1:
            self.pool.each(self._sync, entries)
        else:
            self._sync(entries[0])
        self.commits.add(self._clock() - started)

    def _take_dirty(self) -> list[Dirty]:
        """The last of each tail: it says all of it."""
        dirty = self._dirty
        if len(dirty) == 1:  # as where one client waits for each of its acks
            return [dirty.popleft()]
        latest = {entry.tail: entry for entry in [dirty.popleft() for _ in range(len(dirty))]}
        return list(latest.values())

    def _may_sync_all(self, count: int, now: float) -> bool:
        if not self.files.can_sync_all or now < self._sync_all_from:
            return False
        if now >= self._look_at:
            self._look_at = now + LOOK_INTERVAL
            self._much_waits = self.files.unwritten_bytes() > SYNC_ALL_BYTES
        return count >= SYNC_ALL_ANYWAY_FROM or not self._much_waits

    def flush(self) -> None:
        """Syncs what nobody waits for."""
        with self._writing:
            lazy, self._lazy = self._lazy, {}
        for entry in lazy.values():
            self._sync(entry)
        if lazy:
            self._wake.put(None)  # for whoever looks for what rests

    # Writing ----------------------------------------------------------------------------------------------------------

    def _write(self, tail: Tail, appends: list[Append]) -> None:
        if appends[0].generation <= tail.failed:
            appends = [append for append in appends if append.generation > tail.failed]
        if tail.parked is not None:
            tail.parked.extend(appends)
            return
        if not appends or tail.offline:
            return
        segment = tail.written.segment if tail.written is not None else None
        if appends[-1].segment is not segment:
            split = next(at for at, append in enumerate(appends) if append.segment is not segment)
            tail.parked = appends[split:]
            appends = appends[:split]
        if appends and not self._write_run(tail, appends):
            tail.parked = None
        if tail.parked is not None:
            self.pool.submit(lambda: self._roll(tail))

    def _write_run(self, tail: Tail, appends: Sequence[Append]) -> bool:
        try:
            entry = tail.write(appends)
        except OSError as error:
            self._write_failed(tail, appends[-1].generation, error)
            return False
        if tail.waits_for_sync(appends):
            self._dirty.append(entry)
        else:
            try:
                tail.check_name(entry.segment)
            except FileGone as error:
                self._went_offline(tail, error)
                return False
            if not self._lazy:
                self._flush_at = self._clock() + FLUSH_INTERVAL
            self._lazy[tail] = entry
            self.tell(tail.owner.committed, tail.written)
        return True

    def _write_failed(self, tail: Tail, generation: int, error: OSError) -> None:
        if isinstance(error, CannotTakeBack | SyncFailed):
            self._went_offline(tail, error)
            return
        tail.failed = generation
        self.tell(tail.owner.write_failed, tail.written, storage_error(error))

    def _roll(self, tail: Tail) -> None:
        """In the pool. The writer leaves a parked tail alone, so this thread is its writer until it hands back."""
        parked = tail.parked
        assert parked is not None
        try:
            committed = tail.finish()
            if committed is not None:
                self.moved.add(tail)
                self.tell(tail.owner.committed, committed)
            tail.make(parked[0].segment)
        except OSError as error:
            with self._writing:
                tail.parked = None
                self._write_failed(tail, parked[-1].generation, error)
            return
        with self._writing:
            tail.parked = None
            self._write(tail, parked)
        self._wake.put(None)  # for whoever syncs

    # Syncing ----------------------------------------------------------------------------------------------------------

    def _sync(self, entry: Dirty) -> None:
        try:
            extent = entry.tail.sync(entry.segment, entry.file)
        except OSError as error:
            self._sync_failed(entry.tail, error)
            return
        # Also when acks stopped waiting for syncs since: what was written before that still waits for this one.
        if extent is not None:
            self._idling.note(entry.tail)
            self.moved.add(entry.tail)
            self.tell(entry.tail.owner.committed, extent)

    def _sync_failed(self, tail: Tail, error: OSError) -> None:
        """Buffers are let go when this is told: not while they are being written."""
        with self._writing:
            self._went_offline(tail, error)

    def _sync_all(self, entries: Sequence[Dirty]) -> None:
        """One call for the whole file system. If that fails, each file is asked for its own error: most have none."""
        begun = [(entry, extent) for entry in entries if (extent := entry.tail.begin_sync(entry)) is not None]
        started = self._clock()
        try:
            self.files.sync_all(entries[0].segment.folder)
        except OSError:
            self.pool.each(self._sync, entries)
            return
        finished = self._clock()
        if finished - started > len(entries) * SYNC_ALL_SECONDS:
            self._sync_all_from = finished + self._sync_all_pause
            self._sync_all_pause = min(2 * self._sync_all_pause, SYNC_ALL_PAUSES[1])
        else:
            self._sync_all_pause = SYNC_ALL_PAUSES[0]
        done = []
        for entry, extent in begun:
            try:
                if entry.tail.end_sync(extent):
                    self._idling.note(entry.tail)
                    self.moved.add(entry.tail)
                    done.append((entry.tail.owner, extent))
            except FileGone as error:
                self._sync_failed(entry.tail, error)
        self.tell(_committed, done)

    def replaced(self, tail: Tail) -> None:
        """Any thread: another file has the name of the one that this tail writes to."""
        with self._writing:
            self._went_offline(tail, FileGone())

    def _went_offline(self, tail: Tail, error: OSError) -> None:
        tail.offline = True
        if isinstance(error, FileGone):
            advice = "put them back and restart the broker, or restore the data folder from a backup"
            self.tell(tail.owner.went_offline, GoneError(f"partition is offline: {error.strerror}; {advice}"))
            return
        self.tell(
            tail.owner.went_offline,
            OfflineError(f"partition is offline: {error.strerror}; restart the broker to recover it"),
        )


def _committed(done: Sequence[tuple[TailListener, Extent]]) -> None:
    for owner, extent in done:
        owner.committed(extent)


def _raise(error: BaseException) -> None:
    """A fault of our own in another thread: the loop's thread is the one to die of it."""
    raise error


def storage_error(error: OSError) -> StorageError:
    if error.errno in (ENOSPC, EDQUOT):
        return DiskFullError(f"no room on the disk: {error.strerror}; free some space, then try again")
    if error.errno in NO_DESCRIPTORS:
        return StorageError(f"no file can be opened: {error.strerror}; raise the limit of open files, or close some")
    return StorageError(f"the disk refused: {error.strerror}")
