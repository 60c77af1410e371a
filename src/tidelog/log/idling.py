"""What was synced and then rests: its last commit is recorded too, so that it is not in doubt for ever.

A slot is written just before a sync and says what the sync *before* made durable (header_block.py), so after the last
append of a busy hour the last commit would be recorded by nobody: a bit that flips in it years later would look like a
write that a power cut tore, and be cut. So a tail without a commit for a whole turn gets one more write and one more
sync: a slot that says all of it. From then on, damage there is damage.

    noted     `note`, whoever has committed: a tail whose last commit is in no slot
    resting   `turn`, every TURN_S: it was noted before the last turn, and not since
    recorded  `settle`, in a thread of its own: many in one sync, AT_ONCE at most, and no commit waits for it

It costs nothing while a partition is written, and one sync when it rests: between one turn and two after its last
commit. The clock is the committer's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from tidelog.log.files import Files, OpenFile
from tidelog.log.tail import SyncFailed, Tail

TURN_S = 0.5
AT_ONCE = 256  # files that are held open for one sync


class Idling:
    """`note` and `turn`: any thread. `settle`: one thread at a time."""

    __slots__ = ("_fresh", "_lock", "_noted", "_resting", "turn_at")

    def __init__(self) -> None:
        self._fresh: set[Tail] = set()  # noted since the last turn
        self._noted: set[Tail] = set()  # noted before it
        self._resting: deque[Tail] = deque()
        self._lock = threading.Lock()
        self.turn_at = 0.0

    @property
    def pending(self) -> bool:
        return bool(self._fresh or self._noted or self._resting)

    def note(self, tail: Tail) -> None:
        """It has just been committed, or was found so."""
        self._fresh.add(tail)

    def turn(self, now: float) -> bool:
        """Whether there is something to settle. What is noted while this runs is noted for the next turn."""
        with self._lock:
            if now >= self.turn_at:
                self.turn_at = now + TURN_S
                fresh, self._fresh = self._fresh, set()
                self._resting.extend(self._noted - fresh)
                self._noted = fresh
        return bool(self._resting)

    def settle(
        self, files: Files, may_sync_all: Callable[[int], bool], failed: Callable[[Tail, OSError], None]
    ) -> None:
        """Records what rests, and returns when it is synced; `failed` is told of a tail whose sync failed."""
        while self._resting:
            begun = _begin([self._resting.popleft() for _ in range(min(AT_ONCE, len(self._resting)))])
            if len(begun) > 1 and may_sync_all(len(begun)):
                with suppress(OSError):  # then each file is asked for its own error: most have none
                    files.sync_all(begun[0][0].folder)
                    continue
            for tail, file in begun:
                try:
                    tail.end_record(file)
                except SyncFailed as error:
                    failed(tail, error)


def _begin(tails: Sequence[Tail]) -> list[tuple[Tail, OpenFile]]:
    begun = []
    for tail in tails:
        with suppress(OSError):  # its last commit stays in doubt, as it was
            file = tail.begin_record()
            if file is not None:
                begun.append((tail, file))
    return begun
