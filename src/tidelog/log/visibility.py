"""What the committer says of a partition's appends, and what follows: the loop's thread, when it drains.

    committed      the high watermark moves up; buffers are let go, those who wait are called, readers may have it
    write_failed   appends above what is written are taken back, and whoever waits for them is told why
    went_offline   a sync failed, and nobody knows what the disk has: nothing is taken any more

After a failed write the partition goes on: the next append is tried as if nothing had been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import GoneError, OfflineError, StorageError
from tidelog.log.appending import Appending
from tidelog.log.durability import Durability
from tidelog.log.old_records import OldRecords
from tidelog.log.pending import Waiters
from tidelog.log.reading import Reading
from tidelog.log.tail import Extent
from tidelog.log.upkeep import Upkeep

if TYPE_CHECKING:
    from tidelog.log.log import Log


class Visibility:
    """The owner of a tail. It alone moves the log's high watermark, and takes it offline."""

    __slots__ = ("_appending", "_durability", "_log", "_old", "_reading", "_refusing", "_upkeep", "waiters")

    def __init__(
        self,
        log: Log,
        reading: Reading,
        appending: Appending,
        upkeep: Upkeep,
        durability: Durability,
        old: OldRecords,
    ) -> None:
        self._log = log
        self._reading = reading
        self._appending = appending
        self._upkeep = upkeep
        self._durability = durability
        self._old = old
        self._refusing = False
        self.waiters = Waiters()

    def committed(self, extent: Extent) -> None:
        log, offset = self._log, extent.offset
        if log.offline is not None:
            return
        self._appending.save_plans(self._upkeep)
        before = log.high_watermark
        if offset < before:
            return
        if self._refusing and offset > before:
            self._refusing = False
            log.trouble("appends are taken again")
        self._reading.visible = extent
        if self._durability.pending:
            self._durability.follow(log.settings.durable, before)
        if offset == before:
            return
        log.high_watermark = offset
        self._appending.visible(offset)
        self.waiters.reach(offset)
        if log.on_visible is not None:
            log.on_visible()

    def write_failed(self, extent: Extent | None, error: StorageError) -> None:
        self._appending.take_back(extent, self._log.high_watermark)
        self.waiters.fail_above(self._appending.end_offset, error)
        if not self._refusing:  # once, and not for every try of every producer
            self._refusing = True
            self._log.trouble(f"appends are refused: {error}")

    def standing(self) -> tuple[int, int]:
        return self._log.start_offset, self._log.leader_epoch

    def went_offline(self, error: StorageError) -> None:
        log = self._log
        if isinstance(error, GoneError) and log.offline is not None:
            return  # it was deleted meanwhile, and so its files had to go
        log.offline = error
        self._old.abandon_compaction()
        if isinstance(error, GoneError):
            log.lost(error)
        elif isinstance(error, OfflineError):  # a partition that was deleted is no trouble
            log.trouble(str(error))
        self._appending.take_back(self._reading.visible, log.high_watermark)
        self.waiters.fail_above(log.high_watermark, error)
