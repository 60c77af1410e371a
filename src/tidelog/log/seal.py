"""Text that can tell whether it is whole: behind it stands its checksum, at the end of the file or of a line.

    {"v":1,"topic":"orders", ...}
    crc 8a3fe1c0                      CRC-32C of all bytes before this line, in hex

A torn or changed text is not what was written, and so nothing: whoever reads it says what that means.
"""

from __future__ import annotations

from json import JSONDecodeError, dumps, loads

from tidelog.record.codec import crc32c

MARK = b"crc "
COMPACT = (",", ":")


def sealed(text: bytes, mark: bytes = MARK) -> bytes:
    return b"%s%s%08x\n" % (text, mark, crc32c(text))


def unsealed(data: bytes, mark: bytes = MARK) -> bytes | None:
    """The text; None when it is not what was written."""
    text, found, checksum = data.rpartition(mark)
    return text if found and checksum == b"%08x\n" % crc32c(text) else None


def sealed_json(content: object, separators: tuple[str, str] | None = None) -> bytes:
    return sealed((dumps(content, separators=separators) + "\n").encode())


def unsealed_json(data: bytes) -> object | None:
    """What was written; None when the bytes are not that."""
    try:
        return loads(unsealed(data) or b"")  # type: ignore[no-any-return]
    except (JSONDecodeError, UnicodeDecodeError):
        return None
