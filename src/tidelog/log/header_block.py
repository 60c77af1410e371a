"""The first 4096 bytes of a segment file: what it is, and how much of it is known to be synced.

Just before a segment is synced, what the sync before that made durable is written into one of two slots, in turn. One
sync thus makes a commit durable and records the commit before it, and at most one commit is in doubt after a power cut:
bytes up to a slot's position were synced before the slot was written, so a good slot never says too much. The slots are
in sectors of their own, and only one of them is ever being written, so a torn write leaves the other.

Big-endian, version 2:

        0  magic          8 bytes   "TIDELOGS"
        8  version        uint16
       10  zero           2 bytes
       12  base_offset    int64     of the first record that the segment was made for
       20  created        int64     milliseconds since 1970
       28  topic          16 bytes  the topic's id,
       44  partition      int32     and which of its partitions; -1 where the folder's name does not say
       48  crc            uint32    CRC-32C of the 48 bytes before
      512  slot           as below, for even sequences
     1024  slot           for odd sequences
     4096  record batches, as they came, one after the other

        0  sequence       uint64    the higher one counts
        8  synced_offset  int64     every record below it was synced,
       16  synced_position uint64   and so was every byte of the file below this
       24  crc            uint32    CRC-32C of the 24 bytes before

Version 1 ends with `created`, and its CRC is at 28. Whose it is, it does not say: a file that somebody has moved to
another folder is then taken for that one's.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidelog.errors import DataFolderError
from tidelog.log.names import parse_name
from tidelog.record.codec import crc32c

MAGIC = b"TIDELOGS"
VERSION = 2
HEADER_BLOCK = 4096
SLOT_AT = (512, 1024)

_HEAD_1 = struct.Struct(">8sH2xqq")
_HEAD = struct.Struct(">8sH2xqq16si")
_SLOT = struct.Struct(">QqQ")
_CRC = struct.Struct(">I")


class Slot(NamedTuple):
    sequence: int
    synced_offset: int
    synced_position: int


class SegmentOwner(NamedTuple):
    """The partition that a segment was made for."""

    topic_id: bytes
    partition: int


class HeaderBlock(NamedTuple):
    base_offset: int
    created_ms: int
    slot: Slot | None  # None: neither is good
    owner: SegmentOwner | None  # None: it does not say


NOBODY = SegmentOwner(bytes(16), -1)


def owner_by(folder: str) -> SegmentOwner | None:
    """As the name of a partition's folder has it; None for a name of another kind."""
    found = parse_name(folder.rpartition("/")[2])
    return SegmentOwner(*found) if found is not None else None


def pack_block(base_offset: int, created_ms: int, owner: SegmentOwner | None) -> bytearray:
    """The block of a segment without batches."""
    data = bytearray(HEADER_BLOCK)
    head = _HEAD.pack(MAGIC, VERSION, base_offset, created_ms, *(owner or NOBODY))
    data[: _HEAD.size + _CRC.size] = head + _CRC.pack(crc32c(head))
    for sequence in (0, 1):
        slot = pack_slot(Slot(sequence, base_offset, HEADER_BLOCK))
        data[SLOT_AT[sequence] : SLOT_AT[sequence] + len(slot)] = slot
    return data


def pack_slot(slot: Slot) -> bytes:
    data = _SLOT.pack(*slot)
    return data + _CRC.pack(crc32c(data))


def unpack_block(data: bytes, path: str) -> HeaderBlock | None:
    """None: this is not the head of a segment; raises when it is one of a newer format."""
    if len(data) < HEADER_BLOCK or not data.startswith(MAGIC):
        return None
    _, version, base_offset, created_ms = _HEAD_1.unpack_from(data)
    head = _HEAD_1 if version == 1 else _HEAD
    if _CRC.unpack_from(data, head.size)[0] != crc32c(data[: head.size]):
        return None
    if version > VERSION:
        raise DataFolderError(
            f"{path} has segment format {version}, newer than {VERSION}; open it with a newer Tidelog"
        )
    owner = SegmentOwner(*_HEAD.unpack_from(data)[4:]) if version > 1 else NOBODY
    return HeaderBlock(base_offset, created_ms, unpack_slots(data), None if owner == NOBODY else owner)


def unpack_slots(data: bytes) -> Slot | None:
    """The newest good slot, also of a block whose head is not good."""
    slots = [slot for at in SLOT_AT if (slot := _unpack_slot(data, at)) is not None]
    return max(slots, default=None)


def _unpack_slot(data: bytes, position: int) -> Slot | None:
    if len(data) < position + _SLOT.size + _CRC.size:
        return None
    body = data[position : position + _SLOT.size]
    if _CRC.unpack_from(data, position + _SLOT.size)[0] != crc32c(body):
        return None
    return Slot(*_SLOT.unpack(body))
