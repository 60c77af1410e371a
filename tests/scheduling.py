"""Which worker runs which file: the tests of a file in one worker, and as few workers as possible with a Spark session.

A file is handed out whole, so that what its tests share is set up once. A Spark session costs as much CPU, until it is
warm, as two hundred brokers. So the files that need one go to the first worker, one after the other, and the others
take them only when nothing else is left. Long files come first (`order.py`).
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
ASKS_FOR_SPARK = re.compile(r"\b((spark|tidelog_spark|tidelog_pipeline)\b[,:)]|host: Host\b|running_spark\()")


class ByFile(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        best = preferred(self.workqueue, node.gateway.id == SPARK_WORKER)
        self.workqueue.move_to_end(best, last=False)
        super()._assign_work_unit(node)


def preferred(files: Iterable[str], on_spark: bool) -> str:
    """The next file for a worker: the first of its kind, or the first of all where none of its kind is left."""
    waiting = list(files)
    return next((file for file in waiting if needs_spark(file) is on_spark), waiting[0])


@cache
def needs_spark(file: str) -> bool:
    return ASKS_FOR_SPARK.search((ROOT / file).read_text()) is not None


class Scheduling:
    """The plugin of the process that hands tests out."""

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> ByFile:
        config.option.loadscopereorder = False
        return ByFile(config, log)
