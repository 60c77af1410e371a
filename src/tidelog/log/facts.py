"""What a partition must remember beside its batches: the file `partition` in its folder, a few lines of text.

    tidelog partition 2                             format version
    start 1200                                      the first offset that may be read
    dirty 2400                                      compaction has been over all records below; not in version 1
    volatile                                        acks did not wait for a sync: an unclean stop raises the epoch
    epoch 0 0                                       leader epoch 0 from offset 0 on
    epoch 1 3100
    hole 500 512 0 61440 65536 open crc mismatch    offsets 500 to 511, in segment 0 from byte 61440 to byte 65536
    hole 700 701 0 90112 91000 passed bad magic     as above, and `repair` has let readers pass it
    crc 8a3fe1c0                                    CRC-32C of all bytes before this line, in hex

It is replaced whole, durably. A partition without the file has none of these, and offsets begin with its first segment.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.errors import DataFolderError
from tidelog.log.epochs import BEGINNING, Epoch, History
from tidelog.log.files import Files, read_file, replace_file
from tidelog.log.seal import sealed, unsealed

FACTS_NAME = "partition"
VERSION = 2
_READ = ("1", "2")
_TITLE = "tidelog partition"
_OPEN, _PASSED = "open", "passed"


class Hole(NamedTuple):
    """Bytes that are not the batches that were there: offsets from `base_offset` up to and without `end_offset`."""

    base_offset: int
    end_offset: int
    segment: int
    position: int
    end_position: int
    passed: bool
    reason: str


class Facts(NamedTuple):
    start_offset: int = 0
    volatile: bool = False
    epochs: History = BEGINNING
    holes: tuple[Hole, ...] = ()
    first_dirty: int = 0


NO_FACTS = Facts()


def pack(facts: Facts) -> bytes:
    lines = [f"{_TITLE} {VERSION}", f"start {facts.start_offset}"]
    if facts.first_dirty:
        lines.append(f"dirty {facts.first_dirty}")
    if facts.volatile:
        lines.append("volatile")
    lines += [f"epoch {epoch} {start}" for epoch, start in facts.epochs]
    for hole in facts.holes:
        numbers = " ".join(str(number) for number in hole[:5])
        reason = " ".join(hole.reason.split())
        lines.append(f"hole {numbers} {_PASSED if hole.passed else _OPEN} {reason}")
    return sealed("".join(line + "\n" for line in lines).encode())


def unpack(data: bytes, path: str) -> Facts | None:
    """None when the bytes are not what was written; raises when a newer Tidelog wrote them."""
    lines = (unsealed(data) or b"").decode().splitlines()
    if not lines or not lines[0].startswith(_TITLE):
        return None
    version = lines[0].removeprefix(_TITLE).strip()
    if version not in _READ:
        raise DataFolderError(f"{path} has format {version}, newer than {VERSION}; open it with a newer Tidelog")
    facts = Facts(epochs=())
    for line in lines[1:]:
        word, _, rest = line.partition(" ")
        facts = _read_line(facts, word, rest)
    return facts if facts.epochs else facts._replace(epochs=BEGINNING)


def _read_line(facts: Facts, word: str, rest: str) -> Facts:
    if word == "start":
        return facts._replace(start_offset=int(rest))
    if word == "dirty":
        return facts._replace(first_dirty=int(rest))
    if word == "volatile":
        return facts._replace(volatile=True)
    if word == "epoch":
        epoch, start = rest.split()
        return facts._replace(epochs=(*facts.epochs, Epoch(int(epoch), int(start))))
    assert word == "hole", f"line {word!r} of version {VERSION}"
    base, end, segment, position, end_position, state, reason = rest.split(" ", 6)
    numbers = (int(base), int(end), int(segment), int(position), int(end_position))
    return facts._replace(holes=(*facts.holes, Hole(*numbers, state == _PASSED, reason)))


def load(files: Files, folder: str) -> Facts | None:
    """None when the file cannot be read as what it was."""
    path = f"{folder}/{FACTS_NAME}"
    data = read_file(files, path)
    return unpack(data, path) if data is not None else None


def save(files: Files, folder: str, facts: Facts) -> None:
    replace_file(files, f"{folder}/{FACTS_NAME}", pack(facts))
