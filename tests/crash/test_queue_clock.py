"""The time of day is set while records wait and are locked: deadlines that have begun are met all the same, and a lock
does not run out because a clock says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from against.tidelog_process import TidelogProcess
from broker.queues.worker import ACCEPT, RELEASE, Worker, configure, create, send
from crash.jumping_clock import JumpingClock, jumping_clock
from proving import proves

__all__ = ["jumping_clock"]

SETTINGS = {"group.share.min.record.lock.duration.ms": "1000"}


@pytest.fixture
def broker(jumping_clock: JumpingClock, tmp_path: Path) -> Iterator[TidelogProcess]:
    made = TidelogProcess(tmp_path / "broker", SETTINGS).start()
    yield made
    made.kill()


@proves("T4")
@pytest.mark.slow
def test_a_clock_that_is_set_back_holds_up_neither_delays_nor_locks(
    broker: TidelogProcess, jumping_clock: JumpingClock
) -> None:
    bootstrap = broker.bootstrap
    earliest = {"share_auto_offset_reset": "earliest", "share_record_lock_duration_ms": "1000"}
    assert configure(bootstrap, **earliest) is None
    topic = create(bootstrap, tidelog_delay_max_ms="60000")
    send(bootstrap, "later", headers=(("tidelog-delay-ms", b"1500"),))
    send(bootstrap, "now")
    worker = Worker(bootstrap, topic)
    assert [one.value for one in worker.until(1)] == [b"now"]  # and the other one is parked
    jumping_clock.jump_to(-3600)
    seen = {one.value: one.deliveries for one in worker.until(2)}
    assert seen == {b"now": 2, b"later": 1}


@proves("T4")
@pytest.mark.slow
def test_a_clock_that_is_set_to_and_fro_ends_no_lock_and_no_back_off(
    broker: TidelogProcess, jumping_clock: JumpingClock
) -> None:
    """An hour ahead, and an hour behind: more than any lock, back-off and delay here takes."""
    bootstrap = broker.bootstrap
    settings = {"share_record_lock_duration_ms": "60000", "tidelog_retry_backoff_ms": "600000"}
    assert configure(bootstrap, share_auto_offset_reset="earliest", **settings) is None
    topic = create(bootstrap, tidelog_delay_max_ms="3600000")
    send(bootstrap, "later", headers=(("tidelog-delay-ms", b"600000"),))
    send(bootstrap, "held", "failed")
    one, other = Worker(bootstrap, topic), Worker(bootstrap, topic)
    assert [given.value for given in one.until(2, most=4)] == [b"held", b"failed"]
    assert one.say(RELEASE, 2) == 0
    for ahead_s in (3600, -3600, 0):
        jumping_clock.jump_to(ahead_s)
        send(bootstrap, "next")
        assert [given.value for given in other.until(1, most=4)] == [b"next"]
        assert other.get(most=4, wait_ms=50) == []
        assert one.heartbeat(1).error_code == 0, "nor is a member lost"
    assert one.say(ACCEPT, 1) == 0
