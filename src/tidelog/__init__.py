"""One durable log, and everything derived from it.

The public names, and nothing else. Importing the package does nothing and loads no room: each name is loaded on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.broker.embedded import Broker as Broker
    from tidelog.errors import TidelogError as TidelogError
    from tidelog.pipelines.app import App as App
    from tidelog.spark.session import spark_session as spark_session
    from tidelog.sql.session import sql as sql

__version__ = "0.1.0"
__all__ = ["App", "Broker", "TidelogError", "__version__", "spark_session", "sql"]

_HOME = {
    "App": "tidelog.pipelines.app",
    "Broker": "tidelog.broker.embedded",
    "TidelogError": "tidelog.errors",
    "spark_session": "tidelog.spark.session",
    "sql": "tidelog.sql.session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tidelog' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
