"""The cipher of a store's personal fields: AES-256-GCM under the key of the data subject.

    1.KEY.TEXT    format, the key's number, and base64url of nonce (12 bytes), ciphertext and tag

Rules:
- Associated data are the store's name and where the text stands (`ENTITY/VERSION/TYPE/FIELD`): a text that somebody has
  moved or changed does not decrypt, and is a `HistoryFault`.
- A destroyed key reads as ERASED. A key that is neither here nor destroyed is a `HistoryFault`: this is not the store
  of keys that the text was written with.
- Keys are remembered for `cache_s`, and at most `CACHED_KEYS` of them. `erased()` looks at the store of keys no more
  often than that, and forgets all of them when one was destroyed; an owner asks it between commands, and loads its
  entities anew. So a key that was destroyed is in no process after `cache_s`, as long as it runs.
- A store of keys that cannot be reached makes commands fail: nothing is stored in clear instead, nor a digest of it.
"""

from __future__ import annotations

import base64
import binascii
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tidelog.errors import Disconnected, HistoryFault, StorageError, TidelogError, UsageError
from tidelog.sourcing.erasure.digest_keys import newest, subject_of
from tidelog.sourcing.erasure.keys import Destroyed, KeyStore, SubjectKey, open_keys
from tidelog.sourcing.personal import ERASED, Erased

CACHE_S = 10.0
CACHED_KEYS = 10_000
FORMAT = "1"
NONCE_BYTES = 12
NOTHING = ""  # what is stored of a subject that is erased


class SubjectCipher:
    """Any thread. `keys` is a URL, or a store of keys that is open."""

    def __init__(
        self,
        store: str,
        keys: str | KeyStore,
        *,
        cache_s: float = CACHE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.keys: KeyStore = open_keys(keys) if isinstance(keys, str) else keys
        self._gcm = _library()
        self._cache_s, self._clock = cache_s, clock
        self._known: OrderedDict[str, tuple[SubjectKey | Destroyed, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._destroyed = self.keys.destroyed()
        self._looked = clock()
        self._generation = 0
        self._digest_numbers: dict[str, int] = {}

    def encrypt(self, subject: str, identity: str, plaintext: str) -> str:
        key = self._key(subject, make=True)
        if not isinstance(key, SubjectKey):
            return NOTHING
        nonce = os.urandom(NONCE_BYTES)
        sealed = nonce + self._gcm(key.secret).encrypt(nonce, plaintext.encode(), self._place(identity))
        return f"{FORMAT}.{key.id}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"

    def decrypt(self, subject: str, identity: str, text: str) -> str | Erased:
        key_id, sealed = _parse(text, identity)
        key = self._key(subject, make=False)
        if isinstance(key, SubjectKey) and key.id == key_id:
            return self._open(key, identity, sealed)
        with _told():
            if (isinstance(key, Destroyed) and key.id == key_id) or self.keys.is_destroyed(key_id):
                return ERASED
        raise HistoryFault(
            f"the key {key_id} of a personal field at {identity} is not in the store of keys, and was not destroyed"
            " there; is it the one that the store was written with?"
        )

    def _open(self, key: SubjectKey, identity: str, sealed: bytes) -> str:
        from cryptography.exceptions import InvalidTag

        try:
            plain = self._gcm(key.secret).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], self._place(identity))
        except (InvalidTag, ValueError) as error:
            raise HistoryFault(f"the personal field at {identity} was changed or moved; it does not decrypt") from error
        return bytes(plain).decode()

    def digest_key(self, store: str) -> SubjectKey:
        """For digests of commands (`digests.py`) of an event store: several may share a cipher."""
        while True:
            number = self._digest_numbers.get(store, 0)
            found = self._key(subject_of(store, number), make=True)
            if isinstance(found, SubjectKey):
                return found
            with _told():
                self._digest_numbers[store] = newest(self.keys, store, number)

    def erased(self) -> int:
        """A number that is another one when a key was destroyed since: what was read in clear is to be forgotten."""
        now = self._clock()
        with self._lock:
            if now - self._looked < self._cache_s:
                return self._generation
            self._looked = now
        try:
            destroyed = self.keys.destroyed()
        except TidelogError:
            return self._generation  # it is asked again; keys that are remembered go by their time
        with self._lock:
            if destroyed != self._destroyed:
                self._destroyed = destroyed
                self._known.clear()
                self._generation += 1
            return self._generation

    def forget(self) -> None:
        """All keys, at once."""
        with self._lock:
            self._known.clear()
            self._looked = self._clock() - self._cache_s
            self._generation += 1

    def close(self) -> None:
        self.forget()
        self.keys.close()

    def _place(self, identity: str) -> bytes:
        return f"{self.store}/{identity}".encode()

    def _key(self, subject: str, *, make: bool) -> SubjectKey | Destroyed | None:
        now = self._clock()
        with self._lock:
            known, until = self._known.get(subject, (None, 0.0))
            if known is not None and now < until:
                self._known.move_to_end(subject)
                return known
        with _told():
            found = self.keys.find_or_make(subject) if make else self.keys.find(subject)
        if found is not None:
            with self._lock:
                self._known[subject] = (found, now + self._cache_s)
                while len(self._known) > CACHED_KEYS:
                    self._known.popitem(last=False)
        return found


@contextmanager
def _told() -> Iterator[None]:
    """What a store of keys has for errors passes, sooner or later."""
    try:
        yield
    except StorageError as error:
        raise Disconnected(f"the store of keys does not answer: {error}; it is tried again") from error


def _parse(text: str, identity: str) -> tuple[str, bytes]:
    form, _, rest = text.partition(".")
    key_id, dot, sealed = rest.partition(".")
    if form != FORMAT or not dot:
        raise HistoryFault(f"the personal field at {identity} is not what this Tidelog writes; use a newer one")
    try:
        return key_id, base64.b64decode(sealed + "=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise HistoryFault(f"the personal field at {identity} was changed: {error}") from error


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise UsageError("personal fields need cryptography; pip install 'tidelog[sourcing]'") from error
    return AESGCM
