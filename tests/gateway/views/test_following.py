"""Views followed over HTTP: nobody misses or doubles anything, nobody is held up by another, nothing grows."""

from __future__ import annotations

import asyncio
import http.client
import random
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

import tidelog
from gateway.serving import SECONDS, Client, GatewayProcess, served
from gateway.views.shop import Follower, Shop, fold, shop, wait_for
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.catalog import Editor
from tidelog.gateway.routes import ROUTES
from tidelog.gateway.views import feed as feed_module
from tidelog.gateway.views import rendering
from tidelog.gateway.views import ring as ring_module
from tidelog.gateway.views import slot as slot_module
from tidelog.gateway.views import subscriber as subscriber_module
from tidelog.schema.declaration import declare
from tidelog.views import lifecycle
from tidelog.views.applier import Applier
from tidelog.views.feeds import Cursor, from_text, to_text
from tidelog.views.stores.opening import open_store
from views.writing import Pipeline, declare_view

MANY = 100
CUTS = 12
BATCHES = 40
LONG = "x" * 4000  # in the key and in the row, so that sockets' own buffers are soon full


@pytest.fixture
def sold(broker: tidelog.Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shop(broker.bootstrap, tmp_path, f"sold-{time.monotonic_ns()}", partitions=3) as made:
        yield made


@proves("D7")
def test_changes_come_as_they_are_made_with_the_place_after_each(client: Client, sold: Shop) -> None:
    with Follower(client, sold.name) as follower:
        sold.batch({"tea": 1, "milk": 2})
        sold.batch({"tea": None, "milk": 3})
        events = follower.take(4)
    assert fold({}, events) == sold.now == {"milk": 3}
    assert len({event.id for event in events}) == 4
    assert {event.event for event in events} == {"change", "leave"}


@proves("D7")
def test_who_reads_the_view_and_then_follows_it_from_there_misses_nothing(client: Client, sold: Shop) -> None:
    sold.applied(sold.batch({f"p{number}": number for number in range(20)}))
    got = client("GET", f"/views/{sold.name}").json
    sold.batch({"p3": None, "p4": 44, "new": 1})
    with Follower(client, sold.name, cursor=got["cursor"]) as follower:
        rows = fold({row["product"]: row["revenue"] for row in got["rows"]}, follower.take(3))
    assert rows == sold.now


@proves("D7", "eo.15")
@pytest.mark.parametrize("seed", range(3))
def test_who_is_cut_off_again_and_again_misses_and_doubles_nothing(client: Client, sold: Shop, seed: int) -> None:
    """At random, in the middle of micro-batches, while changes go on; in the ring and out of it."""
    chance = random.Random(seed)
    written, seen, last_id = 0, [], None
    with Follower(client, sold.name) as whole:
        first = whole.last_id
        for _ in range(CUTS):
            for _ in range(chance.randrange(1, 4)):
                rows = {f"p{chance.randrange(12)}": chance.choice([None, written]) for _ in range(5)}
                sold.batch(rows)
                written += len(rows)
            with Follower(client, sold.name, last_id or first) as follower:
                seen += follower.take(chance.randrange(0, written - len(seen)))
                last_id = follower.last_id
        with Follower(client, sold.name, last_id or first) as follower:
            seen += follower.take(written - len(seen))
        told = whole.take(written)
    assert sorted(event.data["key"]["product"] for event in seen) == sorted(e.data["key"]["product"] for e in told)
    for product in {event.data["key"]["product"] for event in told}:
        mine, theirs = ([one.data for one in of if one.data["key"]["product"] == product] for of in (seen, told))
        assert mine == theirs
    assert fold({}, seen) == sold.now


@proves("D7", "eo.12")
def test_rows_of_a_query_enter_change_and_leave(client: Client, sold: Shop) -> None:
    with Follower(client, sold.name, where="revenue > 10 and product != 'milk'") as follower:
        sold.batch({"tea": 5, "milk": 50})
        sold.batch({"tea": 15})
        sold.batch({"tea": 20, "milk": 60})
        sold.batch({"tea": 1})
        sold.batch({"end": 11})
        events = []
        while not events or events[-1].data["key"] != {"product": "end"}:
            events.append(follower.next())
    told = [(event.data["key"]["product"], event.event) for event in events]
    assert [one for one in told if one[0] == "tea"] == [("tea", "leave"), *[("tea", "change")] * 2, ("tea", "leave")]
    assert {event for product, event in told if product == "milk"} == {"leave"}, "nobody knows what it was before"
    assert fold({}, events) == {"end": 11}


@proves("eo.23", "D7")
def test_a_switch_is_told_once_to_who_is_there_and_to_who_comes_back(client: Client, sold: Shop) -> None:
    sold.applied(sold.batch({"tea": 1}))  # and so it is before now
    with Follower(client, sold.name) as there:
        before = there.last_id
        view = declare_view(sold.cluster, sold.name, partitions=1)
        new = Pipeline(sold.cluster, view.generations[1])
        live = new.batch({"tea": 100})
        Editor(sold.cluster, sold.name).write(lifecycle.switch(view, 2, live.ends))
        new.batch({"tea": 101})
        events = there.take(2)
    with Follower(client, sold.name, before) as back:
        events += back.take(2)
    assert [event.event for event in events] == ["switched", "change"] * 2
    assert [event.data.get("generation") for event in events[::2]] == [2, 2]
    assert [event.data["row"]["revenue"] for event in events[1::2]] == [101, 101]


@proves("eo.23", "D7")
def test_who_reads_after_a_switch_never_gets_the_old_generation(
    client: Client, broker: tidelog.Broker, tmp_path: Path
) -> None:
    with shop(broker.bootstrap, tmp_path, "switching", applied=False) as made, Cluster(broker.bootstrap) as appliers:
        applier = Applier(appliers, made.name, open_store(made.url, made.name), store_name="t", max_wait_ms=50)
        made.batch({"tea": 1})
        while client("GET", "/views/switching").status != 200:
            applier.step()
        with Follower(client, made.name) as there:
            view = declare_view(made.cluster, made.name)
            new = Pipeline(made.cluster, view.generations[1])
            Editor(made.cluster, made.name).write(lifecycle.switch(view, 2, new.batch({"tea": 100}).ends))
            switched = there.next()
        path = f"/views/switching?generation={switched.data['generation']}"
        got = client("GET", path)
        assert got.status == 503 and "as generation 1, and 2 was asked for" in got.message
        assert client("GET", "/views/switching?generation=x").status == 400
        while (got := client("GET", path)).status != 200:
            applier.step()
        assert (got.json["generation"], got.json["rows"]) == (2, [{"product": "tea", "revenue": 100}])
        with Follower(client, made.name, cursor=got.json["cursor"]) as back:
            new.batch({"tea": 101})
            assert back.next().data["row"] == {"product": "tea", "revenue": 101}, "and no `switched` again"


@proves("eo.15")
def test_beyond_the_horizon_a_reader_is_told_where_to_begin(
    client: Client, broker: tidelog.Broker, tmp_path: Path
) -> None:
    hour_ms = 3_600_000
    declared = declare({"product": "string", "revenue": "long"}, ("product",), hour_ms)
    with shop(broker.bootstrap, tmp_path, "old", declared) as made:
        old = to_text(Cursor("old", 1, (0,)))
        made.pipeline.batch({"tea": 1}, time_ms=int(time.time() * 1000) - 2 * hour_ms)
        made.applied(made.pipeline.last)  # type: ignore[arg-type]
        got = client("GET", f"/views/old/changes?cursor={old}")
        assert got.status == 410 and "horizon" in got.message
        start = got.headers["tidelog-cursor"]
        assert from_text(start, "old").offsets == (1,)
        read = client("GET", "/views/old").json
        assert read["cursor"] == start
        with Follower(client, "old", start) as follower:
            made.batch({"tea": 2})
            assert follower.next().data["row"] == {"product": "tea", "revenue": 2}
        with Follower(client, "old", cursor="start") as follower:
            assert [event.data["row"]["revenue"] for event in follower.take(2)] == [1, 2]


@proves("eo.23", "hostile")
@pytest.mark.parametrize("cursor", ["x", "%00", "AAAA", "a" * 7000, "%F0%9F%8C%8A", "start%20"])
def test_what_is_no_cursor_is_refused(client: Client, sold: Shop, cursor: str) -> None:
    wait_for(lambda: client("GET", f"/views/{sold.name}").status != 404)
    assert client("GET", f"/views/{sold.name}/changes?cursor={cursor}").status == 400
    for wrong in (Cursor("other", 1, (0, 0, 0)), Cursor(sold.name, 9, (0, 0, 0)), Cursor(sold.name, 1, (0, 10**9, 0))):
        assert client("GET", f"/views/{sold.name}/changes", Last_Event_ID=to_text(wrong)).status == 400


@proves("hostile")
@pytest.mark.parametrize("where", ["", "nothing = 1", "revenue = 'x'", "1; drop", "(" * 100, "product", "\0"])
def test_what_is_no_expression_is_refused(client: Client, sold: Shop, where: str) -> None:
    wait_for(lambda: client("GET", f"/views/{sold.name}").status != 404)
    assert client("GET", f"/views/{sold.name}/changes?where={quote(where)}").status == 400


@proves("D7")
def test_a_hundred_followers_are_told_the_same_by_one_reader(
    gateway: GatewayProcess, client: Client, sold: Shop
) -> None:
    process = psutil.Process(gateway.process.pid)
    sold.batch({"first": 0})
    followers = [Follower(client, sold.name) for _ in range(MANY)]
    try:
        threads = process.num_threads()
        for number in range(10):
            sold.batch({f"p{one}": number for one in range(5)})
        told = [follower.take(50) for follower in followers]
        assert all(events == told[0] for events in told)
        assert process.num_threads() <= threads
    finally:
        for follower in followers:
            follower.close()


# With limits that are soon reached ------------------------------------------------------------------------------------


@pytest.fixture
def small(broker: tidelog.Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A gateway whose rings are small and whose heart beats fast."""
    monkeypatch.setattr(ring_module, "RING_BYTES", 20_000)
    monkeypatch.setattr(ring_module, "RING_CHANGES", 100)
    monkeypatch.setattr(ring_module, "CHUNK_BYTES", 4_000)
    monkeypatch.setattr(feed_module, "TICK_S", 0.05)
    monkeypatch.setattr(feed_module, "SUBSCRIBERS_MAX", 20)
    monkeypatch.setattr(subscriber_module, "CHUNK_BYTES", 4_000)
    monkeypatch.setattr(subscriber_module, "HEARTBEAT_S", 0.1)
    with served(ROUTES, broker.bootstrap) as client:
        yield client


@proves("D7")
def test_a_heart_beats_with_the_place_of_who_follows_rows_that_seldom_match(small: Client, sold: Shop) -> None:
    with Follower(small, sold.name, where="product = 'never'") as follower:
        before = follower.last_id
        sold.batch({"tea": None})  # it was none of these rows, and the topic says so
        while follower.comments < 3 or follower.last_id == before:
            assert follower.block() is None


@proves("D7", "hostile")
@pytest.mark.slow
def test_a_slow_one_holds_up_nobody_and_still_gets_everything(
    small: Client, sold: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It falls out of the ring, far, and reads the log until it is there again."""
    read_by_themselves = []
    chunk = subscriber_module.Past.chunk

    def counted(past: subscriber_module.Past, *arguments: object, **named: object) -> object:
        read_by_themselves.append(arguments)
        return chunk(past, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(subscriber_module.Past, "chunk", counted)
    slow = [Follower(small, sold.name, patient=False), Follower(small, sold.name, patient=False, where="revenue >= 0")]
    with Follower(small, sold.name) as fast:
        for number in range(BATCHES):
            sold.batch({f"{LONG}{one}": number for one in range(40)})
            assert len(fast.take(40)) == 40
        told = [follower.take(BATCHES * 40) for follower in slow]
        assert read_by_themselves
        assert [fold({}, events) for events in told] == [sold.now, sold.now]
        assert [len({event.id for event in events}) for events in told] == [BATCHES * 40] * 2
        sold.batch({"last": 1})
        for follower in (fast, *slow):
            assert follower.next().data["row"] == {"product": "last", "revenue": 1}, "it is there again"
            follower.close()


@proves("D7", "hostile")
def test_nothing_is_rendered_on_the_loop_however_many_expressions_are_followed(
    small: Client, sold: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_module, "WHERES_MAX", 3)
    on_the_loop, render = list[bool](), rendering.changes

    def watched(*arguments: object) -> bytes:
        on_the_loop.append(asyncio._get_running_loop() is not None)
        return render(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rendering, "changes", watched)
    followers = [Follower(small, sold.name, where=f"revenue = {number}") for number in range(10)]
    for _ in range(3):
        sold.batch({f"p{number}": number for number in range(10)})
        for number, follower in enumerate(followers):  # what does not match leaves: nobody knows what was before
            told = follower.take(10)
            assert [event.data["row"]["revenue"] for event in told if event.event != "leave"] == [number]
    assert len(on_the_loop) > 10 and not any(on_the_loop)
    for follower in followers:
        follower.close()


@proves("D7", "hostile")
@pytest.mark.slow
def test_who_takes_nothing_grows_no_memory(gateway: GatewayProcess, client: Client, sold: Shop) -> None:
    """Ten who do not read: a queue for each would be ten times what is sent."""
    process = psutil.Process(gateway.process.pid)
    stuck = [Follower(client, sold.name, patient=False) for _ in range(10)]
    size = 0
    try:
        with Follower(client, sold.name) as fast:
            before = process.memory_info().rss
            for number in range(2 * BATCHES):
                sold.batch({f"{LONG}{one}": number for one in range(40)})
                size += sum(len(event.data["row"]["product"]) * 2 for event in fast.take(40))
            grown = process.memory_info().rss - before
    finally:
        for follower in stuck:
            follower.close()
    assert grown < 5 * size, (grown, size)


@proves("hostile")
def test_one_too_many_is_told_to_come_back(small: Client, sold: Shop) -> None:
    sold.batch({"tea": 1})
    followers = [Follower(small, sold.name) for _ in range(20)]
    try:
        got = small("GET", f"/views/{sold.name}/changes")
        assert (got.status, got.headers["retry-after"]) == (503, "1")
        assert small("GET", f"/views/{sold.name}").status in (200, 503)
    finally:
        for follower in followers:
            follower.close()
    wait_for(lambda: _follows(small, sold.name))


def _follows(client: Client, name: str) -> bool:
    with Follower(client, name) as follower:
        return follower.status == 200


@proves("http")
def test_who_asks_for_the_head_of_a_stream_gets_it_and_goes_on(client: Client, sold: Shop) -> None:
    sold.batch({"tea": 1})
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=SECONDS)
    for _ in range(3):
        connection.request("HEAD", f"/views/{sold.name}/changes")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        assert answer.getheader("Content-Type", "").startswith("text/event-stream")
    connection.close()


@proves("D7")
def test_streams_end_when_the_gateway_does(broker: tidelog.Broker, sold: Shop, tmp_path: Path) -> None:
    running = GatewayProcess(broker.bootstrap, tmp_path / "log")
    follower = Follower(running.client, sold.name)
    assert running.stop() == 0
    with pytest.raises(EOFError):
        follower.next()
    assert "ERROR" not in running.said(), running.said()
