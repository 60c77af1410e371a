"""Leader epochs: which epoch the records of a partition were written in. Pure.

A partition on one node has one leader, but its epoch rises when offsets may have been reused: after an unclean stop of
a partition that does not sync before it acks. A client that read the lost records learns by it (KIP-320). A history is
a tuple of epochs, each with the first offset written in it, both rising; it is never empty.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

UNKNOWN = -1


class Epoch(NamedTuple):
    epoch: int
    start_offset: int


History = tuple[Epoch, ...]

BEGINNING: History = (Epoch(0, 0),)


def epoch_at(history: History, offset: int) -> int:
    """The epoch in which the record at an offset was, or would be, written."""
    at = bisect_right(history, offset, key=_start_offset)
    return history[max(at - 1, 0)].epoch


def end_offset_for(history: History, epoch: int, end_offset: int) -> tuple[int, int]:
    """OffsetForLeaderEpoch: the largest known epoch up to `epoch`, and where it ended; (-1, -1) if unheard of."""
    if epoch == history[-1].epoch:
        return epoch, end_offset
    at = bisect_right(history, epoch, key=_epoch)
    if epoch < 0 or at == len(history):
        return UNKNOWN, UNKNOWN
    return history[at - 1].epoch if at else epoch, history[at].start_offset


def raised(history: History, end_offset: int) -> History:
    """The history with a new epoch that begins at the end of the log."""
    kept = tuple(epoch for epoch in history if epoch.start_offset < end_offset)
    return (*kept, Epoch(history[-1].epoch + 1, end_offset))


def _epoch(entry: Epoch) -> int:
    return entry.epoch


def _start_offset(entry: Epoch) -> int:
    return entry.start_offset
