"""Numbers and strings of .proto files, both ways."""

from __future__ import annotations

import re

from tidelog.errors import InvalidSchema

ESCAPE = re.compile(rb"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
SIMPLE = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
PRINTED = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord('"'): '\\"', ord("\\"): "\\\\"}
DIGITS_MAX = 40


def read_string(text: str) -> bytes:
    return ESCAPE.sub(_unescaped, text[1:-1].encode())


def _unescaped(match: re.Match[bytes]) -> bytes:
    hexadecimal, octal, short, long, simple = match.groups()
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if octal:
        return bytes([int(octal, 8) & 255])
    if short or long:
        point = int(short or long, 16)
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise InvalidSchema(f"U+{point:X} is not a character; write another")
        return chr(point).encode()
    return SIMPLE.get(simple, simple)


def write_string(value: bytes) -> str:
    """As text where it is some; other bytes by their numbers."""
    try:
        letters = value.decode()
    except UnicodeDecodeError:
        return '"' + "".join(PRINTED.get(byte) or _printed(byte) for byte in value) + '"'
    return (
        '"' + "".join(PRINTED.get(ord(one)) or (one if ord(one) >= 32 else _printed(ord(one))) for one in letters) + '"'
    )


def _printed(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"


def read_integer(text: str) -> int | None:
    """None when it is not a whole number."""
    if len(text) > DIGITS_MAX:
        return None
    try:
        if text[:2].lower() == "0x":
            return int(text, 16)
        return int(text, 8) if text.startswith("0") and text != "0" else int(text)
    except ValueError:
        return None
