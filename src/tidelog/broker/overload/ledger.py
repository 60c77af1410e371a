"""What groups lost by `tidelog.overload.policy=drop`: a record for each partition in `__tidelog.warnings`.

    key      {"v":1,"kind":"dropped","topic":T,"id":HEX,"partition":P}
    value    {"at_ms":MS,"to":N,"records":N,"lost":{GROUP:[RECORDS,FIRST,TO],...}}

`to` is the offset up to which was dropped, `records` how many that were in all, `lost` is `policy.Loss` by group. The
record is written before anything is deleted, and what it says is done again after a crash: so nothing is counted twice,
and nothing goes that is not counted. The id is the topic's: one made anew under the name begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

from tidelog.broker.overload.policy import NO_LOSS, Loss, believe, lose, lose_some

KIND = "dropped"
Committed = Callable[[str], int | None]


class LedgerPlace(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int

    def key(self) -> dict[str, Any]:
        return {"kind": KIND, "topic": self.topic, "id": self.topic_id.hex(), "partition": self.partition}


class LedgerEntry(NamedTuple):
    to: int
    records: int
    lost: dict[str, Loss]

    def value(self, now_ms: int) -> dict[str, Any]:
        lost = {group: list(loss) for group, loss in self.lost.items()}
        return {"at_ms": now_ms, "to": self.to, "records": self.records, "lost": lost}


EMPTY = LedgerEntry(0, 0, {})


def parse(key: dict[str, Any], value: dict[str, Any]) -> tuple[LedgerPlace, LedgerEntry]:
    lost = {group: Loss(*loss) for group, loss in value["lost"].items()}
    return LedgerPlace(key["topic"], bytes.fromhex(key["id"]), key["partition"]), LedgerEntry(
        value["to"], value["records"], lost
    )


def dropped(
    entry: LedgerEntry, commits: Mapping[str, int], left: Mapping[str, int], start: int, to: int
) -> LedgerEntry:
    """The start of the partition moves from `start` up to `to`; `commits` are those of the groups that have one, and
    `left` is how many of these records each share group has not done.
    """
    lost = {group: lose(entry.lost.get(group, NO_LOSS), offset, start, to) for group, offset in commits.items()}
    lost |= {group: lose_some(entry.lost.get(group, NO_LOSS), count, to) for group, count in left.items()}
    return LedgerEntry(to, entry.records + to - start, {group: loss for group, loss in lost.items() if loss.to})


def settled(entry: LedgerEntry, commits: Mapping[str, int], shares: Container[str]) -> LedgerEntry:
    """What later commits say of it; groups without one any more are forgotten, and share groups without a queue."""
    lost = {group: believe(loss, commits[group]) for group, loss in entry.lost.items() if group in commits}
    lost |= {group: loss for group, loss in entry.lost.items() if group in shares}
    return entry._replace(lost=lost)
