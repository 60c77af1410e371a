"""What the broker does when nobody asks, beside topics that come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.topics.serving import Served, serving
from proving import proves
from tidelog.broker import housekeeping
from tidelog.broker.decision import Instant
from tidelog.broker.status import Status
from tidelog.log.log import Log
from tidelog.testing.disk import flip_bit
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

HOLD = "tidelog.retention.hold"
BROKER, SET = 4, 0
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@proves("T6")
@pytest.mark.parametrize("limit", [{"retention.ms": "1000"}, {"retention.bytes": "1", "retention.ms": "-1"}])
def test_retention_takes_nothing_while_it_is_held_whatever_the_topics_own_settings_are(
    tmp_path: Path, limit: dict[str, str]
) -> None:
    with serving(tmp_path / "data", **{HOLD: "true"}) as served:
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in limit.items()]
        configs.append(CreatableTopicConfig(name="internal.segment.bytes", value="1048576"))
        topic = CreatableTopic(name="old", num_partitions=1, replication_factor=1, configs=configs)
        assert served.ask(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code == 0
        assert start_after_retention(served) == 0
        # Altered, it would be in a backup of this broker, and stronger than what the restored one is started with.
        release = AlterableConfig(name=HOLD, config_operation=SET, value="false")
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[release])
        altered = served.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert [one.error_code for one in altered.responses] == [ErrorCode.INVALID_REQUEST]
    with serving(tmp_path / "data") as served:
        assert start_after_retention(served) > 0


def start_after_retention(served: Served) -> int:
    """Where the partition begins after several looks, with records between them that are too old, and many."""
    for _ in range(4):
        served.produce("old", 0, b"x" * 600_000)
        served.broker.housekeeping._retain("old", 0, served.broker.now().wall_ms)
    found = served.broker.partition("old", 0)
    assert found is not None
    return found.log.start_offset


@proves("T4")
def test_producers_are_forgotten_by_the_time_before_a_step_until_that_has_stood_for_their_expiration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    with serving(tmp_path / "data") as served:
        served.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 5)
        wall_ms, monotonic_ms = served.broker.now()
        monkeypatch.setattr(Log, "forget_producers", lambda _, now_ms: told.append(now_ms))
        for later_ms, ahead_ms in ((HOUR_MS, DAY_MS), (HOUR_MS + DAY_MS, 0)):
            now = Instant(wall_ms + later_ms + DAY_MS, monotonic_ms + later_ms)
            monkeypatch.setattr(served.broker, "now", lambda now=now: now)
            served.broker.housekeeping._turn()
            assert now.wall_ms - told[-1] == pytest.approx(ahead_ms, abs=60_000), "what is not believed of it"


@proves("T6")
def test_a_topic_that_is_deleted_while_it_is_scrubbed_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "SCRUB_BYTES", 100)
    with serving(tmp_path / "data") as served:
        for name in ("deleted", "there"):
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            served.ask(CreateTopicsRequest(topics=[topic]), 5)
            for _ in range(5):
                served.produce(name, 0, b"x" * 5000)
        partition = served.broker.partition("deleted", 0)
        assert partition is not None
        while served.broker.housekeeping._scrubbing is not partition:
            served.broker.housekeeping._turn()
        served.ask(DeleteTopicsRequest(topic_names=["deleted"]), 5)
        for _ in range(50):
            served.broker.housekeeping._turn()
        assert "scrub failed" not in served.log_lines.getvalue()


def scrub(served: Served, rounds: int) -> list[str]:
    """The lines about damage after so many rounds over all partitions."""
    for _ in range(rounds):
        served.broker.housekeeping._scrub()
        while served.broker.housekeeping._scrubbing is not None:
            served.broker.housekeeping._scrub()
    lines = served.log_lines.getvalue().splitlines()
    return [line for line in lines if "scrub failed" in line or "hole found" in line]


@proves("T6")
@pytest.mark.parametrize(("gone", "told"), [(False, "hole found"), (True, "scrub failed")], ids=["rot", "gone"])
def test_damage_that_a_scrub_finds_is_told_once_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool, told: str
) -> None:
    """Each round told it again: a line every few seconds, until somebody mended it."""
    with serving(tmp_path / "data") as served:
        topic = CreatableTopic(name="old", num_partitions=1, replication_factor=1)
        served.ask(CreateTopicsRequest(topics=[topic]), 5)
        for _ in range(3):
            served.produce("old", 0, b"x" * 100)
        found = served.broker.partition("old", 0)
        assert found is not None
        folder = Path(found.log.folder)
    damage(folder, gone=gone)
    with serving(tmp_path / "data") as served:
        assert served.broker.partition("old", 0) is not None, "in use, which is what is scrubbed"
        (line,) = scrub(served, 30)
        assert told in line and "topic=old partition=0" in line
        now = served.broker.now()
        monkeypatch.setattr(served.broker, "now", lambda: now._replace(monotonic_ms=now.monotonic_ms + DAY_MS))
        assert len(scrub(served, 30)) == 2


def damage(folder: Path, *, gone: bool) -> None:
    (log,) = folder.glob("*.log")
    if gone:
        log.unlink()
    else:
        flip_bit(log, log.stat().st_size - 250, 1)


@proves("T6")
def test_the_hours_until_the_disk_is_full_are_in_the_log_and_in_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "data") as served:
        free = 100 << 30
        monkeypatch.setattr(served.broker, "free_bytes", lambda: free)
        looks = round(housekeeping.DISK_WATCH_S / housekeeping.DISK_LOOK_S)
        for look in range(2 * looks):
            served.broker.housekeeping._look_at_disk(1000 + look * housekeeping.DISK_LOOK_S)
            shown = Status(served.broker).figures()["disk"]
            assert shown["free_bytes"] == free
            assert (shown["hours_left"] is not None) == (look >= looks), "known when it was watched for long enough"
            free -= 100 << 20  # 36,000 MB an hour
        left = (free + (100 << 20)) / (36_000 << 20)
        assert shown["hours_left"] == pytest.approx(left)
        lines = [line for line in served.log_lines.getvalue().splitlines() if "disk is filling" in line]
        assert len(lines) == 1 and " WARNING " in lines[0], "once, and again only after a while"
        assert f"hours_left={(100 * 1024 - looks * 100) / 36_000:.1f} " in lines[0] + " "
