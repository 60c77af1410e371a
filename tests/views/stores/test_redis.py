"""What Redis stores have of their own: a server that is killed, passwords, and pages that begin anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from proving import proves
from tidelog.errors import Disconnected, TidelogError, UsageError
from tidelog.schema.expression.parser import parse
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.redis import RedisStore
from tidelog.views.stores.store import Ask
from views.stores.applied import Applied, assert_same_rows, pages, row
from views.stores.contract.test_crash import applier, end_of, is_whole, told_by
from views.stores.redis_server import RedisServer

pytestmark = pytest.mark.external
PASSWORD = "s3cr3t/with:every@thing"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    started = RedisServer(tmp_path / "redis", syncs="always").start()
    yield started
    started.stop()


@proves("P3", "F2", "eo.21")
@pytest.mark.story
def test_a_killed_server_has_whole_stretches_and_the_applier_goes_on(server: RedisServer) -> None:
    store = open_store(server.url, "numbers")
    for _ in range(3):
        with applier(server.url) as child:
            told = told_by(child, 10)
            server.kill()
            child.wait()
            assert child.stderr is not None and "Disconnected" in child.stderr.read()
        with pytest.raises(Disconnected):
            store.place(1)
        server.start()
        assert is_whole(store) >= told
    before = end_of(store)
    with applier(server.url) as child:
        assert before < told_by(child, 1) <= is_whole(store)


@proves("P3")
def test_a_server_without_its_data_is_a_store_that_has_nothing(server: RedisServer) -> None:
    store = open_store(server.url, "revenue")
    Applied(store).put(row("tea"))
    redis.Redis.from_url(server.url).flushall()
    assert (store.place(1), store.shown()) == (None, None)
    with pytest.raises(TidelogError):
        one = Applied(store)
        one.end = 2
        one.put(row("tea"))


@proves("P3")
def test_a_password_is_taken_from_the_environment_and_is_in_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RedisServer(tmp_path / "redis", password=PASSWORD).start()
    try:
        url = f"redis://:${{REDIS_PASSWORD}}@127.0.0.1:{server.port}/0"
        monkeypatch.setenv("REDIS_PASSWORD", PASSWORD)
        one = Applied(open_store(url, "revenue"))
        one.put(row("tea"))
        one.is_equal()
        monkeypatch.setenv("REDIS_PASSWORD", PASSWORD + "!")
        with pytest.raises(UsageError, match="password") as refused:
            open_store(url, "revenue").place(1)
        assert PASSWORD not in str(refused.value)
    finally:
        server.stop()


@proves("P3", "eo.21")
def test_a_page_that_is_looked_for_while_the_view_changes_is_of_one_instant(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = open_store(redis_url, "revenue"), open_store(redis_url, "revenue")
    assert isinstance(reader, RedisStore)
    one = Applied(writer)
    one.put(*(row(f"product {number:05}", 1.0, number) for number in range(9_000)))
    ask, asked = reader._ask, 0

    def ask_while_it_changes(*question: object) -> object:
        nonlocal asked
        asked += 1
        if asked in (3, 6):
            one.put(*(found | {"revenue": 1.0 + asked} for found in one.rows.values()))  # type: ignore[arg-type]
        return ask(*question)  # type: ignore[arg-type]

    monkeypatch.setattr(reader, "_ask", ask_while_it_changes)
    wanted, told = Ask(where=parse("orders >= 100"), limit=10_000), []
    while True:
        page = reader.read(wanted)
        told.append(page)
        if not page.more:
            break
        wanted = wanted._replace(after=page.last)
    assert [found["orders"] for page in told for found in page.rows] == list(range(100, 9_000))
    assert [{found["revenue"] for found in page.rows} for page in told] == [{1.0}, {4.0}, {7.0}]
    assert len({tuple(page.place.ends.values()) for page in told}) == 3, "each with the place that it is at"


@proves("P3")
@pytest.mark.story
def test_other_programs_find_rows_as_json(redis_url: str, redis_server: RedisServer) -> None:
    one = Applied(open_store(redis_url, "revenue"))
    one.put(row("tea"), row("rum", None))
    other, prefix = redis.Redis.from_url(redis_server.url, decode_responses=False), redis_url.partition("prefix=")[2]
    shown = other.get(f"{prefix}:{{revenue}}:shown")
    found = other.hvals(f"{prefix}:{{revenue}}:v{int(shown or 0)}:rows")  # type: ignore[arg-type]
    rows = [json.loads(text) for text in found]  # type: ignore[union-attr]
    assert_same_rows(sorted(rows, key=lambda one: one["product"]), list(pages(one.store)))


@proves("P3", "eo.17")
def test_a_connection_that_breaks_at_exec_is_not_taken_for_another_applier(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(server.url, "revenue")
    one = Applied(store)
    one.put(row("tea"))
    done = redis.client.Pipeline._execute_transaction

    def cut_off(self: Any, *given: Any) -> Any:
        done(self, *given)
        raise redis.ConnectionError("cut off before the answer")

    monkeypatch.setattr(redis.client.Pipeline, "_execute_transaction", cut_off)
    with pytest.raises(Disconnected, match="cut off"):
        one.put(row("cup"))
    monkeypatch.undo()
    assert len(store.read(Ask()).rows) == 2, "it was done, and its applier finds that out"
