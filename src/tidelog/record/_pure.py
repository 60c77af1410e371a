"""The codec in Python: what `_codec` does, for machines without a compiler and for readers.

The two have the same functions, give the same results and find the same fault first; the tests hold them to that. Here
as there a number read from the bytes is used only after it was compared with what is left of them. This module gathers
the parts, so that it can stand where `_codec` stands.
"""

from __future__ import annotations

from tidelog.record._pure_compact import KeyMap as KeyMap
from tidelog.record._pure_compact import filter_records as filter_records
from tidelog.record._pure_compact import find_keyless as find_keyless
from tidelog.record._pure_compact import note_keys as note_keys
from tidelog.record._pure_crc import crc32c as crc32c
from tidelog.record._pure_decode import decode as decode
from tidelog.record._pure_decode import rows as rows
from tidelog.record._pure_encode import encode_columns as encode_columns
from tidelog.record._pure_encode import encode_rows as encode_rows
from tidelog.record._pure_encode import group_rows as group_rows
from tidelog.record._pure_encode import murmur2 as murmur2
from tidelog.record._pure_headers import check as check
from tidelog.record._pure_headers import patch as patch
from tidelog.record._pure_headers import peek as peek
from tidelog.record._pure_headers import restamp as restamp
from tidelog.record._pure_headers import scan as scan
from tidelog.record._pure_headers import seal as seal
from tidelog.record._pure_headers import stamp_append_time as stamp_append_time


def engine() -> str:
    """How checksums are made here."""
    return "python"
