"""What a clean stop leaves of one partition, so that the next start need not look at its folder."""

from __future__ import annotations

from typing import NamedTuple

NO_POSITION = -1


class CleanMark(NamedTuple):
    """Plain numbers, fit for JSON."""

    start_offset: int
    end_offset: int
    leader_epoch: int
    size_bytes: int
    position: int  # of the end, in the last segment; NO_POSITION when there is none
