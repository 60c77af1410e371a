"""Which worker runs which file: the tests of a file in one worker, and as few workers as possible with a Spark session.

A file is handed out whole, so that what its tests share is set up once. A Spark session costs as much CPU, until it is
warm, as two hundred brokers. So the files that need one go to the first worker, one after the other, and the others
take them only when nothing else is left. Long files come first (`order.py`).

Examples and pages share nothing, and wait more than they work: each is handed out alone, to a worker of the kind that
the program on it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).parent.parent
SPARK_WORKER = "gw0"
# A parameter of a test or of a fixture: the session itself, the driver of pipelines on it, or the host of programs.
ASKS_FOR_SPARK = re.compile(
    r"\b(spark|tidelog_spark|tidelog_pipeline): [A-Z]|\bhost: Host\b|\brunning_spark\(\)|usefixtures\(\"spark\""
)
PROGRAM_ON_SPARK = re.compile(r"\btidelog\.spark_session\(|\btidelog_pipeline\b")
# Files whose tests are handed out alone, and the program of the test that has its name in brackets.
APART = {"tests/test_examples.py": "examples/{}", "tests/test_guide.py": "docs/guide/{}.md"}


class ByFile(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        best = preferred(self.workqueue, node.gateway.id == SPARK_WORKER)
        self.workqueue.move_to_end(best, last=False)
        super()._assign_work_unit(node)


def scope_of(test: str) -> str:
    """What is handed out together: the file of the test, or the test alone."""
    file = test.partition("::")[0]
    return test if file in APART else file


def preferred(scopes: Iterable[str], on_spark: bool) -> str:
    """The next one for a worker: the first of its kind, or the first of all where none of its kind is left."""
    waiting = list(scopes)
    return next((scope for scope in waiting if needs_spark(scope) is on_spark), waiting[0])


@cache
def needs_spark(scope: str) -> bool:
    file, _, test = scope.partition("::")
    if file not in APART:
        return ASKS_FOR_SPARK.search((ROOT / file).read_text()) is not None
    program = ROOT / APART[file].format(test.partition("[")[2].removesuffix("]"))
    return program.is_file() and PROGRAM_ON_SPARK.search(program.read_text()) is not None


class Scheduling:
    """The plugin of the process that hands tests out."""

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> ByFile:
        config.option.loadscopereorder = False
        return ByFile(config, log)
