"""Which folders are given back to which topic: decided from what they say, and refused one by one with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from by_hand import ByHand

from proving import proves
from tidelog.broker import topic_configs
from tidelog.broker.adopting import Decided, adopt, decide
from tidelog.broker.decision import Decision
from tidelog.broker.orphans import Orphan
from tidelog.broker.producer_ids import BLOCK_SIZE, decide_allocate, give
from tidelog.broker.stopped import StoppedBroker
from tidelog.broker.topics import TOPICS_TOPIC, Topic, Topics, apply, fresh, topic_record
from tidelog.cli.main import main
from tidelog.errors import DataFolderError, UsageError
from tidelog.log.contents import Held
from tidelog.log.identity import IDENTITY_NAME, Identity
from tidelog.log.names import partition_name
from tidelog.record.codec import check
from tidelog.record.columns import encode
from tidelog.testing.disk import flip_bit

A, B = b"a" * 16, b"b" * 16
SOME = Held(5, 500)


def orphan(
    topic_id: bytes, partition: int, name: str | None = None, partitions: int = 1, created_ms: int = 7
) -> Orphan:
    told = None if name is None else Identity(name, topic_id, partitions, {"retention.ms": "-1"}, created_ms)
    return Orphan(topic_id, partition, True, told, SOME)


def topics(*some: Topic) -> Topics:
    state = fresh()
    for topic in some:
        record = topic_record(topic)
        apply(state, record.key, record.value)
    return state


def whys(decided: Decided) -> list[str]:
    return [one.why for one in decided.refused]


@proves("T6")
def test_a_topic_comes_back_as_its_folders_say_with_as_many_partitions_as_it_had_or_has_folders_for() -> None:
    found = [orphan(A, 0, "orders", 4), orphan(A, 2), orphan(B, 6, "clicks", 3)]
    (clicks, orders) = sorted(decide(found, topics(), {}, ()).adopted, key=lambda one: one.topic.name)
    assert orders.topic == Topic("orders", A, 4, {"retention.ms": "-1"}, 7) and len(orders.folders) == 2
    assert clicks.topic.partitions == 7


@proves("T6")
def test_of_two_that_had_one_name_the_newer_one_gets_it() -> None:
    decided = decide([orphan(A, 0, "orders"), orphan(B, 0, "orders", created_ms=9)], topics(), {}, ())
    assert [one.topic.topic_id for one in decided.adopted] == [B]
    assert whys(decided) == ["there is another topic orders by now; adopt these under another name, with --as NAME"]


@proves("T6")
@pytest.mark.parametrize(
    ("found", "new_name", "why"),
    [
        (orphan(A, 0), None, "do not say which topic they are of; name it with --as NAME"),
        (orphan(A, 0, "orders"), "taken", "there is another topic taken by now"),
        (orphan(A, 0, "taken"), None, "there is another topic taken by now"),
        (orphan(A, 0), "ta_ken.x", "collides with topic ta.ken.x"),
        (orphan(A, 0), "a b", "is not a topic's name"),
        (orphan(A, 0), "__tidelog.groups2", "a name of the broker's own topics"),
        (orphan(B, 3), "other", "their topic is there and is called taken; leave out --as"),
    ],
)
def test_what_cannot_be_adopted_is_refused_with_the_reason(found: Orphan, new_name: str | None, why: str) -> None:
    there = topics(Topic("taken", B, 1, {}, 0), Topic("ta.ken.x", b"c" * 16, 1, {}, 0))
    decided = decide([found], there, {}, (), new_name)
    assert decided.adopted == [] and why in whys(decided)[0]


@proves("T6")
def test_one_name_is_not_given_to_two_topics() -> None:
    decided = decide([orphan(A, 0), orphan(B, 0)], topics(), {}, (), "orders")
    assert decided.adopted == [] and "these are 2 topics, and one name" in whys(decided)[0]


@proves("T6")
def test_a_folder_whose_place_another_with_records_has_taken_stays_aside() -> None:
    known = Topic("orders", A, 1, {}, 0)
    decided = decide([orphan(A, 0, "orders"), orphan(A, 1, "orders")], topics(known), {}, {(A, 0)})
    (adopted,) = decided.adopted
    assert adopted.topic == known._replace(partitions=2) and [one.partition for one in adopted.folders] == [1]
    assert f"{A.hex()}-0 is there and has records too" in whys(decided)[0]


@proves("T6")
def test_partitions_that_a_topic_has_folders_for_and_does_not_count_are_counted_again() -> None:
    known = Topic("orders", A, 1, {"retention.ms": "-1"}, 3)
    (adopted,) = decide([], topics(known), {A: 4}, ()).adopted
    assert adopted.topic == known._replace(partitions=4) and adopted.folders == ()


# With a folder --------------------------------------------------------------------------------------------------------


@pytest.fixture
def aside(tmp_path: Path) -> Path:
    """`orders` was written, and nobody knows of it any more."""
    broker = ByHand(tmp_path / "data").start()
    broker.create("other")
    broker.produce("other", b"x")
    broker.create("orders")
    broker.produce("orders", b"1", b"2")
    name = f"{broker.broker.topics.by_name['orders'].topic_id.hex()}-0"
    broker.stop()
    data = tmp_path / "data"
    kept = (data / name).rename(tmp_path / "kept")
    broker = ByHand(data).start()
    broker.delete("orders")
    broker.stop()
    kept.rename(data / name)
    broker = ByHand(data).start()
    assert " ERROR folder set aside" in broker.said() and "topic=orders records=2" in broker.said()
    broker.stop()
    return data


@proves("T6")
def test_a_folder_that_came_from_elsewhere_is_set_aside_and_left_alone_by_later_starts(aside: Path) -> None:
    (folder,) = aside.glob("*.orphaned")
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    for _ in range(2):
        broker = ByHand(aside).start()
        assert "WARNING folders are set aside count=1" in broker.said() and "repair adopt --data" in broker.said()
        broker.kill()
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == before


@proves("T6")
def test_an_old_folder_that_says_nothing_is_adopted_by_name(aside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder,) = aside.glob("*.orphaned")
    (folder / IDENTITY_NAME).unlink()
    assert main(["repair", "--data", str(aside)]) == 1
    assert "1 folder without a topic; `tidelog repair adopt` gives them back" in capsys.readouterr().out
    assert main(["repair", "adopt", "--data", str(aside)]) == 1
    assert "name it with --as NAME" in capsys.readouterr().err
    assert main(["repair", "adopt", "--data", str(aside), "--as", "found"]) == 0
    assert "unknown: defaults" in capsys.readouterr().out
    broker = ByHand(aside).start()
    assert broker.values("found") == [b"1", b"2"]
    broker.stop()
    assert not list(aside.glob("*.orphaned"))
    assert main(["repair", "adopt", "--data", str(aside)]) == 0
    assert capsys.readouterr().out.startswith("nothing is set aside")


@proves("T6")
def test_a_name_that_is_taken_by_now_needs_another(aside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = ByHand(aside).start()
    broker.create("orders")
    broker.produce("orders", b"newer")
    broker.stop()
    assert main(["repair", "adopt", "orders", "--data", str(aside)]) == 1
    assert "there is another topic orders by now" in capsys.readouterr().err
    assert main(["repair", "adopt", "orders", "--as", "orders2", "--data", str(aside), "--json"]) == 0
    broker = ByHand(aside).start()
    assert (broker.values("orders"), broker.values("orders2")) == ([b"newer"], [b"1", b"2"])
    broker.kill()
    broker = ByHand(aside).start()
    assert broker.values("orders2") == [b"1", b"2"]
    broker.kill()


@proves("T6")
def test_what_is_not_set_aside_cannot_be_adopted(aside: Path) -> None:
    with StoppedBroker(aside) as stopped, pytest.raises(UsageError, match="nothing is set aside that is called other"):
        adopt(stopped, ["other"])


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def remove_first(folder: Path) -> None:
    min(folder.glob("*.log")).unlink()


def remove_last(folder: Path) -> None:
    max(folder.glob("*.log")).unlink()


def flip_last(folder: Path) -> None:
    last = max(folder.glob("*.log"))
    flip_bit(last, last.stat().st_size - 5)


@proves("T6")
@pytest.mark.parametrize(
    ("damage", "what", "command"),
    [
        (remove, "the folder or all its segments are missing", ["adopt"]),
        (remove_first, "the first segment is missing", ["adopt"]),
        (remove_last, "the last segment is missing", ["adopt"]),
        (remove_last, "the last segment is missing", [TOPICS_TOPIC.name, "0", "--skip", "--yes"]),
        (flip_last, "is damaged at or after", [TOPICS_TOPIC.name, "0", "--skip", "--yes"]),
    ],
)
def test_producer_ids_are_not_given_twice_when_the_record_of_them_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], what: str, command: list[str]
) -> None:
    """Not those either that nobody has written with yet; a batch of the second producer would be one of the first's."""
    data = tmp_path / "data"
    config = topic_configs.INTERNAL_CONFIG
    with monkeypatch.context() as rolled:
        log = replace(config.log, segment_ms=1)
        rolled.setattr(topic_configs, "INTERNAL_CONFIG", config._replace(log=log))
        broker = ByHand(data).start()
        broker.create("orders")
        broker.clock += 1
        given = give_ids(broker, 3 * BLOCK_SIZE)
    batch = encode([(None, b"x", (), 1)], producer_id=4, producer_epoch=0, base_sequence=0)
    log = broker.broker.partition("orders", 0).log
    log.append(memoryview(batch), check(batch), 1)
    broker.rest()
    broker.kill()
    damage(data / partition_name(TOPICS_TOPIC.topic_id, 0))
    with pytest.raises(DataFolderError, match=what):
        ByHand(data).start()
    assert main(["repair", *command, "--data", str(data)]) == 0
    broker = ByHand(data).start()
    assert decide_allocate(broker.broker.topics.producer_ids).producer_id > given
    assert broker.values("orders") == [b"x"]
    broker.kill()


def give_ids(broker: ByHand, count: int) -> int:
    """The last one."""
    state = broker.broker.topics.producer_ids
    for _ in range(count):
        allocated = decide_allocate(state)
        if allocated.records:
            broker.decide(TOPICS_TOPIC.name, Decision(allocated.records, []))
        give(state, allocated)
    return allocated.producer_id
