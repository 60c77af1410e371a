"""One durable log, and everything derived from it.

The public names, and nothing else. Importing the package does nothing and loads no room: each name is loaded on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.door import door

if TYPE_CHECKING:
    from tidelog.broker.embedded import Broker as Broker
    from tidelog.capture.running import capture as capture
    from tidelog.errors import TidelogError as TidelogError
    from tidelog.pipelines.app import App as App
    from tidelog.spark.session import spark_session as spark_session
    from tidelog.sql.session import sql as sql
    from tidelog.work.job import Job as Job
    from tidelog.work.job import Reject as Reject
    from tidelog.work.outputs import Result as Result
    from tidelog.work.running import worker as worker
    from tidelog.work.sending import JobSender as JobSender
    from tidelog.work.sending import send as send

__version__ = "0.1.0"
__all__ = [
    "App",
    "Broker",
    "Job",
    "JobSender",
    "Reject",
    "Result",
    "TidelogError",
    "__version__",
    "capture",
    "send",
    "spark_session",
    "sql",
    "worker",
]

HOMES = {
    "App": "tidelog.pipelines.app",
    "Broker": "tidelog.broker.embedded",
    "TidelogError": "tidelog.errors",
    "capture": "tidelog.capture.running",
    "spark_session": "tidelog.spark.session",
    "sql": "tidelog.sql.session",
    "Job": "tidelog.work.job",
    "JobSender": "tidelog.work.sending",
    "Reject": "tidelog.work.job",
    "Result": "tidelog.work.outputs",
    "send": "tidelog.work.sending",
    "worker": "tidelog.work.running",
}

__getattr__, __dir__ = door(__name__, HOMES)
