"""`tidelog dead`: letters of queues, captures and apps are listed, shown, and replayed once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import tidelog
from against.patience import eventually
from cli.command import Command
from proving import proves
from tidelog.cli.main import main
from tidelog.client import Cluster, Producer, configs, topics
from tidelog.client.metadata import TopicPartition
from tidelog.client.share import ACCEPT, REJECT, ShareReader
from tidelog.control import dead_letters
from tidelog.control.owner import Owner
from tidelog.control.reading import read_all
from tidelog.control.replaying import PLACE
from tidelog.record.columns import Row

LETTERS = "dlq.mail"
Dead = Callable[..., tuple[int, str, str]]


@pytest.fixture
def broker() -> Iterator[tidelog.Broker]:
    with tidelog.Broker(in_process=True) as running:
        yield running


@pytest.fixture
def cluster(broker: tidelog.Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as made:
        yield made


@pytest.fixture
def dead(broker: tidelog.Broker, capsys: pytest.CaptureFixture[str]) -> Dead:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["dead", *arguments, "--bootstrap", broker.bootstrap])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def rejected(cluster: Cluster, *values: bytes, copied: bool = True) -> None:
    """Jobs of the queue `mail`, which is made, that its group has given up."""
    topics.create(cluster, "mail", partitions=2)
    topics.create(cluster, LETTERS, configs={"errors.deadletterqueue.group.enable": "true"})
    wanted = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": LETTERS}
    kept = {"errors.deadletterqueue.copy.record.enable": str(copied).lower()}
    configs.alter(cluster, configs.GROUP, "mailers", set=wanted | kept)
    with Producer(cluster) as producer:
        for value in values:
            delay = ("tidelog-delay-ms", b"1")
            producer.send("mail", value, key=b"k" + value, headers=[("h", b"1"), delay], partition=1)
    reader = ShareReader(cluster, "mailers", ["mail"])
    found = 0
    while found < len(values):
        for one in reader.fetch():
            assert not reader.acknowledge({one.at: {one.row.offset: REJECT}})
            found += 1
    reader.close()
    eventually(lambda: rows(cluster, LETTERS), lambda got: len(got) == len(values))


def rows(cluster: Cluster, topic: str, partition: int = 0) -> list[Row]:
    return list(read_all(cluster, TopicPartition(topic, partition)))


def letter(cluster: Cluster, topic: str, of: dict[str, object], taker: str, value: bytes | None, key: bytes) -> None:
    told = dead_letters.headers(of, dead_letters.told_of_error("TASK_PUT", taker, "Error"), "it was bad")
    with Producer(cluster) as producer:
        producer.send(topic, value, key=key, headers=[("own", b"1"), *told], partition=0)


@proves("T4")
def test_letters_of_a_queue_are_listed_shown_and_replayed_once(cluster: Cluster, dead: Dead) -> None:
    assert dead() == (0, "no dead letters\n", "")
    rejected(cluster, b"Ada", b"Bob")
    assert json.loads(dead("--json")[1]) == [{"topic": LETTERS, "letters": 2, "to replay": 2}]
    first, second = json.loads(dead("list", LETTERS, "--json")[1])
    told = {"letter": "0:0", "of": "mail:1:0", "kind": "queue", "by": "mailers", "deliveries": 1, "replayed": "no"}
    assert {name: first[name] for name in told} == told and second["of"] == "mail:1:1"
    assert "rejected" in first["why"]
    shown = json.loads(dead("show", f"{LETTERS}:0:1", "--json")[1])
    assert (shown["key"], shown["value"], shown["headers"][0]) == ("kBob", "Bob", {"name": "h", "value": "1"})
    assert "Bob" in dead("show", f"{LETTERS}:0:1")[1]
    assert dead("replay", LETTERS)[0] == 2  # nobody is there to be asked
    assert dead("replay", LETTERS, "--yes")[:2] == (0, "2 records written\n")
    again = rows(cluster, "mail", 1)[2:]
    assert [(row.key, row.value) for row in again] == [(b"kAda", b"Ada"), (b"kBob", b"Bob")]
    assert again[0].headers == (("h", b"1"), (PLACE, b"dlq.mail:0:0"))  # its delay is over
    assert "no letter" in dead("replay", LETTERS, "--yes")[1]
    assert dead("replay", LETTERS, "0:1")[:2] == (0, "1 record written\n")  # by its name, again
    assert [row.value for row in rows(cluster, "mail", 1)[4:]] == [b"Bob"]
    reader = ShareReader(cluster, "mailers", ["mail"])
    given = eventually(reader.fetch)
    assert given[0].row.value == b"Ada" and given[0].delivery == 1
    reader.acknowledge({one.at: {one.row.offset: ACCEPT} for one in given})
    reader.close()


@proves("T4")
def test_letters_that_were_replayed_by_name_are_not_replayed_again_with_the_others(
    cluster: Cluster, dead: Dead
) -> None:
    rejected(cluster, *(b"%d" % number for number in range(7)))
    for named in (["0:1"], ["0:4", "0:3"], ["0:4"]):
        assert dead("replay", LETTERS, *named)[0] == 0
    assert [row.value for row in rows(cluster, "mail", 1)[7:]] == [b"1", b"3", b"4", b"4"]
    assert json.loads(dead("--json")[1]) == [{"topic": LETTERS, "letters": 7, "to replay": 4}]
    listed = json.loads(dead("list", LETTERS, "--json")[1])
    assert [one["replayed"] for one in listed] == ["no", "yes", "no", "yes", "yes", "no", "no"]
    assert dead("replay", LETTERS, "--yes")[:2] == (0, "4 records written\n")
    assert [row.value for row in rows(cluster, "mail", 1)[11:]] == [b"0", b"2", b"5", b"6"]
    assert json.loads(dead("--json")[1]) == [{"topic": LETTERS, "letters": 7, "to replay": 0}]


@proves("T4")
def test_a_letter_without_a_copy_is_replayed_from_its_topic_while_that_has_it(cluster: Cluster, dead: Dead) -> None:
    rejected(cluster, b"Ada", b"Bob", copied=False)
    topics.delete_records(cluster, {TopicPartition("mail", 1): 1})
    assert "gone" in dead("show", f"{LETTERS}:0:0")[1]
    assert "Bob" in dead("show", f"{LETTERS}:0:1")[1]
    code, said, warned = dead("replay", LETTERS, "--yes")
    assert (code, said) == (1, "1 record written\n")
    assert "0:0 was not replayed" in warned
    assert [row.value for row in rows(cluster, "mail", 1)] == [b"Bob", b"Bob"]


@proves("T4")
def test_letters_of_an_app_do_not_go_to_its_input_but_to_a_topic_of_their_own(cluster: Cluster, dead: Dead) -> None:
    for topic in ("orders", "revenue.v1.dead", "mended"):
        topics.create(cluster, topic)
    of = {"topic": "orders", "partition": 0, "offset": 7, "connector.name": "revenue.v1"}
    owner = Owner(cluster, "revenue")
    owner.begin()
    with owner.transaction() as outgoing:  # as a sink writes them: the end of a transaction is not a letter
        told = dead_letters.told_of_error("VALUE_CONVERTER", "tidelog.spark.typed", "Error")
        headers = [("own", b"1"), *dead_letters.headers(of, told, "it was bad")]
        outgoing.send(TopicPartition("revenue.v1.dead", 0), [(b"k", b"{", headers, 1)])
    counted = {"topic": "revenue.v1.dead", "letters": 1, "to replay": 1}
    eventually(lambda: json.loads(dead("--json")[1]), lambda found: found == [counted])
    (listed,) = json.loads(dead("list", "revenue.v1.dead", "--json")[1])
    assert (listed["kind"], listed["by"], listed["of"]) == ("app", "revenue.v1", "orders:0:7")
    code, _, told = dead("replay", "revenue.v1.dead", "--yes")
    assert code == 2 and "who would read the record twice" in told
    assert dead("replay", "revenue.v1.dead", "--to", "orders", "--yes")[0] == 2
    assert dead("replay", "revenue.v1.dead", "--to", "revenue.v1.dead", "--yes")[0] == 2
    assert rows(cluster, "orders") == []
    assert dead("replay", "revenue.v1.dead", "--to", "mended", "--yes")[:2] == (0, "1 record written\n")
    assert "no letter" in dead("replay", "revenue.v1.dead", "--to", "mended", "--yes")[1]
    (row,) = rows(cluster, "mended")
    assert (row.key, row.value, row.headers[0]) == (b"k", b"{", ("own", b"1"))


@proves("T4", "D5")
def test_a_row_of_a_capture_is_replayed_unless_a_newer_one_is_there(cluster: Cluster, dead: Dead) -> None:
    topics.create(cluster, "shop.orders")
    topics.create(cluster, "large")
    of = {"topic": "shop.orders", "partition": 0}
    for key, value in ((b"1", b"one"), (b"2", b"two"), (b"3", None)):
        letter(cluster, "large", of, "tidelog.capture", value, key)
    with Producer(cluster) as producer:
        producer.send("shop.orders", b"two, newer", key=b"2")
    assert dead("list", "--json")[1] == "[]\n"  # nobody knows what such a topic is called
    code, said, warned = dead("replay", "large", "--yes")
    assert (code, said) == (1, "1 record written\n")
    assert "newer change of its key, at offset 0" in warned and "has no value" in warned
    assert [row.value for row in rows(cluster, "shop.orders")] == [b"two, newer", b"one"]


@proves("T4")
def test_what_is_not_a_letter_or_says_nonsense_stops_nobody(cluster: Cluster, dead: Dead) -> None:
    topics.create(cluster, "dlq.odd")
    topics.create(cluster, "jobs")
    with Producer(cluster) as producer:
        producer.send("dlq.odd", b"plain")
        odd = [("__dlq.errors.topic", b"jobs"), ("__dlq.errors.partition", b"-1"), ("__dlq.errors.offset", b"\xff")]
        producer.send("dlq.odd", b"v", headers=[("a", None), *odd, ("__dlq.errors.group", None)])
        producer.send("dlq.odd", b"\x1b[31m", headers=[("__dlq.errors.topic", b"gone\x1b[31m")])
    code, shown, warned = dead("list", "dlq.odd")
    assert code == 0 and "1 record of dlq.odd is not a dead letter" in warned and "\x1b[31m" not in shown
    assert dead("replay", "dlq.odd", "0:0")[0] == 1
    assert dead("replay", "dlq.odd", "0:1")[:2] == (0, "1 record written\n")
    assert dead("replay", "dlq.odd", "0:2")[0] == 1  # its topic is not there
    assert dead("replay", "dlq.odd", "--to", "gone", "--yes")[0] == 2
    assert [row.value for row in rows(cluster, "jobs")] == [b"v"]
    for wrong_name in (
        ("show", "dlq.odd"),
        ("show", "dlq.odd:0:99"),
        ("replay", "dlq.odd", "0:99"),
        ("list", "dlq.od"),
    ):
        assert dead(*wrong_name)[0] in (1, 2)


@proves("T4")
@pytest.mark.slow
def test_a_replay_that_is_killed_goes_on_where_it_was(broker: tidelog.Broker, cluster: Cluster) -> None:
    topics.create(cluster, "jobs")
    topics.create(cluster, "dlq.jobs")
    count = 20_000
    with Producer(cluster) as producer:
        for number in range(count):
            producer.send("dlq.jobs", b"%d" % number, headers=[("__dlq.errors.topic", b"jobs")])
    words = ["dead", "replay", "dlq.jobs", "--yes", "--bootstrap", broker.bootstrap]
    command = Command(broker.bootstrap)
    for _ in range(2):
        before = len(rows(cluster, "jobs"))
        killed = command.start(*words)
        eventually(lambda: len(rows(cluster, "jobs")), lambda now, before=before: now > before)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert main(words) == 0
    assert Counter(row.value for row in rows(cluster, "jobs")) == Counter(b"%d" % number for number in range(count))
