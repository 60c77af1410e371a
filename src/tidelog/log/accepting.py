"""Going on without records that are missing (missing.py), because somebody has decided so. The broker is stopped.

No offset is ever given out twice: a partition that has lost its end goes on where that was, in a leader epoch above all
before it, so that clients which had read what is gone notice.

    missing at the beginning    the start offset moves up to the first segment that is there: out of range for readers
    missing at the end          a new segment has one batch, without records, at the last offset that was there: a
                                reader gets it and is at the end. What lies between is a hole that readers pass, as
                                where a segment is missing between two others
    no segment at all           an empty segment begins at the end that was there, and so does the partition

    a file of another one       gets the suffix `.foreign`, and is not looked at again; what is then missing is as above

In either case the file of facts says for ever which offsets were there. It is saved first: after a crash in between the
partition is still short, and can be accepted again.
"""

from __future__ import annotations

from tidelog.log import facts as facts_file
from tidelog.log.epochs import Epoch, History, epoch_at
from tidelog.log.facts import NO_FACTS, Facts, Hole
from tidelog.log.files import Files, replace_file
from tidelog.log.header_block import HEADER_BLOCK, SLOT_AT, Slot, owner_by, pack_block, pack_slot
from tidelog.log.missing import ForeignSegment, MissingRecords
from tidelog.log.segment import LOG_SUFFIX, Name, newest
from tidelog.log.tail import FIRST_SLOT
from tidelog.record.compacting import empty_batch

FOREIGN_SUFFIX = ".foreign"


def accept(files: Files, missing: MissingRecords, now_ms: int) -> None:
    folder, known = missing.folder, missing.known
    if isinstance(missing, ForeignSegment):
        files.rename(missing.path, missing.path + FOREIGN_SUFFIX)
        files.sync_folder(folder)
        return
    files.make_folder(folder)
    entries = {name: entry.size for entry in files.list(folder) if (name := Name.parse(entry.name)) is not None}
    segments = newest(entries)
    facts = facts_file.load(files, folder) or NO_FACTS
    if missing.end < known.end_offset:  # at the beginning
        hole = Hole(missing.first, missing.end, missing.first, 0, 0, True, missing.what)
        facts_file.save(files, folder, _with_hole(facts, hole)._replace(start_offset=missing.end))
        return
    epochs = _raised(facts.epochs, known.leader_epoch, missing.first, missing.end)
    facts = facts._replace(epochs=epochs)
    if not segments:
        hole = Hole(missing.first, missing.end, missing.first, 0, 0, True, missing.what)
        facts_file.save(files, folder, _with_hole(facts, hole)._replace(start_offset=missing.end))
        _write_segment(files, folder, missing.end, missing.end, b"", now_ms)
        return
    last, size = missing.end - 1, entries[segments[-1]]
    if missing.first < last:
        facts = _with_hole(facts, Hole(missing.first, last, segments[-1].base_offset, size, size, True, missing.what))
    facts_file.save(files, folder, facts)
    _write_segment(
        files, folder, last, missing.end, bytes(empty_batch(last, missing.end, epoch_at(epochs, last))), now_ms
    )


def _with_hole(facts: Facts, hole: Hole) -> Facts:
    others = [one for one in facts.holes if one.base_offset != hole.base_offset]
    return facts._replace(holes=tuple(sorted([*others, hole])))


def _raised(epochs: History, known_epoch: int, first: int, end: int) -> History:
    """What was missing was written in the epoch that is known; what comes is in the next. The file of facts, which has
    the history, may be among what is missing.
    """
    kept = tuple(epoch for epoch in epochs if epoch.start_offset < end)
    if known_epoch > epoch_at(kept, end):
        kept = (*(epoch for epoch in kept if epoch.start_offset < first), Epoch(known_epoch, first))
    return (*kept, Epoch(max(known_epoch, epochs[-1].epoch) + 1, end))


def _write_segment(files: Files, folder: str, offset: int, end: int, batch: bytes, now_ms: int) -> None:
    """Durably: from here on the partition ends there."""
    slot = pack_slot(Slot(FIRST_SLOT, end, HEADER_BLOCK + len(batch)))
    block = pack_block(offset, now_ms, owner_by(folder))
    block[SLOT_AT[0] : SLOT_AT[0] + len(slot)] = slot
    replace_file(files, f"{folder}/{Name(offset)}{LOG_SUFFIX}", block + batch)
    files.sync_folder(folder.rpartition("/")[0])
