"""Topics as tables: columns and their types, values that are odd, bounds, the latest of a key, transactions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contract import Broker
from proving import proves
from sql.asking import Ask, as_json, write, write_batch
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions
from tidelog.errors import BrokerError, DataLoss, UsageError
from tidelog.record.compression import NAMES
from tidelog.sql.session import Asking, Question
from tidelog.sql.span import Bound

KAFKAS = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]


@proves("sql", "T10")
def test_the_fields_of_json_values_are_columns_before_those_of_the_record(
    ask: Ask, cluster: Cluster, topic: str
) -> None:
    topics.create(cluster, topic)
    write(cluster, topic, [{"id": 1, "product": "tea", "amount": 2.5, "gift": True}], key=lambda one: b"k")
    (row,) = ask(f'select * from "{topic}"')
    assert row[:4] == (1, "tea", 2.5, True)
    assert row[4:9] == ("k", as_json({"id": 1, "product": "tea", "amount": 2.5, "gift": True}).decode(), topic, 0, 0)
    assert isinstance(row[9], datetime) and row[10] == []
    assert list(ask.columns(topic)) == ["id", "product", "amount", "gift", *KAFKAS]


@proves("sql")
@pytest.mark.story
def test_a_sum_by_product_is_what_python_says(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=7)
    orders = [{"product": f"p{number % 5}", "amount": number} for number in range(500)]
    write(cluster, topic, orders, key=lambda one: str(one["amount"]).encode())
    sums: dict[str, int] = {}
    for order in orders:
        sums[str(order["product"])] = sums.get(str(order["product"]), 0) + int(str(order["amount"]))
    assert dict(ask(f'select product, sum(amount) from "{topic}" group by 1')) == sums
    assert ask.one(f'select count(*), count(distinct partition) from "{topic}"') == (500, 7)


@proves("sql")
@pytest.mark.parametrize("compression", NAMES)
def test_every_compression_is_read(ask: Ask, cluster: Cluster, topic: str, compression: str) -> None:
    topics.create(cluster, topic)
    rows = [(b"k%d" % n, as_json({"n": n, "text": "é" * n}), [("h", b"%d" % n)], n) for n in range(300)]
    write_batch(cluster, topic, rows, compression)
    asked = f'select sum(n), sum(length(text)), count(distinct key), max(headers[1].value::varchar) from "{topic}"'
    assert ask.one(asked) == (sum(range(300)), sum(range(300)), 300, "99")


@proves("sql", "F2")
def test_what_was_aborted_is_not_there_unless_asked_for(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    with Transactions(cluster, f"id-{topic}") as owner:
        with owner.transaction() as producer:
            producer.send(topic, b'{"n": 1}')
        with pytest.raises(ZeroDivisionError), owner.transaction() as producer:
            producer.send(topic, b'{"n": 10}')
            producer.flush()
            raise ZeroDivisionError
        with owner.transaction() as producer:
            producer.send(topic, b'{"n": 100}')
    assert ask.one(f'select sum(n) from "{topic}"') == 101
    assert ask.one(f'select sum(n) from "{topic}"', committed=False) == 111


@proves("sql", "F2")
def test_the_last_records_are_as_many_where_transactions_have_markers(
    broker: Broker, cluster: Cluster, topic: str
) -> None:
    topics.create(cluster, topic)
    with Transactions(cluster, f"id-{topic}") as owner:
        for number in range(5):
            with owner.transaction() as producer:
                producer.send(topic, b'{"n": %d}' % number)
    question = Question(
        f'select n from "{topic}" order by n', lambda: Cluster(broker.bootstrap), Asking(Bound("last", 3))
    )
    assert [row[0] for row in question.rows()[1]] == [2, 3, 4]
    question.close()


@proves("sql")
def test_nulls_are_nulls_and_headers_are_pairs(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    rows: list[Any] = [
        (None, None, None, 1),
        (b"", b"", [("a", None), ("a", b"\xff")], 2),
        (b"k", b'{"x": null}', [], 3),
    ]
    write_batch(cluster, topic, rows)
    assert ask(f'select key, value, headers from "{topic}" order by "offset"') == [
        (None, None, []),
        ("", "", [{"key": "a", "value": None}, {"key": "a", "value": b"\xff"}]),
        ("k", '{"x": null}', []),
    ]
    with pytest.warns(UserWarning, match=rf"1 of the values of {topic} .*\[0\] offset 1: it ends too early"):
        assert ask.one(f'select count(*) from "{topic}" where x is null') == 3


@proves("sql")
def test_a_value_that_is_no_json_has_null_fields_and_is_said(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    values: list[Any] = [{"n": n} for n in range(50)]
    write(cluster, topic, [*values, b"{broken", b"[1]", b"plain", {"n": 50}])
    with pytest.warns(UserWarning, match=rf"3 of the values of {topic} .*\[0\] offset 50"):
        assert ask.one(f'select count(*), count(n), sum(n) from "{topic}"') == (54, 51, sum(range(51)))
    with pytest.warns(UserWarning, match="not as its columns say"):
        assert ask(f'select value from "{topic}" where n is null') == [("{broken",), ("[1]",), ("plain",)]


@proves("sql")
def test_a_field_of_another_type_is_null_and_the_others_of_its_record_are_there(
    ask: Ask, cluster: Cluster, topic: str
) -> None:
    topics.create(cluster, topic)
    values: list[Any] = [{"n": n, "place": {"city": "Bonn"}, "tags": ["a"]} for n in range(60)]
    odd = {"n": "text", "place": {"city": 7}, "tags": ["b", 1]}
    write(cluster, topic, [*values, odd, {"n": 1.5, "place": "no"}])
    with pytest.warns(UserWarning, match="2 of the values"):
        last = ask(f'select n, place.city, tags from "{topic}" where "offset" >= 59')
    assert last == [(59, "Bonn", ["a"]), (None, None, ["b", None]), (1.5, None, None)]


@proves("sql")
def test_with_strict_the_first_value_that_does_not_fit_fails_the_question(
    ask: Ask, cluster: Cluster, topic: str
) -> None:
    topics.create(cluster, topic)
    write(cluster, topic, [*({"n": n} for n in range(20)), b"{broken"])
    with pytest.raises(Exception, match=rf"{topic}\[0\] offset 20: .*; without --strict \(strict=True\)"):
        ask(f'select sum(n) from "{topic}"', strict=True)


@proves("sql")
def test_members_of_many_kinds_are_the_json_that_they_were(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    write(cluster, topic, [{"x": 1}, {"x": "a"}, {"x": [1]}, {"x": {"y": 2}}, {"x": None}, {}])
    rows = ask(f'select x from "{topic}" order by "offset"')
    assert rows == [("1",), ('"a"',), ("[1]",), ('{"y": 2}',), (None,), (None,)]


@proves("sql")
def test_names_of_fields_never_hide_those_of_the_record(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    write(cluster, topic, [{"offset": 77, "Key": "field", "timestamp": 5, "id": 1, "ID": 2, 'quo"te': 3}])
    asked = f'select value_offset, value_Key, value_timestamp, id, ID_2, "quo""te", "offset", key from "{topic}"'
    assert ask.one(asked) == (77, "field", 5, 1, 2, 3, 0, None)


@proves("sql")
def test_bytes_that_are_no_text_are_bytes(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    write(cluster, topic, [b"\xff\x00\x01"], key=lambda one: b"\x00\x01")
    assert ask.one(f'select key, value from "{topic}"') == (b"\x00\x01", b"\xff\x00\x01")


@proves("sql")
def test_bytes_among_text_are_escaped_as_tail_does(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    rows = [(None, b"t" * 1000, None, 0)] * 300 + [(None, b"\xc3", None, 0), (None, b"\xa9", None, 0)]
    write_batch(cluster, topic, [*rows, *[(None, "é".encode(), None, 0)] * 300])
    told = ask(f'select distinct value from "{topic}" where length(value) < 1000')
    assert sorted(told) == [("\\xa9",), ("\\xc3",), ("é",)]


@proves("sql")
def test_raw_gives_the_columns_of_the_record_alone(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    write(cluster, topic, [{"id": 1}], key=lambda one: b"k")
    assert list(ask.columns(topic, raw=True)) == KAFKAS
    assert ask.one(f'select key, value from "{topic}"', raw=True) == (b"k", b'{"id": 1}')


@proves("sql")
def test_huge_values_pass(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    write(cluster, topic, [{"n": n, "text": "x" * 900_000} for n in range(8)])
    assert ask.one(f'select sum(n), sum(length(text)), max(length(value)) from "{topic}"') == (28, 7_200_000, 900_020)


@proves("sql")
def test_an_empty_topic_has_no_rows_and_says_why_it_has_no_fields(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    assert ask(f'select * from "{topic}"') == []
    assert ask.one(f'select count(*) from "{topic}"') == 0
    with pytest.raises(UsageError, match="has no records yet from which fields could be known"):
        ask(f'select product from "{topic}"')


@proves("sql")
def test_fields_that_only_new_records_have_are_columns_too(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    write(cluster, topic, [{"old": "x" * 500} for _ in range(2000)])
    write(cluster, topic, [{"new": 5}])
    assert ask.one(f'select sum(new), count(old) from "{topic}"') == (5, 2000)


# Bounds


@proves("sql", "T7")
def test_from_and_to_are_offsets_or_times(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(None, as_json({"n": n}), None, int((begin + timedelta(hours=n)).timestamp() * 1000)) for n in range(100)]
    write_batch(cluster, topic, rows)
    whole = f'select min(n), max(n), count(*) from "{topic}"'
    assert ask.one(whole, start=10, end=20) == (10, 19, 10)
    assert ask.one(whole, start=begin + timedelta(hours=30), end=begin + timedelta(hours=40)) == (30, 39, 10)
    assert ask.one(whole, start=95, end=1000) == (95, 99, 5)
    assert ask.one(whole, start=begin + timedelta(days=400)) == (None, None, 0)
    assert ask.one(whole, start="latest") == (None, None, 0)


@proves("sql")
@pytest.mark.parametrize(
    "where",
    [
        '"offset" >= 40 and "offset" < 45',
        'o.offset between 7 and 9 and "offset" <> 8',
        '30 <= "offset" and partition in (0, 2)',
        'partition = 1 and "offset" = 3',
        "timestamp >= '2026-01-01 20:00:00'",
        "timestamp > timestamp '2026-01-01 05:00:00' and timestamp <= '2026-01-01 07:30:00'",
        "timestamp < '2026-01-01 03:00:00'",
        'partition = 99 or "offset" = 1',
        '"offset" >= 10.5',
        "partition = 99",
        '"offset" > 10 and "offset" < 5',
        "\"offset\" > '12'",
        "not (partition = 1)",
    ],
)
def test_a_where_on_the_place_reads_less_and_finds_the_same(ask: Ask, cluster: Cluster, topic: str, where: str) -> None:
    topics.create(cluster, topic, partitions=3)
    begin = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    with Producer(cluster) as producer:
        for n in range(150):  # in each partition times go up and down
            at = begin + (n // 3 + (7 if n % 2 else 0)) * 1_800_000
            producer.send(topic, as_json({"n": n}), partition=n % 3, timestamp=at)
    pushed = ask(f'select n from "{topic}" o where {where} order by n')
    # A subquery that is joined is read whole, and DuckDB alone compares.
    whole = ask(f'select o.n from "{topic}" o join (select 1) on true where {where} order by n')
    assert pushed == whole


# Latest


@proves("sql", "D5")
def test_latest_is_the_last_record_of_each_key_without_tombstones(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=3)
    with Producer(cluster) as producer:
        for n in range(60):
            producer.send(topic, as_json({"n": n}), key=b"k%d" % (n % 6))
        producer.send(topic, None, key=b"k0")
        producer.send(topic, as_json({"n": 1000}), key=b"k1")
        producer.send(topic, b'{"n": 5}')
    expected = [("k1", 1000), *((f"k{n}", 54 + n) for n in range(2, 6))]
    assert ask(f"select key, n from latest('{topic}') order by 1") == expected
    assert ask(f'select key, n from "{topic}$latest" order by 1') == expected
    assert ask(f'select key, n from "{topic}" order by 1', latest=True) == expected
    assert ask.one(f'select count(*) from "{topic}"') == 63
    assert ask(f"select l.n from latest('{topic}') l where l.key = 'k2'") == [(56,)]


@proves("sql", "D5")
def test_latest_shows_a_key_once_that_has_moved_between_partitions(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=3)
    with Producer(cluster) as producer:
        for partition, time, n in ((0, 5, 1), (0, 9, 2), (0, 3, 3), (1, 8, 4), (2, 9, 5), (1, 10, 6), (2, 2, 7)):
            producer.send(topic, as_json({"n": n}), key=b"k", partition=partition, timestamp=time)
        for partition, time, value in ((0, 5, b'{"n": 8}'), (1, 6, None), (2, 4, b'{"n": 9}')):
            producer.send(topic, value, key=b"gone", partition=partition, timestamp=time)
    assert ask(f"select key, n, l.offset from latest('{topic}') l") == [("k", 6, 1)]


# Names


@proves("sql")
def test_names_with_dots_and_dashes_are_found(ask: Ask, cluster: Cluster, topic: str) -> None:
    dotted = f"shop.{topic.replace('-', '_')}"
    topics.create(cluster, dotted)
    write(cluster, dotted, [{"n": 1}])
    for name in (f'"{dotted}"', dotted, f'topics."{dotted}"', f"latest('{dotted}')", dotted.upper()):
        assert ask.one(f"select count(*) from {name}") == (0 if "latest" in name else 1)


@proves("sql")
def test_a_name_that_nothing_has_is_said_with_the_nearest(ask: Ask, cluster: Cluster, topic: str) -> None:
    listed = "`tidelog topics` and `tidelog views` list what there is, or .tables at the prompt"
    for name in (topic, f"{topic}.orders"):
        topics.create(cluster, name)
    with pytest.raises(UsageError, match=f'no topic or view {topic}x; did you mean "{topic}"[^?]*\\? {listed}'):
        ask(f'select * from "{topic}x"')
    with pytest.raises(UsageError, match=f'did you mean [^?]*"{topic}.orders"'):
        ask(f'select * from "{topic}".ordrs')
    with pytest.raises(UsageError, match=f"no topic or view nowhere_at_all; {listed}"):
        ask("select * from nowhere_at_all")
    assert ask.one("select count(*) from information_schema.tables") == 0  # DuckDB has it, with none of its own


@proves("sql")
def test_names_that_differ_by_case_alone_are_told_apart_or_refused(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    topics.create(cluster, topic.upper())
    write(cluster, topic, [{"n": 1}])
    assert ask.one(f'select count(*) from "{topic}"') == 1
    with pytest.raises(UsageError, match="could be"):
        ask(f'select * from "{topic.capitalize()}"')


@proves("sql")
def test_a_topic_joins_itself_and_others(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=2)
    topics.create(cluster, f"{topic}.names")
    write(cluster, topic, [{"id": n, "by": n % 3} for n in range(30)], key=lambda one: str(one["id"]).encode())
    write(cluster, f"{topic}.names", [{"by": n, "name": f"n{n}"} for n in range(3)])
    asked = f'select name, count(*) from "{topic}" join "{topic}.names" using ("by") group by 1 order by 1'
    assert ask(asked) == [("n0", 10), ("n1", 10), ("n2", 10)]
    assert ask.one(f'select count(*) from "{topic}" a join "{topic}" b on a.id = b.id + 1') == 29


@proves("sql")
def test_internal_topics_are_topics(ask: Ask, cluster: Cluster, tidelog_broker: Broker) -> None:
    from tidelog.control.catalog import ensure_catalog

    with Cluster(tidelog_broker.bootstrap) as ours:
        ensure_catalog(ours)
    assert Ask(tidelog_broker.bootstrap).one('select count(*) from "__tidelog.views"') == 0


@proves("sql")
def test_a_topic_that_is_deleted_while_it_is_read_fails_the_question(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    write(cluster, topic, [{"n": n, "text": "x" * 10_000} for n in range(3000)])
    question = Question(f'select value, n from "{topic}"', lambda: Cluster(ask.bootstrap), Asking())
    _, rows = question.rows()
    assert next(rows)[1] == 0
    topics.delete(cluster, topic)
    with pytest.raises(BrokerError, match=topic):
        list(rows)
    question.close()


@proves("sql")
def test_a_topic_made_anew_while_it_is_read_fails_the_question(ask: Ask, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic)
    write(cluster, topic, [{"n": n} for n in range(10)])
    question = Question(f'select n from "{topic}"', lambda: Cluster(ask.bootstrap), Asking())
    topics.delete(cluster, topic)
    topics.create(cluster, topic)
    write(cluster, topic, [{"n": n} for n in range(10)])
    with pytest.raises(DataLoss, match="created again"):
        list(question.rows()[1])
    question.close()


@proves("sql")
def test_a_relation_is_duckdbs_and_may_be_asked_twice(ask: Ask, cluster: Cluster, topic: str) -> None:
    import tidelog

    topics.create(cluster, topic)
    write(cluster, topic, [{"n": n} for n in range(10)])
    relation = tidelog.sql(f'select n from "{topic}"', bootstrap=ask.bootstrap)
    write(cluster, topic, [{"n": 1000}])
    assert relation.aggregate("sum(n)").fetchall() == [(45,)]
    assert relation.df()["n"].sum() == 45
    assert sum(batch.num_rows for batch in relation.arrow()) == 10
