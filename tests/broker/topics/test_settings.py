"""The tables of settings: complete, as Kafka's where they say nothing else, and resolved as Kafka resolves them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from proving import proves
from tidelog.broker.settings.broker import BROKER, FOREIGN
from tidelog.broker.settings.configuring import broker_config, load_broker_config
from tidelog.broker.settings.describing import (
    NO_VALUES,
    BrokerValues,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_topic,
)
from tidelog.broker.settings.group import GROUP, bounds
from tidelog.broker.settings.setting import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    WORKS,
    Setting,
    default,
    normal,
    parse,
    show,
)
from tidelog.broker.settings.topic import TOPIC
from tidelog.broker.settings.topic_config import topic_config
from tidelog.config import Given
from tidelog.errors import ConfigError

SOURCE = Path(__file__).parents[3] / "src" / "tidelog"
ALL = [*TOPIC.values(), *BROKER.values(), *GROUP.values()]


class KafkaSetting(NamedTuple):
    kind: str
    default: str | None
    change: str


def kafka_settings(resource: str) -> dict[str, KafkaSetting]:
    lines = (Path(__file__).parent / "kafka_settings.txt").read_text().splitlines()[1:]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    nothing = ("<null>", "<nodefault>")
    return {
        key: KafkaSetting(kind, None if text in nothing else text, change)
        for found, key, kind, text, change in rows
        if found == resource
    }


# The tables ----------------------------------------------------------------------------------------------------------


@proves("T1", "T10")
def test_a_topic_has_all_of_kafkas_settings_and_ours_have_our_prefix() -> None:
    assert {key for key in TOPIC if not key.startswith("tidelog.")} - KIP_1191 == set(kafka_settings("topic"))


@proves("T3", "T10")
def test_a_group_has_all_of_kafkas_settings_and_ours_have_our_prefix() -> None:
    assert {key for key in GROUP if not key.startswith("tidelog.")} - KIP_1191 == set(kafka_settings("group"))


@proves("T1", "T10")
def test_a_setting_of_the_broker_is_kafkas_or_has_our_prefix() -> None:
    unknown = {key for key in BROKER if not key.startswith("tidelog.")} - set(kafka_settings("broker"))
    assert unknown - KIP_1191 == OF_THE_AUTHORIZER


# Apache Kafka has them after 4.3.
KIP_1191 = {
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.group.enable",
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.topic.name.prefix",
}

# Kafka's authorizer reads them by itself, so that its table of settings does not have them.
OF_THE_AUTHORIZER = {"super.users", "allow.everyone.if.no.acl.found"}


@proves("T1", "T10")
@pytest.mark.parametrize("resource", ["topic", "broker", "group"])
def test_defaults_and_kinds_are_kafkas_unless_the_table_says_why_not(resource: str) -> None:
    table = {"topic": TOPIC, "broker": BROKER, "group": GROUP}[resource]
    for key, theirs in kafka_settings(resource).items():
        ours = table.get(key)
        if ours is None:
            continue
        assert ours.kind == theirs.kind, key
        if ours.kafka is None:
            assert ours.default == theirs.default or key in ALLOWED_TO_DIFFER, key
        else:
            assert ours.default != theirs.default and ours.because, key
            assert ours.kafka == (theirs.default or ""), key


# Kafka's default has the protocol of Kafka Streams too.
ALLOWED_TO_DIFFER = {"group.coordinator.rebalance.protocols"}


@proves("T1", "T10")
def test_what_can_be_altered_here_can_be_altered_in_kafka() -> None:
    kafka = kafka_settings("broker")
    assert [
        key for key, one in BROKER.items() if one.dynamic and key in kafka and kafka[key].change == "read-only"
    ] == []


@proves("T1")
def test_every_default_is_a_value_that_its_setting_takes() -> None:
    for setting in ALL:
        assert (default(setting) is None) == (setting.default is None)
        assert setting.default is None or normal(setting, setting.default) == setting.default, setting.key


@proves("T1")
def test_every_synonym_is_a_setting_of_the_broker_with_the_same_kind_of_value() -> None:
    numbers = {INT, LONG}
    for setting in [*TOPIC.values(), *GROUP.values()]:
        for key in setting.synonyms:
            assert BROKER[key].kind == setting.kind or {BROKER[key].kind, setting.kind} == numbers, key
            assert setting.key in GROUP or BROKER[key].effect == setting.effect, key


@proves("T1")
def test_no_known_setting_begins_as_one_that_has_no_place_here() -> None:
    assert [key for key in BROKER if key.startswith(tuple(FOREIGN))] == []


def settings_read_by(path: Path) -> list[tuple[str, str]]:
    """The calls config.int("...") and their like in a module, as (method, key)."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    found = []
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in READERS and call.args:
            key = call.args[0]
            named_config = ast.unparse(call.func.value).split(".")[-1] in ("config", "_config")
            if named_config and isinstance(key, ast.Constant):
                found.append((call.func.attr, str(key.value)))
    return found


READERS = {
    "int": {INT, LONG},
    "text": {STRING, PASSWORD},
    "optional_text": {STRING, PASSWORD},
    "flag": {BOOLEAN},
    "texts": {LIST},
}


@proves("T1")
@pytest.mark.slow
def test_every_setting_that_the_code_reads_is_one_that_works_and_is_read_as_its_kind() -> None:
    read = [(path, *one) for path in SOURCE.rglob("*.py") for one in settings_read_by(path)]
    assert len(read) > 10
    for path, method, key in read:
        assert key in BROKER, f"{path} reads {key}"
        assert BROKER[key].kind in READERS[method], f"{path} reads {key} as {method}"
        assert BROKER[key].effect == WORKS, f"{path} reads {key}, which the table says changes nothing"


def written_in_code() -> set[str]:
    """Every text in modules that name a setting, but for the tables of settings themselves."""
    tables = {"broker.py", "broker_groups.py", "broker_access.py", "broker_stored.py", "topic.py", "group.py"}
    paths = [path for path in SOURCE.rglob("*.py") if path.parent.name != "settings" or path.name not in tables]
    named = re.compile("|".join(re.escape(setting.key) for setting in ALL))
    texts = (text for path in paths if named.search(text := path.read_text()))  # to parse all takes seconds
    nodes = (node for text in texts for node in ast.walk(ast.parse(text)))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@proves("T1")
def test_what_is_said_to_work_is_looked_at_by_the_code() -> None:
    written = written_in_code()
    resolved = {key for setting in TOPIC.values() if setting.effect == WORKS for key in setting.synonyms}
    for setting in ALL:
        only_one_value = setting.check is not None and setting.check.wants.startswith(f"{setting.default} (")
        if setting.effect == WORKS and not only_one_value and setting.key not in resolved:
            assert setting.key in written, f"nothing looks at {setting.key}; it is stored, and does not work"


# Values --------------------------------------------------------------------------------------------------------------


@proves("T1")
@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BOOLEAN, " TRUE ", True),
        (BOOLEAN, "false", False),
        (SHORT, "-32768", -32768),
        (INT, "+7", 7),
        (INT, "2147483647", 2**31 - 1),
        (LONG, "-9223372036854775808", -(2**63)),
        (DOUBLE, "0.5", 0.5),
        (LIST, " a , b,,c ", ("a", "b", "c")),
        (LIST, "", ()),
        (STRING, " as it is ", "as it is"),
        (PASSWORD, "secret", "secret"),
    ],
)
def test_text_becomes_a_value_as_in_kafka(kind: str, text: str, value: object) -> None:
    assert parse(Setting("key", kind, None, ""), text) == value


@proves("T1")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BOOLEAN, "yes"),
        (BOOLEAN, ""),
        (SHORT, "32768"),
        (INT, "2147483648"),
        (INT, "1_000"),
        (INT, "١"),
        (INT, "1.0"),
        (INT, ""),
        (INT, "-"),
        (LONG, "9223372036854775808"),
        (LONG, "9" * 5000),
        (DOUBLE, "half"),
        (DOUBLE, "nan"),
    ],
)
def test_text_that_is_no_value_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ConfigError, match=r"it takes an? "):
        parse(Setting("key", kind, None, ""), text)


@proves("T1")
def test_a_refusal_names_the_key_the_value_and_what_is_taken() -> None:
    with pytest.raises(ConfigError, match=r"^segment.bytes=100 is refused; it takes at least 1048576$"):
        parse(TOPIC["segment.bytes"], "100")
    with pytest.raises(ConfigError, match=r"^retention.ms=x is not a long; it takes at least -1$"):
        parse(TOPIC["retention.ms"], "x")


@proves("T1")
def test_a_value_is_shown_as_kafka_writes_it() -> None:
    assert [show(value) for value in (True, 5, 0.5, ("a", "b"), (), "x")] == ["true", "5", "0.5", "a,b", "", "x"]


# Layers --------------------------------------------------------------------------------------------------------------


def layers(own: dict[str, str] | None = None, cluster: dict[str, str] | None = None, **static: str) -> BrokerValues:
    given = {key.replace("_", "."): Given(text, "code") for key, text in static.items()}
    return BrokerValues(own or {}, cluster or {}, given)


@proves("T1")
def test_the_strongest_layer_gives_a_topic_its_value() -> None:
    setting = TOPIC["max.message.bytes"]
    own, cluster = {"message.max.bytes": "3"}, {"message.max.bytes": "2"}
    found = [
        describe_topic(setting, {}, NO_VALUES),
        describe_topic(setting, {}, layers(message_max_bytes="1")),
        describe_topic(setting, {}, layers(cluster=cluster, message_max_bytes="1")),
        describe_topic(setting, {}, layers(own, cluster, message_max_bytes="1")),
        describe_topic(setting, {"max.message.bytes": "4"}, layers(own, cluster, message_max_bytes="1")),
    ]
    assert [(one.value, one.source) for one in found] == [("1048588", 5), ("1", 4), ("2", 3), ("3", 2), ("4", 1)]
    assert [(one.name, one.value, one.source) for one in found[-1].synonyms] == [
        ("max.message.bytes", "4", 1),
        ("message.max.bytes", "3", 2),
        ("message.max.bytes", "2", 3),
        ("message.max.bytes", "1", 4),
        ("message.max.bytes", "1048588", 5),
    ]


@proves("T8")
@pytest.mark.parametrize(
    ("static", "value"),
    [
        ({}, "604800000"),
        ({"log_retention_hours": "1"}, "3600000"),
        ({"log_retention_hours": "1", "log_retention_minutes": "2"}, "120000"),
        ({"log_retention_hours": "1", "log_retention_minutes": "2", "log_retention_ms": "3"}, "3"),
        ({"log_retention_minutes": "-1"}, "-1"),
    ],
)
def test_the_finer_unit_wins_and_is_converted(static: dict[str, str], value: str) -> None:
    assert describe_topic(TOPIC["retention.ms"], {}, layers(**static)).value == value


@proves("T1")
def test_a_broker_key_is_not_spoken_for_by_its_synonyms() -> None:
    described = describe_broker(BROKER["log.retention.ms"], layers(log_retention_hours="1"))
    assert (described.value, described.source, described.synonyms) == (None, 5, [])


@proves("T1")
def test_the_clusters_default_has_only_what_was_altered() -> None:
    assert describe_cluster(BROKER["max.connections"], NO_VALUES) is None
    described = describe_cluster(BROKER["max.connections"], layers(cluster={"max.connections": "9"}))
    assert described is not None and (described.value, described.source) == ("9", 3)


@proves("T3")
def test_a_group_takes_its_defaults_from_the_broker() -> None:
    setting = GROUP["consumer.session.timeout.ms"]
    static = layers(group_consumer_session_timeout_ms="50000")
    assert describe_group(setting, {}, static)[1:3] == ("50000", 4)
    assert describe_group(setting, {"consumer.session.timeout.ms": "46000"}, static)[1:3] == ("46000", 8)
    assert bounds("consumer.session.timeout.ms") == (
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    )


@proves("T1")
def test_a_password_is_never_shown() -> None:
    secret = Setting("consumer.secret", PASSWORD, None, "A secret.")
    described = describe_group(secret, {"consumer.secret": "hunter2"}, NO_VALUES)
    assert described.value is None
    assert [synonym.value for synonym in described.synonyms] == [None]


# What an ack means ---------------------------------------------------------------------------------------------------


@proves("T6")
@pytest.mark.parametrize(
    ("own", "broker", "durable"),
    [
        ({}, {}, True),
        ({"tidelog.durability": "memory"}, {}, False),
        ({}, {"tidelog_durability": "memory"}, False),
        ({"tidelog.durability": "disk"}, {"tidelog_durability": "memory"}, True),
        ({"flush.messages": "1"}, {"tidelog_durability": "memory"}, True),
        ({"flush.messages": "2"}, {"tidelog_durability": "memory"}, False),
        ({"flush.ms": "1"}, {"tidelog_durability": "memory"}, False),
        ({"flush.messages": "100", "flush.ms": "1000"}, {}, True),
        ({"tidelog.durability": "memory"}, {"log_flush_interval_messages": "1"}, False),
        ({}, {"log_flush_interval_messages": "1"}, True),
    ],
)
def test_only_an_explicit_memory_weakens_the_promise(
    own: dict[str, str], broker: dict[str, str], durable: bool
) -> None:
    values = layers(**broker)
    assert topic_config(own, values).log.durable is durable
    assert describe_topic(TOPIC["tidelog.durability"], own, values).value == ("disk" if durable else "memory")


@proves("T6")
def test_a_broker_that_is_told_both_is_refused() -> None:
    with pytest.raises(ConfigError, match="contradict each other"):
        load_broker_config({"tidelog.durability": "memory", "log.flush.interval.messages": 1})


@proves("T8")
def test_nothing_is_deleted_where_the_policy_does_not_say_delete() -> None:
    for policy, retained in [("delete", 5), ("compact,delete", 5), ("compact", -1), ("", -1)]:
        config = topic_config({"cleanup.policy": policy, "retention.ms": "5", "retention.bytes": "5"}, NO_VALUES)
        assert (config.log.retention_ms, config.log.retention_bytes) == (retained, retained)
        assert config.compact is ("compact" in policy)


@proves("T1")
def test_a_topic_works_with_what_it_was_given() -> None:
    own = {
        "segment.bytes": "2000000",
        "segment.ms": "6",
        "index.interval.bytes": "7",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": "8",
        "message.timestamp.after.max.ms": "9",
        "message.timestamp.before.max.ms": "10",
    }
    config = topic_config(own, layers(producer_id_expiration_ms="11"))
    assert (config.log.segment_bytes, config.log.segment_ms, config.log.index_interval_bytes) == (2_000_000, 6, 7)
    assert (config.log.append_time, config.log.producer_expiration_ms) == (True, 11)
    assert (config.max_message_bytes, config.timestamp_after_max_ms, config.timestamp_before_max_ms) == (8, 9, 10)
    assert topic_config({**own, "internal.segment.bytes": "5000"}, NO_VALUES).log.segment_bytes == 5000


@proves("T3")
def test_bounds_of_groups_must_agree() -> None:
    with pytest.raises(ConfigError, match=r"group.consumer.session.timeout.ms=99000 is above"):
        load_broker_config({"group.consumer.session.timeout.ms": 99000})
    with pytest.raises(ConfigError, match=r"group.min.session.timeout.ms=9 is above group.max.session.timeout.ms=8"):
        load_broker_config({"group.min.session.timeout.ms": 9, "group.max.session.timeout.ms": 8})


@proves("T1")
def test_what_is_altered_stands_over_what_was_given() -> None:
    given = {"max.connections": Given("5", "code")}
    assert broker_config(given).int("max.connections") == 5
    altered = BrokerValues({"max.connections": "7"}, {"max.connections": "6"}, given)
    config = broker_config(given, altered)
    assert (config.int("max.connections"), config.given["max.connections"].text) == (7, "5")
