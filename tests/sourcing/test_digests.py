"""The digest of a command: knows one that comes again, and tells nothing of a value that was erased."""

from __future__ import annotations

import hmac
import sqlite3
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from proving import proves
from sourcing.people import Course, Enrol, people
from tidelog.errors import CommandConflict
from tidelog.sourcing import EventStore, SubjectCipher
from tidelog.sourcing.erasure.digest_keys import destroy_newest, newest, subject_of
from tidelog.sourcing.erasure.erasing import erase
from tidelog.sourcing.erasure.keys import open_keys
from tidelog.testing.broker import TestBroker

NAMES = [f"Name {number}" for number in range(50)]  # what somebody who guesses would try


def opened(broker: TestBroker, folder: Path, *, ciphered: bool = True) -> EventStore[Course]:
    cipher = SubjectCipher("people", f"sqlite:///{folder}/keys.db", cache_s=0.1) if ciphered else None
    return EventStore("people", people(), bootstrap=broker.bootstrap, partitions=1, cipher=cipher)


def digests(broker: TestBroker) -> list[str]:
    rows = broker.records("people.events")
    return [data.decode() for row in rows for name, data in row.headers if name == "digest" and data]


def guessed(digest: str, secrets: list[bytes]) -> list[str]:
    """Names of which a command would have this digest, by every way to make one and every key that there is."""
    found = []
    for name in NAMES:
        value = msgspec.json.encode(Enrol("s1", name, "g1", "Gina"))
        text = b"Enrol\0" + value
        made = [f"{crc32(text):08x}", *(hmac.digest(secret, text, "sha256").hex()[:16] for secret in secrets)]
        found += [name for one in made if one == digest.rpartition("-")[2]]
    return found


def secrets_in(folder: Path) -> list[bytes]:
    with sqlite3.connect(folder / "keys.db") as connection:
        return [bytes(row[0]) for row in connection.execute("SELECT secret FROM tidelog_keys")]


@proves("E6", "es.19")
def test_a_value_that_was_erased_cannot_be_guessed_from_a_digest(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    with opened(tidelog_broker, tmp_path) as store:
        store.send("c1", Enrol("s1", NAMES[7], "g1", "Gina"))
        (digest,) = digests(tidelog_broker)
        assert guessed(digest, []) == [], "without keys it says nothing from the beginning"
        assert guessed(digest, secrets_in(tmp_path)) == [NAMES[7]], "with keys it does: the search can find it"
        erase(tidelog_broker.cluster, ["people"], "s1", store.cipher.keys, reason="a request", settle_s=0.3)  # type: ignore[union-attr]
        store.send("c2", Enrol("s2", NAMES[9], "g1", "Gina"), timeout_s=60)
        assert secrets_in(tmp_path) != []
        assert guessed(digest, secrets_in(tmp_path)) == []


@proves("E2", "E6", "es.22")
def test_the_same_id_for_another_command_is_told_and_after_an_erasure_the_id_counts_alone(
    tidelog_broker: TestBroker, tmp_path: Path
) -> None:
    first, other = Enrol("s1", NAMES[0], "g1", "Gina"), Enrol("s1", NAMES[1], "g1", "Gina")
    with opened(tidelog_broker, tmp_path) as store:
        store.send("c1", first, id="one")
        store.send("c2", Enrol("s2", NAMES[0], "g1", "Gina"), id="one")
        with pytest.raises(CommandConflict):
            store.send("c1", other, id="one")
        assert store.send("c1", first, id="one").repeated
        erase(tidelog_broker.cluster, ["people"], "s2", store.cipher.keys, reason="a request", settle_s=0.3)  # type: ignore[union-attr]
        assert store.send("c1", first, id="one", timeout_s=60).repeated
        assert store.send("c1", other, id="one").repeated, "what it was cannot be told any more"
        store.send("c1", other, id="two")
        with pytest.raises(CommandConflict):
            store.send("c1", first, id="two")


@proves("E2", "es.22")
def test_digests_of_a_store_that_had_no_cipher_are_read_on(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    command = Enrol("s1", NAMES[0], "g1", "Gina")
    with opened(tidelog_broker, tmp_path, ciphered=False) as store:
        store.send("c1", command, id="one")
        store.close_history("c9", id="closing")
    for ciphered in (True, False):
        with opened(tidelog_broker, tmp_path, ciphered=ciphered) as store:
            assert store.send("c1", command, id="one").repeated
            assert store.close_history("c9", id="closing").repeated
            with pytest.raises(CommandConflict):
                store.send("c1", Enrol("s1", NAMES[1], "g1", "Gina"), id="one")
            with pytest.raises(CommandConflict):
                store.send("c9", command, id="closing")


@proves("E6")
def test_the_newest_key_is_found_however_many_were_destroyed(tmp_path: Path) -> None:
    keys = open_keys(f"sqlite:///{tmp_path}/keys.db")
    assert newest(keys, "people") == 0
    for number in range(20):
        assert newest(keys, "people") == number
        assert newest(keys, "people", max(0, number - 3)) == number
        keys.find_or_make(subject_of("people", number))
        destroy_newest(keys, "people", "a request")
    assert newest(keys, "others") == 0
