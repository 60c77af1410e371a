"""One durable log, and everything derived from it.

The public names, and nothing else. Importing the package does nothing and loads no room: each name is loaded on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.broker.embedded import Broker as Broker
    from tidelog.errors import TidelogError as TidelogError
    from tidelog.spark.session import spark_session as spark_session

__version__ = "0.1.0"
__all__ = ["Broker", "TidelogError", "__version__", "spark_session"]

_HOME = {
    "Broker": "tidelog.broker.embedded",
    "TidelogError": "tidelog.errors",
    "spark_session": "tidelog.spark.session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tidelog' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
