"""`tidelog topics` and `tidelog configs`, run as users run them."""

from __future__ import annotations

from cli.command import Command
from proving import proves
from tidelog.client.cluster import Cluster


@proves("T1", "T10")
def test_a_topic_is_made_listed_described_changed_and_deleted(tidelog: Command, topic: str) -> None:
    assert tidelog.ok("topics", "create", topic, "--partitions", "2").out == f"{topic} has 2 partitions\n"
    tidelog.ok("produce", topic, stdin="one\ntwo\nthree\n")
    listed = [one for one in tidelog.ok("topics", "--json").json if one["topic"] == topic]
    assert [(one["partitions"], one["records"]) for one in listed] == [(2, 3)]
    assert listed[0]["bytes"] > 0
    assert topic in tidelog.ok("topics", "list", "--quiet").lines
    tidelog.ok("topics", "alter", topic, "--partitions", "3", "--set", "retention.ms=60000")
    (described,) = tidelog.ok("topics", "describe", topic, "--json").json
    assert described["settings"]["retention.ms"] == {"value": "60000", "source": "topic"}
    assert [one["partition"] for one in described["partitions"]] == [0, 1, 2]
    assert sum(one["end"] - one["start"] for one in described["partitions"]) == 3
    assert tidelog.ok("topics", "delete", topic, "--yes").out == f"{topic} is deleted\n"
    assert topic not in tidelog.ok("topics", "list", "--quiet").lines


@proves("T1", "T10")
def test_names_are_chosen_by_pattern(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic, f"{topic}.a", f"{topic}.b")
    assert tidelog.ok("topics", f"{topic}.*", "--quiet").lines == [f"{topic}.a", f"{topic}.b"]
    assert tidelog.ok("topics", "list", topic, "--quiet").lines == [topic]
    assert tidelog.ok("topics", "list", f"{topic}-none*").out.startswith("no topics")


@proves("T1", "T10")
def test_a_topic_that_is_there_is_an_error_unless_that_is_fine(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic)
    again = tidelog("topics", "create", topic)
    assert again.code == 1 and "TOPIC_ALREADY_EXISTS" in again.err
    assert tidelog.ok("topics", "create", topic, "--if-missing").out == f"{topic} is there already\n"


@proves("T1")
def test_nothing_is_deleted_unless_somebody_says_yes(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic)
    ran = tidelog("topics", "delete", topic)
    assert ran.code == 2 and "--yes" in ran.err
    assert topic in tidelog.ok("topics", "list", "--quiet").lines


@proves("T6", "T10")
def test_describe_says_what_an_ack_means(tidelog: Command, cluster: Cluster, topic: str) -> None:
    tidelog.ok("topics", "create", f"{topic}.plain")
    made = tidelog("topics", "create", f"{topic}.memory", "--set", "tidelog.durability=memory")
    tidelog.ok("topics", "create", f"{topic}.flushed", "--set", "flush.messages=1")
    described = tidelog.ok(
        "topics", "describe", *(f"{topic}.{name}" for name in ("plain", "memory", "flushed")), "--json"
    )
    plain, memory, flushed = (one["durability"] for one in described.json)
    if cluster.is_tidelog():
        assert (plain, flushed) == ("disk: an ack means synced",) * 2
        assert memory.startswith("memory: an ack means in the page cache")
        assert made.err == ""
    else:
        assert plain == memory == "page cache of 1 replica"
        assert flushed == "disk of 1 replica: flush.messages=1"
        assert made.err == (
            "tidelog: this broker is not Tidelog: tidelog.durability is left out, and what it asks for\n"
        )
    assert f"durability  {plain}" in tidelog.ok("topics", "describe", f"{topic}.plain").lines


@proves("T1", "T10")
def test_internal_topics_are_shown_when_asked_for(tidelog: Command, topic: str, group: str) -> None:
    tidelog.ok("topics", "create", topic)
    tidelog.ok("reset", group, topic, "--to", "earliest", "--yes")
    shown = set(tidelog.ok("topics", "list", "--quiet").lines)
    every = set(tidelog.ok("topics", "list", "--quiet", "--internal").lines)
    assert topic in shown and not any(name.startswith("__") for name in shown)
    assert any(name.startswith("__") for name in every - shown)


@proves("T1", "T10")
def test_settings_are_shown_and_changed(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic, "--set", "retention.ms=60000")
    shown = tidelog.ok("configs", "describe", "topic", topic, "--json").json
    assert shown["retention.ms"]["value"] == "60000"
    assert "segment.bytes" not in shown
    tidelog.ok("configs", "alter", "topic", topic, "--set", "segment.bytes=2000000", "--unset", "retention.ms")
    keys = ["--key", "segment.bytes", "--key", "retention.ms"]
    changed = tidelog.ok("configs", "describe", "topic", topic, *keys, "--json").json
    assert changed["segment.bytes"] == {"value": "2000000", "source": "topic", "read_only": False, "type": "int"}
    assert changed["retention.ms"]["source"] == "default"
    every = tidelog.ok("configs", "describe", "topic", topic, "--all").lines
    assert len(every) > 20 and every[0].split() == ["SETTING", "VALUE", "SOURCE"]


@proves("T1", "T10")
def test_the_only_broker_need_not_be_named(tidelog: Command) -> None:
    named = tidelog.ok("configs", "describe", "broker", "--json", "--all").json
    assert named["num.partitions"]["value"] == "1"
    assert tidelog("configs", "alter", "topic", "x").code == 2


@proves("command_line")
def test_a_setting_that_there_is_not_is_neither_shown_nor_taken_back(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic)
    for words in (
        ["topics", "alter", topic, "--unset", "retention.mss"],
        ["configs", "alter", "topic", topic, "--unset", "retention.mss"],
        ["configs", "describe", "topic", topic, "--key", "retention.mss"],
    ):
        ran = tidelog(*words)
        assert (ran.code, ran.out) == (2, "")
        assert f"topic {topic} has no setting 'retention.mss'" in ran.err
