"""Several build a view together whose first marks are gone: processes of their own, that kill themselves at their cuts.

What a cut leaves is what the records before its ends make, who comes next goes on from there, nothing is shown before
it is whole, and none of them ever holds more than a little (`test_cuts.py` has the same without a broker).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from contract import TIMEOUT_S
from proving import proves
from tidelog.client.admin import configs, topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer, Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Ends, partition_of_marks
from tidelog.record.columns import Row as Record
from tidelog.testing.broker import TestBroker
from tidelog.views import applier as applier_module
from tidelog.views import reading as reading_module
from tidelog.views.applier import Applier
from tidelog.views.changes import Stretch
from tidelog.views.follower import Follower
from tidelog.views.reading import Reading
from tidelog.views.sharing import Begun
from tidelog.views.stores.opening import name_of, open_store
from views.applying import applying, until, until_applied
from views.shares import SOON, Partitions, look, until_all
from views.test_cuts import BATCH_ROWS, HELD_ROWS, ROW_BYTES, fold, held_rows, many
from views.writing import Pipeline, declare_view

PARTITIONS = 4
TOPIC = "revenue.v1"

pytestmark = pytest.mark.tidelog(settings=SOON)


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> int:
    """Little is held, and an answer has one record batch. How many rows may be held: with one batch, and one mark's."""
    monkeypatch.setattr(reading_module, "HELD_BYTES", HELD_ROWS * ROW_BYTES)
    monkeypatch.setattr(applier_module, "Consumer", partial(Consumer, max_bytes=1))
    return HELD_ROWS + 2 * BATCH_ROWS


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Where each process notes the most rows that it held."""
    folder = tmp_path / "measured"
    folder.mkdir()
    return folder


def begun(cluster: Cluster, batches: int, kept: int) -> Partitions:
    """A view whose first marks are gone."""
    view = declare_view(cluster, "revenue", partitions=PARTITIONS)
    expected = Partitions(Pipeline(cluster, view.generations[0]))
    for number in range(batches):
        expected.write(many(number))
    at = partition_of_marks(view.generations[0].sink)
    configs.alter(cluster, configs.TOPIC, at.topic, set={"cleanup.policy": "compact,delete"})
    topics.delete_records(cluster, {at: 2 * kept})  # a mark, and the marker of its transaction
    return expected


def share(bootstrap: str, url: str, measured: Path, dies_at: int) -> None:
    """One that shares. It notes what it holds, and kills itself just before it writes that cut of its."""
    store, note, most, cuts = open_store(url, "revenue"), Reading.note, 0, 0
    write = store.apply

    def measure(self: Reading, fetched: Fetched) -> None:
        nonlocal most
        note(self, fetched)
        if held_rows(self) > most:
            most = held_rows(self)
            (measured / str(os.getpid())).write_text(str(most))

    def apply(generation: int, stretch: Stretch, *, before: Ends, show: bool = False) -> None:
        nonlocal cuts
        cuts += stretch.mark is None and bool(stretch.changes)
        if 0 < cuts == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)  # that others come to have a share before all is done
        write(generation, stretch, before=before, show=show)

    Reading.note = measure  # type: ignore[method-assign]
    store.apply = apply  # type: ignore[method-assign]
    with Cluster(bootstrap, timeout_s=TIMEOUT_S) as cluster:
        Applier(cluster, "revenue", store, store_name=name_of(url), max_wait_ms=50, shared=True).run()


@contextmanager
def sharing(broker: TestBroker, url: str, measured: Path, *dies_at: int) -> Iterator[list[BaseProcess]]:
    """A sharer for each number: the cut at which it dies, 0 for never."""
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=share, args=(broker.bootstrap, url, measured, one)) for one in dies_at]
    for one in started:
        one.start()
    try:
        yield list(started)
    finally:
        for one in started:
            one.kill()
            one.join(TIMEOUT_S)


def held(measured: Path) -> list[int]:
    return [int(one.read_text()) for one in measured.iterdir()]


def all_records(cluster: Cluster, expected: Partitions) -> list[tuple[TopicPartition, Record]]:
    consumer, found = Consumer(cluster, read_committed=True), list[tuple[TopicPartition, Record]]()
    consumer.assign(dict.fromkeys(expected.ends, 0))
    while any(consumer.positions[at] < end for at, end in expected.ends.items()):
        found += [(one.at, row) for one in consumer.fetch() for row in one.rows()]
    return found


def stored(url: str) -> tuple[dict[str, int], Ends]:
    """What is there of the first generation, shown or not, while nobody writes."""
    store = open_store(url, "revenue")
    place = store.place(1)
    store.close()
    assert place is not None
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        rows = connection.execute('SELECT product, revenue FROM "_tidelog_revenue_v1"').fetchall()
    connection.close()
    return dict(rows), place.ends


@pytest.mark.full
@proves("eo.19", "eo.20", "eo.17", "F2", "F3")
def test_a_shared_build_that_is_killed_at_each_of_its_cuts_goes_on_from_there_and_is_that_of_one_who_is_alone(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, measured: Path, bound: int, tmp_path: Path
) -> None:
    expected, deaths, applied = begun(cluster, batches=14, kept=12), 0, 0
    while not built_or_dead(tidelog_broker, url, measured):
        deaths += 1
        rows, ends = stored(url)
        assert rows == fold(all_records(cluster, expected), ends)
        assert sum(ends.values()) > applied, "of each, one cut is kept"
        applied = sum(ends.values())
        expected.write(many(100 + deaths))
    assert deaths > 3
    with sharing(tidelog_broker, url, measured, 0):
        seen = until_all(url, expected)
    assert seen.rows == expected.now
    assert max(held(measured)) <= bound
    other = f"sqlite:///{tmp_path}/other.db"
    with applying(tidelog_broker.bootstrap, other):
        assert until_applied(other, expected.ends) == (seen.rows, seen.ends, 1)


def built_or_dead(broker: TestBroker, url: str, measured: Path) -> bool:
    """One sharer, to its second cut: the first one is written, the second is not. Whether all is built instead."""
    with sharing(broker, url, measured, 2) as (sharer,):
        until(lambda: not sharer.is_alive() or look(url) is not None)
        return look(url) is not None


@proves("eo.19", "eo.20", "F3")
@pytest.mark.slow
def test_several_that_share_a_build_hold_little_each_and_show_whole_micro_batches_whoever_dies(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, measured: Path, bound: int
) -> None:
    expected = begun(cluster, batches=30, kept=28)
    with sharing(tidelog_broker, url, measured, 0, 2, 0):
        for number in range(100, 110):
            expected.write(many(number))
            expected.check(look(url))
        until(lambda: look(url) is not None)
        expected.check(look(url))
        expected.write(many(200))
        assert until_all(url, expected).rows == expected.now
    assert len(held(measured)) > 1 and max(held(measured)) <= bound


# When it began --------------------------------------------------------------------------------------------------------


@contextmanager
def opened(broker: TestBroker, url: str) -> Iterator[tuple[Applier, Follower]]:
    """One that shares: it has told when it began, and has read nothing yet."""
    store = open_store(url, "revenue")
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        applier = Applier(cluster, "revenue", store, store_name=name_of(url), max_wait_ms=50, shared=True)
        view = applier._open()

        def has_share() -> bool:
            if applier._share.beat(applier._topics):
                applier._follow(view)
            return bool(applier._followers)

        until(has_share)
        yield applier, applier._followers[0]
        applier._leave()
    store.close()


@proves("eo.20", "eo.19")
def test_who_joins_before_anything_was_applied_goes_by_when_the_first_one_began(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    expected = begun(cluster, batches=2, kept=0)
    with opened(tidelog_broker, url) as (_, first):
        assert first.begun is not None and first.begun.marks_end == 4
    expected.write(many(2))
    with opened(tidelog_broker, url) as (_, second):
        assert second.begun == first.begun
        assert second.aim == expected.ends, "what it must reach is the newest by now"


@proves("eo.20", "eo.19")
def test_who_slept_while_others_began_a_build_anew_does_not_show_it(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    expected = begun(cluster, batches=2, kept=0)
    with opened(tidelog_broker, url) as (applier, follower):
        told = follower.begun
        assert told is not None
        applier._reported_at = time.monotonic() + TIMEOUT_S  # with offsets it would tell its own
        applier._share.begin(TOPIC, Begun(told.ms + 1, told.marks_end + 2))
        while stored(url)[1] != expected.ends:
            applier.step()
        applier.step()
        assert look(url) is None
        applier._share.begin(TOPIC, told)
        applier.step()
        assert look(url) is not None
