"""Bringing a partition back from its folder after a stop of any kind."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.log.files import Files, read_fully
from tidelog.log.header_block import HEADER_BLOCK, unpack_block
from tidelog.log.index import Index
from tidelog.log.open_files import OpenFiles
from tidelog.log.producers import Producer, follow
from tidelog.log.segment import LOG_SUFFIX, BadHeader, Segment
from tidelog.log.settings import LogSettings
from tidelog.log.tail import FIRST_SLOT, Extent


class Recovered(NamedTuple):
    segments: tuple[Segment, ...]
    extent: Extent | None
    producers: dict[int, Producer]
    slot_sequence: int


def recover(folder: str, files: Files, open_files: OpenFiles, settings: LogSettings) -> Recovered:
    try:
        entries = files.list(folder)
    except FileNotFoundError:
        return Recovered((), None, {}, FIRST_SLOT)
    logs = sorted((int(name.removesuffix(LOG_SUFFIX)), size) for name, size in entries if name.endswith(LOG_SUFFIX))
    if not logs:
        return Recovered((), None, {}, FIRST_SLOT)
    segments = tuple(Segment(files, open_files, folder, base, size) for base, size in logs)
    producers: dict[int, Producer] = {}
    offset = segments[0].base_offset
    slot_sequence = FIRST_SLOT
    for segment in segments:
        segment.index = Index()
        limit = segment.end
        segment.end = HEADER_BLOCK
        head = unpack_block(read_fully(files, segment.file().fd, HEADER_BLOCK, 0), segment.log_path)
        assert head is not None and head.slot is not None
        segment.created_ms = head.created_ms
        slot_sequence = head.slot.sequence + 1
        for step in segment.walk(HEADER_BLOCK, limit):
            if isinstance(step, BadHeader):
                break
            _, header = step
            segment.note(header.base_offset, header.size, header.max_timestamp, settings.index_interval_bytes)
            if header.producer_id >= 0:
                producers[header.producer_id] = follow(
                    producers.get(header.producer_id), header, header.last_offset, header.max_timestamp
                )
            offset = header.next_offset
    last = segments[-1]
    return Recovered(segments, Extent(last, last.end, offset), producers, slot_sequence)
