"""Spark's Python workers die, fail or stand still where a test has planned it.

`install` is called where they start (`startup/sitecustomize.py`). The plan is made of small files in the folder that
TIDELOG_TEST_PLAN names:

    limit           how many bytes a task may put into its message
    road            files or topic: where it has to put the others
    fail            a task's number and how often it is to fail, when another has staged its rows
    twin            a task's number: its rows are staged twice, as by a speculative twin whose message Spark drops
    slow            a task's number: its first attempt does not end before another has staged the same rows
    points          lines such as `before 26` or `after 26`: the process that commits kills itself before a request of
                    this API goes out, or when its answer is there; then the next line counts
    stop            an API's key: the process that commits stops itself before such a request, once, and says `stopped`

What happened is written beside it: `staged-TASK` has a line for each attempt, `deaths` one for each death, and `tasks`
one for each commit, with the number of tasks whose rows it had.
"""

from __future__ import annotations

import copy
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from client.dying import WatchedTransport
from tidelog.client import cluster as clusters
from tidelog.client.address import Address
from tidelog.client.transport import Transport, plain
from tidelog.spark import commit as committing
from tidelog.spark import staging

FOLDER = Path(os.environ.get("TIDELOG_TEST_PLAN", "/nowhere"))
PATIENCE_S = 1500.0
LOOK_S = 0.01


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
        self.point: str | None = None
        self.stop: str | None = None

    def __call__(self, address: Address, timeout_s: float) -> Transport:
        return WatchedTransport(plain(address, timeout_s), self)

    def before(self, api_key: int) -> None:
        if str(api_key) == self.stop:
            self.stop = None
            (FOLDER / "stop").unlink()
            note("stopped", str(api_key))
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.point == f"before {api_key}":
            die(self.point)

    def after(self, api_key: int, await_answer: Callable[[], None]) -> None:
        if self.point == f"after {api_key}":
            await_answer()
            die(self.point)


def die(point: str) -> None:
    (FOLDER / "points").write_text("\n".join((planned("points") or "").splitlines()[1:]))
    note("deaths", point)
    os.kill(os.getpid(), signal.SIGKILL)


watch = Watch()
commit, stage = committing.commit, staging.stage


def mortal_commit(cluster: Any, writing: Any, stages: Any, open_cluster: Any, kept: Any = None) -> bool:
    watch.point = next(iter((planned("points") or "").splitlines()), None)
    watch.stop = planned("stop")
    note("tasks", str(len(stages)))
    try:
        return commit(cluster, writing, stages, open_cluster, kept)
    finally:
        watch.point = watch.stop = None


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
    if planned("slow") == str(task) and TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]
        wait_for(lambda: len(lines(f"staged-{task}")) > 1)
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
