"""Bytes that are shown as text: checked, for DuckDB takes Arrow's text at its word. Pure.

What is not UTF-8 is shown as `tidelog tail` shows it: such bytes as \\xNN.
"""

from __future__ import annotations

from array import array

from tidelog.record.header import DecodedBinary

CONTINUES = 0xC0, 0x80  # the mask and the mark of a byte that goes on with a letter


def as_text(binary: DecodedBinary) -> DecodedBinary:
    """The same memory where it is text."""
    validity, offsets, data = binary
    return binary if is_utf8(bytes(data), memoryview(offsets).cast("B").cast("i")) else (validity, *_escaped(binary))


def is_utf8(data: bytes, offsets: memoryview) -> bool:
    """Whether every value is, by itself: a letter may not begin in one and end in the next."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    mask, mark = CONTINUES
    end = len(data)
    return all(offset >= end or data[offset] & mask != mark for offset in offsets)


def _escaped(binary: DecodedBinary) -> tuple[bytes, bytes]:
    _, offsets, data = binary
    ends = memoryview(offsets).cast("B").cast("i")
    whole = bytes(data)
    made, texts = array("i", [0]), []
    for row in range(len(ends) - 1):
        texts.append(whole[ends[row] : ends[row + 1]].decode("utf-8", "backslashreplace").encode())
        made.append(made[-1] + len(texts[-1]))
    return made.tobytes(), b"".join(texts)
