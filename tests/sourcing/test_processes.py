"""The table of processes against a plain dict, whatever is hot, cold or in a file; timers against looking at all."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.sourcing.processes import Process, Processes

KEYS, NAMES, TIMES = st.sampled_from("abcdefg"), st.sampled_from("xy"), st.integers(0, 30)
SET = st.tuples(st.just("set"), KEYS, NAMES, TIMES)
CLEAR = st.tuples(st.just("clear"), KEYS, NAMES)
STATE = st.tuples(st.just("state"), KEYS, st.integers(0, 3))
STEPS = st.lists(SET | CLEAR | STATE | st.tuples(st.just("commit")) | st.tuples(st.just("time"), st.integers(0, 8)))


def encode(key: str, process: Process) -> bytes:
    return json.dumps([process.state, process.timers]).encode()


def decode(key: str, value: bytes) -> Process:
    return Process(*json.loads(value))


def is_over(process: Process) -> bool:
    return process.state == 0 and not process.timers


def opened(folder: str, bound: int) -> Processes:
    return Processes(lambda: Process(0, {}), encode, decode, bound=bound, folder=folder)


@proves("E3")
@given(STEPS, st.integers(0, 4), st.booleans())
def test_processes_and_timers_are_those_of_a_plain_table(steps: list[Any], bound: int, again: bool) -> None:
    with TemporaryDirectory() as folder:
        table, plain, log, now = opened(folder, bound), dict[str, list[Any]](), dict[str, bytes | None](), 0
        for what, *more in steps:
            if what == "commit":
                log |= dict(table.values(is_over))
                table.trim(is_over)
                assert table.hot <= bound
                if again:  # a crash: the next one reads what was committed
                    table.close()
                    table = opened(folder, bound)
                    table.load(log.items())
                    table.load_timers()
                    plain = committed(log)
            elif what == "time":
                now += more[0]
                due = sorted(
                    (at, key, name) for key, (_, timers) in plain.items() for name, at in timers.items() if at <= now
                )
                assert table.run_out(now, 1000) == due
                for _, key, name in due:
                    process = table.find(key)
                    del process.timers[name]
                    del plain[key][1][name]
                    table.keep(key, process, process.timers)
            else:
                change(table, plain, what, *more)
            if not again:
                for key in plain:
                    found = table.find(key)
                    assert [found.state, found.timers] == plain[key]
        table.close()


def committed(log: dict[str, bytes | None]) -> dict[str, list[Any]]:
    found = {key: decode(key, value) for key, value in log.items() if value is not None}
    return {key: [one.state, dict(one.timers)] for key, one in found.items()}


def change(table: Processes, plain: dict[str, list[Any]], what: str, key: str, *more: Any) -> None:
    process = table.find(key)
    before = dict(process.timers)
    timers = plain.setdefault(key, [0, {}])[1]
    if what == "set":
        name, at = more
        process.timers[name] = timers[name] = at
    elif what == "clear":
        process.timers.pop(more[0], None)
        timers.pop(more[0], None)
    else:
        process.state = plain[key][0] = more[0]
    table.keep(key, process, before)


@proves("E3")
def test_a_timer_that_is_set_again_and_again_costs_one_entry(tmp_path: Path) -> None:
    table = opened(str(tmp_path), 10)
    for at in range(1000):
        process = table.find("a")
        before = dict(process.timers)
        process.timers["x"] = at
        table.keep("a", process, before)
    assert table.timers == 1
    assert table.run_out(998, 10) == []
    assert table.run_out(999, 10) == [(999, "a", "x")]


@proves("E3")
def test_many_processes_take_no_more_memory_than_the_bound(tmp_path: Path) -> None:
    table = opened(str(tmp_path), 100)
    for number in range(5_000):
        table.keep(f"p{number}", Process(number, {"x": number}), {})
        if number % 50 == 49:
            table.trim(is_over)
            assert table.hot <= 100
    assert len(table) == 4_900
    assert [table.find(f"p{number}").state for number in (0, 1, 4_000, 4_999)] == [0, 1, 4_000, 4_999]
    assert len(table.run_out(10_000, 2_000)) == 2_000
    table.close()
