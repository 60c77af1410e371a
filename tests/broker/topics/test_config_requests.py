"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources in every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.topics.serving import Served, after_a_crash, serving, versions
from broker.topics.test_topic_requests import SETTINGS_SHOWN, create
from proving import proves
from tidelog.broker.settings.broker import BROKER
from tidelog.broker.settings.group import GROUP
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages import alter_configs, incremental_alter_configs
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, NODE, LOGGER, METRICS, GROUPS = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def describe(
    served: Served, resource: int, name: str, version: int = 4, keys: list[str] | None = None, **options: bool
) -> Any:
    asked = DescribeConfigsResource(resource_type=resource, resource_name=name, configuration_keys=keys)
    (result,) = served.ask(DescribeConfigsRequest(resources=[asked], **options), version).results
    assert (result.resource_type, result.resource_name) == (resource, name)
    return result


def alter(served: Served, resource: int, name: str, *operations: tuple[str, int, str | None], version: int = 1) -> Any:
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in operations
    ]
    changed = incremental_alter_configs.AlterConfigsResource(
        resource_type=resource, resource_name=name, configs=configs
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[changed])
    (response,) = served.ask(request, version).responses
    assert (response.resource_type, response.resource_name) == (resource, name)
    return response


@proves("T1", "T10")
@pytest.mark.parametrize("version", versions(32))
def test_every_setting_of_a_topic_is_told_in_every_version(served: Served, version: int) -> None:
    served.ask(create("orders"), 7)
    alter(served, TOPIC, "orders", ("cleanup.policy", SET, "compact"))
    options = {"include_synonyms": True} | ({"include_documentation": True} if version >= 3 else {})
    result = describe(served, TOPIC, "orders", version, **options)
    configs = {config.name: config for config in result.configs}
    assert len(configs) == SETTINGS_SHOWN and "internal.segment.bytes" not in configs
    policy = configs["cleanup.policy"]
    assert (policy.value, policy.config_source, policy.read_only, policy.is_sensitive) == ("compact", 1, False, False)
    assert [(one.name, one.value, one.source) for one in policy.synonyms] == [
        ("cleanup.policy", "compact", 1),
        ("log.cleanup.policy", "delete", 5),
    ]
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source) == ("604800000", 5)
    assert [(one.name, one.value, one.source) for one in retention.synonyms] == [("log.retention.hours", "168", 5)]
    if version >= 3:
        assert (policy.config_type, retention.config_type) == (7, 5)
        assert policy.documentation.startswith("What becomes of old records")


@proves("T1")
def test_synonyms_and_documentation_are_told_only_to_who_asks(served: Served) -> None:
    served.ask(create("orders"), 7)
    for config in describe(served, TOPIC, "orders").configs:
        assert (config.synonyms, config.documentation) == ([], None)


@proves("T1")
def test_only_the_keys_that_are_asked_for_are_told(served: Served) -> None:
    served.ask(create("orders"), 7)
    result = describe(served, TOPIC, "orders", keys=["retention.ms", "no.such.key"])
    assert [config.name for config in result.configs] == ["retention.ms"]
    assert len(describe(served, TOPIC, "orders", keys=[]).configs) == SETTINGS_SHOWN


@proves("T1")
def test_a_value_that_is_set_for_tests_is_shown_where_it_is_set(served: Served) -> None:
    served.ask(create("orders"), 7)
    alter(served, TOPIC, "orders", ("internal.segment.bytes", SET, "4096"))
    (config,) = describe(served, TOPIC, "orders", keys=["internal.segment.bytes"]).configs
    assert config.value == "4096"


@proves("T1")
def test_every_setting_of_the_broker_is_told_with_its_source(tmp_path: Path) -> None:
    with serving(tmp_path, **{"num.partitions": 4, "log.retention.hours": 2}) as served:
        configs = {config.name: config for config in describe(served, NODE, "1", include_synonyms=True).configs}
        assert set(configs) == set(BROKER)
        partitions = configs["num.partitions"]
        assert (partitions.value, partitions.config_source, partitions.read_only) == ("4", 4, True)
        assert [(one.value, one.source) for one in partitions.synonyms] == [("4", 4), ("1", 5)]
        assert (configs["log.retention.ms"].value, configs["log.retention.ms"].config_source) == (None, 5)
        assert configs["max.connections"].read_only is False
        served.ask(create("orders"), 7)
        (retention,) = describe(served, TOPIC, "orders", keys=["retention.ms"]).configs
        assert (retention.value, retention.config_source) == ("7200000", 4)


@proves("T1")
def test_what_is_altered_for_the_broker_and_the_cluster_is_told_apart(served: Served) -> None:
    assert alter(served, NODE, "", ("log.retention.ms", SET, "4000")).error_code == 0
    assert alter(served, NODE, "1", ("log.retention.ms", SET, "3000")).error_code == 0
    (own,) = describe(served, NODE, "1", keys=["log.retention.ms"], include_synonyms=True).configs
    assert (own.value, own.config_source) == ("3000", 2)
    assert [(one.name, one.value, one.source) for one in own.synonyms] == [
        ("log.retention.ms", "3000", 2),
        ("log.retention.ms", "4000", 3),
        ("log.retention.hours", "168", 5),
    ]
    (cluster,) = describe(served, NODE, "").configs
    assert (cluster.name, cluster.value, cluster.config_source) == ("log.retention.ms", "4000", 3)


@proves("T1")
def test_an_altered_setting_of_the_broker_takes_effect(served: Served) -> None:
    served.ask(create("orders"), 7)
    partition = served.broker.partition("orders", 0)
    assert partition is not None and partition.config.max_message_bytes == 1048588
    alter(served, NODE, "1", ("message.max.bytes", SET, "1000"))
    assert served.broker.config.int("message.max.bytes") == 1000
    assert partition.config.max_message_bytes == 1000
    alter(served, TOPIC, "orders", ("max.message.bytes", SET, "2000"))
    assert partition.config.max_message_bytes == 2000


@proves("T1", "T6")
def test_what_was_altered_is_so_when_the_broker_is_killed_after_the_reply(served: Served, tmp_path: Path) -> None:
    alter(served, NODE, "1", ("message.max.bytes", SET, "1000"))
    alter(served, GROUPS, "g", ("consumer.session.timeout.ms", SET, "50000"))
    with after_a_crash(served, tmp_path / "copy") as again:
        assert again.broker.config.int("message.max.bytes") == 1000
        (config,) = describe(again, GROUPS, "g", keys=["consumer.session.timeout.ms"]).configs
        assert (config.value, config.config_source) == ("50000", 8)


@proves("T3")
def test_every_setting_of_a_group_is_told(served: Served) -> None:
    result = describe(served, GROUPS, "readers", include_synonyms=True)
    configs = {config.name: config for config in result.configs}
    assert set(configs) == set(GROUP)
    session = configs["consumer.session.timeout.ms"]
    assert (session.value, session.config_source) == ("45000", 5)
    assert [one.name for one in session.synonyms] == ["group.consumer.session.timeout.ms"]


@proves("T1")
@pytest.mark.parametrize(
    ("resource", "name", "code"),
    [
        (TOPIC, "gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "b d", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NODE, "2", ErrorCode.INVALID_REQUEST),
        (NODE, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", 0),
        (METRICS, "m", 0),
        (GROUPS, "", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_is_told_without_any(served: Served, resource: int, name: str, code: int) -> None:
    result = describe(served, resource, name)
    assert (result.error_code, result.configs) == (code, [])
    assert (result.error_message is None) == (code == 0)


@proves("T1")
@pytest.mark.parametrize("version", versions(44))
def test_settings_are_altered_one_by_one_in_every_version(served: Served, version: int) -> None:
    served.ask(create("orders"), 7)
    operations = [("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact"), ("segment.ms", DELETE, None)]
    assert alter(served, TOPIC, "orders", *operations, version=version).error_code == 0
    assert served.broker.topics.by_name["orders"].configs == {
        "retention.ms": "5",
        "cleanup.policy": "delete,compact",
    }
    refused = alter(served, TOPIC, "orders", ("retention.ms", SET, "x"), version=version)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_CONFIG,
        "retention.ms=x is not a long; it takes at least -1",
    )


@proves("T1")
@pytest.mark.parametrize("version", versions(33))
def test_settings_are_replaced_in_every_version(served: Served, version: int) -> None:
    served.ask(create("orders"), 7)
    alter(served, TOPIC, "orders", ("retention.ms", SET, "5"))
    resource = alter_configs.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="orders",
        configs=[alter_configs.AlterableConfig(name="segment.ms", value="7")],
    )
    checked = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True)
    assert served.ask(checked, version).responses[0].error_code == 0
    assert served.broker.topics.by_name["orders"].configs == {"retention.ms": "5"}
    request = alter_configs.AlterConfigsRequest(resources=[resource])
    assert served.ask(request, version).responses[0].error_code == 0
    assert served.broker.topics.by_name["orders"].configs == {"segment.ms": "7"}


@proves("T1")
def test_validating_alters_nothing(served: Served) -> None:
    served.ask(create("orders"), 7)
    configs = [incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=SET, value="5")]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC, resource_name="orders", configs=configs
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    assert served.ask(request, 1).responses[0].error_code == 0
    assert served.broker.topics.by_name["orders"].configs == {}


@proves("T1")
@pytest.mark.parametrize("version", versions(74))
def test_what_has_settings_is_listed(served: Served, version: int) -> None:
    served.ask(create("orders"), 7)
    alter(served, GROUPS, "g", ("consumer.session.timeout.ms", SET, "50000"))
    listed = served.ask(ListConfigResourcesRequest(), version).config_resources
    if version == 0:
        assert listed == []
        return
    found = [(one.resource_type, one.resource_name) for one in listed]
    assert found == [(TOPIC, "orders"), (NODE, "1"), (LOGGER, "1"), (GROUPS, "g")]
    some = served.ask(ListConfigResourcesRequest(resource_types=[GROUPS]), version).config_resources
    assert [one.resource_name for one in some] == ["g"]
    unknown = served.ask(ListConfigResourcesRequest(resource_types=[77]), version)
    assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION
