"""Full text in SQLite: words find rows, and are changed with them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import UsageError
from tidelog.schema.declaration import declare
from tidelog.schema.expression.parser import parse
from tidelog.views.stores.sqlite_text import MATCH_LENGTH_MAX, query_of
from tidelog.views.stores.store import Ask, Store
from views.stores.applied import Applied, row
from views.stores.conftest import Open

PAGES = declare({"id": "long", "title": "string", "body": "string", "hidden": "string"}, ("id",))


def page(number: int, title: str | None, body: str | None = None, hidden: str | None = None) -> dict[str, object]:
    return {"id": number, "title": title, "body": body, "hidden": hidden}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite+fts:///{tmp_path}/pages.db?columns=title,body"


@pytest.fixture
def pages(url: str, opened: Open) -> Applied:
    one = Applied(opened(url, "pages"), PAGES)
    one.put(
        page(1, "Green tea", "Leaves that were not fermented", "secret"),
        page(2, "Rum", "Made of sugar cane; Tea has none of it"),
        page(3, "Crème brûlée", "Sugar, burnt"),
        page(4, None, None),
        page(5, "The teapot", 'It says "AND NOT" on its lid'),
    )
    return one


def found(store: Store, match: str, **more: object) -> list[object]:
    return [one["id"] for one in store.read(Ask(match=match)._replace(**more)).rows]


@proves("P3", "D6")
@pytest.mark.parametrize(
    ("match", "ids"),
    [
        ("tea", [1, 2]),
        ("TEA", [1, 2]),
        ("tea*", [1, 2, 5]),
        ("sugar", [2, 3]),
        ("tea sugar", [2]),
        ("sugar tea", [2]),
        ('"sugar cane"', [2]),
        ('"cane sugar"', []),
        ("creme", [3]),
        ("nothing", []),
        ("secret", []),
        ("AND", [5]),
        ("OR", []),
        ("NOT lid", [5]),
        ("tea OR rum", []),
        ("title:tea", []),
        ("-tea", [1, 2]),
        ("(tea)", [1, 2]),
        ('"sugar ca"*', [2]),
        ("ferment*", [1]),
    ],
)
def test_words_find_rows(pages: Applied, match: str, ids: list[int]) -> None:
    assert found(pages.store, match) == ids
    pages.is_equal()


@proves("P3", "eo.16")
def test_words_change_with_their_rows(pages: Applied) -> None:
    pages.put(page(1, "Black tea"), page(2, "Rum"), page(4, "Tea"))
    assert found(pages.store, "tea") == [1, 4]
    assert (found(pages.store, "green"), found(pages.store, "black")) == ([], [1])
    pages.delete((1,))
    assert found(pages.store, "tea") == [4]
    pages.put(page(4, "Tea", None, "what is not searched has changed"))
    assert (found(pages.store, "tea"), found(pages.store, "searched")) == ([4], [])
    pages.put(page(1, "Coffee"))
    assert (found(pages.store, "tea"), found(pages.store, "coffee")) == ([4], [1])


@proves("P3")
def test_words_are_found_page_by_page_and_with_a_condition(pages: Applied) -> None:
    store = pages.store
    first = store.read(Ask(match="tea*", limit=2))
    assert ([one["id"] for one in first.rows], first.more) == ([1, 2], True)
    assert found(store, "tea*", after=(2,)) == [5]
    assert found(store, "tea*", where=parse("id > 1 and title like 'R%'")) == [2]


@proves("P3", "eo.24")
def test_each_generation_has_its_own_words(pages: Applied) -> None:
    new = Applied(pages.store, PAGES, generation=2)
    new.put(page(9, "Tea of today"), show=False)
    assert found(pages.store, "tea") == [1, 2]
    new.put(page(8, "Cake"))
    assert found(pages.store, "tea") == [9]
    pages.store.forget(1)
    assert found(pages.store, "tea") == [9]


@proves("P3")
@pytest.mark.parametrize(
    "match",
    [
        "",
        "   ",
        '"',
        'tea "and',
        '""',
        "***",
        "!!!",
        "tea'); DROP TABLE pages; --",
        "x" * (MATCH_LENGTH_MAX + 1),
        "\x00",
    ],
)
def test_a_match_that_names_no_words_is_refused(pages: Applied, match: str) -> None:
    with pytest.raises(UsageError, match="match"):
        found(pages.store, match)


@proves("P3")
@given(st.text(st.sampled_from("ab*\"\\'() :^-+{}\x00NEARORAND,.;\n\u00e9\U0001f375"), max_size=20))
def test_whatever_is_asked_is_words_or_is_refused(match: str) -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(c0, content='')")
        try:
            asked = query_of(match)
        except UsageError:
            return
        connection.execute("SELECT rowid FROM words WHERE words MATCH ?", (asked,)).fetchall()


@proves("P3")
def test_without_columns_all_texts_are_searched(tmp_path: Path, opened: Open) -> None:
    one = Applied(opened(f"sqlite+fts:///{tmp_path}/all.db"), PAGES)
    one.put(page(1, "a", "b", "c"))
    assert [found(one.store, word) for word in "abc"] == [[1], [1], [1]]


@proves("P3")
def test_columns_that_are_no_texts_are_refused(tmp_path: Path, url: str, opened: Open, pages: Applied) -> None:
    for columns in ("id", "nothing", "title,id"):
        store = opened(f"sqlite+fts:///{tmp_path}/other.db?columns={columns}", "pages")
        with pytest.raises(UsageError, match="its strings are title, body, hidden"):
            store.prepare(1, PAGES)
    with pytest.raises(UsageError, match="rebuild"):
        opened(url.replace("title,body", "title"), "pages").prepare(1, PAGES)
    with pytest.raises(UsageError, match="colums"):
        opened(url.replace("columns", "colums"), "pages")


@proves("P3")
def test_a_view_without_texts_is_kept_and_not_searched(tmp_path: Path, opened: Open) -> None:
    one = Applied(opened(f"sqlite+fts:///{tmp_path}/none.db"), declare({"id": "long"}, ("id",)))
    one.put({"id": 1})
    one.is_equal()
    with pytest.raises(UsageError, match="no column of text"):
        found(one.store, "tea")


@proves("P3")
def test_a_store_without_full_text_says_so(tmp_path: Path, opened: Open, postgres_url: str) -> None:
    for place in (f"sqlite:///{tmp_path}/plain.db", postgres_url):
        one = Applied(opened(place))
        one.put(row("tea"))
        with pytest.raises(UsageError, match=r"sqlite\+fts"):
            found(one.store, "tea")
