"""Spark's Python workers die, fail or stand still where a test has planned it.

`install` is called where they start (`startup/sitecustomize.py`). The plan is made of small files in the folder that
TIDELOG_TEST_PLAN names:

    limit           how many bytes a task may put into its message
    road            files or topic: where it has to put the others
    fail            a task's number and how often it is to fail, when another has staged its rows
    twin            a task's number: its rows are staged twice, as by a speculative twin whose message Spark drops
    step            N: the process that commits kills itself at step N of the commit, and writes N + 1 before that. Each
                    request that changes something has two steps, before it goes out and when its answer is there;
                    `survived` when it came to the end
    stop            an API's key: the process that commits stops itself before such a request, once, and says `stopped`

What happened is written beside it: `staged-TASK` has a line for each attempt, `deaths` one for each death.
"""

from __future__ import annotations

import copy
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from client.dying import WatchedTransport
from tidelog.client import cluster as clusters
from tidelog.client.address import Address
from tidelog.client.transport import Transport, plain
from tidelog.spark import commit as committing
from tidelog.spark import staging
from tidelog.wire.api import ApiKey

FOLDER = Path(os.environ.get("TIDELOG_TEST_PLAN", "/nowhere"))
PATIENCE_S = 300.0
LOOK_S = 0.01
CHANGES = (
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.END_TXN,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.PRODUCE,
    ApiKey.TXN_OFFSET_COMMIT,
)


def planned(name: str) -> str | None:
    try:
        return (FOLDER / name).read_text().strip()
    except FileNotFoundError:
        return None


def note(name: str, text: str) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(f"{text}\n")


def wait_for(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not seen():
        assert time.monotonic() < deadline, "what was planned never came"
        time.sleep(LOOK_S)


class Watch:
    """A `Dial` that looks at requests while a commit is under way."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.stop: int | None = None

    def __call__(self, address: Address, timeout_s: float) -> Transport:
        return WatchedTransport(plain(address, timeout_s), self)

    def before(self, api_key: int) -> None:
        if api_key == self.stop:
            self.stop = None
            (FOLDER / "stop").unlink()
            note("stopped", str(api_key))
            os.kill(os.getpid(), signal.SIGSTOP)
        self._take_step(api_key, lambda: None, "before")

    def after(self, api_key: int, await_answer: Callable[[], None]) -> None:
        self._take_step(api_key, await_answer, "after")

    def _take_step(self, api_key: int, await_answer: Callable[[], None], when: str) -> None:
        if self.step is None or api_key not in CHANGES:
            return
        self.step -= 1
        if self.step == 0:
            await_answer()
            number = int(planned("step") or 0)
            (FOLDER / "step").write_text(str(number + 1))
            note("deaths", f"{when} {api_key}")
            os.kill(os.getpid(), signal.SIGKILL)


watch = Watch()
commit, stage = committing.commit, staging.stage


def mortal_commit(cluster: Any, writing: Any, stages: Any, open_cluster: Any, kept: Any = None) -> bool:
    number = planned("step")
    due = number is not None and number.isdigit()
    watch.step = int(number or 0) if due else None
    stop = planned("stop")
    watch.stop = None if stop is None else int(stop)
    try:
        wrote = commit(cluster, writing, stages, open_cluster, kept)
    finally:
        watch.step = watch.stop = None
    if due:
        (FOLDER / "step").write_text("survived")
    return wrote


def mortal_stage(cluster: Any, batches: Iterable[Any], *, task: int = 0, **more: Any) -> staging.Stage:
    limit, rows = planned("limit"), list(batches)
    if limit is not None:
        more["limit"] = int(limit)
    road = planned("road")
    if road == "topic":
        more["near"] = None
    twins = 2 if planned("twin") == str(task) else 1
    for _ in range(twins):
        done = stage(cluster, copy.deepcopy(rows), task=task, **more)
        assert road is None or not rows or (done.file is not None) == (road == "files")
        fail_task(task)
        note(f"staged-{task}", str(os.getpid()))
    return done


def fail_task(task: int) -> None:
    number, _, times = (planned("fail") or "").partition(" ")
    if number == str(task) and len(lines("failures")) < int(times):
        wait_for(lambda: any(path.name != f"staged-{task}" for path in FOLDER.glob("staged-*")))
        note("failures", str(os.getpid()))
        raise RuntimeError("failed on purpose")


def lines(name: str) -> Sequence[str]:
    return (planned(name) or "").split()


def install() -> None:
    """In a daemon, before it forks its workers."""
    committing.commit = mortal_commit
    staging.stage = mortal_stage  # type: ignore[assignment]
    defaults = clusters.Cluster.__init__.__kwdefaults__
    assert defaults is not None
    defaults["dial"] = watch
