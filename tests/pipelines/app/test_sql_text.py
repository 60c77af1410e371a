"""The words of a view's SQL: what it reads, what is a command, and which line of a file a place in it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.pipelines.sql_text import bare, first_line, line_in, not_a_query, relations, tokens_of


def names(sql: str) -> list[str]:
    return [one.name for one in relations(sql)]


@proves("P1", "P8")
@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT 1 AS one", []),
        ("select product from orders", ["orders"]),
        ("SELECT * FROM orders o, payments AS p WHERE o.id = p.id", ["orders", "payments"]),
        ("SELECT * FROM a JOIN b ON a.id = b.id LEFT JOIN c USING (id)", ["a", "b", "c"]),
        ("SELECT * FROM (SELECT id FROM a) x JOIN (SELECT id FROM b) y ON x.id = y.id", ["a", "b"]),
        ("SELECT * FROM (a JOIN b USING (id)), c", ["a", "b", "c"]),
        ("WITH w AS (SELECT * FROM a), v (id, n) AS (SELECT * FROM w) SELECT * FROM v, W, b", ["a", "b"]),
        ("WITH orders AS (SELECT * FROM orders WHERE id > 1) SELECT * FROM orders JOIN b USING (id)", ["orders", "b"]),
        ("WITH w AS (SELECT * FROM v), v AS (SELECT * FROM w) SELECT * FROM v", ["v"]),
        ("WITH RECURSIVE t AS (SELECT id FROM a UNION ALL SELECT id FROM t) SELECT * FROM t", ["a"]),
        ("SELECT extract(year FROM at), trim(BOTH ' ' FROM name), a, b FROM orders", ["orders"]),
        ("SELECT * FROM orders WHERE amount IS DISTINCT FROM price", ["orders"]),
        ("SELECT * FROM `big-orders` JOIN `x``y` USING (id)", ["big-orders", "x`y"]),
        ("SELECT 'FROM nothing', \"JOIN none\" -- FROM comment\n /* FROM\n x */ FROM orders", ["orders"]),
        ("SELECT * FROM shop.orders", ["shop.orders"]),
        ("SELECT * FROM a WHERE id IN (SELECT id FROM b) ORDER BY c, d", ["a", "b"]),
        ("SELECT * FROM a, range(10), LATERAL explode(x), b", ["a", "b"]),
        ("SELECT * FROM orders LATERAL VIEW explode(items) t AS item, other", ["orders"]),
        ("SELECT id, at FROM a UNION ALL SELECT id, at FROM b", ["a", "b"]),
        ("SELECT window(at, '1 minute'), count(*) FROM a GROUP BY window(at, '1 minute'), product", ["a"]),
        ("SELECT * FROM VALUES (1), (2) AS t(id), a", ["a"]),
        ("FROM orders SELECT id", ["orders"]),
        ("SELECT * FROM orders o JOIN orders p ON o.id = p.id", ["orders"]),
    ],
)
def test_what_is_read_stands_behind_from_and_join(sql: str, read: list[str]) -> None:
    assert names(sql) == read


@proves("P1")
@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT 1", None),
        ("  (SELECT 1) UNION (SELECT 2) ; ;", None),
        ("WITH a AS (SELECT 1) SELECT * FROM a", None),
        ("SELECT `insert`, 'drop it; now' FROM orders -- ; INSERT", None),
        ("", ""),
        ("-- nothing", ""),
        ("DROP TABLE orders", "DROP"),
        ("insert into a select 1", "insert"),
        ("WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a", "INSERT"),
        ("FROM a INSERT INTO b SELECT 1", "INSERT"),
        ("SELECT 1; DROP TABLE orders", ";"),
        ("SET spark.sql.ansi.enabled = false", "SET"),
    ],
)
def test_only_one_query_is_a_query(sql: str, word: str | None) -> None:
    found = not_a_query(sql)
    assert (None if found is None else found.text) == word


@proves("P1", "P8")
def test_blanks_and_comments_do_not_count_and_words_and_texts_do() -> None:
    one = bare("SELECT  a,\n  b -- why\nFROM orders /* and\n what */ WHERE c = 'x  y'")
    assert one == bare("SELECT a , b FROM orders WHERE c='x  y'")
    assert one != bare("SELECT a, b FROM orders WHERE c = 'x y'")
    assert one != bare("SELECT a, B FROM orders WHERE c = 'x  y'")


@proves("P1")
@given(st.text(alphabet="ab `'\"()-/*\n,.;FROMfrom", max_size=60))
def test_any_text_is_cut_into_words_and_none_is_lost(sql: str) -> None:
    tokens = tokens_of(sql)
    assert all(sql[one.at : one.at + len(one.text)] == one.text for one in tokens)
    relations(sql)
    not_a_query(sql)


@proves("P1")
def test_a_line_of_sql_is_a_line_of_the_file_where_it_stands_there_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "app.view(\n"
        "    'revenue',\n"
        "    key='product',\n"
        "    sql='''\n"
        "SELECT product,\n"
        "       amuont\n"
        "FROM orders''',\n"
        ")\n"
        "app.view('x', sql='SELECT 1 \\nFROM orders')\n"
    )
    sql = "\nSELECT product,\n       amuont\nFROM orders"
    begin = first_line(str(file), 1, sql)
    assert begin == 4
    assert begin + line_in(sql, sql.index("amuont")) == 6
    assert first_line(str(file), 9, "SELECT 1 \nFROM orders") is None, "its lines are not those of the file"
    assert first_line(str(file), 1, "SELECT 2") is None
    assert first_line(str(tmp_path / "none.py"), 1, sql) is None
