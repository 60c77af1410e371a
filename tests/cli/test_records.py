"""`tidelog produce` and `tidelog tail`: lines in, records out, and what becomes of those that fail."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from against.patience import eventually
from cli.command import Command, on_a_terminal
from crash.powered_broker import PoweredBroker
from proving import proves
from tidelog.cli.produce import LINES_BETWEEN_FLUSHES
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions

MUCH_SECONDS = 30.0  # of the processor, for what takes one
LINES = LINES_BETWEEN_FLUSHES + 10_000


def values(tidelog: Command, topic: str, *words: str) -> list[str]:
    return tidelog.ok("tail", topic, "--from", "earliest", "--values", *words).lines


@proves("T1", "T10")
@pytest.mark.story
def test_lines_become_records_as_they_are(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic)
    lines = b"plain\n\n  spaces \r\nt\xc3\xa4xt\n\xff\x00\nlast without line feed"
    assert tidelog.ok("produce", topic, stdin=lines).out == "6 records acked\n"
    ran = subprocess.run(
        tidelog.line("tail", topic, "--from", "earliest", "--values"), env=tidelog.environment, capture_output=True
    )
    assert ran.stdout == lines + b"\n"


@proves("T1", "T10")
def test_keys_headers_and_partitions_are_given_for_all(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic, "--partitions", "3")
    tidelog.ok("produce", topic, "--key", "k", "--header", "a=1", "--header", "b=2", "--partition", "2", stdin="x\n")
    record = json.loads(tidelog.ok("tail", topic, "--json").out)
    assert (record["partition"], record["key"], record["value"]) == (2, "k", "x")
    assert record["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]


@proves("T1", "T10")
def test_a_line_without_its_key_fails_alone_and_by_number(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic)
    ran = tidelog("produce", topic, "--key-separator", ": ", stdin="a: 1\nb\nc\nd: : 4\n")
    assert (ran.code, ran.out) == (1, "2 records acked, 2 failed\n")
    assert ran.err == "tidelog: lines 2 to 3: it has no ': ', so it has no key\n"
    shown = [json.loads(line) for line in tidelog.ok("tail", topic, "--json").lines]
    assert [(one["key"], one["value"]) for one in shown] == [("a", "1"), ("d", ": 4")]


@proves("T1", "T10")
def test_json_lines_carry_everything_and_mistakes_are_numbered(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic, "--partitions", "2")
    given = [
        '{"key": "a", "value": {"n": 1}, "headers": {"h": "x"}, "partition": 1, "timestamp": 1767225600000}',
        "nonsense",
        '{"value_base64": "/wA=", "partition": 1}',
        '{"key": "tombstone", "value": null, "partition": 1}',
        '{"value": 1, "partition": 9}',
    ]
    ran = tidelog("produce", topic, "--json", stdin="\n".join(given))
    assert ran.code == 1
    assert ran.json["acked"] == 3
    assert [failure["line"] for failure in ran.json["failed"]] == [2, 5]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in ran.json["failed"][1]["reason"]
    first, second, third = (json.loads(line) for line in tidelog.ok("tail", topic, "--json").lines)
    assert first == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 1767225600000,
        "key": "a",
        "value": '{"n":1}',
        "headers": [{"name": "h", "value": "x"}],
    }
    assert second["value_base64"] == "/wA=" and second["key"] is None
    assert (third["key"], third["value"]) == ("tombstone", None)


@proves("T1", "T10")
def test_what_tail_writes_produce_reads(tidelog: Command, cluster: Cluster, topic: str) -> None:
    tidelog.ok("topics", "create", topic, "--partitions", "3")
    tidelog.ok("topics", "create", f"{topic}.copy", "--partitions", "1")
    with Producer(cluster) as producer:
        for number in range(50):
            headers = [("h", bytes([number])), ("h", None)]
            producer.send(
                topic, bytes([number, 255 - number]), key=b"%d" % (number % 7), headers=headers, timestamp=number
            )
    shown = tidelog.ok("tail", topic, "--from", "earliest", "--json").out
    summary = tidelog.ok("produce", f"{topic}.copy", "--json", "--repartition", stdin=shown).json
    assert (summary["acked"], summary["failed"]) == (50, [])
    copied = tidelog.ok("tail", f"{topic}.copy", "--from", "earliest", "--json").lines
    place = {"topic", "partition", "offset"}

    def content(lines: list[str]) -> list[dict[str, object]]:
        return [{key: value for key, value in json.loads(line).items() if key not in place} for line in lines]

    assert content(copied) == content(shown.splitlines())


@proves("T6", "T10")
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_acks_are_asked_for_and_said(tidelog: Command, topic: str, acks: str) -> None:
    tidelog.ok("topics", "create", topic)
    tidelog.ok("produce", topic, stdin="ready\n")  # without acks nobody hears that a new partition is not
    said = tidelog.ok("produce", topic, "--acks", acks, "--compression", "gzip", stdin="x\n").out
    assert said == ("1 record sent, acks=0 promises nothing\n" if acks == "0" else "1 record acked\n")
    assert eventually(lambda: values(tidelog, topic)[1:]) == ["x"]


@proves("T1")
def test_records_that_are_too_large_fail_by_line_and_the_others_do_not(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic, "--set", "max.message.bytes=1000")
    fitting = ["a" * 400, "b" * 400, "c" * 400]
    ran = tidelog("produce", topic, "--quiet", stdin="\n".join([*fitting, "x" * 5000, "d"]))
    assert ran.code == 1
    assert ran.err.startswith("tidelog: line 4: ") and "MESSAGE_TOO_LARGE (10)" in ran.err
    assert f"topic {topic} takes max.message.bytes=1000; make the record smaller" in ran.err
    assert ran.out == "4 records acked, 1 failed\n"
    assert tidelog.ok("produce", topic, "--quiet", stdin="y\n").out == ""
    assert values(tidelog, topic) == [*fitting, "d", "y"]


@proves("T2", "T10")
def test_a_line_is_acked_while_the_input_is_still_open(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic)
    with tidelog.start("produce", topic, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"early\n")
        producing.stdin.flush()
        assert eventually(lambda: values(tidelog, topic)) == ["early"]
        out, _ = producing.communicate(b"late\n", timeout=300)
    assert (producing.returncode, out) == (0, b"2 records acked\n")


@proves("T7", "T10")
def test_tail_begins_where_it_is_told_and_ends_where_the_topic_ends(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic)
    rows = [f'{{"value": "{number}", "timestamp": {1_767_225_600_000 + number * 1000}}}' for number in range(30)]
    tidelog.ok("produce", topic, "--json", stdin="\n".join(rows))

    def shown(*words: str) -> list[int]:
        return [int(line) for line in tidelog.ok("tail", topic, "--values", *words).lines]

    assert shown() == list(range(20, 30))
    assert shown("--from", "earliest", "--max", "3") == [0, 1, 2]
    assert shown("--from", "28") == [28, 29]
    assert shown("--from", "-2") == [28, 29]
    assert shown("--from", "2026-01-01T00:00:27Z") == [27, 28, 29]
    assert shown("--from", "@1767225627001") == [28, 29]
    assert shown("--from", "latest") == []
    assert shown("--from", "1s") == []


@proves("F2", "T10")
def test_the_last_records_are_as_many_where_transactions_have_markers(
    tidelog: Command, cluster: Cluster, topic: str
) -> None:
    tidelog.ok("topics", "create", topic)
    with Transactions(cluster, f"id-{topic}") as owner:
        for number in range(100):
            with owner.transaction() as producer:
                producer.send(topic, b"%d" % number)
        with pytest.raises(ZeroDivisionError), owner.transaction() as producer:
            producer.send(topic, b"aborted")
            producer.flush()
            raise ZeroDivisionError

        def shown(*words: str) -> list[str]:
            return tidelog.ok("tail", topic, "--values", *words).lines

        assert shown("--from", "-1") == ["aborted"]
        assert shown("--from", "-1", "--committed") == ["99"]
        assert shown("--committed") == [str(number) for number in range(90, 100)]
        assert shown("--from", "-80", "--committed") == [str(number) for number in range(20, 100)]
        assert shown("--from", "-500", "--committed") == [str(number) for number in range(100)]
        with owner.transaction() as producer:
            producer.send(topic, b"open")
            producer.flush()
            assert shown("--from", "-1", "--committed") == ["99"]  # and it ends, though a transaction is open
            assert shown("--from", "-1") == ["open"]


@proves("T1")
def test_a_record_is_one_readable_line(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic)
    row = {"key": "k", "value": "two\nlines \x1b[31m", "headers": {"h": "v"}, "timestamp": 1767225600007}
    tidelog.ok("produce", topic, "--json", stdin=json.dumps(row))
    tidelog.ok("produce", topic, "--json", stdin='{"value_base64": "/w==", "timestamp": 1767225600008}')
    assert tidelog.ok("tail", topic).lines == [
        "0:0         2026-01-01T00:00:00.007Z  k  two\\nlines \\x1b[31m  h=v",
        "0:1         2026-01-01T00:00:00.008Z  (null)  \\xff",
    ]


@proves("T7")
def test_only_the_partitions_that_are_named_are_shown(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic, "--partitions", "3")
    for partition in "012":
        tidelog.ok("produce", topic, "--partition", partition, stdin=f"{partition}\n")
    assert values(tidelog, topic, "--partition", "2") == ["2"]
    assert sorted(values(tidelog, topic, "--partition", "0", "--partition", "1")) == ["0", "1"]
    ran = tidelog("tail", topic, "--partition", "3")
    assert ran.code == 2 and "has no partition 3; it has 0 to 2" in ran.err


def heed_interrupts() -> None:
    """Whoever runs the tests in the background may have them ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@proves("T2", "T10")
def test_follow_shows_what_comes_until_it_is_interrupted(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic)
    tidelog.ok("produce", topic, stdin="before\n")
    words, pipes = ("tail", topic, "--follow", "--values"), {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with tidelog.start(*words, **pipes, preexec_fn=heed_interrupts) as tailing:
        assert tailing.stdout is not None
        assert tailing.stdout.readline() == b"before\n"
        tidelog.ok("produce", topic, stdin="after\n")
        assert tailing.stdout.readline() == b"after\n"
        tailing.send_signal(signal.SIGINT)
        _, err = tailing.communicate(timeout=300)
    assert (tailing.returncode, err) == (130, b"")


@proves("T8", "T10")
def test_tail_goes_on_after_records_that_were_deleted_and_says_so(
    tidelog: Command, cluster: Cluster, topic: str
) -> None:
    from tidelog.client.admin import topics
    from tidelog.client.metadata import TopicPartition

    tidelog.ok("topics", "create", topic)
    tidelog.ok("produce", topic, stdin="a\nb\nc\n")
    topics.delete_records(cluster, {TopicPartition(topic, 0): 2})
    ran = tidelog("tail", topic, "--from", "0", "--values")
    assert (ran.code, ran.lines) == (0, ["c"])
    assert "begins at offset 2 now: 2 offsets were deleted" in ran.err


def processor_seconds() -> float:
    """Of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@proves("T10")
@pytest.mark.slow
def test_a_long_line_is_read_in_one_go(tidelog: Command, topic: str) -> None:
    tidelog.ok("topics", "create", topic, "--set", "max.message.bytes=40000000")
    line = b"x" * 30_000_000
    before = processor_seconds()
    assert tidelog.ok("produce", topic, stdin=b"first\n" + line + b"\nlast\n").out == "3 records acked\n"
    assert processor_seconds() - before < MUCH_SECONDS
    assert [len(value) for value in values(tidelog, topic)] == [5, len(line), 4]


@proves("T10")
def test_values_cannot_drive_a_terminal(tidelog: Command, topic: str) -> None:
    tidelog.ok("produce", topic, stdin=b"\x1b[31mred\n")
    assert on_a_terminal(tidelog, "tail", topic, "--from", "earliest", "--values") == "\\x1b[31mred\r\n"


@proves("T10")
def test_a_terminal_that_is_not_utf8_shows_every_record(tidelog: Command, topic: str) -> None:
    tidelog.ok("produce", topic, stdin="t\u00e4xt \U0001f680\n")
    ran = tidelog("tail", topic, "--from", "earliest", PYTHONIOENCODING="ascii")
    assert ran.code == 0 and ran.out.endswith("t\\xe4xt \\U0001f680\n")


@proves("command_line", "T6")
def test_produce_stops_when_the_broker_has_no_room_and_says_where(tmp_path: Path) -> None:
    broker = PoweredBroker(tmp_path, {"tidelog.log.level": "ERROR", "log.retention.check.interval.ms": 600_000})
    assert broker.start()
    try:
        tidelog = Command(broker.bootstrap)
        tidelog.ok("produce", "t", stdin="before\n")
        broker.disk.capacity = sum(one.stat().st_size for one in tmp_path.rglob("*") if one.is_file()) + 20_000
        given = "\n".join(f"{number}" for number in range(LINES))
        ran = tidelog("produce", "t", "--timeout", "2", stdin=given)
        assert ran.code == 1 and "room" in ran.err
        found = re.search(r"stopped after line (\d+), because the broker cannot write", ran.err)
        assert found is not None and int(found[1]) < LINES
        acked, failed = map(int, re.findall(r"(\d+) records? acked, (\d+) failed", ran.out)[0])
        assert acked + failed == int(found[1])
        broker.disk.mend()
        assert tidelog.ok("produce", "t", stdin="after\n").out == "1 record acked\n"
    finally:
        broker.stop()
