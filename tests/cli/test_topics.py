"""`tidelog topics` and `tidelog configs`, run as users run them."""

from __future__ import annotations

import pytest

from against.patience import eventually
from cli.command import Command
from proving import proves
from tidelog.client.cluster import Cluster


@proves("T1", "T10")
@pytest.mark.story
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


@proves("T8", "T10")
def test_who_asks_for_compaction_gets_it_without_a_word(tidelog: Command, topic: str) -> None:
    said = tidelog.ok("topics", "create", topic, "--set", "cleanup.policy=compact")
    assert said.err == ""
    assert tidelog.ok("topics", "alter", topic, "--set", "cleanup.policy=delete,compact").err == ""


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
    words = ["configs", "describe", "topic", topic, "--key", "segment.bytes", "--key", "retention.ms", "--json"]
    changed = eventually(lambda: tidelog.ok(*words).json, lambda shown: shown["segment.bytes"]["value"] == "2000000")
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


def filled(tidelog: Command, topic: str) -> None:
    """Ten records a second apart in each of two partitions."""
    tidelog.ok("topics", "create", topic, "--partitions", "2")
    for partition in (0, 1):
        lines = [f'{{"value": {n}, "timestamp": {1767225600000 + 1000 * n}}}' for n in range(10)]
        tidelog.ok("produce", topic, "--json", "--partition", str(partition), stdin="\n".join(lines))


def starts(tidelog: Command, topic: str) -> list[int]:
    (described,) = tidelog.ok("topics", "describe", topic, "--json").json
    return [one["start"] for one in described["partitions"]]


@proves("T1", "T8", "T10")
def test_old_records_are_shown_and_then_deleted_on_yes(tidelog: Command, topic: str) -> None:
    filled(tidelog, topic)
    asked = tidelog("topics", "truncate", topic, "--before", "4")
    assert asked.code == 2 and "nothing was deleted; say --yes" in asked.err
    header, first, second = (line.split() for line in asked.lines)
    assert header == ["TOPIC", "PARTITION", "START", "END", "NEW", "START", "DELETES"]
    assert (first, second) == ([topic, "0", "0", "10", "4", "4"], [topic, "1", "0", "10", "4", "4"])
    dry = tidelog.ok("topics", "truncate", topic, "--before", "4", "--dry-run")
    assert dry.lines[-1] == "nothing was deleted: --dry-run"
    assert starts(tidelog, topic) == [0, 0]
    done = tidelog.ok("topics", "truncate", topic, "--before", "4", "--yes")
    assert done.lines[-1] == f"8 records of {topic} deleted"
    assert starts(tidelog, topic) == [4, 4]
    again = tidelog.ok("topics", "truncate", topic, "--before", "2")
    assert again.lines[-1] == "there is nothing to delete"


@proves("T1", "T8", "T10")
def test_one_partition_is_truncated_by_time_for_scripts(tidelog: Command, topic: str) -> None:
    filled(tidelog, topic)
    words = ["topics", "truncate", topic, "--partition", "1", "--before", "2026-01-01T00:00:06Z", "--yes", "--json"]
    assert tidelog.ok(*words).json == {
        "topic": topic,
        "truncated": True,
        "partitions": [{"partition": 1, "start": 0, "end": 10, "new_start": 6, "deletes": 6}],
    }
    assert starts(tidelog, topic) == [0, 6]
    assert tidelog.ok("topics", "truncate", topic, "--before", "-3", "--yes", "--json").json["truncated"]
    assert starts(tidelog, topic) == [7, 7]
    tidelog.ok("topics", "truncate", topic, "--before", "latest", "--yes")
    assert starts(tidelog, topic) == [10, 10]


@proves("T1", "T8", "T10")
def test_what_cannot_be_truncated_is_refused_with_the_reason(tidelog: Command, topic: str) -> None:
    filled(tidelog, topic)
    past = tidelog("topics", "truncate", topic, "--before", "1767225605500", "--yes")
    assert past.code == 2 and "for a time write @1767225605500" in past.err
    nowhere = tidelog("topics", "truncate", topic, "--partition", "5", "--before", "3", "--yes")
    assert nowhere.code == 2 and "has no partition 5; it has 0 to 1" in nowhere.err
    assert tidelog("topics", "truncate", topic, "--yes").code == 2
    assert tidelog("topics", "truncate", f"{topic}-no", "--before", "3", "--yes").code == 1
    tidelog.ok("topics", "alter", topic, "--set", "cleanup.policy=compact")
    kept = tidelog("topics", "truncate", topic, "--before", "3", "--yes")
    assert kept.code == 1 and kept.err.endswith(
        "POLICY_VIOLATION (44): its cleanup.policy does not include delete; add it first\n"
    )
    assert starts(tidelog, topic) == [0, 0]
