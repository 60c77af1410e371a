"""A fetch that waits is woken by what it waits for, and does not look more often than it must."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from log.partition import Partition as LogPartition
from proving import proves
from tidelog.broker.partition import Partition
from tidelog.broker.settings.topic_config import TopicConfig
from tidelog.broker.waiting import REST_FROM, WaitingFetch
from tidelog.log.settings import FOREVER

MANY = 10 * REST_FROM
WAIT_S = 5.0


class ManualTimer:
    def __init__(self, at_s: float, action: Callable[[], None]) -> None:
        self.at_s = at_s
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class ManualScheduler:
    """Time goes on when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[ManualTimer] = []

    def call_later(self, delay_s: float, action: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(self.now_s + delay_s, action)
        self.timers.append(timer)
        return timer

    def in_thread(self, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        raise AssertionError("a fetch that waits has no work for a thread")

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self.timers if timer.at_s <= self.now_s]
        self.timers = [timer for timer in self.timers if timer.at_s > self.now_s]
        for timer in due:
            if timer.action is not None:
                timer.action()

    @property
    def running(self) -> int:
        return sum(timer.action is not None for timer in self.timers)


class Waiting:
    """A fetch that has enough when `enough` partitions have grown; `partitions` are real ones, and empty."""

    def __init__(self, folder: Path, partitions: int, enough: int) -> None:
        self.logs = [LogPartition(folder / str(index)) for index in range(partitions)]
        config = TopicConfig(self.logs[0].settings, 1 << 20, FOREVER, FOREVER, compact=False)
        self.partitions = [Partition("t", bytes(16), index, one.log, config) for index, one in enumerate(self.logs)]
        self.enough = enough
        self.looks = self.answers = 0
        self.faults: list[Exception] = []
        self.scheduler = ManualScheduler()
        self.fetch = WaitingFetch(self.ready, self.answer, self.faults.append)
        self.fetch.wait(self.partitions, self.scheduler, WAIT_S)

    def ready(self) -> bool:
        self.looks += 1
        return sum(one.log.high_watermark for one in self.logs) >= self.enough

    def answer(self) -> None:
        self.answers += 1

    def grow(self, *partitions: int) -> None:
        for index in partitions:
            self.logs[index].put(b"x")

    def is_over(self) -> bool:
        return not self.scheduler.running and not any(one.waiters for one in self.partitions)


@proves("T5")
@pytest.mark.parametrize("partitions", [1, MANY])
def test_the_first_that_is_enough_is_answered_at_once(tmp_path: Path, partitions: int) -> None:
    waiting = Waiting(tmp_path, partitions, enough=1)
    waiting.grow(0)
    assert (waiting.looks, waiting.answers) == (1, 1)
    assert waiting.is_over()


@proves("T5")
def test_a_fetch_of_many_partitions_does_not_look_at_all_for_each_that_grows(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path, MANY, enough=MANY)
    waiting.grow(*range(MANY))
    assert waiting.looks == 1
    waiting.scheduler.pass_time(WAIT_S / 10)
    assert (waiting.looks, waiting.answers) == (2, 1), "it looked again after its rest, and had enough"
    assert waiting.is_over()


@proves("T5")
def test_who_rests_and_is_not_woken_looks_no_more_and_is_answered_in_time(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path, MANY, enough=MANY)
    waiting.grow(0)
    waiting.scheduler.pass_time(WAIT_S / 10)
    assert (waiting.looks, waiting.answers) == (1, 0)
    waiting.grow(1)
    assert waiting.looks == 2
    waiting.scheduler.pass_time(WAIT_S)
    assert waiting.answers == 1
    assert waiting.is_over() and not waiting.faults


@proves("T5")
def test_who_is_gone_while_it_rests_leaves_nothing(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path, MANY, enough=MANY)
    waiting.grow(0, 1)
    waiting.fetch.cancel()
    assert waiting.is_over()
    waiting.scheduler.pass_time(WAIT_S)
    assert (waiting.looks, waiting.answers) == (1, 0)
