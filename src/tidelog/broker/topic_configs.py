"""What the broker works with for each of its topics: resolved on first use, until settings change.

Whatever a broker is told about its topics, its own are kept on disk and cut by nobody but `internal`.
"""

from __future__ import annotations

from tidelog.broker.config_changes import broker_values
from tidelog.broker.settings.topic_config import TopicConfig, topic_config
from tidelog.broker.status import STATUS_CONFIG
from tidelog.broker.topics import STATUS_TOPIC, WARNINGS_TOPIC, Topic, Topics
from tidelog.config import BrokerConfig
from tidelog.log.settings import FOREVER, LogSettings

INTERNAL_CONFIG = TopicConfig(
    LogSettings(segment_bytes=64 << 20, retention_ms=FOREVER), 1 << 30, FOREVER, FOREVER, compact=False
)
WARNINGS_CONFIG = TopicConfig(
    LogSettings(segment_bytes=1 << 20, retention_ms=FOREVER, compact=True), 1 << 20, FOREVER, FOREVER, compact=True
)
OWN_CONFIGS = {STATUS_TOPIC.name: STATUS_CONFIG, WARNINGS_TOPIC.name: WARNINGS_CONFIG}


class TopicConfigs:
    def __init__(self) -> None:
        self._resolved: dict[str, TopicConfig] = {}

    def of(self, topic: Topic, topics: Topics, config: BrokerConfig) -> TopicConfig:
        if topic.own:
            return OWN_CONFIGS.get(topic.name, INTERNAL_CONFIG)
        found = self._resolved.get(topic.name)
        if found is None:
            found = self._resolved[topic.name] = topic_config(topic.configs, broker_values(topics, config))
        return found

    def forget(self, topic: str) -> None:
        self._resolved.pop(topic, None)

    def clear(self) -> None:
        self._resolved.clear()
