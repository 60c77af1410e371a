"""A generation put into the topic of the one before: what a consumer finds there, killed between any two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from pipelines.app.driven import committed, make_topic
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.control import marks
from tidelog.control.derived import DIFFERENCE, GENERATION_HEADER, ROWS, TopicGeneration
from tidelog.control.marks import Mark, Sources
from tidelog.control.owner import Owner
from tidelog.errors import PipelineFailed
from tidelog.pipelines import in_place
from tidelog.testing.broker import TestBroker

PARTITIONS = 2
SOURCES = Sources({TopicPartition("orders", 0): 30})
Last = Mapping[bytes | None, bytes | None]


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        for name in ("big", "big.v2"):
            make_topic(cluster, name, PARTITIONS)
        yield cluster


def written(cluster: Cluster, topic: str, rows: Mapping[str, str | None], *, number: int = 1) -> None:
    headers = [(GENERATION_HEADER, str(number).encode())] if number > 1 else []
    with Producer(cluster) as producer:
        for key, value in rows.items():
            said = None if value is None else value.encode()
            producer.send(topic, said, key=key.encode(), partition=len(key) % PARTITIONS, headers=headers)


def built(cluster: Cluster, put: str) -> TopicGeneration:
    """Generation 2, after its switch: its sink's last mark is of what was built aside."""
    live = {
        at: one.offset for at, one in list_offsets(cluster, dict.fromkeys(cluster.partitions("big"), LATEST)).items()
    }
    ends = {
        at: one.offset for at, one in list_offsets(cluster, dict.fromkeys(cluster.partitions("big.v2"), LATEST)).items()
    }
    at = marks.ensure_topic(cluster, "shop.big.v2")
    owner = Owner(cluster, marks.transactional_id_of("shop.big.v2"))
    owner.begin()
    with owner.transaction() as outgoing:
        outgoing.send(at, [(*marks.encode(Mark("shop.big.v2", "q", 4, SOURCES, ends, 1)), (), 1)])
    return TopicGeneration(2, "big", "shop.big.v2", live=live, in_place=put, aside="big.v2")


def generations(cluster: Cluster) -> dict[TopicPartition, list[int]]:
    """Of the records of each partition, in order; the first has no header."""
    found: dict[TopicPartition, list[int]] = {at: [] for at in cluster.partitions("big")}
    for at, row in committed(cluster, "big"):
        said = dict(row.headers).get(GENERATION_HEADER)
        found[at].append(1 if said is None else int(said))
    return found


def last_rows(cluster: Cluster, topic: str) -> Last:
    rows = {row.key: row.value for _, row in committed(cluster, topic)}
    return {key: value for key, value in rows.items() if value is not None}


def begins(cluster: Cluster) -> list[int]:
    found = list_offsets(cluster, dict.fromkeys(cluster.partitions("big"), EARLIEST))
    return [found[at].offset for at in sorted(found)]


@proves("dt.3", "dt.5", "dt.7", "dt.8")
def test_all_rows_come_again_behind_the_old_ones_which_are_deleted_then(ours: Cluster) -> None:
    written(ours, "big", {"a": "1", "bb": "2", "c": "3"})
    written(ours, "big.v2", {"a": "10", "bb": "20", "c": "30", "dd": "40"}, number=2)
    live = built(ours, ROWS)
    written(ours, "big", {"e": "5"})  # by a run that nobody has seen, after the switch
    before = in_place.put(ours, live)
    assert list(generations(ours).values()) == [[1, 2, 2], [1, 1, 1, 2, 2]], "all of one, then all of the other"
    assert in_place.put(ours, live) is None, "the mark says that it is done"
    in_place.delete_before(ours, live, None)
    assert begins(ours) == [1, 2], "where the topic ended at the switch"
    in_place.delete_before(ours, live, before)
    in_place.delete_before(ours, live, before)
    assert begins(ours) == [1, 3] and {one for told in generations(ours).values() for one in told} == {2}
    assert last_rows(ours, "big") == last_rows(ours, "big.v2")
    mark = marks.read_mark(ours, "shop.big.v2")
    assert mark is not None and (mark.batch_id, mark.query_id, mark.sources) == (4, "q", SOURCES)
    assert mark.ends == {TopicPartition("big", 0): 3, TopicPartition("big", 1): 5}, "the sink goes on from there"
    in_place.delete_aside(ours, live)
    in_place.delete_aside(ours, live)


@proves("dt.5")
def test_a_broker_that_allows_less_time_gets_it_by_its_own(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    written(ours, "big.v2", {"a": "10"}, number=2)
    monkeypatch.setattr(in_place, "TIMEOUT_MS", 900_001)
    assert in_place.put(ours, built(ours, ROWS)) is not None and last_rows(ours, "big") == {b"a": b"10"}


@proves("dt.3", "dt.6")
def test_where_rows_replace_each_other_only_the_difference_is_written(ours: Cluster) -> None:
    written(ours, "big", {"a": "1", "bb": "2", "c": "3", "gone": "4", "ended": "5"})
    written(ours, "big", {"ended": None})
    written(ours, "big.v2", {"a": "1", "bb": "20", "c": "3", "new": "6", "passing": "7"}, number=2)
    written(ours, "big.v2", {"passing": None}, number=2)
    before = len(committed(ours, "big"))
    live = built(ours, DIFFERENCE)
    before_it = in_place.put(ours, live)
    assert before_it is not None
    news = {row.key: row.value for _, row in committed(ours, "big") if row.headers}
    assert news == {b"bb": b"20", b"gone": None, b"new": b"6"} and len(committed(ours, "big")) == before + 3
    in_place.delete_before(ours, live, before_it)
    assert begins(ours) == [0, 0], "nothing is deleted"
    assert last_rows(ours, "big") == last_rows(ours, "big.v2")


@proves("dt.9")
@pytest.mark.parametrize("put", [ROWS, DIFFERENCE])
def test_if_somebody_else_writes_there_meanwhile_nothing_is_put_in_place(
    ours: Cluster, tidelog_broker: TestBroker, monkeypatch: pytest.MonkeyPatch, put: str
) -> None:
    written(ours, "big", {"a": "1"})
    written(ours, "big.v2", {"a": "10", "bb": "20"}, number=2)
    live = built(ours, put)
    records: Callable[..., Iterator[object]] = in_place._records

    def beside(*given: object) -> Iterator[object]:
        with Cluster(tidelog_broker.bootstrap) as another:
            written(another, "big", {"another": "1"})
        return records(*given)

    with monkeypatch.context() as patch:
        patch.setattr(in_place, "_records", beside)
        with pytest.raises(PipelineFailed, match=r"big\[\d\] ended at \d, and ends at \d .* nothing was put in place"):
            in_place.put(ours, live)
    assert {one for told in generations(ours).values() for one in told} == {1}, (
        "of a transaction that was aborted nobody sees anything"
    )
    assert in_place.put(ours, live) is not None, "the same command goes on"
