"""A person is erased from a store: nothing in clear is in any file, and everything else goes on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command import Command
from contract import Broker
from log.test_excising import files_with
from proving import proves
from sourcing.people import Course, Enrol, Enrolled, Rename, people
from tidelog.client.admin import excisions
from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError
from tidelog.sourcing import ERASED, EventStore, SubjectCipher
from tidelog.sourcing.erasure.erasing import erase
from tidelog.sourcing.erasure.keys import SubjectKey, open_keys
from tidelog.testing.broker import TestBroker

pytestmark = pytest.mark.timeout(300)

NAME, SHOUT = "Alice Liddell", "ALICE LIDDELL"
CACHE_S = 0.1


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def store(tidelog_broker: TestBroker, tmp_path: Path, temporary: Path) -> Iterator[EventStore[Course]]:
    """Few entities are kept decoded, so that there is a file of the others, and snapshots are frequent."""
    cipher = SubjectCipher("people", f"sqlite:///{tmp_path}/keys.db", cache_s=CACHE_S)
    with EventStore(
        "people",
        people(),
        bootstrap=tidelog_broker.bootstrap,
        partitions=2,
        cipher=cipher,
        snapshot_every=3,
        cache_entities=2,
    ) as running:
        yield running


def in_clear(*folders: Path) -> list[str]:
    return sorted(name for text in (NAME, SHOUT) for folder in folders for name in files_with(folder, text.encode()))


@proves("E6", "es.19", "es.20")
@pytest.mark.slow
def test_after_erasure_the_plaintext_and_the_key_are_in_no_file(
    tidelog_broker: TestBroker, store: EventStore[Course], tmp_path: Path, temporary: Path
) -> None:
    for number in range(8):
        store.send(f"c{number}", Enrol(f"s{number}", NAME if number == 3 else f"Name {number}", f"g{number}", "Gina"))
    with EventStore("people", people(), bootstrap=tidelog_broker.bootstrap, serve=False, timeout_s=60) as sender:
        sender.send("c3", Rename("s3", NAME + " II"))  # by topic: in the command topic it is in clear
        assert sender.state("c3").state is not None  # and so it is in a reply
    for number in range(4, 8):
        store.send(f"c{number}", Rename(f"s{number}", "other"))
    data = tidelog_broker.data
    key = open_keys(f"sqlite:///{tmp_path}/keys.db").find("s3")
    assert isinstance(key, SubjectKey)
    assert in_clear(data) != [], "commands, replies and what a state derives are in clear, and the search finds them"
    assert files_with(tmp_path, key.secret) == ["keys.db"]
    (done,) = erase(tidelog_broker.cluster, ["people"], "s3", store.cipher.keys, reason="a request", settle_s=0.5) or []  # type: ignore[union-attr]
    assert (done.events, done.entities) == (2, 1)
    assert done.purged["people.commands"] == 2
    assert done.purged["people.replies"] == 2
    assert in_clear(data, temporary, tmp_path) == []
    assert files_with(tmp_path, key.secret) == []
    state = store.state("c3", timeout_s=60)
    assert (state.state.name, state.state.renamed, state.version) == (ERASED, 1, 2)
    assert state.state.name is ERASED or state.state.name == str(ERASED)
    assert store.state("c4").state.name == "other", "others are as they were"
    ((_, (enrolled,)), _) = store.history("c3")
    assert isinstance(enrolled, Enrolled)
    assert (enrolled.name, enrolled.guardian_name) == (ERASED, "Gina")
    for number in range(8):
        store.send(f"c{number}", Rename(f"s{number}", "new"))
    assert in_clear(data, temporary) == [], "nor does a later snapshot bring it back"
    (proof,) = tidelog_broker.records("people.erasures")
    assert key.id.encode() in (proof.value or b"")
    assert b"s3" not in (proof.value or b"")


@proves("E6", "es.22")
def test_a_command_is_still_known_after_erasure(tidelog_broker: TestBroker, store: EventStore[Course]) -> None:
    command = Enrol("s1", NAME, "g1", "Gina")
    first = store.send("c1", command, id="enrol-1")
    erase(tidelog_broker.cluster, ["people"], "s1", store.cipher.keys, reason="a request", settle_s=0.3)  # type: ignore[union-attr]
    again = store.send("c1", command, id="enrol-1", timeout_s=60)
    assert again.repeated
    assert (again.version, again.offset) == (first.version, first.offset)
    assert len(tidelog_broker.records("people.events")) <= 2  # the event, and the mark of its transaction


@proves("E6")
def test_a_store_that_starts_later_folds_what_is_erased(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/keys.db"

    def opened() -> EventStore[Course]:
        cipher = SubjectCipher("people", url, cache_s=CACHE_S)
        return EventStore("people", people(), bootstrap=tidelog_broker.bootstrap, partitions=1, cipher=cipher)

    with opened() as store:
        for number in range(5):
            store.send(f"c{number}", Enrol(f"s{number}", f"Name {number}", "g", "Gina"))
    done = erase(tidelog_broker.cluster, ["people"], "s2", open_keys(url), reason="a request", settle_s=0)
    assert done is not None
    again = erase(tidelog_broker.cluster, ["people"], "s2", open_keys(url), reason="a request", settle_s=0)
    assert again is not None
    assert again[0].key == done[0].key, "a run that was cut short is done again"
    with opened() as store:
        names = [store.state(f"c{number}").state.name for number in range(5)]
        assert names == ["Name 0", "Name 1", str(ERASED), "Name 3", "Name 4"]
        assert store.state("c2").version == 1
    assert erase(tidelog_broker.cluster, ["people"], "nobody", open_keys(url), reason="x", settle_s=0) is None


@proves("E6")
@pytest.mark.slow
def test_the_command_erases_and_says_what_is_left(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/keys.db"
    cipher = SubjectCipher("people", url, cache_s=CACHE_S)
    with EventStore("people", people(), bootstrap=tidelog_broker.bootstrap, partitions=1, cipher=cipher) as store:
        store.send("c1", Enrol("s1", NAME, "g1", "Gina"))
    tidelog = Command(tidelog_broker.bootstrap)
    words = ("erase", "s1", "--store", "people", "--keys", url, "--settle", "0.1")
    assert (tidelog(*words).code, tidelog(*words, "--reason", "a request").code) == (2, 2)
    misspelt = tidelog(*words[:3], "poeple", *words[4:], "--reason", "x", "--yes")
    assert (misspelt.code, "store poeple has no topic" in misspelt.err) == (2, True)
    assert isinstance(open_keys(url).find("s1"), SubjectKey), "nothing was destroyed"
    done = tidelog.ok(*words, "--reason", "a request", "--yes")
    assert "personal fields of 1 event read as erased" in done.lines[0]
    assert "s1" not in done.out.replace(str(tmp_path), "")
    for word in ("PostgreSQL", "Redis", "OpenSearch", "backups"):
        assert word in done.out
    unknown = tidelog("erase", "s9", *words[2:], "--reason", "x", "--yes")
    assert (unknown.code, "never had a key" in unknown.out) == (1, True)


@proves("E6")
@pytest.mark.slow
def test_the_wrong_store_of_keys_is_not_taken_for_one_in_which_nobody_has_a_key(
    tidelog_broker: TestBroker, tmp_path: Path
) -> None:
    tidelog_broker.create_topic("people.events")
    tidelog = Command(tidelog_broker.bootstrap)
    words = ("erase", "s1", "--store", "people", "--reason", "x", "--yes", "--keys")
    missing = tidelog(*words, f"sqlite:///{tmp_path}/nowhere.db")
    assert (missing.code, "is not there" in missing.err) == (2, True)
    assert not (tmp_path / "nowhere.db").exists()
    open_keys(f"sqlite:///{tmp_path}/other.db").close()
    other = tidelog(*words, f"sqlite:///{tmp_path}/other.db")
    assert (other.code, "is it the store of keys that" in other.out) == (1, True)


@proves("E6")
def test_excision_is_for_what_was_never_encrypted(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    """A store without a cipher has names in clear; its event can be taken out, and then its history has a hole."""
    with EventStore("plain", people(), bootstrap=tidelog_broker.bootstrap, partitions=1) as store:
        receipt = store.send("c1", Enrol("s1", NAME, "g1", "Gina"))
        assert in_clear(tidelog_broker.data) != []
    excisions.excise(tidelog_broker.cluster, "plain.events", {0: [(receipt.offset, receipt.offset)]}, "a request")
    places = {0: [(row.offset, row.offset) for row in tidelog_broker.records("plain.snapshots")]}
    excisions.excise(tidelog_broker.cluster, "plain.snapshots", places, "a request")
    assert in_clear(tidelog_broker.data) == []
    with pytest.raises(UsageError):
        SubjectCipher("plain", "nothing")


@proves("E6", "es.19")
def test_a_person_is_erased_on_either_broker_and_what_cannot_be_done_is_said(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    cipher = SubjectCipher(topic, f"sqlite:///{tmp_path}/keys.db", cache_s=CACHE_S)
    with (
        EventStore(topic, people(), bootstrap=broker.bootstrap, partitions=1, cipher=cipher, snapshot_every=1) as store,
        Cluster(broker.bootstrap) as cluster,
    ):
        store.send("c1", Enrol("s1", NAME, "g1", "Gina"))
        store.send("c2", Enrol("s2", "Bob", "g2", "Gina"))
        done = erase(cluster, [topic], "s1", cipher.keys, reason="a request", settle_s=0.5)
        assert done is not None
        told = [line for line in done[0].left if "Apache Kafka cannot take single records out" in line]
        assert bool(told) == (not cluster.is_tidelog())
        assert store.state("c1", timeout_s=60).state.name == ERASED
        assert store.state("c2", timeout_s=60).state.name == "Bob"
        assert store.state("c1").version == 1
