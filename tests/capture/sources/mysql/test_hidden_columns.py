"""Columns that are left out or masked are not in the topic of schema changes either, though a binlog has statements."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tidelog
from capture.captured import envelopes
from capture.databases import MariaDbShop
from capture.sources.mysql.mariadb_server import MariaDbServer
from proving import proves

pytestmark = pytest.mark.external


@pytest.fixture
def shop(mariadb: MariaDbServer) -> Iterator[MariaDbShop]:
    made = MariaDbShop(mariadb)
    made.make(made.writer())
    yield made
    made.close()


@proves("D1", "cdc.14")
def test_statements_that_may_tell_of_a_hidden_column_have_no_text(
    shop: MariaDbShop, tidelog_broker: tidelog.Broker
) -> None:
    hidden = {"exclude": f"{shop.schema}.orders.note", "mask": f"{shop.schema}.debit.n"}

    def catch_up() -> None:
        shop.capture(tidelog_broker.bootstrap, schema_changes=True, **hidden).catch_up()

    catch_up()
    writer, told = shop.writer(), "ALTER TABLE credit ADD COLUMN m INTEGER"
    writer.run(told, "ALTER TABLE orders MODIFY note VARCHAR(90) DEFAULT 'secret'")
    writer.run("ALTER TABLE debit ALTER n SET DEFAULT 4711")
    catch_up()
    writer.run("ALTER TABLE orders RENAME TO others, DROP COLUMN `NOTE`")
    catch_up()
    found = envelopes(tidelog_broker.bootstrap, "shop")
    assert [one["ddl"] for one in found] == [told, None, None, None, None]
    shown = [[column["name"] for column in one["tableChanges"][0]["table"]["columns"]] for one in found[:3]]
    assert shown == [["id", "n", "m"], ["id", "item", "price"], ["id", "n"]], "what became of the rest is told"
    assert not [word for word in ("note", "secret", "4711") if word in str(found).lower()]
