"""CreateTopics: new topics, each with its partitions and settings.

    v2    validate only, error messages, throttle time
    v4    -1 partitions or replicas is the default, without assignments too
    v5    flexible; the reply has the new topic's partitions, replicas and settings
    v6    may be throttled; never is              v7    the reply has the new topic's id

The reply leaves when the topics are synced. A timeout is not needed: creating waits for nobody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.call import Refusable
from tidelog.broker.config_changes import broker_values
from tidelog.broker.decision import Decision
from tidelog.broker.settings.describing import BrokerValues, describe_topic
from tidelog.broker.settings.topic import TOPIC
from tidelog.broker.topic_changes import Creation, Outcome, RequestFault, decide_create
from tidelog.broker.topics import TOPICS_TOPIC, Topic, random_id
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

ONE_REPLICA = 1
CONFIGS_SINCE = 5
UNWRITTEN = "the broker's disk is full or failed, as its log says; free some space, then try again"


def handle(broker: Broker, request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse | None:
    decided = decide_create(broker.topics, map(_creation, request.topics), broker.config, random_id, broker.now())
    values = broker_values(broker.topics, broker.config)
    results = _Results(values, request.validate_only, with_configs=call.version >= CONFIGS_SINCE)
    response = CreateTopicsResponse(topics=list(map(results.of, decided.outcomes)))
    unwritten = Outcome(None, fault=RequestFault(ErrorCode.KAFKA_STORAGE_ERROR, UNWRITTEN))
    refused = [one if one.fault else unwritten._replace(name=one.name) for one in decided.outcomes]
    refusal = CreateTopicsResponse(topics=list(map(results.of, refused)))
    try:
        records = [] if request.validate_only else decided.records
        broker.commit(TOPICS_TOPIC.name, Decision(records, [(Refusable(call, refusal), response)]))
    except StorageError:
        return refusal
    return None


def _creation(topic: CreatableTopic) -> Creation:
    return Creation(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={one.partition_index: one.broker_ids for one in topic.assignments},
        configs=[(one.name, one.value) for one in topic.configs],
    )


class _Results:
    """Topics without settings of their own, as most are, share what is told of them: a request may have thousands."""

    def __init__(self, values: BrokerValues, validate_only: bool, with_configs: bool) -> None:
        self._values = values
        self._validate_only = validate_only
        self._with_configs = with_configs
        self._common: list[CreatableTopicConfigs] | None = None

    def of(self, outcome: Outcome) -> CreatableTopicResult:
        assert outcome.name is not None
        if outcome.topic is None:
            assert outcome.fault is not None
            return CreatableTopicResult(
                name=outcome.name, error_code=outcome.fault.code, error_message=outcome.fault.message, configs=None
            )
        result = CreatableTopicResult(
            name=outcome.name,
            error_message=None,
            num_partitions=outcome.topic.partitions,
            replication_factor=ONE_REPLICA,
            configs=self._configs(outcome.topic) if self._with_configs else [],
        )
        if not self._validate_only:
            result.topic_id = outcome.topic.topic_id
        return result

    def _configs(self, topic: Topic) -> list[CreatableTopicConfigs]:
        if topic.configs:
            return _configs(topic, self._values)
        if self._common is None:
            self._common = _configs(topic, self._values)
        return self._common


def _configs(topic: Topic, values: BrokerValues) -> list[CreatableTopicConfigs]:
    described = [describe_topic(setting, topic.configs, values) for setting in TOPIC.values() if not setting.hidden]
    return [
        CreatableTopicConfigs(
            name=one.setting.key, value=one.value, config_source=one.source, is_sensitive=one.setting.sensitive
        )
        for one in described
    ]
