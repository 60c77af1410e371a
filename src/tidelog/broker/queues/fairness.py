"""How many records one worker is handed at a time, so that all who wait have something to do.

A consumer asks for hundreds of records at once. If it got them, a queue of a few hundred slow jobs would keep one
worker busy and the others idle. So each gets a part of what there is: with `n` who have joined, one of `2 n`. While
much is there everybody gets all that it asks for; towards the end parts get smaller, and all end at about the same
time.

A batch that is cut is sent again, whole, with the next part of it. So who is alone gets the rest of it as well, up to
REST_MAX records or, if it was fast up to now, as many as it does in REST_MS: who joins waits no longer than that.

A worker that dies takes down all that it was given: each was delivered once more. So a record that has failed half as
often as it may is given alone, and what is innocent does not reach the limit beside what is poison.
"""

from __future__ import annotations

REST_MAX = 100
REST_MS = 100


def fair_share(available: int, readers: int, asked: int) -> int:
    if readers <= 1:
        return asked
    return min(asked, max(1, -(-available // (2 * readers))))


def alone_from(deliveries: int) -> int:
    """After how many deliveries that failed a record is given alone."""
    return max(1, deliveries // 2)


def rest_at_once(ended: int, took_ms: int) -> int:
    """How many records of a batch are given beyond what was asked for, to one who ended so many in this time."""
    return max(REST_MAX, ended * REST_MS // max(1, took_ms))
