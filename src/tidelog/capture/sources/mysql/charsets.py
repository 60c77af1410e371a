"""Bytes of a MySQL character set as text. A collation's number is the server's own; it tells which set that is of.

MySQL's names are not Python's, and its latin1 is cp1252 with the five holes filled by control characters.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping

from tidelog.errors import UsageError

BINARY = 63
Decoder = Callable[[bytes], str]
_PYTHON = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "tis620": "tis-620",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "big5": "big5",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "macroman": "mac_roman",
    "macce": "mac_latin2",
}
_LATIN1 = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))


def decoder(collation: int, names: Mapping[int, str]) -> Decoder | None:
    """None where the bytes are not text. `names` are the server's character sets by number of collation."""
    if collation == BINARY:
        return None
    name = names.get(collation, "")
    if name == "latin1":
        return lambda data: codecs.charmap_decode(data, "strict", _LATIN1)[0]
    if name not in _PYTHON:
        known = f"the character set {name!r}" if name else f"the collation number {collation}"
        raise UsageError(f"{known} of a captured column is not supported; convert the column to utf8mb4")
    python = _PYTHON[name]
    return lambda data: data.decode(python)
