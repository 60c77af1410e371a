"""`tidelog.overload.policy=drop`: the oldest go, what each group lost is counted, and a crash changes neither."""

from __future__ import annotations

from pathlib import Path

import pytest
from by_hand import NOW_MS, ByHand

from proving import proves
from tidelog.broker.decision import Decision, Instant, NewRecord
from tidelog.broker.queues.records import gone_record, group_record, set_record, whole_record
from tidelog.broker.queues.window import ACKNOWLEDGED, QueueSpan, QueueWindow

MINUTE_MS = 60_000


def made(tmp_path: Path, **limits: str) -> ByHand:
    broker = ByHand(tmp_path / "data").start()
    configs = {"tidelog.overload.policy": "drop", **{f"tidelog.overload.{key}": one for key, one in limits.items()}}
    broker.create("clicks", configs=configs)
    return broker


def write(broker: ByHand, count: int, size: int = 1) -> None:
    """So many records in batches of ten, and then one look."""
    for _ in range(count // 10):
        broker.produce("clicks", *[b"x" * size] * 10)
    look(broker)


def look(broker: ByHand) -> None:
    overload = broker.broker.overload
    partition = broker.broker.partition("clicks", 0)
    assert partition is not None
    partition.log.load()
    overload.turn()
    overload.dropping.wrote(partition)
    overload.dropping._look()
    broker.committer.settle()


def start(broker: ByHand) -> int:
    partition = broker.broker.partition("clicks", 0)
    assert partition is not None
    partition.log.load()
    return partition.log.start_offset


def lost(broker: ByHand) -> dict[str, int]:
    broker.broker.overload.turn()
    return broker.broker.overload.dropping.lost("clicks")


@proves("T5")
def test_no_more_records_are_kept_than_the_limit_and_each_group_is_told_what_it_lost(tmp_path: Path) -> None:
    broker = made(tmp_path, records="100")
    broker.commit_offset("slow", "clicks", 0)
    broker.commit_offset("fast", "clicks", 0)
    write(broker, 100)
    assert (start(broker), lost(broker)) == (0, {})
    broker.commit_offset("fast", "clicks", 100)
    write(broker, 50)
    assert (start(broker), lost(broker)) == (50, {"slow": 50})
    broker.commit_offset("late", "clicks", 60)
    write(broker, 1000)
    assert len(broker.values("clicks")) == 100
    assert lost(broker) == {"slow": 1050, "fast": 950, "late": 990}
    broker.stop()


@proves("T5")
def test_a_commit_among_what_was_lost_says_that_it_was_read_before(tmp_path: Path) -> None:
    broker = made(tmp_path, records="100")
    broker.commit_offset("slow", "clicks", 0)
    write(broker, 300)
    assert lost(broker) == {"slow": 200}
    broker.commit_offset("slow", "clicks", 120)
    assert lost(broker) == {"slow": 80}
    broker.commit_offset("slow", "clicks", 250)
    assert lost(broker) == {"slow": 80}
    write(broker, 100)
    assert lost(broker) == {"slow": 130}
    broker.stop()


@proves("T5")
def test_a_share_group_lost_what_it_had_not_done_in_whatever_order_it_did_the_rest(tmp_path: Path) -> None:
    broker = made(tmp_path, records="100")
    topic = broker.broker.topics.by_name["clicks"].topic_id

    def queue() -> QueueWindow:
        found = broker.broker.queues.state.queue("workers", (topic, 0))
        assert found is not None
        return found.window

    def note(*records: NewRecord) -> None:
        broker.broker.queues.commit(Decision([*records], []))
        broker.committer.settle()

    def done(first: int, last: int) -> None:
        note(set_record("workers", topic, 0, [QueueSpan(first, last, ACKNOWLEDGED, 1)]))

    note(group_record("workers", 1), whole_record("workers", topic, 0, "clicks", QueueWindow(0)))
    write(broker, 100)
    done(20, 49)
    queue().acquire("one", 0, 5, 5, 1)
    write(broker, 40)
    assert (start(broker), lost(broker)) == (40, {"workers": 20})
    assert queue().start == 50, "what was counted as lost is not there to be accepted"
    write(broker, 40)
    assert (start(broker), lost(broker)) == (80, {"workers": 50})
    done(80, 179)
    write(broker, 100)
    assert (start(broker), lost(broker)) == (180, {"workers": 50})
    broker.kill()
    broker = ByHand(tmp_path / "data").start()
    assert lost(broker) == {"workers": 50}
    write(broker, 10)
    assert lost(broker) == {"workers": 60}
    note(gone_record("workers", topic, 0))
    assert lost(broker) == {}
    broker.stop()


@proves("T5")
def test_bytes_are_kept_up_to_the_limit(tmp_path: Path) -> None:
    broker = made(tmp_path, bytes="100000")
    write(broker, 3000, size=1000)
    kept = broker.values("clicks")
    assert 50 <= len(kept) <= 100
    assert start(broker) == 3000 - len(kept)
    size = sum(file.stat().st_size for file in (tmp_path / "data").rglob("*.log"))
    assert size < 2_500_000, "segments are small, so that the disk has little more"
    broker.stop()


@proves("T5")
def test_records_go_when_they_are_old_though_nobody_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = made(tmp_path, ms=str(MINUTE_MS))
    broker.commit_offset("slow", "clicks", 3)
    monkeypatch.setattr(broker.broker, "now", lambda: Instant(NOW_MS + MINUTE_MS, 0))
    write(broker, 10)
    assert start(broker) == 0
    monkeypatch.setattr(broker.broker, "now", lambda: Instant(NOW_MS + MINUTE_MS + 1, 0))
    look(broker)
    assert (start(broker), lost(broker)) == (10, {"slow": 7})
    broker.stop()


@proves("T5")
@pytest.mark.parametrize("deleted", [False, True])
def test_what_was_counted_before_a_crash_is_dropped_and_counted_once(tmp_path: Path, deleted: bool) -> None:
    broker = made(tmp_path, records="100")
    broker.commit_offset("slow", "clicks", 0)
    if not deleted:
        broker.broker.overload.dropping._delete = lambda partition, to: None  # type: ignore[method-assign]
    write(broker, 500)
    assert lost(broker) == {"slow": 400}
    broker.kill()
    again = ByHand(tmp_path / "data").start()
    look(again)
    assert (start(again), lost(again)) == (400, {"slow": 400})
    write(again, 10)
    assert (start(again), lost(again)) == (410, {"slow": 410})
    again.stop()


@proves("T5")
def test_a_topic_made_anew_is_not_cut_by_what_the_last_one_dropped(tmp_path: Path) -> None:
    broker = made(tmp_path, records="10")
    broker.commit_offset("slow", "clicks", 0)
    write(broker, 100)
    broker.delete("clicks")
    broker.create("clicks", configs={"tidelog.overload.policy": "drop", "tidelog.overload.records": "10"})
    write(broker, 10)
    assert (start(broker), lost(broker)) == (0, {})
    broker.stop()


@proves("T5")
def test_nothing_is_dropped_while_retention_is_held(tmp_path: Path) -> None:
    from tidelog.broker.settings.configuring import load_broker_config
    from tidelog.broker.settings.describing import BrokerValues
    from tidelog.broker.settings.topic_config import topic_config

    held = load_broker_config({"tidelog.retention.hold": "true"})
    own = {"tidelog.overload.policy": "drop", "tidelog.overload.records": "10"}
    assert topic_config(own, BrokerValues({}, {}, held.given)).overload is None
    assert topic_config(own, BrokerValues({}, {}, {})).overload is not None
