"""Views over HTTP: listed, by key, filtered, by pages, after what was written; and nobody's text does harm."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from sqlite3 import connect
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

import tidelog
from gateway.serving import Client
from gateway.views.shop import Shop, shop, wait_for
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.catalog import Editor
from tidelog.control.marks import Sources
from tidelog.control.starting import tell_starting
from tidelog.errors import QueryTimedOut
from tidelog.gateway.limits import CALLS_MAX, PAGE_BYTES
from tidelog.gateway.refusal import refusal_of
from tidelog.schema.declaration import declare
from tidelog.views.changes import encode
from tidelog.views.stores.opening import open_store
from views.writing import ORDERS

PRODUCTS = 25


@pytest.fixture(scope="module")
def sold(broker: tidelog.Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop(broker.bootstrap, tmp_path_factory.mktemp("sold"), "revenue", partitions=2) as made:
        made.batch({f"p{number:02d}": number for number in range(PRODUCTS)})
        made.applied(made.batch({'it\'s; "drop" 100%': 1000}))
        yield made


def rows(client: Client, **query: str) -> list[dict[str, Any]]:
    got = client("GET", "/views/revenue?" + "&".join(f"{name}={quote(text)}" for name, text in query.items()))
    assert got.status == 200, got
    found: list[dict[str, Any]] = got.json["rows"]
    return found


def refused(client: Client, path: str) -> tuple[int, str]:
    got = client("GET", path)
    return got.status, got.message


@proves("D7")
def test_views_are_listed_with_what_they_are(client: Client, sold: Shop) -> None:
    (found,) = [one for one in client("GET", "/views").json if one["name"] == "revenue"]
    assert found["columns"] == {"product": "string", "revenue": "long"} and found["key"] == ["product"]
    assert (found["generation"], found["building"], found["app"]) == (1, None, "shop")


@proves("D7")
@pytest.mark.parametrize("key", ["p03", '["p03"]', '{"product":"p03"}'])
def test_a_row_is_had_by_its_key(client: Client, sold: Shop, key: str) -> None:
    got = client("GET", f"/views/revenue?key={quote(key)}").json
    assert got["row"] == {"product": "p03", "revenue": 3} and got["generation"] == 1 and got["cursor"]


@proves("D7")
def test_what_is_not_there_is_404_and_says_which(client: Client, sold: Shop) -> None:
    assert refused(client, "/views/revenue?key=nothing") == (404, "view revenue has no row with the key 'nothing'")
    assert refused(client, "/views/other") == (404, "view 'other' does not exist; GET /views lists all views")
    assert refused(client, "/views/other/changes")[0] == 404


@proves("D7", "expressions")
def test_filters_give_the_rows_that_match_and_no_others(client: Client, sold: Shop) -> None:
    assert [row["revenue"] for row in rows(client, where="revenue between 3 and 5")] == [3, 4, 5]
    assert [row["product"] for row in rows(client, where="product like 'p1%' and not revenue < 18")] == ["p18", "p19"]
    assert rows(client, where="revenue is null") == []
    assert rows(client, where="product = 'it''s; \"drop\" 100%'")[0]["revenue"] == 1000


@proves("D7")
def test_pages_follow_each_other_and_have_every_row_once(client: Client, sold: Shop) -> None:
    path, seen = "/views/revenue?limit=7&where=revenue%20%3C%20100", []
    while path:
        got = client("GET", path)
        assert got.status == 200 and len(got.json["rows"]) <= 7
        seen += [row["revenue"] for row in got.json["rows"]]
        path = got.json.get("next")
    assert seen == list(range(PRODUCTS))


@proves("D7", "hostile")
@pytest.mark.parametrize(
    ("rows_in_all", "letter"), [(40, "x"), (12, "ä")], ids=["as they are kept", "as they are sent"]
)
def test_an_answer_is_bounded_by_bytes_and_next_goes_on(
    client: Client, broker: tidelog.Broker, tmp_path: Path, rows_in_all: int, letter: str
) -> None:
    wide = declare({"id": "long", "text": "string"}, ("id",))
    text = letter * (300_000 if letter == "x" else 150_000)  # beyond ASCII a character is six in JSON
    with shop(broker.bootstrap, tmp_path, f"wide{rows_in_all}", wide) as made:
        made.pipeline.owner.begin()
        mark = made.pipeline.write_encoded(
            [encode(wide, {"id": number, "text": text}) for number in range(rows_in_all)]
        )
        made.pipeline.owner.commit()
        made.applied(mark)
        path, seen, answers = f"/views/{made.name}?limit=1000", list[int](), 0
        while path:
            got = client("GET", path)
            assert got.status == 200 and len(got.body) < PAGE_BYTES + 1_000
            seen += [row["id"] for row in got.json["rows"]]
            path, answers = got.json.get("next"), answers + 1
        assert seen == list(range(rows_in_all)) and answers == 2


@proves("D7", "hostile")
def test_a_store_that_takes_too_long_is_504_with_what_to_do() -> None:
    refusal = refusal_of(QueryTimedOut("shop.db did not answer the query in its time; ask for a key"))
    assert (refusal.status, str(refusal)) == (504, "shop.db did not answer the query in its time; ask for a key")


@proves("hostile", "expressions")
@pytest.mark.parametrize(
    "where",
    [
        "1 = 1; drop table revenue",
        "revenue = 1 union select * from sqlite_master",
        "product = 'x' or 1=1 --",
        "load_extension('x') = 1",
        "(select 1) = 1",
        "product = x'00'",
        '"product" = "x" || "y"',
        "revenue in (select revenue from revenue)",
        "rowid > 0",
        "_tidelog_places.view = 'x'",
        "((" * 40,
        "product like " + "%" * 100,
        "revenue = 1e999",
        "\x00",
        "",
        "product = '\ud7ff' and",
    ],
)
def test_no_filter_is_ever_sql(client: Client, sold: Shop, where: str) -> None:
    status, said = refused(client, f"/views/revenue?where={quote(where)}")
    assert status == 400 and "sqlite" not in said.lower(), said
    assert len(rows(client, limit="100")) == PRODUCTS + 1


@proves("hostile", "expressions")
def test_a_quote_in_a_value_stays_a_value(client: Client, sold: Shop) -> None:
    for text in ("' or '1'='1", "'; drop table revenue; --", "%", "\\", '"', "?", "%s", ":a"):
        assert rows(client, where=f"product = '{text.replace(chr(39), chr(39) * 2)}'") == []
        assert client("GET", f"/views/revenue?key={quote(text)}").status == 404


@proves("hostile")
@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=10001",
        "limit=abc",
        "limit=1e3",
        "limit=" + "9" * 400,
        "limit=",
        "timeout=nan&after=orders:0:1",
        "timeout=-1",
        "timeout=26",
        "timeout=x",
        "after=orders",
        "after=orders:0",
        "after=orders:x:1",
        "after=:0:1",
        "cursor=p01",
        "after_key=p01",
        "after_key=[]",
        "after_key=[1]",
        "after_key=[null]",
        'after_key=["a","b"]',
        "after_key=" + "[" * 4000,
        "key=[null]",
        "key=[1]",
        "where=nmae%20=%20'x'",
        "where=revenue%20=%20'x'",
        "match=tea",
        "after=nowhere:0:1",
    ],
)
def test_a_parameter_that_is_none_is_refused(client: Client, sold: Shop, query: str) -> None:
    status, said = refused(client, f"/views/revenue?{query}")
    assert status == 400, (status, said)


@proves("D7", "http")
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/views/revenue?limt=5", "parameter 'limt' does not exist here; did you mean limit?"),
        ("/views/revenue?were=revenue%3E1", "parameter 'were' does not exist here; did you mean where?"),
        ("/views/revenue?limit=5&limit=6", "the parameter limit is there twice; send it once"),
        ("/views/revenue/changes?from=start", "parameter 'from' does not exist here; parameters are cursor, where"),
        ("/views?limit=5", "parameter 'limit' does not exist here; send none"),
        ("/parts?x", "parameter 'x' does not exist here; send none"),
    ],
)
def test_a_parameter_that_there_is_not_is_refused_with_the_nearest(
    client: Client, sold: Shop, path: str, said: str
) -> None:
    assert refused(client, path) == (400, said)


TYPED = declare(
    {
        "id": "long",
        "day": "date",
        "cost": "decimal",
        "at": "timestamp",
        "raw": "binary",
        "open": "boolean",
        "share": "double",
        "extra": "json",
        "unit price": "double",
    },
    ("id", "day"),
)
TYPED_ROW = {
    "id": -(2**63),
    "day": date(2026, 1, 31),
    "cost": Decimal("12.50"),
    "at": datetime(2026, 1, 31, 23, 59, 59, 1, tzinfo=UTC),
    "raw": b"\xff\x00",
    "open": True,
    "share": float("nan"),
    "extra": {"a": [1, None]},
    "unit price": 1.5,
}
HOLDS = (
    "day = '2026-01-31'",
    "at > '2026-01-31T23:59:59Z' and at < '2026-02-01'",
    "cost = 12.5 and cost < 12.51 and cost > '12.499999999999999999999'",
    "raw = '/wA='",
    "open",
    "open = true and not open = false",
    '"unit price" between 1 and 2',
    "`unit price` < 2 and id < 0",
    "extra is not null",
    "share = 'NaN'",
)


@proves("D7", "types")
def test_every_type_goes_over_http_as_the_declaration_says(
    client: Client, broker: tidelog.Broker, tmp_path: Path
) -> None:
    with shop(broker.bootstrap, tmp_path, "typed", TYPED) as made:
        made.pipeline.owner.begin()
        mark = made.pipeline.write_encoded([encode(TYPED, TYPED_ROW)])
        made.pipeline.owner.commit()
        made.applied(mark)
        (got,) = client("GET", "/views/typed").json["rows"]
        assert got == {
            "id": -(2**63),
            "day": "2026-01-31",
            "cost": "12.50",
            "at": "2026-01-31T23:59:59.000001Z",
            "raw": "/wA=",
            "open": True,
            "share": "NaN",
            "extra": {"a": [1, None]},
            "unit price": 1.5,
        }
        for key in (f'[{-(2**63)},"2026-01-31"]', f'{{"day":"2026-01-31","id":{-(2**63)}}}'):
            assert client("GET", f"/views/typed?key={quote(key)}").json["row"] == got
        assert client("GET", f"/views/typed?key={-(2**63)}").status == 400
        for where in HOLDS:
            assert client("GET", f"/views/typed?where={quote(where)}").json["rows"] == [got], where
            assert client("GET", f"/views/typed?where={quote(f'not ({where})')}").json["rows"] == [], where


@proves("D7")
def test_words_are_found_where_a_store_has_full_text(client: Client, broker: tidelog.Broker, tmp_path: Path) -> None:
    url = f"sqlite+fts:///{tmp_path}/words.db?columns=product"
    with shop(broker.bootstrap, tmp_path, "words", url=url) as made:
        made.applied(made.batch({"green tea": 1, "black tea": 2, "green paint": 3, "rum": 4}))
        found = client("GET", "/views/words?match=green&where=revenue%20%3C%203").json["rows"]
        assert found == [{"product": "green tea", "revenue": 1}]
        for words in ('"', "a AND", "(", "*", "product:", "'; drop"):
            assert client("GET", f"/views/words?match={quote(words)}").status in (200, 400), words


@proves("D8")
def test_a_query_waits_until_what_was_written_is_applied(
    client: Client, broker: tidelog.Broker, tmp_path: Path
) -> None:
    with shop(broker.bootstrap, tmp_path, "waited") as made:
        for number in range(5):
            made.pipeline.batch({"tea": number}, sources=Sources({ORDERS: 10 * number + 10}))
            got = client("GET", f"/views/waited?key=tea&after=orders:0:{10 * number + 9}")
            assert got.json["row"]["revenue"] == number
        status, said = refused(client, "/views/waited?key=tea&after=orders:0:50&timeout=0.2")
        assert status == 504 and "waited.v1" in said and "orders:0:50" in said


@proves("D8", "hostile")
def test_many_who_wait_leave_the_others_their_threads(client: Client, broker: tidelog.Broker, tmp_path: Path) -> None:
    with shop(broker.bootstrap, tmp_path, "crowded") as made, ThreadPoolExecutor(2 * CALLS_MAX) as pool:
        made.applied(made.batch({"tea": 0}))

        def wait() -> int:
            return client("GET", "/views/crowded?key=tea&after=orders:0:99&timeout=20").json["row"]["revenue"]  # type: ignore[no-any-return]

        waiting = [pool.submit(wait) for _ in range(2 * CALLS_MAX)]
        for _ in range(3):
            assert client("GET", "/views/crowded?key=tea").status == 200
        assert not any(one.done() for one in waiting)
        made.pipeline.batch({"tea": 7}, sources=Sources({ORDERS: 100}))
        assert {one.result() for one in waiting} == {7}


@proves("D7")
def test_a_view_that_no_store_shows_yet_is_one_to_come_back_for(
    client: Client, broker: tidelog.Broker, tmp_path: Path
) -> None:
    with shop(broker.bootstrap, tmp_path, "unshown", applied=False):
        wait_for(lambda: client("GET", "/views/unshown").status != 404)
        got = client("GET", "/views/unshown?key=tea")
        assert (got.status, got.headers["retry-after"]) == (503, "1"), got


@proves("D7")
def test_a_view_whose_first_micro_batch_is_to_come_is_one_to_come_back_for(
    client: Client, broker: tidelog.Broker, tmp_path: Path
) -> None:
    """It was 404, as if the row were not in it."""
    with shop(broker.bootstrap, tmp_path, "uncounted") as made:
        wait_for(lambda: client("GET", "/views/uncounted").status != 404)
        with closing(open_store(made.url, made.name)) as store:
            wait_for(lambda: bool(store.generations()))  # its applier is at work
        got = client("GET", "/views/uncounted?key=tea")
        assert (got.status, got.headers["retry-after"]) == (503, "1"), got
        made.applied(made.batch({"cup": 1}))
        assert refused(client, "/views/uncounted?key=tea") == (404, "view uncounted has no row with the key 'tea'")


@proves("D7")
def test_a_view_that_an_app_is_about_to_make_is_one_to_come_back_for(client: Client, broker: tidelog.Broker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        with tell_starting(cluster, "shop", ["promised"]):
            for path in ("/views/promised?key=tea", "/views/promised/changes"):
                got = client("GET", path)
                assert (got.status, got.headers["retry-after"]) == (503, "5"), got
                assert got.message == "view promised is not there yet: app shop is starting; try again in 5 s"
        with pytest.raises(RuntimeError), tell_starting(cluster, "shop", ["promised"]):
            raise RuntimeError("it does not start")
        assert refused(client, "/views/promised")[0] == 404


def keep_in(client: Client, made: Shop, *stores: str) -> None:
    """The view, from now on, as the gateway knows it, too."""
    editor = Editor(made.cluster, made.name)
    view = editor.view()
    assert view is not None
    editor.write(replace(view, stores=stores))
    known = {"name": made.name, "stores": list(stores)}
    wait_for(lambda: any(known.items() <= one.items() for one in client("GET", "/views").json))


@proves("D7")
def test_rows_are_had_from_the_next_store_while_the_first_is_down(
    client: Client, broker: tidelog.Broker, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    down = [f"sqlite:///{tmp_path}/folder", f"sqlite:///{tmp_path}/folder/../folder"]
    with shop(broker.bootstrap, tmp_path, "doubled") as made:
        made.applied(made.batch({"tea": 1}))
        keep_in(client, made, down[0], made.url)
        assert client("GET", "/views/doubled?key=tea").json["row"] == {"product": "tea", "revenue": 1}
        keep_in(client, made, *down)
        status, said = refused(client, "/views/doubled?key=tea")
        assert status == 503 and "none of the 2 stores of view doubled answers" in said
        assert all(url in said for url in down), said


@proves("D7", "D8")
def test_a_page_that_another_store_may_answer_waits_for_the_same_and_is_never_older_than_the_one_before(
    client: Client, broker: tidelog.Broker, tmp_path: Path
) -> None:
    path = "/views/paged?limit=1&after=orders:0:19&timeout=20"

    with shop(broker.bootstrap, tmp_path, "paged") as made:
        made.applied(made.pipeline.batch({"rum": 1, "tea": 2}, sources=Sources({ORDERS: 10})))
        with closing(connect(tmp_path / "paged.db")) as now, closing(connect(tmp_path / "behind.db")) as behind:
            now.backup(behind)
        made.applied(made.pipeline.batch({"tea": 3}, sources=Sources({ORDERS: 20})))
        alone = parse_qsl(urlsplit(client("GET", path).json["next"]).query)
        assert alone == [("limit", "1"), ("after_key", '["rum"]')], "one store has what it has shown"
        keep_in(client, made, made.url, other := f"sqlite:///{tmp_path}/behind.db")
        page = client("GET", path).json
        asked = {"after": "orders:0:19", "timeout": "20", "cursor": page["cursor"]}
        assert dict(parse_qsl(urlsplit(page["next"]).query)) == dict(alone) | asked
        assert client("GET", page["next"]).json["rows"] == [{"product": "tea", "revenue": 3}]
        keep_in(client, made, other, made.url)
        assert client("GET", "/views/paged?key=tea").json["row"]["revenue"] == 2
        for question in ("key=tea", "limit=1"):
            got = client("GET", f"/views/paged?{question}&cursor={page['cursor']}")
            assert (got.status, got.headers["retry-after"]) == (503, "1") and "before the cursor" in got.message
        assert refused(client, page["next"].replace("timeout=20", "timeout=0"))[0] == 504


@proves("D7")
def test_a_view_without_a_store_can_only_be_followed(client: Client, broker: tidelog.Broker) -> None:
    from views.writing import declare_view

    with Cluster(broker.bootstrap) as cluster:
        declare_view(cluster, "storeless")
    wait_for(lambda: "has no store" in client("GET", "/views/storeless").message)
