"""Which records were taken out, why and by whom: a fold over `__tidelog.excisions`, which is also the audit.

    key      {"v":1,"kind":"excision","number":N}
    value    {"state":"ordered","topic":T,"id":HEX,"partition":P,"offsets":[[17,17],[40,44]],
              "reason":R,"by":"User:ops","ordered_ms":MS}
             then, under the same key, the same with
             {"state":"done","done_ms":MS,"removed":N}    or    {"state":"refused","done_ms":MS,"removed":N,"error":E}

Rules:
- What the records said is in none of these, nor their keys.
- An order is here, synced, before a byte of the partition is touched; `done` is written when nothing of the records is
  in any file, durably. So what is `ordered` after a crash is done again.
- Nothing is deleted from the topic, and nothing compacted: consumers can read all of it (`InternalTopic.keeps_all`).
- `id` is the topic's: one that is made anew under the same name is not meant.
- A restore takes out again what is `ordered` or `done` (`shunning.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.broker.decision import NewRecord
from tidelog.broker.excision.order import Range
from tidelog.broker.record_text import decode, encode
from tidelog.errors import DataFolderError

VERSION = 1
KIND = "excision"
ORDERED, DONE, REFUSED = "ordered", "done", "refused"


class Excision(NamedTuple):
    """Of one partition."""

    topic: str
    topic_id: bytes
    partition: int
    offsets: tuple[Range, ...]
    reason: str
    by: str
    ordered_ms: int
    state: str = ORDERED
    done_ms: int = 0
    removed: int = 0
    error: str = ""


@dataclass(slots=True)
class Excisions:
    by_number: dict[int, Excision] = field(default_factory=dict)
    next_number: int = 0

    def pending(self) -> list[int]:
        return [number for number, one in self.by_number.items() if one.state == ORDERED]


def fresh() -> Excisions:
    return Excisions()


def apply(state: Excisions, key: bytes, value: bytes | None) -> None:
    number, excision = parse(key, value)
    state.by_number[number] = excision
    state.next_number = max(state.next_number, number + 1)


def parse(key: bytes, value: bytes | None) -> tuple[int, Excision]:
    """Of one record of the topic. A fold never skips: what is not known is refused."""
    found: dict[str, Any] = decode(key)
    if found.get("v") != VERSION or found.get("kind") != KIND or value is None:
        raise DataFolderError(
            f"__tidelog.excisions has a record {key!r} that this Tidelog does not know; use a newer one"
        )
    content: dict[str, Any] = decode(value)
    content["topic_id"] = bytes.fromhex(content.pop("id"))
    content["offsets"] = tuple((first, last) for first, last in content["offsets"])
    return found["number"], Excision(**content)


def to_records(state: Excisions) -> Iterator[NewRecord]:
    return (record(number, one) for number, one in state.by_number.items())


def record(number: int, excision: Excision) -> NewRecord:
    content = excision._asdict()
    content["id"] = content.pop("topic_id").hex()
    if excision.state == ORDERED:
        del content["done_ms"], content["removed"]
    if not excision.error:
        del content["error"]
    key = {"v": VERSION, "kind": KIND, "number": number}
    return NewRecord(encode(key), encode(content))
