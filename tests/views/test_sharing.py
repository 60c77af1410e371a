"""Several appliers share a view: processes of their own that come, go, are killed and stopped, at random.

Whatever happened, each partition is that of a micro-batch, the mark claims no more than all have, every row is written
once and in the order of its key, and in the end all of it is there.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from against.apache_kafka import ApacheKafka
from contract import TIMEOUT_S, kafka, topic
from proving import proves
from tidelog.client.admin import configs, groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.catalog import Editor
from tidelog.control.marks import Ends
from tidelog.control.status import read_status
from tidelog.errors import AnotherApplier, BrokerError
from tidelog.record.partitioner import partition_of
from tidelog.testing.broker import TestBroker
from tidelog.views import lifecycle
from tidelog.views.applier import Applier
from tidelog.views.changes import Stretch, encode
from tidelog.views.sharing import group_of
from tidelog.views.stores.opening import name_of, open_store
from tidelog.views.stores.store import COPY
from tidelog.views.waiting import parse_after, wait
from tidelog.wire.error_code import ErrorCode
from views.applying import until
from views.shares import (
    KEYS,
    SOON,
    Partitions,
    Sharer,
    Sharers,
    check_written_once_and_in_order,
    look,
    numbered,
    until_all,
    watch_rows,
)
from views.writing import REVENUE, Pipeline, declare_view, make_topics, row_of

__all__ = ["kafka", "topic"]

PARTITIONS = 4
DISTURBANCES = 9

pytestmark = pytest.mark.tidelog(settings=SOON)


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.full), "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/views.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def sharers(tidelog_broker: TestBroker, url: str) -> Iterator[Sharers]:
    found = Sharers(tidelog_broker.bootstrap, url)
    yield found
    found.close()


def begun(cluster: Cluster, view: str = "revenue") -> Partitions:
    declared = declare_view(cluster, view, partitions=PARTITIONS)
    return Partitions(Pipeline(cluster, declared.generations[0]))


def shares(cluster: Cluster, url: str, view: str = "revenue") -> list[int]:
    """How many partitions each of them has, those with none left out."""
    return sorted(len(one.assigned) for one in members(cluster, url, view) if one.assigned)


def members(cluster: Cluster, url: str, view: str = "revenue") -> Sequence[groups.DescribedMember]:
    try:
        return groups.describe(cluster, group_of(view, name_of(url))).members
    except BrokerError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return ()


def until_shared(cluster: Cluster, url: str, expected: list[int], view: str = "revenue") -> None:
    until(lambda: shares(cluster, url, view) == expected)


# Coming and going -----------------------------------------------------------------------------------------------------


@pytest.mark.full
@proves("eo.20", "F3")
@pytest.mark.parametrize("count", [2, 3])
def test_appliers_that_come_go_die_and_sleep_at_random_apply_every_row_once_and_in_order(
    cluster: Cluster, url: str, sharers: Sharers, seed: int, count: int
) -> None:
    expected, chance = begun(cluster), random.Random(seed + count)
    sharers.start()
    expected.write(dict.fromkeys(KEYS, 0))
    until_all(url, expected)
    watch_rows(url)
    number = 1
    for _ in range(DISTURBANCES):
        sharers.disturb(chance, most=count)
        until_s = time.monotonic() + chance.random()
        while time.monotonic() < until_s:
            expected.write(numbered(number, chance))
            number += 1
            expected.check(look(url))
    for one in sharers.running:
        one.send(signal.SIGCONT)
    expected.write(dict.fromkeys(KEYS[::2], number))
    seen = until_all(url, expected)
    assert seen.rows == expected.now
    check_written_once_and_in_order(url)


@proves("eo.20", "eo.11")
def test_two_split_the_partitions_and_who_stays_takes_over_from_who_leaves_and_who_is_killed(
    cluster: Cluster, url: str, sharers: Sharers
) -> None:
    expected = begun(cluster)
    first = sharers.start()
    until_shared(cluster, url, [4])
    second = sharers.start()
    until_shared(cluster, url, [2, 2])
    expected.write(dict.fromkeys(KEYS, 1))
    until_all(url, expected)
    until(lambda: len(appliers(cluster)) == 2)
    assert sharers.end(first, signal.SIGTERM) == (0, "")
    until_shared(cluster, url, [4])
    until(lambda: len(appliers(cluster)) == 1)
    third = sharers.start()
    until_shared(cluster, url, [2, 2])
    sharers.end(second, signal.SIGKILL)
    expected.write(dict.fromkeys(KEYS, 2))
    assert until_all(url, expected).rows == expected.now
    until_shared(cluster, url, [4])
    until(lambda: len(appliers(cluster)) == 1)  # what was killed is told of no more
    assert sharers.end(third, signal.SIGTERM) == (0, "")
    until(lambda: appliers(cluster) == {})
    committed = groups.committed(cluster, group_of("revenue", name_of(url)))
    assert {at: one.offset for at, one in committed.items()} == expected.ends


def appliers(cluster: Cluster) -> dict[str, object]:
    return {one.name: one.figures["member"] for one in read_status(cluster) if one.kind == "applier"}


@proves("eo.20", "eo.17", "F3")
@pytest.mark.slow
def test_one_that_was_stopped_wakes_up_and_shares_again_what_others_have_gone_on_with(
    cluster: Cluster, url: str, sharers: Sharers
) -> None:
    expected = begun(cluster)
    asleep, awake = sharers.start(), sharers.start()
    until_shared(cluster, url, [2, 2])
    expected.write(dict.fromkeys(KEYS, 0))
    until_all(url, expected)
    watch_rows(url)
    asleep.send(signal.SIGSTOP)
    for number in range(1, 4):
        expected.write(dict.fromkeys(KEYS, number))
        assert until_all(url, expected).rows == expected.now
    asleep.send(signal.SIGCONT)
    for number in range(4, 8):
        expected.write(dict.fromkeys(KEYS, number))
        assert until_all(url, expected).rows == expected.now
    until_shared(cluster, url, [2, 2])
    for one in (asleep, awake):
        assert sharers.end(one, signal.SIGTERM) == (0, "")
    check_written_once_and_in_order(url)


def stop_before_writing(bootstrap: str, url: str, refused: Path) -> None:
    """An applier that stops itself when it has read a row of 1, just before the store gets it. Never returns."""
    store = open_store(url, "revenue")
    write, stopped = store.apply, list[bool]()

    def apply(generation: int, stretch: Stretch, *, before: Ends, show: bool = False) -> None:
        if not stopped and any(one.after is not None and one.after["revenue"] == 1 for one in stretch.changes):
            stopped.append(True)
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            write(generation, stretch, before=before, show=show)
        except AnotherApplier as error:
            refused.write_text(str(error))
            raise

    store.apply = apply  # type: ignore[method-assign]
    with Cluster(bootstrap, timeout_s=TIMEOUT_S) as cluster:
        Applier(cluster, "revenue", store, store_name=name_of(url), max_wait_ms=50, shared=True).run()


@proves("eo.20", "eo.17", "F3")
@pytest.mark.slow
def test_what_one_had_read_when_it_was_stopped_is_refused_when_others_have_written_it(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, sharers: Sharers, tmp_path: Path
) -> None:
    expected, refused = begun(cluster), tmp_path / "refused"
    process = multiprocessing.get_context("fork").Process(
        target=stop_before_writing, args=(tidelog_broker.bootstrap, url, refused)
    )
    process.start()
    assert process.pid is not None
    try:
        expected.write(dict.fromkeys(KEYS, 0))
        until_all(url, expected)
        watch_rows(url)
        expected.write(dict.fromkeys(KEYS, 1))
        until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        sharers.start()
        until_all(url, expected)
        expected.write(dict.fromkeys(KEYS, 2))
        until_all(url, expected)
        os.kill(process.pid, signal.SIGCONT)
        until(refused.exists)
        until_shared(cluster, url, [2, 2])
        expected.write(dict.fromkeys(KEYS, 3))
        assert until_all(url, expected).rows == expected.now
    finally:
        process.kill()
        process.join(TIMEOUT_S)
    check_written_once_and_in_order(url)


@proves("eo.20")
def test_more_appliers_than_partitions_leave_some_without_any(cluster: Cluster, url: str, sharers: Sharers) -> None:
    expected = begun(cluster)
    sharers.start(5)
    until_shared(cluster, url, [1, 1, 1, 1])
    expected.write(dict.fromkeys(KEYS, 1))
    assert until_all(url, expected).rows == expected.now


# Waiting, marks, generations ------------------------------------------------------------------------------------------


@proves("eo.20", "eo.22")
def test_a_wait_for_a_record_ends_when_every_partition_has_what_came_of_it(
    cluster: Cluster, url: str, sharers: Sharers
) -> None:
    expected = begun(cluster)
    sharers.start(2)
    store = open_store(url, "revenue")
    for number in range(20):
        expected.write(dict.fromkeys(KEYS, number))
        wait(cluster, "revenue", parse_after(f"orders:0:{number}"), TIMEOUT_S, store=store)
        seen = look(url)
        assert seen is not None and seen.rows == expected.now
    store.close()
    until(lambda: (now := look(url)) is not None and now.mark is not None and now.mark.ends == expected.ends)


@proves("eo.20", "eo.24", "eo.14")
@pytest.mark.slow
def test_a_generation_is_shown_when_all_that_share_it_have_built_it_whoever_dies_meanwhile(
    cluster: Cluster, url: str, sharers: Sharers, seed: int
) -> None:
    old, chance = begun(cluster), random.Random(seed)
    old.write(dict.fromkeys(KEYS, 1))
    sharers.start(3)
    until_all(url, old)
    editor = Editor(cluster, "revenue")
    view = editor.view()
    assert view is not None
    view = lifecycle.begin(view, view.generations[0].declared, "f2", PARTITIONS)
    editor.write(view)
    make_topics(cluster, view.generations[-1])
    new = Partitions(Pipeline(cluster, view.generations[-1]))
    for number in range(100, 130):
        new.write(numbered(number, chance))
    sharers.end(sharers.running[0], signal.SIGKILL)
    old.write(dict.fromkeys(KEYS, 2))
    assert until_all(url, old).generation == 1, "until it is live, the old one is what readers have"
    editor.write(lifecycle.switch(view, 2, new.ends))
    sharers.start()
    sharers.running[0].send(signal.SIGSTOP)
    seen = until_all(url, new)
    assert (seen.generation, seen.rows) == (2, new.now)
    sharers.running[0].send(signal.SIGCONT)
    new.write(dict.fromkeys(KEYS, 200))
    assert until_all(url, new).rows == new.now
    until(lambda: topics_shared(cluster, url) == {"revenue.v2"})


def topics_shared(cluster: Cluster, url: str) -> set[str]:
    return {at.topic for one in members(cluster, url) for at in one.assigned}


@proves("eo.20", "eo.19")
@pytest.mark.slow
def test_where_one_partition_was_left_behind_all_that_share_build_the_view_anew(
    cluster: Cluster, url: str, sharers: Sharers
) -> None:
    expected = begun(cluster)
    sharers.start(2)
    expected.write(dict.fromkeys(KEYS, 1))
    until_all(url, expected)
    until(lambda: len(members(cluster, url)) == 2)  # one that only starts has not asked for its signals yet
    for one in list(sharers.running):
        assert sharers.end(one, signal.SIGTERM) == (0, "")
    expected.write(dict.fromkeys(KEYS, 2))
    gone = expected.ends
    expected.write(dict.fromkeys(KEYS, 3))
    configs.alter(cluster, configs.TOPIC, "revenue.v1", set={"cleanup.policy": "compact,delete"})
    topics.delete_records(cluster, {at: end for at, end in gone.items() if at.partition == 0})
    sharers.start(2)
    until(lambda: (now := look(url)) is not None and now.generation == COPY + 1)
    expected.write(dict.fromkeys(KEYS, 4))
    assert until_all(url, expected).rows == expected.now
    store = open_store(url, "revenue")
    until(lambda: set(store.generations()) == {COPY + 1})
    store.close()


# Others ---------------------------------------------------------------------------------------------------------------


@proves("eo.20", "eo.17")
def test_one_that_is_alone_ends_where_others_share(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, sharers: Sharers
) -> None:
    expected = begun(cluster)
    sharers.start(2)
    until_shared(cluster, url, [2, 2])
    expected.write(dict.fromkeys(KEYS, 1))
    until_all(url, expected)
    alone = subprocess.run(
        [sys.executable, "-m", "tidelog", "apply", "revenue", "--store", url],
        env={**os.environ, "TIDELOG_BOOTSTRAP": tidelog_broker.bootstrap},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert alone.returncode == 1 and "others share this view" in alone.stderr
    expected.write(dict.fromkeys(KEYS, 2))
    assert until_all(url, expected).rows == expected.now


@proves("eo.20")
def test_a_store_that_cannot_be_shared_says_why(tidelog_broker: TestBroker, cluster: Cluster, tmp_path: Path) -> None:
    begun(cluster)
    for scheme in ("parquet", "delta"):
        sharer = Sharer(tidelog_broker.bootstrap, f"{scheme}:///{tmp_path}/warehouse")
        code, said = sharer.end()
        assert code == 2 and "cannot be shared: a transaction is one" in said


@proves("eo.20", "eo.18")
def test_a_topic_without_marks_is_shared_as_well(cluster: Cluster, url: str, sharers: Sharers) -> None:
    topics.create(cluster, "prices", partitions=PARTITIONS)
    editor = Editor(cluster, "revenue")
    editor.write(lifecycle.of_topic("revenue", "prices", REVENUE, PARTITIONS))
    sharers.start(3)
    with Producer(cluster) as producer:
        for number in range(40):
            for product in KEYS:
                key, value = encode(REVENUE, row_of(product, number))
                producer.send("prices", value, key=key, partition=partition_of(key, PARTITIONS))
    until(lambda: (now := look(url)) is not None and now.rows == dict.fromkeys(KEYS, 39))


@proves("eo.20")
@pytest.mark.external
def test_apache_kafka_assigns_the_partitions_as_well(kafka: ApacheKafka, tmp_path: Path, topic: str) -> None:
    url = f"sqlite:///{tmp_path}/views.db"
    with Cluster(kafka.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        expected, sharers = begun(cluster, topic), Sharers(kafka.bootstrap, url, topic)
        try:
            first = sharers.start()
            until_shared(cluster, url, [4], topic)
            second = sharers.start()
            until_shared(cluster, url, [2, 2], topic)
            expected.write(dict.fromkeys(KEYS, 1))
            assert until_all(url, expected, topic).rows == expected.now
            assert sharers.end(first, signal.SIGTERM) == (0, "")
            until_shared(cluster, url, [4], topic)
            second.send(signal.SIGSTOP)
            expected.write(dict.fromkeys(KEYS, 2))
            second.send(signal.SIGCONT)
            assert until_all(url, expected, topic).rows == expected.now
        finally:
            sharers.close()
