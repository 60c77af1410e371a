"""Keys of data subjects, in a store that all owners of a log reach: one key for each, and a trace of those destroyed.

    sqlite:///keys.db                             a file of this machine; the default for one machine
    postgresql://${USER}:${PASSWORD}@host/keys    for owners on several

Rules:
- A key has a random number of its own (`SubjectKey.id`), which stands beside what it has encrypted. It says nothing of
  the subject, so a proof of erasure can name it.
- A subject's name is not in the store: a tag stands for it, HMAC-SHA-256 under a secret of the store. Who has the store
  can try names against it, so a subject's name should be an id and not a mail address.
- `destroy` deletes the key so that its bytes are not in the store any more. What is kept: the key's number, when, why,
  and the tag, by which the same subject is known again.
- A subject whose key was destroyed gets no other one: what is said of it later is not kept either. A process that still
  has its state in memory would else write the old text down again, under a new key.
- A store without a key is not an erased one: who reads with the wrong store is told so, and does not read ERASED.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from tidelog.control.urls import fill, redacted, without_secret
from tidelog.errors import UsageError

KEY_BYTES = 32
SALT_BYTES = 32
ID_BYTES = 12  # of a key's number, twice as many hex digits
SUBJECT_MAX = 1000  # bytes
FORMAT = 1


class SubjectKey(NamedTuple):
    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"SubjectKey({self.id})"


class Destroyed(NamedTuple):
    """What is left of a key."""

    id: str
    at_ms: int
    reason: str


class KeyStore(Protocol):
    """Any thread."""

    def find(self, subject: str) -> SubjectKey | Destroyed | None: ...
    def find_or_make(self, subject: str) -> SubjectKey | Destroyed: ...
    def is_destroyed(self, key_id: str) -> bool: ...
    def destroyed(self) -> int:
        """How many keys were destroyed so far: who remembers some looks at this."""

    def destroy(self, subject: str, reason: str) -> Destroyed | None:
        """None where there never was a key. Done again it says the same."""

    def left_to_do(self) -> list[str]:
        """What the operator must still see to, of this kind of store."""

    def close(self) -> None: ...


def open_keys(url: str, *, make: bool = True) -> KeyStore:
    """The URL may stand where others read it (a program, a command line), so it has no password in clear. Without
    `make` a file that is not there is refused: an empty one would say that nobody ever had a key.
    """
    scheme, found, rest = without_secret(url, "programs and lists of processes").partition("://")
    if scheme == "sqlite" and found:
        from tidelog.sourcing.erasure.sqlite_keys import SqliteKeys

        path = unquote(fill(rest, os.environ)).removeprefix("/")
        if not path:
            raise UsageError(f"{url} names no file; write sqlite:///keys.db, or sqlite:////absolute/keys.db")
        if not make and not Path(path).exists():
            raise UsageError(f"the store of keys {path} is not there; give the URL that the stores' SubjectCipher has")
        return SqliteKeys(path)
    if scheme == "postgresql" and found:
        from tidelog.sourcing.erasure.postgres_keys import PostgresKeys

        return PostgresKeys(fill(url, os.environ))
    raise UsageError(f"{redacted(url)!r} is not a store of keys; a URL begins with sqlite:// or postgresql://")


def new_key() -> SubjectKey:
    return SubjectKey(secrets.token_hex(ID_BYTES), secrets.token_bytes(KEY_BYTES))


def new_salt() -> bytes:
    return secrets.token_bytes(SALT_BYTES)


def tag_of(salt: bytes, subject: str) -> bytes:
    return hmac.new(salt, checked(subject).encode(), hashlib.sha256).digest()


def checked(subject: str) -> str:
    if not subject or len(subject.encode()) > SUBJECT_MAX:
        raise UsageError(f"a data subject's id has 1 to {SUBJECT_MAX} bytes, and this one {len(subject.encode())}")
    return subject
