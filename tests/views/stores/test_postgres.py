"""What PostgreSQL has beside the contract: a server that goes away, passwords, and other people who read its tables."""

from __future__ import annotations

import random
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import psycopg
import pytest

from contract import TIMEOUT_S
from postgres_server import PostgresServer
from proving import proves
from tidelog.errors import Disconnected, QueryTimedOut, StorageError, TidelogError, UsageError
from tidelog.schema.declaration import Declaration, declare
from tidelog.views.stores.postgres import PostgresStore
from tidelog.views.stores.postgres_session import Connection, PostgresSession
from tidelog.views.stores.store import Ask, Place
from views.applying import until
from views.stores.applied import REVENUE, Applied, put, row, stretch
from views.stores.conftest import Open
from views.stores.contract.test_crash import applier, end_of, is_whole, told_by
from views.stores.endless_applier import AT, stretch_of

PASSWORD = "p@ss/w:rd%?#&"
KILLS = 3
WAITING = "application_name = 'tidelog' AND wait_event_type = 'Lock'"
CANCEL_WHO_WAITS = f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {WAITING}"


def rows_of(postgres: PostgresServer, url: str, text: str) -> list[tuple[object, ...]]:
    """As another program would ask."""
    (schema,) = parse_qs(urlsplit(url).query)["schema"]
    with psycopg.connect(postgres.url()) as connection:
        connection.execute(f"SET search_path = {schema}".encode())
        found = connection.execute(text.encode())
        return found.fetchall() if found.description else []


@proves("P3", "hostile")
def test_a_query_that_takes_longer_than_it_may_is_ended_by_the_server_and_the_next_is_answered(
    postgres: PostgresServer, postgres_url: str, opened: Open
) -> None:
    store = opened(postgres_url)
    one = Applied(store)
    one.put(row("tea"))
    rows_of(  # a view whose rows take as long as they are told to
        postgres, postgres_url, 'ALTER TABLE "revenue.v1" RENAME TO slow; CREATE VIEW "revenue.v1" AS SELECT s.* FROM'
        " slow s, LATERAL (SELECT pg_sleep(60 + s.orders)) AS slept"
    )  # fmt: skip
    with pytest.raises(QueryTimedOut, match="did not answer the query in its time; ask for"):
        store.read(Ask(within_s=0.2))
    rows_of(postgres, postgres_url, 'DROP VIEW "revenue.v1"; ALTER TABLE slow RENAME TO "revenue.v1"')
    assert len(store.read(Ask(within_s=20.0)).rows) == 1


@proves("P3", "F2")
def test_a_statement_of_an_applier_that_the_server_has_cancelled_is_no_query_that_took_too_long(
    postgres: PostgresServer, postgres_url: str, opened: Open
) -> None:
    one = Applied(opened(postgres_url))
    one.put(row("tea"))
    one.store.read(Ask(within_s=60.0))  # this one had a time in which to answer
    with ThreadPoolExecutor(1) as pool, psycopg.connect(postgres.url()) as other:
        (schema,) = parse_qs(urlsplit(postgres_url).query)["schema"]
        other.execute(f'LOCK TABLE "{schema}"."_tidelog_generations"'.encode())
        applied = pool.submit(one.put, row("rum"))
        until(lambda: rows_of(postgres, postgres_url, CANCEL_WHO_WAITS) == [(True,)])
        with pytest.raises(StorageError, match=r"has ended a statement: .*; it is tried again") as ended:
            applied.result(TIMEOUT_S)
        assert not isinstance(ended.value, QueryTimedOut), "an applier did not ask for rows"
        other.rollback()
    one.is_equal()
    one.put(row("rum"))
    one.is_equal()


@proves("P3", "F2")
@pytest.mark.slow
def test_a_killed_server_has_all_of_a_stretch_or_nothing_and_is_gone_on_with(
    postgres: PostgresServer, postgres_url: str, opened: Open, seed: int
) -> None:
    chance = random.Random(seed)
    store = opened(postgres_url, "numbers")
    for _ in range(KILLS):
        with applier(postgres_url) as child:
            told = told_by(child, chance.randint(1, 6))
            assert end_of(store) >= told
            time.sleep(chance.random() * 0.03)
            postgres.kill()
            _, said = child.communicate()
        assert "Disconnected" in said
        with pytest.raises(Disconnected, match="PostgreSQL at"):
            store.place(1)
        postgres.start()
        assert is_whole(store) >= told
        end = end_of(store)
        store.apply(1, stretch_of(end + 1), before={AT: end})
        assert is_whole(store) == end + 1


@proves("P3", "F2")
def test_a_connection_that_the_server_ended_is_told_once_and_opened_anew(
    postgres: PostgresServer, postgres_url: str, opened: Open
) -> None:
    one = Applied(opened(postgres_url))
    one.put(row("tea"))
    rows_of(
        postgres,
        postgres_url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidelog'",
    )
    with pytest.raises(Disconnected):
        one.put(row("rum"))
    one.is_equal()
    one.put(row("rum"))
    one.is_equal()


@proves("P3", "eo.17")
def test_a_transaction_that_its_owner_sleeps_in_does_not_hold_up_the_next_applier(
    postgres_url: str, opened: Open
) -> None:
    one = Applied(opened(postgres_url))
    one.put(row("tea"))
    sleeper = PostgresSession(f"{postgres_url}&options=-c%20idle_in_transaction_session_timeout=200")
    with pytest.raises(Disconnected), sleeper.transaction() as sql:
        sql.execute(f'SELECT * FROM "{sleeper.schema}"."_tidelog_generations" FOR UPDATE')
        one.put(row("rum"))  # waits until the server has ended the other
        sql.execute(f'DELETE FROM "{sleeper.schema}"."revenue.v1"')
    one.is_equal()


@proves("P3", "eo.24")
def test_another_program_reads_the_view_by_its_name(postgres: PostgresServer, postgres_url: str, opened: Open) -> None:
    one = Applied(opened(postgres_url))
    one.put(row("tea", 1.5, 3), row("rum", None, 4))
    assert rows_of(postgres, postgres_url, "SELECT * FROM revenue ORDER BY product") == [
        ("rum", None, 4),
        ("tea", 1.5, 3),
    ]
    one.store.prepare(1, declare({**dict(REVENUE.columns), "more": "string"}, ("product",)))
    assert rows_of(postgres, postgres_url, "SELECT product, more FROM revenue ORDER BY product") == [
        ("rum", None),
        ("tea", None),
    ]
    other = Applied(opened(postgres_url), declare({"city": "string"}, ("city",)), generation=2)
    other.put({"city": "Bonn"})
    assert rows_of(postgres, postgres_url, "SELECT * FROM revenue") == [("Bonn",)]


@proves("P3", "eo.25")
def test_a_reader_whose_generation_is_forgotten_under_it_reads_the_next_one(postgres_url: str, opened: Open) -> None:
    old, new = (Applied(opened(postgres_url), generation=number) for number in (1, 2))
    old.put(row("tea"))

    class Slow(PostgresStore):
        """It has found out which generation is shown, and reads it after a while."""

        def _current(self, sql: Connection) -> tuple[Declaration, Place]:
            found = super()._current(sql)
            if new.end is None:
                new.put(row("rum"))
                new.store.forget(1)
            return found

    reader = Slow(postgres_url, "revenue")
    page = reader.read(Ask())
    assert ([one["product"] for one in page.rows], page.place.generation) == (["rum"], 2)
    reader.close()


@proves("P3", "eo.24")
def test_who_may_read_the_view_may_after_a_switch_to_the_same_columns(
    postgres: PostgresServer, postgres_url: str, opened: Open
) -> None:
    old, new = (Applied(opened(postgres_url), generation=number) for number in (1, 2))
    old.put(row("tea"))
    rows_of(postgres, postgres_url, "GRANT SELECT ON revenue TO PUBLIC")
    rows_of(postgres, postgres_url, "CREATE VIEW theirs AS SELECT product FROM revenue")
    new.put(row("rum"))
    assert rows_of(postgres, postgres_url, "SELECT * FROM theirs") == [("rum",)]
    granted = "SELECT count(*) FROM information_schema.role_table_grants WHERE table_name = 'revenue'"
    assert rows_of(postgres, postgres_url, f"{granted} AND grantee = 'PUBLIC' AND table_schema = current_schema") == [
        (1,)
    ]
    old.store.forget(1)
    assert rows_of(postgres, postgres_url, "SELECT * FROM theirs") == [("rum",)]


@proves("P3", "eo.24")
def test_a_switch_that_somebody_elses_view_is_in_the_way_of_changes_nothing(
    postgres: PostgresServer, postgres_url: str, opened: Open
) -> None:
    old = Applied(opened(postgres_url))
    old.put(row("tea"))
    rows_of(postgres, postgres_url, "CREATE VIEW theirs AS SELECT product FROM revenue")
    new = Applied(old.store, declare({"city": "string"}, ("city",)), generation=2)
    new.put({"city": "Bonn"}, show=False)
    with pytest.raises(UsageError, match="depend"):
        new.put({"city": "Ulm"}, show=True)
    old.is_equal()
    place = old.store.place(2)
    assert place is not None
    assert dict(place.ends) == dict(new.before)


@proves("P3")
def test_a_key_that_no_index_holds_is_refused_with_its_size(postgres_url: str, opened: Open, seed: int) -> None:
    one = Applied(opened(postgres_url))
    one.put(row("tea"))
    long = "".join(map(chr, random.Random(seed).choices(range(32, 127), k=9000)))
    with pytest.raises(UsageError, match="index row"):
        one.store.apply(1, stretch([put(REVENUE, row(long))], 90), before=one.before)
    one.is_equal()


@pytest.fixture
def guarded(postgres: PostgresServer, postgres_url: str) -> Iterator[str]:
    """A URL for a user who is asked for a password."""
    rules = postgres.folder / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all guarded scram-sha-256\n{before}")
    rows_of(postgres, postgres_url, f"CREATE ROLE guarded SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
    rows_of(postgres, postgres_url, "SELECT pg_reload_conf()")
    yield postgres_url.replace("postgres@", "guarded:${VIEWS_PASSWORD}@")
    rules.write_text(before)
    rows_of(postgres, postgres_url, "SELECT pg_reload_conf()")
    rows_of(postgres, postgres_url, "REASSIGN OWNED BY guarded TO postgres; DROP ROLE guarded")


@proves("P3")
def test_a_password_of_any_characters_comes_from_the_environment_and_is_in_no_error(
    guarded: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIEWS_PASSWORD", "wr@ng/secret")
    with pytest.raises(Disconnected, match="password authentication failed") as refused:
        opened(guarded).place(1)
    assert "wr@ng" not in _all_text(refused.value)
    monkeypatch.setenv("VIEWS_PASSWORD", PASSWORD)
    one = Applied(opened(guarded))
    one.put(row("tea"))
    one.is_equal()


@proves("P3")
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@127.0.0.1:1/db",
        "postgresql://me:hunter2@no-such-host.invalid/db",
        "postgresql://me:hunter2@/db?host=/nowhere",
        "postgresql://me:hunter2@host:port/db",
        "postgresql://me:hunter2/5@127.0.0.1:1/db",
    ],
)
def test_no_error_has_a_password_in_it(url: str, opened: Open) -> None:
    with pytest.raises(TidelogError) as refused:
        opened(url).prepare(1, REVENUE)
    assert "hunter2" not in _all_text(refused.value)


@proves("P3")
def test_an_option_that_there_is_not_is_refused(opened: Open) -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/db?nosuchoption=1"
    with pytest.raises(UsageError, match="nosuchoption") as refused:
        opened(url).prepare(1, REVENUE)
    assert "hunter2" not in _all_text(refused.value)


def _all_text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


@proves("P3", "architecture")
def test_psycopg_is_loaded_when_a_store_is_used() -> None:
    program = "import sys; import tidelog.views.stores.postgres as it; it.connect('postgresql://host/db', 'revenue');"
    program += "assert 'psycopg' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parent)


@proves("eo.24")
def test_a_view_of_somebody_elses_is_not_replaced(postgres: PostgresServer, postgres_url: str, opened: Open) -> None:
    opened(postgres_url, "other").prepare(1, REVENUE)
    rows_of(postgres, postgres_url, "CREATE VIEW revenue AS SELECT 'mine' AS product")
    with pytest.raises(UsageError, match=r"has a table or view .*revenue. already"):
        opened(postgres_url, "revenue").prepare(1, REVENUE)
    assert rows_of(postgres, postgres_url, "SELECT * FROM revenue") == [("mine",)]


@proves("P3")
@pytest.mark.parametrize("schema", ["50% off", "a" * 70, 'quo"ted', "Größe"])
def test_a_schema_of_any_name_is_made_once_and_found_again(postgres: PostgresServer, opened: Open, schema: str) -> None:
    url = postgres.url(quote(schema))
    one = Applied(opened(url))
    one.put(row("tea"))
    again = Applied(opened(url))
    again.rows, again.end = one.rows, one.end
    again.is_equal()
