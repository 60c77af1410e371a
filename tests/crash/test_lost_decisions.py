"""Decisions that the disk refuses have never been; those around them stand, whoever was first to the disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path

from crash.seeds import run_seeds
from proving import proves
from tidelog.broker.decision import Decision, NewRecord
from tidelog.broker.internal import InternalTopic, TopicFold
from tidelog.errors import OfflineError, StorageError
from tidelog.log.commit import Committer
from tidelog.log.log import Log
from tidelog.log.settings import LogSettings
from tidelog.testing.disk import SimulatedDisk

NOW = 1_700_000_000_000
FEW, STEPS = 60, 60
State = dict[bytes, bytes | None]


def apply(state: State, key: bytes, value: bytes | None) -> None:
    state[key] = value


def to_records(state: State) -> list[NewRecord]:
    return [NewRecord(key, value) for key, value in state.items()]


class Client:
    """Asked for one decision; `answer` is what it was told."""

    def __init__(self, records: list[NewRecord]) -> None:
        self.records = records
        self.answer: str | None = None

    def reply(self, answer: str) -> None:
        self.answer = answer

    def drop(self) -> None:
        self.answer = "dropped"


class Topic:
    """An internal topic whose committer works when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clients: list[Client] = []
        self.keys = 0
        self.fatal = False
        self.open()

    def open(self) -> None:
        self.disk = SimulatedDisk(self.folder)
        self.committer = Committer(self.disk, lambda: None, threads=False)
        self.topic = InternalTopic("__tidelog.test", TopicFold(dict, apply, to_records), self.lost)
        settings = LogSettings(segment_bytes=7000)
        log = Log.open(f"{self.disk.folder}/partition", self.disk, settings, self.committer)
        self.topic.recover(log, str(self.disk.folder), self.disk)

    def lost(self, error: StorageError) -> None:
        self.fatal = isinstance(error, OfflineError)
        if not self.fatal:
            self.topic.refold()

    def decide(self, size: int = 1) -> Client:
        records = [NewRecord(b"%d" % (self.keys + number), b"v" * 100) for number in range(size)]
        self.keys += size
        client = Client(records)
        self.clients.append(client)
        self.topic.commit(Decision(records, [(client, "done")]), NOW)
        return client

    def refuse_next_write(self) -> None:
        self.disk.fail("write", OSError(ENOSPC, "no space left on device"), name=".log")

    def state(self) -> State:
        state: State = self.topic.state
        return state

    def check(self) -> None:
        """The state has what is acked and what may still be, and nothing that was dropped.

        After a failed sync nobody knows: then it has it as a whole, or not at all.
        """
        for client in self.clients:
            there = [record.key in self.state() for record in client.records]
            expected = (all(there), not any(there))[client.answer == "dropped"]
            assert expected or (self.fatal and all(there)), client.answer


@proves("T6")
def test_a_decision_that_is_refused_is_taken_back_while_the_one_before_it_is_being_synced(tmp_path: Path) -> None:
    test = Topic(tmp_path)
    first = test.decide()
    test.committer.settle()
    second = test.decide()
    test.committer.write_round()
    test.refuse_next_write()
    third = test.decide()
    test.committer.write_round()
    test.committer.drain()
    assert (first.answer, second.answer, third.answer) == ("done", None, "dropped")
    test.check()
    test.committer.settle()
    assert second.answer == "done"
    test.check()
    test.open()
    test.check()


def snapshot_now(topic: InternalTopic) -> None:
    def at_once(work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        done(work(), None)

    def failed(error: BaseException) -> None:
        raise error

    topic.snapshot(at_once, failed)


@proves("T6")
def test_a_snapshot_stands_for_no_decision_that_is_not_in_it(tmp_path: Path) -> None:
    test = Topic(tmp_path)
    test.decide()
    test.committer.settle()
    unsynced = test.decide()
    snapshot_now(test.topic)
    test.committer.settle()
    assert unsynced.answer == "done"
    test.open()
    test.check()


def decide_at_random(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    test = Topic(folder)
    for _ in range(STEPS):
        if test.fatal:  # a broker would have ended
            break
        choice = rng.random()
        if choice < 0.4:
            test.decide(rng.randint(1, 3))
        elif choice < 0.6:
            test.committer.write_round()
        elif choice < 0.7:
            test.committer.sync_round()
        elif choice < 0.75:
            test.committer.pool.wait()
        elif choice < 0.83:
            test.refuse_next_write()
        elif choice < 0.85:
            snapshot_now(test.topic)
        else:
            test.committer.drain()
            if not test.fatal:
                test.check()
    test.committer.settle()
    assert all(client.answer is not None for client in test.clients)
    test.open()
    test.check()


@proves("T6")
def test_what_is_acked_is_in_the_state_and_what_is_refused_is_not_in_any_order_of_events(tmp_path: Path) -> None:
    run_seeds(tmp_path, FEW, decide_at_random)
