"""Whether a query reads what its checkpoint says, source by source. Spark goes by their places in the plan alone.

Code that goes on (`tidelog run --go-on`, `--grown`) may read the same topics in another order: `b.union(a)` where it
was `a.union(b)`. Spark would then give each source how far the other one was read, and write that into the checkpoint
before anybody could refuse it: no code could go on from there, not the old one either. So it is refused before the
query starts.

Looked at are checkpoints on this machine, and sources of ours. Where the checkpoint has more or fewer sources than the
plan has leaves, as where one leaf is read twice, places say nothing: Spark has its own word on that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import StateMismatch, UsageError
from tidelog.pipelines.micro_batches import OFFSETS, CheckpointHistory
from tidelog.pipelines.placing import Target
from tidelog.pipelines.view_readers import command_of
from tidelog.spark.offsets import from_json
from tidelog.spark.plans import sources
from tidelog.spark.query_log import by_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUBSCRIBE = "subscribe"


class Misplaced(NamedTuple):
    was: str
    now: str


def check_sources(frame: DataFrame, target: Target) -> None:
    said = _last_offsets(target.checkpoint)
    found = None if said is None else misplaced(said, streams(frame))
    if found is not None:
        output = target.node.output
        raise StateMismatch(
            f"{output.place}: {output.kind} {output.name!r} reads {found.now} where its checkpoint has read"
            f" {found.was}: its inputs stand in another order than before; write them in that order, or"
            f" `{command_of(target.node)}` builds it from their start"
        )


def streams(frame: DataFrame) -> list[str | None]:
    """What each streaming leaf of the plan subscribes to, from left to right; None of one that is not ours."""
    leaves: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    streaming = [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]
    ours = [one.option(SUBSCRIBE) for one in sources(frame)]
    return list(ours) if len(ours) == len(streaming) else [None] * len(streaming)


def misplaced(offsets: str, subscribed: Sequence[str | None]) -> Misplaced | None:
    """The first source that reads other topics than the checkpoint has for its place. Pure."""
    _, _, *lines = offsets.rstrip("\n").split("\n")
    if len(lines) != len(subscribed):
        return None
    for name, said in by_source(offsets).items():
        now = subscribed[int(name)] if name.isdigit() else None
        was = _topics(said)
        if now is not None and not was <= set(now.split(",")):
            return Misplaced(", ".join(sorted(was)), now)
    return None


def _topics(said: str) -> set[str]:
    """None of a source that is not of ours."""
    try:
        return {at.topic for at in from_json(json.loads(said))}
    except (ValueError, AttributeError, TypeError):
        return set()


def _last_offsets(checkpoint: str) -> str | None:
    try:
        history = CheckpointHistory(checkpoint)
        return (history.folder / OFFSETS / str(history.planned[-1])).read_text() if history.planned else None
    except (UsageError, OSError):  # elsewhere, or not begun
        return None
