"""The small pool of threads: what is done, by whom, and what happens to faults."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from proving import proves
from tidelog.log.pool import Pool


def no_fault(error: BaseException) -> None:
    raise AssertionError from error


@proves("T1")
def test_every_item_is_done_once_and_by_several_threads() -> None:
    pool = Pool(4, "test", no_fault)
    together = threading.Barrier(3, timeout=180)
    done: SimpleQueue[int] = SimpleQueue()

    def work(item: int) -> None:
        if item < 3:
            together.wait()  # passes only if three threads are in here at once
        done.put(item)

    pool.each(work, range(50))
    assert sorted(done.get_nowait() for _ in range(50)) == list(range(50))
    pool.stop()


@proves("T1")
def test_threads_that_are_busy_elsewhere_are_not_waited_for() -> None:
    pool = Pool(2, "test", no_fault)
    free = threading.Event()
    for _ in range(2):
        pool.submit(lambda: free.wait(180) or None)
    done: list[int] = []
    pool.each(done.append, range(5))
    assert done == [0, 1, 2, 3, 4]
    assert pool.busy
    free.set()
    pool.wait()
    assert not pool.busy
    pool.stop()


@proves("T1")
def test_a_fault_is_told_and_the_thread_lives_on() -> None:
    faults: SimpleQueue[BaseException] = SimpleQueue()
    pool = Pool(1, "test", faults.put)
    done = threading.Event()
    pool.submit(lambda: [].pop())
    pool.submit(done.set)
    assert done.wait(180)
    assert isinstance(faults.get(timeout=180), IndexError)
    pool.stop()


@proves("T1")
def test_without_threads_the_one_who_waits_does_the_work() -> None:
    pool = Pool(0, "test", no_fault)
    done: list[int] = []
    for number in range(3):
        pool.submit(lambda number=number: done.append(number))
    assert done == []
    pool.wait()
    assert done == [0, 1, 2]
    pool.each(done.append, [3, 4])
    assert done == [0, 1, 2, 3, 4]
