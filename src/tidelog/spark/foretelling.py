"""Where the rows of a transaction will come to lie, told before they are written: so that the mark, which says it, goes
out in the same request as they do. Pure.

    outlook     where each target partition ends by now: behind the rows of the last commit, and its marker
    foretold    ends after the rows, by the outlook, or for a partition that it does not know by what the broker says
    as foretold the answers say the same offsets: the transaction is committed
    missed      somebody else has written there, or has aborted: this one is aborted, and written again in turn, rows
                first and the mark by their answers

Rules:
- A mark is committed only if every answer was as foretold. So `ends` are always what the produce replies said.
- After a miss the next commits are written in turn: 2, then 4, and so on up to REST_MAX. A topic that others write to
  costs an aborted transaction now and then, and not each time.
- Only what is small, and in memory, is written together: one batch a partition, TOGETHER_BYTES in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Delivery
from tidelog.spark.routing import Routed
from tidelog.spark.staging import Stage

TOGETHER_BYTES = 4 << 20
MARKER = 1  # offsets that a transaction takes in each of its partitions when it ends
REST_MAX = 1024

Ends = Mapping[TopicPartition, int]
NOWHERE: Ends = MappingProxyType({})


class Outlook(NamedTuple):
    """What a driver that has committed knows of where its targets end."""

    next: Ends = NOWHERE
    misses: int = 0
    rest: int = 0  # commits that are written in turn before one is foretold again


def together(stages: Sequence[Stage]) -> list[Routed] | None:
    """All batches, where they can be one request; None where they cannot."""
    if any(each.places for each in stages):
        return None
    batches = [one for each in stages for one in each.inline]
    if len({one.at for one in batches}) < len(batches) or sum(len(one.data) for one in batches) > TOGETHER_BYTES:
        return None
    return batches


def unknown(outlook: Outlook, batches: Iterable[Routed]) -> list[TopicPartition]:
    """Where the broker is to be asked for the end."""
    return [one.at for one in batches if one.at not in outlook.next]


def foretold(outlook: Outlook, batches: Iterable[Routed], asked: Ends) -> dict[TopicPartition, int]:
    known = {**asked, **outlook.next}
    return {one.at: known[one.at] + one.rows for one in batches}


def is_as_foretold(ends: Ends, batches: Sequence[Routed], deliveries: Sequence[Delivery]) -> bool:
    """A broker that does not say where a batch is, as one that had it already, has not said that it is there."""
    return all(
        delivery.offset >= 0 and delivery.offset + batch.rows == ends[batch.at]
        for batch, delivery in zip(batches, deliveries, strict=True)
    )


def committed(outlook: Outlook, written: Ends) -> Outlook:
    """After a commit that has written up to these ends."""
    moved = {at: end + MARKER for at, end in written.items()}
    return outlook._replace(next={**outlook.next, **moved}, rest=max(0, outlook.rest - 1))


def missed(outlook: Outlook) -> Outlook:
    misses = outlook.misses + 1
    return Outlook(NOWHERE, misses, min(1 << misses, REST_MAX))
