"""What a test's broker says to a test that is written wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from proving import proves
from tidelog.client.admin import configs
from tidelog.errors import UsageError
from tidelog.testing.broker import TestBroker


@proves("T1")
@pytest.mark.parametrize("records", ["lamp", b"lamp", [5], [("key", "value", "header")], [("key", 5)]])
def test_what_is_no_list_of_records_is_refused_before_anything_is_written(
    tidelog_session_broker: TestBroker, records: Any
) -> None:
    topic = tidelog_session_broker.create_topic(tidelog_session_broker.unique("refused"))
    with pytest.raises(UsageError, match="give a"):
        tidelog_session_broker.produce(topic, records)
    assert tidelog_session_broker.records(topic) == []


@proves("T1")
def test_a_partition_that_there_is_not_is_not_an_empty_one(tidelog_session_broker: TestBroker) -> None:
    topic = tidelog_session_broker.create_topic(tidelog_session_broker.unique("two"), partitions=2)
    assert tidelog_session_broker.records(topic, 1) == []
    with pytest.raises(UsageError, match="has no partition 2; it has 0 to 1"):
        tidelog_session_broker.records(topic, 2)


@proves("T1")
def test_settings_of_a_topic_are_text_numbers_and_booleans(tidelog_session_broker: TestBroker) -> None:
    given = {"retention.ms": 1000, "preallocate": True, "segment.bytes": "2000000"}
    topic = tidelog_session_broker.create_topic(tidelog_session_broker.unique("set"), configs=given)
    found = {one.name: one.value for one in configs.describe(tidelog_session_broker.cluster, configs.TOPIC, topic)}
    assert {name: found[name] for name in given} == {
        "retention.ms": "1000",
        "preallocate": "true",
        "segment.bytes": "2000000",
    }
