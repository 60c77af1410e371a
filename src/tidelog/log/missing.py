"""Is a partition's folder what it was? Pure: what is known of the partition from elsewhere, against what is found.

    known    `End`, by the mark of a clean stop or by the file `ends` (ends.py)
    found    the segments in the folder, the start offset in its file of facts, where recovery says that they end

What recovery may cut was never synced, and what retention, clients and compaction remove lies below a start offset that
was saved before. So a partition that begins later or ends earlier than both allow has lost files, or parts of them. A
segment that is missing between two others is found as a hole, when it is read.
"""

from __future__ import annotations

from tidelog.errors import DataFolderError
from tidelog.log.ends import End

NOTHING = -1


class MissingRecords(DataFolderError):
    """Offsets `first` to `end` - 1 were acked and are not in the folder any more."""

    def __init__(self, folder: str, known: End, missing: tuple[int, int], what: str, found: str) -> None:
        self.folder = folder
        self.known = known
        self.first, self.end = missing
        self.what = what
        self.expected = f"offsets {known.start_offset} to {known.end_offset - 1}"
        self.found = found
        super().__init__(
            f"{folder} had {self.expected} and has {found}: {what}; put back what is missing, or restore the data"
            " folder from a backup"
        )


class ForeignSegment(MissingRecords):
    """A file that was made for another partition has the name of one of this partition's."""

    def __init__(self, folder: str, known: End | None, path: str, owner: str) -> None:
        self.path = path
        known = known or End(0, 0, 0)
        data, _, name = folder.rpartition("/")
        file = path.rpartition("/")[2]
        what = f"{file} in {name} was made for {owner}, another partition; move it back to {data}/{owner}"
        super().__init__(folder, known, (known.start_offset, known.end_offset), what, "a file of another partition")


def check_beginning(folder: str, known: End | None, first: int, facts_start: int) -> None:
    """`first` is the base offset of the first segment, NOTHING when there is no segment."""
    if known is None or known.end_offset <= 0:
        return
    if first == NOTHING:
        lost = known.start_offset, known.end_offset
        raise MissingRecords(folder, known, lost, "the folder or all its segments are missing", "no records")
    start = max(known.start_offset, facts_start)
    if first > start:
        what = f"the first segment is missing, or several: offsets {start} to {first - 1}"
        raise MissingRecords(folder, known, (start, first), what, f"records from offset {first} on")


def check_end(folder: str, known: End | None, first: int, end: int) -> None:
    """`end` is the offset behind the last record that is whole."""
    if known is None or end >= known.end_offset:
        return
    what = f"the last segment is missing, or a part of it: offsets {end} to {known.end_offset - 1}"
    found = f"offsets {first} to {end - 1}" if end > first else "no records"
    raise MissingRecords(folder, known, (end, known.end_offset), what, found)
