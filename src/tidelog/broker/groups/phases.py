"""The classic protocol's states, in one table: what moves a group from one to the next, and what members are told.

                          REBALANCE            JOINED                EMPTIED   SYNCED   DELETED
    Empty                 PreparingRebalance                                            Dead
    PreparingRebalance                         CompletingRebalance   Empty
    CompletingRebalance   PreparingRebalance                                   Stable
    Stable                PreparingRebalance

    REBALANCE   a member joined, left, fell silent or changed
    JOINED      all members have (re)joined, or the time for it is up
    EMPTIED     ... and there is none
    SYNCED      the leader's assignment has come
    DELETED     DeleteGroups, or nothing is left to keep. A dead group is forgotten at once, so Dead is only ever *said*
                of a group that is not there.

A request of a known member of the present generation is answered by phase:

                          Heartbeat               SyncGroup               OffsetCommit
    PreparingRebalance    REBALANCE_IN_PROGRESS   REBALANCE_IN_PROGRESS   taken
    CompletingRebalance   taken                   parked until SYNCED     REBALANCE_IN_PROGRESS
    Stable                taken                   its assignment          taken

and JoinGroup again: parked until JOINED; this generation, unless its metadata changed (REBALANCE); this generation,
unless it leads or its metadata changed (REBALANCE). An empty group has no members, so everybody is told
UNKNOWN_MEMBER_ID; only offsets may be committed, without a generation.
"""

from __future__ import annotations

from enum import Enum

from tidelog.wire.error_code import ErrorCode


class Phase(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    REBALANCE = "rebalance"
    JOINED = "joined"
    EMPTIED = "emptied"
    SYNCED = "synced"
    DELETED = "deleted"


MOVES: dict[tuple[Phase, GroupEvent], Phase] = {
    (Phase.EMPTY, GroupEvent.REBALANCE): Phase.PREPARING,
    (Phase.EMPTY, GroupEvent.DELETED): Phase.DEAD,
    (Phase.PREPARING, GroupEvent.JOINED): Phase.COMPLETING,
    (Phase.PREPARING, GroupEvent.EMPTIED): Phase.EMPTY,
    (Phase.COMPLETING, GroupEvent.REBALANCE): Phase.PREPARING,
    (Phase.COMPLETING, GroupEvent.SYNCED): Phase.STABLE,
    (Phase.STABLE, GroupEvent.REBALANCE): Phase.PREPARING,
}

HEARTBEAT: dict[Phase, int] = {
    Phase.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    Phase.PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    Phase.COMPLETING: ErrorCode.NONE,
    Phase.STABLE: ErrorCode.NONE,
}

COMMIT: dict[Phase, int] = {
    Phase.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    Phase.PREPARING: ErrorCode.NONE,
    Phase.COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    Phase.STABLE: ErrorCode.NONE,
}
