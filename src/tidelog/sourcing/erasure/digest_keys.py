"""The key of a store's digests (`digests.py`): one at a time, destroyed and made anew by every erasure.

It lies among the keys of data subjects, as that of a subject which no person is called: `tidelog digest STORE/N`.

Rules:
- Keys 0 to N-1 are destroyed, N is in use or not made yet. So N is found by few looks, however many were destroyed.
"""

from __future__ import annotations

from tidelog.sourcing.erasure.keys import Destroyed, KeyStore


def subject_of(store: str, number: int) -> str:
    return f"tidelog digest {store}/{number}"


def newest(keys: KeyStore, store: str, known: int = 0) -> int:
    """The number of the key that is in use; it is not below `known`."""

    def is_destroyed(number: int) -> bool:
        return isinstance(keys.find(subject_of(store, number)), Destroyed)

    if not is_destroyed(known):
        return known
    below, step = known, 1
    while is_destroyed(below + step):
        below, step = below + step, step * 2
    above = below + step
    while above - below > 1:
        middle = (above + below) // 2
        if is_destroyed(middle):
            below = middle
        else:
            above = middle
    return above


def destroy_newest(keys: KeyStore, store: str, reason: str) -> None:
    """Digests that are in the log say nothing from here on."""
    keys.destroy(subject_of(store, newest(keys, store)), reason)


def is_used_by(keys: KeyStore, store: str) -> bool:
    """Whether an owner of the store has written with these keys, since digests have a key."""
    return keys.find(subject_of(store, 0)) is not None
