"""Producer ids: never the same one twice, whatever happens between two of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker import topics
from tidelog.broker.decision import NewRecord
from tidelog.broker.producer_ids import BLOCK_SIZE, decide_allocate, give


class Shell:
    """A log of which a crash takes what is not synced, and a broker around it that allocates."""

    def __init__(self) -> None:
        self.synced: list[NewRecord] = []
        self.unsynced: list[NewRecord] = []
        self.replied: list[int] = []
        self.waiting: list[int] = []
        self.state = topics.fresh()

    def allocate(self) -> None:
        allocated = decide_allocate(self.state.producer_ids)
        for record in allocated.records:
            self.unsynced.append(record)
            topics.apply(self.state, record.key, record.value)
        give(self.state.producer_ids, allocated)
        self.waiting.append(allocated.producer_id)

    def sync(self) -> None:
        self.synced += self.unsynced
        self.replied += self.waiting
        self.unsynced, self.waiting = [], []

    def crash(self) -> None:
        self.unsynced, self.waiting = [], []
        self.state = topics.fresh()
        for record in self.synced:
            topics.apply(self.state, record.key, record.value)


@proves("T1")
@given(st.lists(st.sampled_from(["allocate"] * 3 + ["many", "sync", "crash"]), max_size=40))
def test_no_id_is_given_twice_also_over_crashes(steps: list[str]) -> None:
    shell = Shell()
    for step in steps:
        if step == "many":
            for _ in range(BLOCK_SIZE - 1):
                shell.allocate()
        else:
            getattr(shell, step)()
    shell.sync()
    assert len(set(shell.replied)) == len(shell.replied)


@proves("T1")
def test_a_block_is_reserved_once_and_used_up() -> None:
    shell = Shell()
    for _ in range(BLOCK_SIZE + 1):
        shell.allocate()
    assert shell.waiting == list(range(BLOCK_SIZE + 1))
    assert [record.value for record in shell.unsynced] == [b'{"reserved":1000}', b'{"reserved":2000}']


@proves("T1")
def test_what_was_left_of_a_block_is_not_used_after_a_restart() -> None:
    shell = Shell()
    shell.allocate()
    shell.sync()
    shell.crash()
    shell.allocate()
    assert shell.waiting == [BLOCK_SIZE]
