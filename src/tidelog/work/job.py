"""A job: a record that was acquired for one call of a function, and what the end of that call means. Pure.

    the function          the record                              counted as
    returns               is accepted: done                       done
    raises Reject         is rejected: a dead letter at once      rejected
    raises another error  is released: tried again, with the      retried
                          group's back-off, until its last
                          delivery; then a dead letter
    takes too long        is released, as above                   timed_out

What becomes of a record that was released for the last time, or rejected, the broker decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.client.share import ACCEPT, REJECT, RELEASE, AcquiredRecord

DONE, RETRIED, REJECTED, TIMED_OUT, LOST = "done", "retried", "rejected", "timed_out", "lost"
KNOWN = "known"  # its results were committed by an earlier delivery, whose acceptance was lost
ENDS = (DONE, KNOWN, RETRIED, REJECTED, TIMED_OUT, LOST)  # LOST: its lock was gone before its end was told
GIVEN_BACK = "given_back"  # not begun: it waited for a thread, and others may have one
ACKNOWLEDGED_AS = {
    DONE: ACCEPT,
    KNOWN: ACCEPT,
    RETRIED: RELEASE,
    REJECTED: REJECT,
    TIMED_OUT: RELEASE,
    GIVEN_BACK: RELEASE,
}


class Reject(Exception):
    """Raised by a function: this job can never be done. It is not tried again."""


@dataclass(frozen=True, slots=True)
class Job:
    """`delivery_count` is 1 at first. A delivery that follows another may find its work done already: see `id`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    delivery_count: int

    @property
    def id(self) -> str:
        """The same at each delivery, and no other job's: what was done under it need not be done again."""
        return job_id(self.topic, self.partition, self.offset)


def job_id(topic: str, partition: int, offset: int) -> str:
    return f"{topic}/{partition}/{offset}"


def job_of(record: AcquiredRecord) -> Job:
    row = record.row
    headers = tuple((name, value) for name, value in row.headers or ())
    at = record.at
    return Job(at.topic, at.partition, row.offset, row.timestamp, row.key, row.value, headers, record.delivery)


def end_of(error: BaseException | None) -> str:
    """Of a call that ended."""
    if error is None:
        return DONE
    return REJECTED if isinstance(error, Reject) else RETRIED
