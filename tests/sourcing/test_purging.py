"""Read models after an erasure: built anew without the person, and no byte of the old rows in their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cli.command import Command
from log.test_excising import files_with
from postgres_server import postgres, postgres_url
from proving import proves
from sourcing.people import Course, Enrol, Rename, people
from tidelog.client.producer import Producer
from tidelog.control.catalog import find_view
from tidelog.sourcing import EventStore, ReadModel, SubjectCipher
from tidelog.sourcing.erasure.erasing import ErasureOutcome, erase
from tidelog.testing.broker import TestBroker
from tidelog.views.stores.opening import open_store

__all__ = ["postgres", "postgres_url"]
pytestmark = pytest.mark.timeout(300)

NAME = "Alice Liddell of Westminster"
COLUMNS = {"student": "string", "name": "string", "renamed": "long"}


def names(rows: Any, event: Any, record: Any) -> None:
    before = rows.get(event.student)
    rows[event.student] = {"name": event.name, "renamed": 0 if before is None else before["renamed"] + 1}


@pytest.fixture
def store(tidelog_broker: TestBroker, tmp_path: Path) -> Iterator[EventStore[Course]]:
    cipher = SubjectCipher("people", f"sqlite:///{tmp_path}/keys.db", cache_s=0.1)
    with EventStore(
        "people", people(), bootstrap=tidelog_broker.bootstrap, partitions=2, cipher=cipher, snapshot_every=3
    ) as running:
        yield running


def model(store: EventStore[Course]) -> ReadModel:
    return ReadModel("names", store, names, key="student", columns=COLUMNS)


def enrol(store: EventStore[Course]) -> Any:
    """Alice was renamed away and back, so that old pages have her, too."""
    for number in range(40):
        store.send(f"c{number}", Enrol(f"s{number}", NAME if number == 3 else f"Name {number}", "g", "Gina"))
    store.send("c3", Rename("s3", "Someone else"))
    return store.send("c3", Rename("s3", NAME + " II"))


def erased(broker: TestBroker, store: EventStore[Course], **more: Any) -> ErasureOutcome:
    (done,) = erase(broker.cluster, ["people"], "s3", store.cipher.keys, reason="a request", settle_s=0.3, **more)  # type: ignore[misc, union-attr]
    return done


@proves("E6", "es.19")
@pytest.mark.slow
def test_a_read_model_that_runs_is_built_anew_and_its_files_have_nothing_of_the_person(
    tidelog_broker: TestBroker, store: EventStore[Course], tmp_path: Path
) -> None:
    folder = tmp_path / "views"
    folder.mkdir()
    url = f"sqlite:///{folder}/models.db"
    with model(store).following(url) as followed, closing(open_store(url, "names")) as reader:
        followed.wait(enrol(store))
        assert reader.get(("s3",))[0] == {"student": "s3", "name": NAME + " II", "renamed": 2}
        assert files_with(folder, NAME.encode()) != [], "the search can find it"
        done = erased(tidelog_broker, store)
        assert (list(done.rebuilt), [one for one in done.left if "read model" in one]) == (["names"], [])
        assert files_with(folder, NAME.encode()) == []
        assert reader.get(("s3",))[0] == {"student": "s3", "name": None, "renamed": 2}
        assert reader.get(("s4",))[0] == {"student": "s4", "name": "Name 4", "renamed": 0}
        followed.wait(store.send("c4", Rename("s4", "Bob"), timeout_s=60))
        assert followed.get("s4") == {"student": "s4", "name": "Bob", "renamed": 1}, "it goes on"
        view = find_view(tidelog_broker.cluster, "names")
        assert ([one.number for one in view.generations], view.live) == ([2], 2)
        again = erased(tidelog_broker, store)
        assert list(again.rebuilt) == ["names"], "it can be run again"
        assert (reader.get(("s4",))[0] or {})["name"] == "Bob"
    with model(store).following(url) as followed:
        followed.wait(store.send("c4", Rename("s4", "Carl"), timeout_s=60))
        assert followed.get("s4") == {"student": "s4", "name": "Carl", "renamed": 2}
    assert files_with(folder, NAME.encode()) == []


@proves("E6")
@pytest.mark.slow
def test_a_read_model_that_nobody_runs_is_told_and_built_anew_when_it_runs(
    tidelog_broker: TestBroker, store: EventStore[Course], tmp_path: Path
) -> None:
    folder = tmp_path / "views"
    folder.mkdir()
    url = f"sqlite:///{folder}/models.db"
    with model(store).following(url) as followed:
        followed.wait(enrol(store))
    tidelog = Command(tidelog_broker.bootstrap)
    words = ("erase", "s3", "--store", "people", "--keys", f"sqlite:///{tmp_path}/keys.db", "--settle", "0.3")
    told = tidelog.ok(*words, "--rebuilt", "0.2", "--reason", "a request", "--yes").out
    assert "to do: read model names is not applied by anybody now: run the program that has it" in told
    assert files_with(folder, NAME.encode()) != []
    with model(store).following(url) as followed:
        done = tidelog.ok(*words, "--reason", "a request", "--yes").out
        assert "read model names is rebuilt, and its old rows are overwritten" in done
        assert (followed.get("s3") or {})["name"] is None
    assert files_with(folder, NAME.encode()) == []


@proves("E6")
@pytest.mark.slow
def test_in_a_store_of_others_it_is_built_anew_and_the_rest_is_told(
    tidelog_broker: TestBroker, store: EventStore[Course], postgres_url: str
) -> None:
    with model(store).following(postgres_url) as followed:
        followed.wait(enrol(store))
        done = erased(tidelog_broker, store)
        (told,) = [line for line in done.left if "read model" in line]
        assert "VACUUM FULL" in told and "replicas" in told
        receipt = store.send("c4", Rename("s4", "Bob"), timeout_s=60)
        followed.wait(receipt)
        assert followed.get("s3") == {"student": "s3", "name": None, "renamed": 2}


@proves("E6", "hostile")
def test_records_of_anybody_in_the_command_topic_do_not_stop_an_erasure(
    tidelog_broker: TestBroker, store: EventStore[Course]
) -> None:
    store.send("c3", Enrol("s3", NAME, "g", "Gina"))
    with Producer(tidelog_broker.cluster) as producer:
        for value in (b"{", b"[1]", b'[{"entity":[]}]', b"[" * 100_000, b"null"):
            for partition in (0, 1):
                headers = [("type", b"tidelog.together"), ("command", b"x")]
                producer.send("people.commands", value, key=b"\xff", headers=headers, partition=partition)
    assert erased(tidelog_broker, store).events == 1
    assert store.send("c3", Rename("s3", "new"), timeout_s=60).version == 2
