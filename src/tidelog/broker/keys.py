"""The keys of batches for compacted topics: a record without one could never be compacted away, so it is not taken.

This is the one place where an append looks at records. A batch that is compressed says little of how much it becomes: a
few kilobytes may be gigabytes. So there are two limits, both on what a batch is when it is decompressed:

- KEYS_BYTES_AT_ONCE for what the loop does itself, of all batches of one request together. The rest is looked at in a
  thread, one batch after the other; meanwhile nothing more of that connection is handled, so that nothing overtakes it.
- KEYS_BYTES_MAX for one batch, and for all batches of one request together too, unless they are more than one byte in
  KEYS_RATIO_MAX of it. What is above it is refused with MESSAGE_TOO_LARGE, on which clients split a batch.

Nothing of a record is copied: the codec walks over it, and what was decompressed is let go of at once.
"""

from __future__ import annotations

from tidelog.broker.limits import KEYS_BYTES_AT_ONCE, KEYS_BYTES_MAX, KEYS_RATIO_MAX
from tidelog.broker.partition import Partition
from tidelog.errors import OversizedBatch
from tidelog.record.compacting import Keyless, find_keyless
from tidelog.wire.error_code import ErrorCode

RECORD_ERRORS_MAX = 1000  # named one by one; a client takes the others of the batch to be refused with them


class BatchRefused(Exception):
    """A batch that is not taken. `records` are those at fault, by number; none when it is the batch as a whole."""

    def __init__(self, code: int, message: str, records: list[int] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.records = records or []


class KeyCheck:
    """What one request may still take. `at_once` is the loop's; `whole` is for a thread, one batch at a time."""

    __slots__ = ("_at_once", "_left")

    def __init__(self, sent_bytes: int) -> None:
        """`sent_bytes` are all batches of the request, as they came."""
        self._at_once = KEYS_BYTES_AT_ONCE
        self._left = max(KEYS_BYTES_MAX, KEYS_RATIO_MAX * sent_bytes)

    def at_once(self, partition: Partition, batch: memoryview) -> bool:
        """Whether all its records have a key; False when it is too much to be looked at here."""
        if len(batch) > self._at_once:
            return False
        try:
            found = find_keyless(batch, RECORD_ERRORS_MAX, self._at_once)
        except OversizedBatch:
            self._at_once = 0  # to find it out has cost as much
            return False
        self._at_once -= found.plain_size
        self._take(partition, found)
        return True

    def whole(self, partition: Partition, batch: memoryview) -> None:
        limit = min(KEYS_BYTES_MAX, self._left)
        try:
            found = find_keyless(batch, RECORD_ERRORS_MAX, limit)
        except OversizedBatch:
            self._left -= limit
            raise BatchRefused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of {len(batch)} bytes for {partition.topic}[{partition.index}], which is compacted, has more"
                f" than {limit} bytes when it is decompressed; send smaller batches",
            ) from None
        self._take(partition, found)

    def _take(self, partition: Partition, found: Keyless) -> None:
        self._left = max(0, self._left - found.plain_size)
        if found.total:
            raise BatchRefused(
                ErrorCode.INVALID_RECORD,
                f"{compacted(partition)}; {found.total} records of the batch do not have a key, the first is number"
                f" {found.numbers[0]}",
                found.numbers,
            )


def compacted(partition: Partition) -> str:
    return f"{partition.topic}[{partition.index}] is compacted and does not accept a record without a key"
