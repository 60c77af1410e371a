"""The cipher of personal fields and the stores of keys: what can be read, by whom, and what is left of a key."""

from __future__ import annotations

import multiprocessing
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from postgres_server import postgres, postgres_url
from proving import proves
from sourcing.people import Course, Enrolled, people
from tidelog.errors import Disconnected, HistoryFault, UsageError
from tidelog.sourcing import ERASED, SubjectCipher
from tidelog.sourcing.codec import JsonCodec
from tidelog.sourcing.erasure.keys import Destroyed, KeyStore, SubjectKey, open_keys
from tidelog.sourcing.personal import Erased

__all__ = ["postgres", "postgres_url"]

PLACE = "c1/1/Enrolled/name"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/keys.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def keys(url: str) -> Iterator[KeyStore]:
    opened = open_keys(url)
    yield opened
    opened.close()


@proves("E6", "es.19")
def test_a_text_is_read_by_its_key_at_its_place_and_by_nothing_else(keys: KeyStore) -> None:
    cipher = SubjectCipher("people", keys)
    text = cipher.encrypt("s1", PLACE, "Alice")
    assert "Alice" not in text
    assert cipher.decrypt("s1", PLACE, text) == "Alice"
    assert cipher.encrypt("s1", PLACE, "Alice") != text, "the same text twice is not seen to be the same"
    for wrong in ("c2/1/Enrolled/name", "c1/2/Enrolled/name", "c1/1/Renamed/name", "c1/1/Enrolled/other"):
        with pytest.raises(HistoryFault, match="changed or moved"):
            cipher.decrypt("s1", wrong, text)
    with pytest.raises(HistoryFault, match="changed or moved"):
        SubjectCipher("others", keys).decrypt("s1", PLACE, text)
    flipped = text[:-2] + ("A" if text[-2] != "A" else "B") + text[-1]
    with pytest.raises(HistoryFault):
        cipher.decrypt("s1", PLACE, flipped)
    for malformed in ("nonsense", "2.key.text", "1.key", f"1.{text.split('.')[1]}.%%%"):
        with pytest.raises(HistoryFault):
            cipher.decrypt("s1", PLACE, malformed)


@proves("E6", "es.19")
def test_a_destroyed_key_reads_as_erased_for_its_subject_alone(keys: KeyStore) -> None:
    cipher = SubjectCipher("people", keys, cache_s=0)
    of_alice, of_bob = cipher.encrypt("s1", PLACE, "Alice"), cipher.encrypt("s2", PLACE, "Bob")
    destroyed = keys.destroy("s1", "a request")
    assert destroyed is not None
    assert cipher.decrypt("s1", PLACE, of_alice) is ERASED
    assert isinstance(cipher.decrypt("s1", PLACE, of_alice), Erased)
    assert cipher.decrypt("s2", PLACE, of_bob) == "Bob"
    assert keys.destroy("s1", "again") == destroyed
    assert keys.destroy("nobody", "why") is None
    assert keys.find("s1") == destroyed
    assert cipher.encrypt("s1", PLACE, "Alice again") == "", "who is erased stays erased"
    assert keys.destroyed() == 1


@proves("E6")
def test_a_key_that_is_not_here_is_not_an_erased_one(keys: KeyStore, tmp_path: Path) -> None:
    text = SubjectCipher("people", keys).encrypt("s1", PLACE, "Alice")
    other = SubjectCipher("people", f"sqlite:///{tmp_path}/others.db")
    with pytest.raises(HistoryFault, match="is it the one that the store was written with"):
        other.decrypt("s1", PLACE, text)


@proves("E6", "es.19")
def test_no_byte_of_a_destroyed_key_is_in_the_file_of_keys(tmp_path: Path) -> None:
    keys = open_keys(f"sqlite:///{tmp_path}/keys.db")
    made = [keys.find_or_make(f"subject-{number}") for number in range(500)]
    victim = made[250]
    assert isinstance(victim, SubjectKey)

    def found(data: bytes) -> bool:
        return any(data in path.read_bytes() for path in tmp_path.iterdir())

    assert found(victim.secret)
    assert not found(b"subject-250"), "whose it is is not there in clear"
    keys.destroy("subject-250", "a request")
    assert not found(victim.secret)
    other = made[251]
    assert isinstance(other, SubjectKey)
    assert keys.find("subject-251") == other
    assert [path.name for path in tmp_path.iterdir()] == ["keys.db"]
    assert stat.S_IMODE((tmp_path / "keys.db").stat().st_mode) == 0o600
    assert "secret" not in repr(other)
    assert str(other.secret) not in repr(other)


@proves("E6")
def test_processes_that_ask_at_once_get_one_key(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        made = pool.map(_key_of, [f"sqlite:///{tmp_path}/keys.db"] * 12)
    assert len(set(made)) == 1


def _key_of(url: str) -> SubjectKey | Destroyed:
    return open_keys(url).find_or_make("s1")


@proves("E6")
def test_keys_are_remembered_for_a_bounded_time_and_dropped_when_one_is_destroyed(tmp_path: Path) -> None:
    now = [0.0]
    keys = open_keys(f"sqlite:///{tmp_path}/keys.db")
    cipher = SubjectCipher("people", keys, cache_s=10, clock=lambda: now[0])
    text = cipher.encrypt("s1", PLACE, "Alice")
    before = cipher.erased()
    keys.destroy("s1", "a request")
    now[0] = 9.0
    assert cipher.decrypt("s1", PLACE, text) == "Alice", "within the time it may be"
    assert cipher.erased() == before
    now[0] = 10.0
    assert cipher.decrypt("s1", PLACE, text) is ERASED
    assert cipher.erased() != before
    fresh = SubjectCipher("people", keys, cache_s=1e9)
    assert fresh.decrypt("s1", PLACE, text) is ERASED


@proves("E6", "es.19")
def test_two_subjects_in_one_event_are_each_under_their_own_key(keys: KeyStore) -> None:
    cipher = SubjectCipher("people", keys, cache_s=0)
    codec = JsonCodec(Enrolled)
    stored = codec.encode(Enrolled("s1", "g1", "Alice", "Gina"), "c1", "c1/1/Enrolled", cipher)
    assert b"Alice" not in stored
    assert b"Gina" not in stored
    keys.destroy("s1", "a request")
    read = codec.decode(stored, "c1", "c1/1/Enrolled", cipher)
    assert (read.name, read.guardian_name) == (ERASED, "Gina")
    assert read.name is ERASED
    assert people().apply(Course(), read).name is ERASED, "the fold goes on"


@proves("E6")
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://user:secret@host/db", "password in clear"),
        ("mysql://host/keys", "is not a store of keys"),
        ("keys.db", "is not a store of keys"),
        ("sqlite://", "names no file"),
        ("sqlite:///${TIDELOG_NO_SUCH_NAME}", "the environment does not"),
    ],
)
def test_a_url_that_is_none_or_has_a_password_in_clear_is_refused(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        open_keys(url)


@proves("E6")
def test_a_store_of_keys_that_is_away_makes_nothing_erased_and_nothing_clear(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/keys.db"
    cipher = SubjectCipher("people", url, cache_s=0)
    codec, value = JsonCodec(Enrolled), Enrolled("s1", "g1", "Alice", "Gina")
    stored = codec.encode(value, "c1", "c1/1/Enrolled", cipher)
    (tmp_path / "keys.db").rename(tmp_path / "away")
    (tmp_path / "keys.db").mkdir()
    with pytest.raises(Disconnected, match="the store of keys does not answer"):
        codec.encode(value, "c1", "c1/2/Enrolled", cipher)
    with pytest.raises(Disconnected):
        codec.decode(stored, "c1", "c1/1/Enrolled", cipher)
    assert cipher.erased() == 0
    (tmp_path / "keys.db").rmdir()
    (tmp_path / "away").rename(tmp_path / "keys.db")
    assert codec.decode(stored, "c1", "c1/1/Enrolled", cipher) == value
