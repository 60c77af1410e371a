"""`tidelog groups` and `tidelog reset`: seen before it is done, and never under a group's feet."""

from __future__ import annotations

import pytest

from cli.command import Command
from client.test_groups import PROTOCOLS, member
from contract import Broker
from proving import proves


def prepared(tidelog: Command, topic: str) -> None:
    """Two partitions with ten records each, a second apart from 2026 on."""
    tidelog.ok("topics", "create", topic, "--partitions", "2")
    rows = [
        f'{{"value": "{number}", "partition": {partition}, "timestamp": {1_767_225_600_000 + number * 1000}}}'
        for number in range(10)
        for partition in (0, 1)
    ]
    tidelog.ok("produce", topic, "--json", stdin="\n".join(rows))


def committed(tidelog: Command, group: str) -> list[int]:
    (described,) = tidelog.ok("groups", "describe", group, "--json").json
    return [one["committed"] for one in described["partitions"]]


@proves("T7", "T10")
@pytest.mark.story
def test_a_reset_shows_before_and_after_and_is_done_on_yes(tidelog: Command, topic: str, group: str) -> None:
    prepared(tidelog, topic)
    asked = tidelog("reset", group, topic, "--to", "4")
    assert asked.code == 2 and "--yes" in asked.err
    assert [line.split() for line in asked.lines[1:]] == [
        [topic, "0", "0", "10", "-", "4", "-"],
        [topic, "1", "0", "10", "-", "4", "-"],
    ]
    assert group not in tidelog.ok("groups", "list", "--quiet").lines
    assert tidelog.ok("reset", group, topic, "--to", "4", "--yes").lines[-1] == f"{group} is moved; it is a new group"
    assert committed(tidelog, group) == [4, 4]
    moved = tidelog.ok("reset", group, f"{topic}:1", "--to", "latest", "--yes", "--json").json
    assert moved == {
        "group": group,
        "moved": True,
        "partitions": [{"topic": topic, "partition": 1, "start": 0, "end": 10, "before": 4, "after": 10}],
    }
    assert committed(tidelog, group) == [4, 10]


@proves("T7", "T10")
def test_a_group_is_moved_to_any_place(tidelog: Command, topic: str, group: str) -> None:
    prepared(tidelog, topic)
    places = {
        "earliest": 0,
        "latest": 10,
        "7": 7,
        "-3": 7,
        "2026-01-01T00:00:05Z": 5,
        "@1767225605500": 6,
        "1s": 10,
    }
    for to, after in places.items():
        dry = tidelog.ok("reset", group, topic, "--to", to, "--dry-run", "--json").json
        assert ([one["after"] for one in dry["partitions"]], dry["moved"]) == ([after, after], False)
    assert group not in tidelog.ok("groups", "list", "--quiet").lines
    tidelog.ok("reset", group, topic, "--to", "@1767225605500", "--yes")
    assert committed(tidelog, group) == [6, 6]


@proves("T7")
def test_a_place_that_is_not_there_is_refused(tidelog: Command, topic: str, group: str) -> None:
    prepared(tidelog, topic)
    past = tidelog("reset", group, topic, "--to", "1767225605500", "--yes")
    assert past.code == 2 and "for a time write @1767225605500" in past.err
    nowhere = tidelog("reset", group, f"{topic}:5", "--to", "earliest", "--yes")
    assert nowhere.code == 2 and "has no partition '5'; it has 0 to 1" in nowhere.err
    assert tidelog("reset", group, f"{topic}-no", "--to", "earliest", "--yes").code == 1


@proves("T7", "T3", "T10")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_active_group_is_not_moved_and_its_members_are_named(
    broker: Broker, tidelog: Command, topic: str, group: str, protocol: str
) -> None:
    prepared(tidelog, topic)
    with member(broker, group, topic, protocol):
        ran = tidelog("reset", group, topic, "--to", "earliest", "--yes")
        assert ran.code == 1
        assert f"group '{group}' is active (reader at 127.0.0.1)" in ran.err
        (described,) = tidelog.ok("groups", "describe", group, "--json").json
        assert [one["client"] for one in described["members"]] == ["reader"]
        assert {one["client"] for one in described["partitions"]} == {"reader"}
        assert tidelog("groups", "delete", group, "--yes").code == 1


@proves("T7", "T8", "T10")
def test_groups_are_listed_with_their_lag(tidelog: Command, topic: str, group: str) -> None:
    prepared(tidelog, topic)
    tidelog.ok("reset", group, topic, "--to", "3", "--yes")
    (listed,) = [one for one in tidelog.ok("groups", "--json").json if one["group"] == group]
    counted = {"topics": 1, "partitions": 2, "lag": 14, "lost": 0}
    assert listed == {"group": group, "kind": "classic", "state": "Empty", **counted}
    (line,) = [line for line in tidelog.ok("groups").lines if line.startswith(group)]
    assert line.split()[:6] == [group, "classic", "Empty", "1", "2", "14"]
    assert tidelog.ok("groups", f"{group[:6]}*", "--quiet").lines == [group]
    described = tidelog.ok("groups", "describe", group).out
    assert [line.split()[:5] for line in described.splitlines() if line.startswith(topic)] == [
        [topic, "0", "3", "10", "7"],
        [topic, "1", "3", "10", "7"],
    ]


@proves("T8", "T10")
def test_the_list_counts_as_the_description_does_what_retention_took(tidelog: Command, topic: str, group: str) -> None:
    prepared(tidelog, topic)
    tidelog.ok("reset", group, topic, "--to", "3", "--yes")
    tidelog.ok("topics", "truncate", topic, "--before", "9", "--yes")
    (described,) = tidelog.ok("groups", "describe", group, "--json").json
    (listed,) = [one for one in tidelog.ok("groups", "--json").json if one["group"] == group]
    assert (listed["lag"], listed["lost"]) == (2, 12)
    for name in ("lag", "lost"):
        assert listed[name] == sum(one[name] for one in described["partitions"])
    header, line = [line.split() for line in tidelog.ok("groups").lines if line.startswith(("GROUP", group))]
    assert dict(zip(header, line, strict=True))["LOST"] == "12"


@proves("T8", "T10")
def test_a_group_is_described_with_its_lag_in_bytes_and_time_and_the_time_left(
    tidelog: Command, topic: str, group: str
) -> None:
    tidelog.ok("topics", "create", topic, "--set", "retention.ms=86400000")
    tidelog.ok("produce", topic, stdin="\n".join("x" * 100 for _ in range(10)))
    tidelog.ok("reset", group, topic, "--to", "4", "--yes")
    (described,) = tidelog.ok("groups", "describe", group, "--json").json
    (one,) = described["partitions"]
    assert (one["committed"], one["end"], one["lag"], one["lost"]) == (4, 10, 6, 0)
    assert one["bytes"] > 0
    assert 0 <= one["age_ms"] < 600_000
    assert 86_400_000 - 600_000 < one["left_ms"] <= 86_400_000
    header, line = (
        line for line in tidelog.ok("groups", "describe", group).lines if line.split()[-1:] in (["CLIENT"], ["-"])
    )
    assert header.split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BYTES", "AGE", "TIME", "LEFT", "CLIENT"]
    assert "23h 5" in line or " 1d " in line
    tidelog.ok("topics", "alter", topic, "--set", "retention.ms=-1")
    (described,) = tidelog.ok("groups", "describe", group, "--json").json
    assert described["partitions"][0]["left_ms"] is None


@proves("T7", "T10")
def test_a_group_is_deleted_on_yes(tidelog: Command, topic: str, group: str) -> None:
    prepared(tidelog, topic)
    tidelog.ok("reset", group, topic, "--to", "3", "--yes")
    assert tidelog("groups", "delete", group).code == 2
    assert tidelog.ok("groups", "delete", group, "--yes").out == f"{group} is deleted\n"
    again = tidelog("groups", "delete", group, "--yes")
    assert again.code == 1 and "GROUP_ID_NOT_FOUND" in again.err
    assert tidelog("groups", "describe", group).code == 1
