"""For the tests of programs that use Kafka or Spark, and for our own: a pytest plugin, a broker to test with, a driver
that runs pipelines one step at a time, a breakable disk.

This room starts real brokers and a real Spark and never fakes one. It may import `broker`, `client`, `spark` and
`pipelines`; nothing imports it. Read `plugin.py` first, for pipelines `pipeline.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.door import door

if TYPE_CHECKING:
    from tidelog.testing.broker import TestBroker as TestBroker
    from tidelog.testing.disk import PowerCut as PowerCut
    from tidelog.testing.disk import SimulatedDisk as SimulatedDisk
    from tidelog.testing.pipeline import PipelineDriver as PipelineDriver
    from tidelog.testing.pipeline_app import AppRun as AppRun
    from tidelog.testing.pipeline_app import assert_rows as assert_rows
    from tidelog.testing.pipeline_times import at as at

HOMES = {
    "TestBroker": "tidelog.testing.broker",
    "PowerCut": "tidelog.testing.disk",
    "SimulatedDisk": "tidelog.testing.disk",
    "PipelineDriver": "tidelog.testing.pipeline",
    "AppRun": "tidelog.testing.pipeline_app",
    "assert_rows": "tidelog.testing.pipeline_app",
    "at": "tidelog.testing.pipeline_times",
}

__getattr__, __dir__ = door(__name__, HOMES)
