"""What is done under overload, decided by numbers alone. Pure.

`block`, by how far the slowest watched group is behind, as a multiple of the limit (the largest of those by records,
bytes and time):

    up to 1      the batch is stored
    up to 2      it is stored, and the connection is not read for a while: the longer, the nearer it is to 2
    above 2      it is refused; nothing is stored

A hold is below what the client waits for an answer, and so is the sum of holds while a request may wait for its turn:
a client that sends on has its next requests in the socket, and they grow old there. So each connection has a *credit*.
It is a QUARTER of the request's time-out at most, and half of the time that passes is given back; then in the time of
one time-out no more than three quarters of it are held. A client that does as it is told waits beside that.

A watched group is *dead* when it has been behind for `dead_ms` without a member and without a commit. It does not count
then, until it has one of them again.

`drop`: the start of a partition moves up to where the limit is kept. What a group lost are the records from its commit
on that went by this; a commit that comes later and lies among them says that it had read them before, and is
believed. A share group lost those that it had not done.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

BUFFER, DROP, BLOCK = "buffer", "drop", "block"
REFUSED_ABOVE = 2.0
QUARTER = 4
GIVEN_BACK = 0.5
MAX_HOLD_MS = 5_000
DEFAULT_TIMEOUT_MS = 30_000  # of a request that says none


class OverloadLimit(NamedTuple):
    """How far is too far; None: it does not matter."""

    records: int | None = None
    bytes: int | None = None
    ms: int | None = None


class OverloadPolicy(NamedTuple):
    kind: str  # DROP or BLOCK
    limit: OverloadLimit
    groups: tuple[str, ...] = ()
    dead_ms: int = 0

    @property
    def looks_up(self) -> bool:
        """Whether the disk must be asked how far behind a group is."""
        return self.limit.bytes is not None or self.limit.ms is not None


# Block ----------------------------------------------------------------------------------------------------------------


class GroupLag(NamedTuple):
    """How far one group is behind in one partition."""

    group: str
    records: int
    bytes: int = 0
    ms: int = 0


class Verdict(NamedTuple):
    """`slowest` is None where nobody is above the limit."""

    hold_ms: int
    refused: bool
    slowest: GroupLag | None


FREE = Verdict(0, False, None)


def times(lag: GroupLag, limit: OverloadLimit) -> float:
    """How many times the limit a group is behind."""
    measured = ((lag.records, limit.records), (lag.bytes, limit.bytes), (lag.ms, limit.ms))
    return max((found / most for found, most in measured if most is not None), default=0.0)


def judge(lags: Iterable[GroupLag], limit: OverloadLimit, timeout_ms: int) -> Verdict:
    """What becomes of a batch; `timeout_ms` is how long its sender waits for the answer."""
    slowest, most = None, 1.0
    for lag in lags:
        behind = times(lag, limit)
        if behind > most:
            slowest, most = lag, behind
    if slowest is None:
        return FREE
    longest = longest_hold_ms(timeout_ms)
    return Verdict(ceil(longest * min(1.0, most - 1.0)), most > REFUSED_ABOVE, slowest)


def longest_hold_ms(timeout_ms: int) -> int:
    return min(MAX_HOLD_MS, (timeout_ms if timeout_ms > 0 else DEFAULT_TIMEOUT_MS) // QUARTER)


class Credit(NamedTuple):
    """For how long a connection may still be held; `at_ms` is when that was told."""

    ms: int
    at_ms: int


def grant(credit: Credit | None, wanted_ms: int, timeout_ms: int, now_ms: int) -> tuple[int, Credit]:
    """The hold that a connection gets, and what is left of its credit at the end of it."""
    most = (timeout_ms if timeout_ms > 0 else DEFAULT_TIMEOUT_MS) // QUARTER
    have = most
    if credit is not None:
        have = min(most, credit.ms + int(max(0, now_ms - credit.at_ms) * GIVEN_BACK))
    granted = min(wanted_ms, have)
    return granted, Credit(have - granted, now_ms)


class WatchedGroup(NamedTuple):
    """One group that a topic names: `commits` tells one commit from the next, `alive_ms` is when it last lived."""

    commits: int
    alive_ms: int
    dead: bool = False


def watch(
    before: WatchedGroup | None, commits: int, has_member: bool, behind: bool, now_ms: int, dead_ms: int
) -> WatchedGroup:
    """What is known of a group after one more look at it."""
    if before is None or has_member or not behind or commits != before.commits:
        return WatchedGroup(commits, now_ms)
    return before._replace(dead=now_ms - before.alive_ms >= dead_ms)


# Drop -----------------------------------------------------------------------------------------------------------------


class Loss(NamedTuple):
    """What a group lost in a partition: how many records in all, and the last of them, from `first` up to `to`."""

    records: int
    first: int
    to: int


NO_LOSS = Loss(0, 0, 0)


def lose(loss: Loss, committed: int, start: int, to: int) -> Loss:
    """The start of the partition moves from `start` up to `to`, and the group has committed so far."""
    loss = believe(loss, committed)
    first = max(committed, start)
    if first >= to:
        return loss
    # What was lost before and not read since lies right before this: one commit may yet take back both.
    begin = loss.first if loss.to == first and committed <= loss.first else first
    return Loss(loss.records + to - first, begin, to)


def lose_some(loss: Loss, left: int, to: int) -> Loss:
    """The same of a share group that has not done `left` of these records. No later commit takes any of it back."""
    return Loss(loss.records + left, to, to) if left else loss


def believe(loss: Loss, committed: int) -> Loss:
    """A commit among what was counted as lost: up to there the group had it."""
    if not loss.first < committed <= loss.to:
        return loss
    return loss._replace(records=loss.records - (committed - loss.first), first=committed)
