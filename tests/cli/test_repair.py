"""`tidelog repair` on a folder whose broker is stopped and whose disk has flipped a bit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.command import Command
from proving import proves

if TYPE_CHECKING:
    from tidelog.testing.broker import TestBroker

HEADER_BLOCK = 4096


@pytest.fixture
def damaged(tidelog_broker: TestBroker) -> TestBroker:
    """Stopped, with `orders` of ten records in as many batches, the fourth of which has a wrong byte."""
    tidelog_broker.create_topic("orders")
    tidelog_broker.create_topic("fine", partitions=2)
    for number in range(10):
        tidelog_broker.produce("orders", [f"record {number}"])
    tidelog_broker.produce("fine", ["x"], partition=1)
    tidelog_broker.stop()
    (log,) = [path for path in tidelog_broker.data.glob("*-0/*.log") if b"record 3" in path.read_bytes()]
    flip(log, log.read_bytes().index(b"record 3"))
    return tidelog_broker


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    assert position > HEADER_BLOCK
    content[position] ^= 0x40
    path.write_bytes(content)


@proves("T6")
def test_damage_is_shown_and_passed_only_when_told_to(damaged: TestBroker, nowhere: Command) -> None:
    data = str(damaged.data)
    shown = nowhere("repair", "--data", data, "--json")
    assert shown.code == 1
    (hole,) = shown.json["damage"]
    checked = shown.json["checked"]
    # orders, the partition of fine that was written to, and the broker's own topic of topics
    assert (checked["partitions"], checked["files"]) == (3, 3) and checked["records"] >= 13
    assert checked["bytes"] > 11 * 60 and checked["seconds"] >= 0
    assert (hole["topic"], hole["partition"], hole["base_offset"], hole["end_offset"]) == ("orders", 0, 3, 4)
    assert not hole["passed"]
    assert (hole["offsets"], hole["batches"]) == (1, 1)
    assert hole["bytes"] == hole["end_position"] - hole["position"] > 60
    fine = nowhere("repair", "--data", data, "fine")
    assert re.fullmatch(r"checked 1 partition: 1 file, \d+ B, 1 record in \d+\.\d s\nno damage\n", fine.out), fine.out
    asked = nowhere("repair", "--data", data, "orders", "0", "--skip")
    assert asked.code == 2 and "--yes" in asked.err and "stops readers" in asked.out
    skipped = nowhere("repair", "--data", data, "orders", "0", "--skip", "--yes")
    assert skipped.code == 0 and "passed" in skipped.out
    assert f"lost: {hole['bytes']} B, offsets 1, batches 1\n" in skipped.out
    assert nowhere("repair", "--data", data).code == 0
    damaged.start()
    rows = damaged.records("orders")
    assert [row.value for row in rows] == [b"record %d" % number for number in range(10) if number != 3]
    assert [row.offset for row in rows] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@proves("T6")
def test_batches_are_not_counted_where_nothing_tells_them_apart(damaged: TestBroker, nowhere: Command) -> None:
    (log,) = [path for path in damaged.data.glob("*-0/*.log") if b"record 4" in path.read_bytes()]
    content = log.read_bytes()
    for position in range(content.index(b"record 4"), content.index(b"record 5")):  # a header is among it
        flip(log, position)
    (hole,) = nowhere("repair", "--data", str(damaged.data), "orders", "--json").json["damage"]
    assert (hole["base_offset"], hole["offsets"], hole["batches"]) == (3, 3, None)
    assert "offsets 3, batches unknown\n" in nowhere("repair", "--data", str(damaged.data), "orders").out


@proves("T6")
def test_a_hole_answers_corrupt_message_until_it_is_passed(damaged: TestBroker) -> None:
    damaged.start()
    ran = Command(damaged.bootstrap)("tail", "orders", "--from", "earliest", "--values")
    assert ran.lines == ["record 0", "record 1", "record 2"]
    assert ran.code == 1 and "CORRUPT_MESSAGE (2)" in ran.err and "tidelog repair" in ran.err


@proves("T6")
def test_what_is_not_there_is_said(damaged: TestBroker, nowhere: Command, tmp_path: Path) -> None:
    data = str(damaged.data)
    assert nowhere("repair", "--data", str(tmp_path)).code == 1
    assert "is not a broker's data folder" in nowhere("repair", "--data", str(tmp_path)).err
    assert "topic 'none' does not exist" in nowhere("repair", "--data", data, "none").err
    assert "has no partition 2; it has 0 to 1" in nowhere("repair", "--data", data, "fine", "2").err
    assert nowhere("repair", "--data", data, "--skip").code == 2


@proves("T6")
def test_a_running_brokers_folder_is_left_alone(tidelog_broker: TestBroker, nowhere: Command) -> None:
    ran = nowhere("repair", "--data", str(tidelog_broker.data))
    assert ran.code == 1 and f"process {tidelog_broker.pid}" in ran.err


@proves("T6")
def test_a_clean_stop_stays_clean_when_it_is_looked_at(tidelog_broker: TestBroker, nowhere: Command) -> None:
    tidelog_broker.create_topic("orders", partitions=2, configs={"tidelog.durability": "memory"})
    tidelog_broker.produce("orders", ["a", "b"], partition=1)
    tidelog_broker.stop()
    before = json.loads((tidelog_broker.data / "clean").read_bytes().splitlines()[0])
    assert nowhere.ok("repair", "--data", str(tidelog_broker.data)).lines[-1] == "no damage"
    assert json.loads((tidelog_broker.data / "clean").read_bytes().splitlines()[0]) == before
    tidelog_broker.start()
    assert [row.value for row in tidelog_broker.records("orders")] == [b"a", b"b"]
    assert tidelog_broker.cluster.topic("orders").partitions[1].leader_epoch == 0
