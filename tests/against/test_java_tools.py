"""The command-line tools that come with Apache Kafka 4.3, as people and scripts use them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from against.brokers import Broker
from against.java_machine import JavaMachine, Turn, run_alone
from against.patience import eventually
from against.rebalancing import create, produce_round
from proving import proves

pytestmark = pytest.mark.external
TOOLS = "org.apache.kafka.tools."
NEEDED = """
    Produce Fetch ListOffsets Metadata OffsetCommit OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup
    DescribeGroups ListGroups ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId OffsetForLeaderEpoch
    DescribeConfigs AlterConfigs IncrementalAlterConfigs DescribeLogDirs CreatePartitions DeleteGroups OffsetDelete
    DescribeCluster DescribeProducers ConsumerGroupHeartbeat ConsumerGroupDescribe ListConfigResources
    DescribeTopicPartitions AddPartitionsToTxn AddOffsetsToTxn EndTxn WriteTxnMarkers TxnOffsetCommit
    DescribeTransactions ListTransactions DescribeAcls CreateAcls DeleteAcls DescribeQuorum ElectLeaders
    AlterPartitionReassignments ListPartitionReassignments AlterReplicaLogDirs
"""


class Tools(NamedTuple):
    """Tools aimed at one broker."""

    java: JavaMachine
    bootstrap: str

    def run(self, name: str, *arguments: str, says: str = "") -> str:
        turn = self.turn(name, *arguments, says=says)
        assert turn.status == 0, turn.out + turn.err
        return turn.out

    def turn(self, name: str, *arguments: str, says: str = "") -> Turn:
        main = name if "." in name and not name.startswith("consumer.") else TOOLS + name
        return self.java.run(main, *arguments, "--bootstrap-server", self.bootstrap, says=says)

    def groups(self, *arguments: str) -> str:
        return self.run("consumer.group.ConsumerGroupCommand", *arguments)

    def topics(self, *arguments: str) -> str:
        return self.run("TopicCommand", *arguments)


@pytest.fixture
def tools(broker: Broker, java: JavaMachine) -> Tools:
    return Tools(java, broker.bootstrap)


def consume(tools: Tools, topic: str, count: int, *arguments: str) -> list[str]:
    limits = ("--max-messages", str(count), "--timeout-ms", "120000")
    said = tools.run("consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", *limits, *arguments)
    return said.splitlines()


@proves("T10")
@pytest.mark.story
def test_topics_are_made_listed_described_altered_and_deleted(tools: Tools, topic: str) -> None:
    made = tools.topics("--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=86400000")
    assert made.strip() == f"Created topic {topic}."
    eventually(lambda: topic in tools.topics("--list").splitlines())
    described = tools.topics("--describe", "--topic", topic).splitlines()
    assert re.search(r"PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: .*retention.ms=86400000", described[0])
    assert len(described) == 3
    assert re.search(r"Partition: 0\s+Leader: (\d+)\s+Replicas: \1\s+Isr: \1", described[1])
    tools.topics("--alter", "--topic", topic, "--partitions", "3")
    eventually(lambda: len(tools.topics("--describe", "--topic", topic).splitlines()), lambda lines: lines == 4)
    assert tools.turn("TopicCommand", "--create", "--topic", topic).status == 1
    tools.topics("--create", "--topic", topic, "--if-not-exists")
    tools.topics("--delete", "--topic", topic)
    eventually(lambda: topic not in tools.topics("--list").splitlines())


@proves("T1", "T10")
@pytest.mark.story
def test_the_console_tools_write_and_read(tools: Tools, topic: str, group: str) -> None:
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    headers = ("--reader-property", "parse.headers=true", "--reader-property", "headers.delimiter=|")
    tools.run("ConsoleProducer", "--topic", topic, *keyed, *headers, says="h:1|a:one\nh:2|b:two\nh:3|c:three\n")
    shown: list[str] = []
    for what in ("key", "offset", "partition", "headers"):
        shown += ["--formatter-property", f"print.{what}=true"]
    for protocol in ("classic", "consumer"):
        named = ("--group", f"{group}-{protocol}", "--command-property", f"group.protocol={protocol}")
        lines = consume(tools, topic, 3, *named, *shown)
        assert lines == [
            "Partition:0\tOffset:0\th:1\ta\tone",
            "Partition:0\tOffset:1\th:2\tb\ttwo",
            "Partition:0\tOffset:2\th:3\tc\tthree",
        ]
    from_offset = ("--partition", "0", "--offset", "2", "--max-messages", "1", "--timeout-ms", "120000")
    assert tools.run("consumer.ConsoleConsumer", "--topic", topic, *from_offset).split() == ["three"]


@proves("T7", "T10")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_described_reset_and_deleted(
    tools: Tools, broker: Broker, topic: str, group: str, protocol: str
) -> None:
    create(broker.bootstrap, topic, 1)
    produce_round(broker.bootstrap, topic, "r", 1)
    consume(tools, topic, 40, "--group", group, "--command-property", f"group.protocol={protocol}")
    assert group in tools.groups("--list").splitlines()
    row = tools.groups("--describe", "--group", group).splitlines()[-1].split()
    assert row[:6] == [group, topic, "0", "40", "40", "0"]
    state = tools.groups("--describe", "--group", group, "--state").splitlines()[-1].split()
    assert (state[0], state[1], state[-2:]) == (group, broker.bootstrap, ["Empty", "0"])
    assert tools.turn("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--members").status == 0
    reset = ("--group", group, "--topic", topic, "--reset-offsets")
    tools.groups(*reset, "--to-offset", "15", "--execute")
    assert tools.groups("--describe", "--group", group).splitlines()[-1].split()[3:6] == ["15", "40", "25"]
    tools.groups(*reset, "--shift-by", "-5", "--execute")
    assert tools.groups("--describe", "--group", group).splitlines()[-1].split()[3] == "10"
    tools.groups(*reset, "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    assert tools.groups("--describe", "--group", group).splitlines()[-1].split()[3] == "0"
    tools.groups("--delete-offsets", "--group", group, "--topic", topic)
    assert "successful" in tools.groups("--delete", "--group", group)
    assert group not in tools.groups("--list").splitlines()


@proves("T10")
def test_all_groups_are_listed_with_their_kind(tools: Tools, broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 1)
    produce_round(broker.bootstrap, topic, "r", 1)
    for protocol in ("classic", "consumer"):
        consume(tools, topic, 1, "--group", f"{group}-{protocol}", "--command-property", f"group.protocol={protocol}")
    rows = {row.split()[0]: row.split()[1:] for row in tools.run("GroupsCommand", "--list").splitlines() if row}
    assert rows[f"{group}-classic"] == ["Classic", "consumer"]
    assert rows[f"{group}-consumer"] == ["Consumer", "consumer"]


@proves("T10")
def test_configs_are_altered_and_described(tools: Tools, broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    config = "kafka.admin.ConfigCommand"
    tools.run(config, *entity, "--alter", "--add-config", "max.message.bytes=2000,retention.ms=5000")
    wanted = re.compile(r"max.message.bytes=2000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:max.message")
    eventually(lambda: tools.run(config, *entity, "--describe"), lambda told: wanted.search(told) is not None)
    tools.run(config, *entity, "--alter", "--delete-config", "retention.ms")
    eventually(lambda: tools.run(config, *entity, "--describe"), lambda told: "retention.ms=5000" not in told)
    everything = tools.run(config, *entity, "--describe", "--all")
    assert re.search(r"segment.bytes=1073741824 sensitive=false", everything)
    brokers = tools.run(config, "--entity-type", "brokers", "--all", "--describe", "--entity-name", broker_id(tools))
    assert re.search(r"num.partitions=1 ", brokers)


def broker_id(tools: Tools) -> str:
    found = re.search(r"\(id: (\d+) ", tools.run("BrokerApiVersionsCommand"))
    assert found is not None
    return found.group(1)


@proves("T7", "T10")
def test_offsets_disk_use_and_deleted_records_are_told(
    tools: Tools, broker: Broker, topic: str, tmp_path: Path
) -> None:
    create(broker.bootstrap, topic, 2)
    produce_round(broker.bootstrap, topic, "r", 2)
    assert tools.run("GetOffsetShell", "--topic", topic).split() == [f"{topic}:0:20", f"{topic}:1:20"]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 7}]}))
    deleted = tools.run("DeleteRecordsCommand", "--offset-json-file", str(plan))
    assert f"partition: {topic}-0\tlow_watermark: 7" in deleted
    earliest = tools.run("GetOffsetShell", "--topic", topic, "--time", "earliest").split()
    assert earliest == [f"{topic}:0:7", f"{topic}:1:0"]
    assert tools.run("GetOffsetShell", "--topic", topic, "--time", "max-timestamp").split()[1].startswith(f"{topic}:1:")
    told = json.loads(tools.run("LogDirsCommand", "--describe", "--topic-list", topic).splitlines()[-1])
    partitions = told["brokers"][0]["logDirs"][0]["partitions"]
    assert sorted(one["partition"] for one in partitions) == [f"{topic}-0", f"{topic}-1"]
    assert all(one["size"] > 0 for one in partitions)


@proves("T10")
def test_the_tools_find_every_request_they_need(tools: Tools) -> None:
    told = tools.run("BrokerApiVersionsCommand")
    requests = dict(re.findall(r"^\t(\w+)\(\d+\): (.*?),?$", told, re.MULTILINE))
    unusable = [name for name in NEEDED.split() if "[usable:" not in requests.get(name, "")]
    assert not unusable


@proves("T10")
def test_the_cluster_is_named(tools: Tools) -> None:
    assert re.search(r"Cluster ID: [\w-]{22}$", tools.run("ClusterTool", "cluster-id").strip())


@proves("T1", "T10")
def test_the_performance_tools_run_to_the_end(tools: Tools, broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    load = ("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    produced = tools.run("ProducerPerformance", *load)
    assert produced.splitlines()[-1].startswith("20000 records sent")
    consumed = tools.run("ConsumerPerformance", "--topic", topic, "--num-records", "20000", "--timeout", "120000")
    assert consumed.splitlines()[-1].split(", ")[4] == "20000"
    latency = tools.run(
        "EndToEndLatency", "--topic", topic, "--num-records", "50", "--producer-acks", "all", "--record-size", "100"
    )
    assert "Percentiles: 50th" in latency


@proves("T1", "T10")
@pytest.mark.usefixtures("java")
def test_the_verifiable_producer_and_consumer_agree(broker: Broker, topic: str, group: str) -> None:
    common = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--max-messages", "50")
    produced = events(run_alone(f"{TOOLS}VerifiableProducer", *common), "producer_send_success")
    assert [(one["offset"], one["value"]) for one in produced] == [(n, str(n)) for n in range(50)]
    joining = ("--group-id", group, "--group-protocol", "consumer", "--reset-policy", "earliest")
    consumed = events(run_alone(f"{TOOLS}VerifiableConsumer", *common, *joining), "records_consumed")
    assert sum(one["count"] for one in consumed) == 50


def events(turn: Turn, name: str) -> list[dict[str, int]]:
    said = [json.loads(line) for line in turn.lines() if line.startswith("{")]
    return [one for one in said if one["name"] == name]


@proves("T10")
def test_a_client_that_probes_what_is_supported_finds_it(tools: Tools, broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    supported = (
        *("offsets-for-times", "cluster-id", "create-topics"),
        *("describe-configs", "describe-acls", "idempotent-producer"),
    )
    claims = [word for name in supported for word in (f"--{name}-supported", "true")]
    others = ("--expect-record-too-large-exception", "false", "--num-cluster-nodes", "1")
    tools.run("ClientCompatibilityTest", "--topic", topic, *claims, *others)


@proves("T10")
def test_the_tools_for_clusters_of_many_find_one_node(tools: Tools, broker: Broker, topic: str, tmp_path: Path) -> None:
    create(broker.bootstrap, topic, 1)
    command = (f"{TOOLS}MetadataQuorumCommand", "--bootstrap-server", tools.bootstrap, "describe")
    quorum = tools.java.run(*command, "--status").out
    assert re.search(r"LeaderId:\s+1\n", quorum)
    assert re.search(r"CurrentObservers:\s+\[\]", quorum)
    replication = tools.java.run(*command, "--replication").lines()
    assert (replication[1].split()[0], replication[1].split()[-1]) == ("1", "Leader")
    elected = tools.run("LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected for partitions" in elected
    assert tools.turn("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions").status == 0
    plan = tmp_path / "plan.json"
    place = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": ["any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [place]}))
    reassign = (f"{TOOLS}reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan))
    assert f"Successfully started partition reassignment for {topic}-0" in tools.run(*reassign, "--execute")
    assert f"Reassignment of partition {topic}-0 is completed." in tools.run(*reassign, "--verify")
    assert "No partition reassignments found." in tools.run(reassign[0], "--list")
    plan.write_text(json.dumps({"version": 1, "partitions": [{**place, "replicas": [2]}]}))
    assert tools.turn(*reassign, "--execute").status == 1
    dirs = tools.run("LogDirsCommand", "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in dirs
