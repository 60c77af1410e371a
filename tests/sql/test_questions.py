"""What is refused, what a question can reach, what it says when it is wrong, and random records beside Python."""

from __future__ import annotations

import json
import string
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.joins.histories import History, histories, table_of
from proving import proves
from sql.asking import Ask, write_batch
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError
from tidelog.schema.column_types import quoted
from tidelog.sql.following import check_followed
from tidelog.sql.names import Target, target_of
from tidelog.sql.session import Asking, latest_of, new_engine, parse
from tidelog.sql.shape import column_names, fitted, json_column
from tidelog.sql.statement import TableName
from tidelog.sql.texts import as_text
from tidelog.sql.topic import binary_of, strings
from tries import tries


def columns_of(query: str) -> frozenset[str] | None:
    engine = new_engine()
    try:
        return parse(engine, query).columns
    finally:
        engine.close()


@proves("sql")
@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("select a from t where b > 1", {"a", "b"}),
        ("select count(*) from t", set()),
        ("select o.a.b from t o", {"o", "a", "b"}),
        ("select t.x from t join u using (k)", {"t", "x", "k"}),
        ("select * from t", None),
        ("from t", None),
        ("select t from t", None),
        ("select o from t as o", None),
        ("select columns('a.*') from t", None),
        ("select #1 from t", None),
        ("select a from t natural join u", None),
        ("summarize t", None),
        ("select b from t as t(a, b)", None),
        ("with c as (select a from t) select count(*) from c", {"a"}),
        ("select (select max(z) from u) from t", {"z"}),
    ],
)
def test_only_columns_that_a_question_names_are_read(query: str, columns: set[str] | None) -> None:
    assert columns_of(query) == columns


@proves("sql")
@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("select sum(a) from t", "sum is of all rows"),
        ("select count(*) from t", "count is of all rows"),
        ("select a from t order by a", "ORDER BY"),
        ("select distinct a from t", "DISTINCT"),
        ("select a from t limit 5", "LIMIT"),
        ("select a from t group by a", "GROUP BY"),
        ("select a from t join u using (k)", "not a plain SELECT over one topic"),
        ("select a from t, u", "not a plain SELECT over one topic"),
        ("select row_number() over () from t", "window"),
        ("select a from t where a in (select b from u)", "a question within it"),
        ("with c as (select 1) select a from t", "WITH"),
        ("select a from t union all select b from u", "not a plain SELECT"),
        ("select a from (from t)", "not a plain SELECT"),
        ('select a from "t$latest"', "latest of a key"),
        ("select a from t tablesample 10%", "SAMPLE"),
        ("select 1", "not a plain SELECT"),
    ],
)
def test_what_needs_more_than_a_row_cannot_be_followed(query: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        check_followed(query, Asking())


@proves("sql")
@pytest.mark.parametrize(
    "query", ["select * from t", "select upper(a) x from t where b > 1 and c like '%z%'", "from t"]
)
def test_a_filter_can_be_followed(query: str) -> None:
    check_followed(query, Asking())
    with pytest.raises(UsageError, match="latest of a key"):
        check_followed(query, Asking(latest=True))


@proves("sql")
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("insert into t values (1)", "only questions are taken"),
        ("create table t (a int)", "only questions are taken"),
        ("copy t to 'file'", "only questions are taken"),
        ("attach 'file.db'", "only questions are taken"),
        ("set threads = 1", "only questions are taken"),
        ("install httpfs", "only questions are taken"),
        ("select 1; select 2", "2 statements"),
        ("selec 1", "syntax error"),
        ("select offset from t", 'written "offset", in quotes'),
        ("select at from t", 'if at is a column, it is written "at", in quotes, as AT is a word of SQL'),
        ("select id, at from t limit 2 offset 1", 'written "at", in quotes'),
        ("select * from t order by id, at desc", 'written "at", in quotes'),
        ("select max(At) from t", 'written "At", in quotes'),
        ("select 'ä', end from t", 'written "end", in quotes'),
        ("select group, order from t", 'written "group", in quotes'),
        ("select * from shop-orders", "written in quotes"),
        ("select * from t where", r'^syntax error at or near "where"$'),
        ("select a from t gruop by a", r'^syntax error at or near "by"$'),
        ("", "0 statements"),
    ],
)
def test_what_is_no_question_is_refused(query: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        columns_of(query)


@proves("sql", "security")
@pytest.mark.parametrize(
    "query",
    [
        "select * from read_text('/etc/hostname')",
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from glob('/*')",
        "select * from read_parquet('http://127.0.0.1:1/x.parquet')",
        "select * from sniff_csv('/etc/passwd')",
    ],
)
def test_a_question_reaches_no_file_and_no_network(ask: Ask, query: str) -> None:
    with pytest.raises((UsageError, duckdb.Error), match=r"disabled|no topic or view|Cannot access") as refused:
        ask(query)
    if isinstance(refused.value, UsageError):  # else DuckDB says it itself, as its relation is fetched
        assert "--external-access (external_access=True) lets a question read files" in str(refused.value)


@proves("sql", "security")
def test_the_lock_cannot_be_opened_from_within() -> None:
    engine = new_engine()
    for attempt in (
        "set enable_external_access = true",
        "set lock_configuration = false",
        "reset enable_external_access",
        "load httpfs",
        "install httpfs",
        "attach '/tmp/other.db'",
        "copy (select 1) to '/tmp/other.csv'",
    ):
        with pytest.raises(Exception, match=r"(?i)cannot|disabled|locked|permission"):
            engine.execute(attempt)
    engine.close()


@proves("sql", "security")
def test_no_variable_of_python_is_a_table(ask: Ask) -> None:
    import pandas

    secret = pandas.DataFrame({"a": [1]})
    assert len(secret) == 1
    with pytest.raises(UsageError, match="no topic or view secret"):
        ask("select * from secret")


@proves("sql", "security")
@given(st.text(max_size=20))
def test_a_quoted_name_is_one_name_whatever_is_in_it(name: str) -> None:
    inner = quoted(name)[1:-1]
    assert inner.replace('""', "").count('"') == 0
    assert inner.replace('""', '"') == name


@proves("sql")
def test_names_mean_topics_or_views_and_never_one_of_two() -> None:
    assert target_of(TableName("", "a"), ["a"], []) == Target("topics", "a")
    assert target_of(TableName("", "a"), [], ["a"]) == Target("views", "a")
    assert target_of(TableName("views", "a"), ["a"], ["a"]) == Target("views", "a")
    assert target_of(TableName("topics", "a$latest"), ["a"], ["a"]) == Target("topics", "a", True)
    assert target_of(TableName("shop", "a"), ["shop.a"], []) == Target("topics", "shop.a")
    assert target_of(TableName("", "A"), ["a"], []) == Target("topics", "a")
    assert target_of(TableName("", "b"), ["a"], ["c"]) is None
    assert target_of(TableName("", "a"), [], ["a"], hidden=["a"]) == Target("views", "a"), "what is hidden is not there"
    assert target_of(TableName("", "a"), [], ["A"], hidden=["a"]) == Target("topics", "a"), "no other one by chance"
    assert target_of(TableName("views", "a"), [], [], hidden=["a"]) is None
    for both in (TableName("", "a"), TableName("", "A")):
        with pytest.raises(UsageError, match="could be"):
            target_of(both, ["a"], ["a"])
    with pytest.raises(UsageError, match="one row for each key as it is"):
        target_of(TableName("", "a$latest"), [], ["a"])


# Against Python

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
NAMES = st.text(string.ascii_letters + "_ é\"'$.", max_size=5)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@proves("sql")
@given(st.lists(st.dictionaries(NAMES, ANY_JSON, max_size=5), max_size=8))
def test_any_values_have_columns_with_distinct_names_and_fit_them(values: list[dict[str, Any]]) -> None:
    column = json_column([json.dumps(value).encode() for value in values])
    names = column_names([] if column is None else [child.name for child in column.children])
    assert len({name.lower() for name in names}) == len(names)
    if column is not None:
        for value in values:
            kept = fitted(json.dumps(value).encode(), column)
            assert kept is not None and json.loads(kept).keys() <= value.keys()


@proves("sql")
@given(st.lists(st.none() | st.binary(max_size=6), max_size=12))
def test_text_is_always_utf8_and_stays_what_it_was_where_it_is(rows: list[bytes | None]) -> None:
    made = list(strings(as_text(binary_of(rows)), 0, len(rows)))
    assert made == [None if row is None else row.decode("utf-8", "backslashreplace").encode() for row in rows]


@proves("sql")
@pytest.mark.filterwarnings("ignore:.*not as its columns say")
def test_random_records_are_what_python_makes_of_them(ask: Ask, cluster: Cluster) -> None:
    """Ints, floats and text of an oracle that is but json.loads; one topic for each example."""
    made = iter(range(10_000))

    @tries(8)  # each makes a topic
    @given(
        st.lists(
            st.tuples(
                st.none() | st.binary(max_size=3),
                st.none()
                | st.fixed_dictionaries(
                    {}, optional={"n": st.integers(-(2**63), 2**63 - 1), "t": TEXT, "b": st.booleans()}
                ),
            ),
            min_size=1,
            max_size=30,
        )
    )
    def check(records: list[tuple[bytes | None, dict[str, Any] | None]]) -> None:
        topic = f"random-{next(made)}"
        topics.create(cluster, topic)
        rows = [(key, None if value is None else json.dumps(value).encode(), None, 0) for key, value in records]
        write_batch(cluster, topic, rows)
        known = {name for _, value in records if value for name in value}
        fields = ", ".join(name if name in known else "null" for name in ("n", "t", "b"))
        told = ask(f'select {fields} from "{topic}" order by "offset"')
        assert told == [tuple((value or {}).get(name) for name in ("n", "t", "b")) for _, value in records]
        latest = {key: number for number, (key, _) in enumerate(records) if key is not None}
        live = sorted(number for number in latest.values() if records[number][1] is not None)
        assert ask(f"select l.offset from latest('{topic}') l order by 1") == [(number,) for number in live]

    check()


@proves("sql", "B1")
@given(histories())
def test_the_latest_of_a_key_is_that_of_plain_python_however_keys_move(history: History) -> None:
    records = [one for partition in history for one in partition]
    engine = new_engine()
    engine.execute('create table t (key text, value int, "partition" int, "offset" bigint, "timestamp" timestamp_ms)')
    if records:
        engine.executemany(
            "insert into t values (?, ?, ?, ?, make_timestamp_ms(?))",
            [(one.key, one.value, one.partition, one.offset, one.time) for one in records],
        )
    found = engine.execute(f"select key, value from t{latest_of('t')}").fetchall()
    assert sorted(found) == sorted(table_of(records).items())
