"""What is kept of a command beside its id, by which one that comes again is known to be the same: a digest of it.

    "3f9a01bc"                       CRC-32 of name and value: of stores without a cipher
    "91b2c4d5e6f7-0123456789abcdef"  number of a key, and HMAC-SHA-256 under it: of stores with a cipher. A digest in
                                     clear would let a short value that was erased be guessed, by trying all
    ""                               of a command of the store's own, which has no value

Rules:
- The key is the store's, and every erasure destroys it and makes a new one (`erasure/digest_keys.py`). What was written
  under another key cannot be compared any more: there the id counts alone.
- Digests of both kinds are read on.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from zlib import crc32

from tidelog.sourcing.personal import Cipher
from tidelog.sourcing.requests import DECIDE, Request

if TYPE_CHECKING:
    from tidelog.sourcing.erasure.keys import SubjectKey

NUMBER_DIGITS, DIGEST_DIGITS = 12, 16
DASH = "-"


class CommandDigests:
    def __init__(self, cipher: Cipher | None, store: str) -> None:
        self._key, self._store = getattr(cipher, "digest_key", None), store

    def of(self, request: Request) -> str:
        """Of a command whose value is known."""
        value = request.value or b"{}"
        if self._key is None:
            return in_clear(request.type, value)
        return under(self._key(self._store), request.type, value)

    @staticmethod
    def may_be(known: str, request: Request) -> bool:
        """Whether the command that is remembered so is this one, as far as can be told."""
        if request.kind != DECIDE or not known:
            return known == request.digest
        if DASH not in known:
            return known == in_clear(request.type, request.value or b"{}")
        return known == request.digest or known.partition(DASH)[0] != request.digest.partition(DASH)[0]


def in_clear(name: str, value: bytes) -> str:
    return f"{crc32(value, crc32(name.encode() + bytes(1))):08x}"


def under(key: SubjectKey, name: str, value: bytes) -> str:
    made = hmac.digest(key.secret, name.encode() + bytes(1) + value, "sha256")
    return f"{key.id[:NUMBER_DIGITS]}{DASH}{made.hex()[:DIGEST_DIGITS]}"
