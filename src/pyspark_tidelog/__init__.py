"""Spark looks through packages of such a name for a `DefaultSource`, and so knows `format("tidelog")` without a word.

An error here would hide the sources of all other packages. So where PySpark is too old, the source is there, and says
why it will not do when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSource

from tidelog.errors import ConfigError
from tidelog.spark.registration import FORMAT, refusal

REFUSAL = refusal(pyspark.__version__)


class RefusedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Any) -> None:
        raise ConfigError(str(REFUSAL))


if TYPE_CHECKING or REFUSAL is None:
    from tidelog.spark.source import TidelogSource as DefaultSource
else:
    DefaultSource = RefusedSource

__all__ = ["DefaultSource"]
