"""Where the records of a transaction will lie, before the broker has said so.

A mark says where topics end, and goes with the rows that it tells of. To write it after they are answered costs a sync
of its own in every transaction. But nobody else writes to these topics: where the last transaction ended is where the
next one begins. So rows, mark and progress are sent, and synced, together; then what was foretold is compared.

Rules:
- Only what this session has written to is foretold. The end of a transaction takes one offset in each partition of it.
- If it was wrong, somebody else does write there: nothing of the transaction counts, and from the next session on the
  answers are waited for.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.metadata import TopicPartition
from tidelog.control.owner import Outgoing
from tidelog.errors import Disconnected

MARKER = 1
Ends = Mapping[TopicPartition, int]


class EndsAhead:
    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}

    def foretold(self, outgoing: Outgoing, topics: set[str]) -> Ends | None:
        """Of what was sent to these topics; None where that is not known."""
        counts = {at: count for at, count in outgoing.counts.items() if at.topic in topics}
        if not self._next.keys() >= counts.keys():
            return None
        return {at: self._next[at] + count for at, count in counts.items()}

    def note(self, written: Ends) -> None:
        """Answered, in a transaction that is about to be committed: one that fails ends the session."""
        self._next |= {at: end + MARKER for at, end in written.items()}


def written_to(outgoing: Outgoing, topics: set[str]) -> Ends:
    """Where these topics end by what was written, once that is answered."""
    return {at: end for at, end in outgoing.ends.items() if at.topic in topics}


class ForetoldWrong(Disconnected):
    """Others write to the topics of this capture."""


def check(foretold: Ends, written: Ends) -> None:
    if foretold != written:
        at = next(at for at in written if foretold.get(at) != written[at])
        raise ForetoldWrong(
            f"somebody else writes to {at}: it ends at {written[at]}, and was to end at {foretold.get(at)}; the"
            " transaction is written again"
        )
