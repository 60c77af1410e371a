"""The Apache Kafka of a run, for all of its processes (`run_servers.py`): tests take names of their own on it.

Its settings are those of the contract in `against/`: no test that could do with Kafka's own finds the difference.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from against.apache_kafka import ApacheKafka, is_serving, kafka_jars
from against.brokers import BROKER_SETTINGS
from run_servers import Facts, share


class SharedKafka(NamedTuple):
    """What a test may know of it. It cannot be stopped: others use it."""

    port: int
    jars: Path

    @property
    def name(self) -> str:
        return ApacheKafka.name

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


class KeptKafka(ApacheKafka):
    def facts(self) -> Facts:
        return {"port": self.port}


def shared_kafka() -> SharedKafka:
    jars = kafka_jars()
    facts = share("kafka", f"{__name__}:start", lambda found: is_serving(found["port"]))
    return SharedKafka(facts["port"], jars)


def start(folder: Path) -> KeptKafka:
    kafka = KeptKafka(folder, BROKER_SETTINGS)
    kafka.start()
    return kafka
