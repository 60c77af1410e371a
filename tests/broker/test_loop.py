"""The loop: order, timers, threads, and faults that stop nobody else."""

from __future__ import annotations

import os
import select
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker.loop import CANCELLED_MAX, Loop


@pytest.fixture
def faults():
    return []


@pytest.fixture
def loop(faults):
    made = Loop(faults.append)
    yield made
    made.close()


@proves("T2")
def test_actions_run_in_the_order_they_were_given(loop):
    done = []
    for number in range(5):
        loop.call_soon(lambda number=number: done.append(number))
    loop.call_soon(loop.stop)
    loop.run()
    assert done == [0, 1, 2, 3, 4]


@proves("T2")
def test_timers_run_by_time_then_by_age_and_not_when_cancelled(loop):
    done = []
    loop.call_later(0.02, lambda: done.append("late"))
    loop.call_later(0.0, lambda: done.append("first"))
    loop.call_later(0.0, lambda: done.append("second"))
    loop.call_later(0.01, lambda: done.append("cancelled")).cancel()
    loop.call_later(0.03, loop.stop)
    loop.run()
    assert done == ["first", "second", "late"]


@proves("T2")
def test_cancelled_timers_do_not_pile_up(loop):
    for _ in range(10 * CANCELLED_MAX):
        loop.call_later(3600, lambda: None).cancel()
    assert len(loop._timers) <= 2 * CANCELLED_MAX


@proves("T2")
def test_a_timer_rings_once_also_when_others_are_cancelled_as_it_rings(loop):
    rung = []
    others = [loop.call_later(3600, lambda: None) for _ in range(CANCELLED_MAX)]

    def cancel_all() -> None:
        for timer in [due, *others]:
            timer.cancel()

    due = loop.call_later(0, cancel_all)
    loop.call_later(0, lambda: rung.append("once"))
    loop.call_later(0.02, loop.stop)
    loop.run()
    assert rung == ["once"]


@proves("T2")
def test_a_timer_that_has_rung_is_not_counted_as_cancelled(loop):
    def ring(count: int) -> None:
        timer = loop.call_later(0, lambda: (timer.cancel(), ring(count - 1) if count else loop.stop()))

    ring(100)
    loop.run()
    assert loop._cancelled == 0


@proves("T2")
def test_no_wake_up_from_another_thread_is_ever_lost(loop):
    count = 20_000
    done = []

    def other() -> None:
        for number in range(count):
            loop.call_soon_threadsafe(lambda number=number: done.append(number))

    threads = [threading.Thread(target=other) for _ in range(2)]
    for thread in threads:
        thread.start()
    loop.call_later(20, loop.stop)

    def look() -> None:
        # Looked at by the actions themselves: a lost wake-up would leave the loop asleep until the 20 s are over.
        if len(done) == 2 * count:
            loop.stop()

    original = loop._do
    loop._do = lambda action: (original(action), look())  # type: ignore[method-assign]
    loop.run()
    assert len(done) == 2 * count


@proves("T2")
def test_a_fault_in_one_action_does_not_stop_the_next(loop, faults):
    done = []
    loop.call_soon(lambda: 1 / 0)
    loop.call_soon(lambda: done.append("next"))
    loop.call_soon(loop.stop)
    loop.run()
    assert done == ["next"]
    assert isinstance(faults[0], ZeroDivisionError)


@proves("T2")
def test_work_in_a_thread_comes_back_with_its_result_or_its_error(loop):
    results = []

    def done(result: object, error: BaseException | None) -> None:
        results.append((result, type(error)))
        if len(results) == 2:
            loop.stop()

    loop.in_thread(lambda: 42, done)
    loop.in_thread(lambda: 1 / 0, done)
    loop.run()
    assert sorted(results, key=str) == sorted([(42, type(None)), (None, ZeroDivisionError)], key=str)


@proves("T2")
@given(st.lists(st.sampled_from(["reader on", "reader off", "writer on", "writer off"]), max_size=12))
def test_watching_a_descriptor_is_the_sum_of_what_was_asked_for(steps):
    loop = Loop(lambda error: None)
    reader, writer = os.pipe()
    wanted = {"reader": False, "writer": False}
    for step in steps:
        kind, _, state = step.partition(" ")
        wanted[kind] = state == "on"
        if state == "on":
            getattr(loop, f"add_{kind}")(writer, lambda: None)
        else:
            getattr(loop, f"remove_{kind}")(writer)
    watched = loop._watched.get(writer)
    assert (watched is not None) == any(wanted.values())
    if watched is not None:
        assert [action is not None for action in watched] == [wanted["reader"], wanted["writer"]]
    loop.close()
    os.close(reader)
    os.close(writer)


@proves("T2")
@pytest.mark.parametrize("kind", ["epoll", "poll"])
def test_a_pipe_is_read_and_written_when_it_can_be_and_its_end_is_seen(monkeypatch, kind):
    if kind == "poll":
        monkeypatch.delattr(select, "epoll", raising=False)
    loop = Loop(lambda error: pytest.fail(str(error)))
    reader, writer = os.pipe()
    seen = []

    def write() -> None:
        seen.append("written")
        os.write(writer, b"x")
        loop.remove_writer(writer)
        os.close(writer)

    def read() -> None:
        seen.append(os.read(reader, 10))
        if seen[-1] == b"":
            loop.remove_reader(reader)
            loop.stop()

    loop.add_reader(reader, read)
    loop.add_writer(writer, write)
    loop.call_later(5.0, loop.stop)
    loop.run()
    assert seen == ["written", b"x", b""]
    loop.close()
    os.close(reader)
