"""Whether partitions of a data folder rest: their last commit is recorded too (`tidelog/log/idling.py`).

What is gone of a partition at rest is a hole; of one that was at work the last commit is in doubt, and is missing by
what the file of ends says. A test that takes files away says which of the two it means, and does not rest on how fast
it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog.log import idling
from tidelog.log.ends import read_ends
from tidelog.log.files import RealFiles
from tidelog.log.header_block import HEADER_BLOCK, unpack_slots

NEVER_S = 86_400.0


@contextmanager
def at_work() -> Iterator[None]:
    """Brokers in this process that are started here find no partition at rest."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(idling, "TURN_S", NEVER_S)
        yield


def all_rest(data: Path, *folders: str) -> bool:
    """Every partition with a record, and `folders` among them: its newest segment says that all of it was synced, and
    the file of ends where it ends.
    """
    known = read_ends(RealFiles(), str(data)).table
    return known.keys() >= set(folders) and all(_rests(data / one, end.end_offset) for one, end in known.items())


def _rests(folder: Path, end_offset: int) -> bool:
    last = max(folder.glob("*.log"))
    content = last.read_bytes()
    slot = unpack_slots(content[:HEADER_BLOCK])
    return slot is not None and (slot.synced_offset, slot.synced_position) == (end_offset, len(content))
