"""Declaring: pure data, and errors that name the user's file and line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.app import App, Input, Output
from tidelog.pipelines.loading import load_app

SECRET = "redis://:hunter2@db/0"
HERE = Path(__file__).name


def rows(orders: Any) -> Any:
    return orders


def shop() -> App:
    app = App("shop")
    app.stream("orders", value="id long", event_time="at", watermark_delay="10 seconds", idle_after="1 minute")
    return app


@proves("P1")
def test_what_is_declared_is_data_that_knows_where_it_stands() -> None:
    app = shop()
    app.view("revenue", key="id", stores=["sqlite:///a.db", "redis://b"], horizon="1 hour")(rows)
    orders, revenue = app.inputs["orders"], app.outputs["revenue"]
    assert isinstance(orders, Input) and isinstance(revenue, Output)
    assert (orders.topic, orders.time) == ("orders", ("at", 10_000, 60_000))
    assert (revenue.key, revenue.stores, revenue.horizon_ms) == (("id",), ("sqlite:///a.db", "redis://b"), 3_600_000)
    assert str(revenue.place).startswith(HERE) and revenue.place.line > orders.place.line


@proves("P1")
def test_a_declared_function_stays_what_it_was() -> None:
    assert shop().topic("big", key="id")(rows) is rows


@proves("P1")
def test_parameters_know_a_name_with_underscores() -> None:
    app = shop()
    app.topic("big-orders.eu", key="id")(rows)
    assert list(app.outputs) == ["big_orders_eu"]


@proves("P1")
@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda app: app.stream("orders"), "has the name of stream 'orders' at .*call one of them otherwise"),
        (lambda app: app.topic("orders")(rows), "topic 'orders' has the name of stream"),
        (lambda app: app.stream("no topic"), "'no topic' is not a valid topic name"),
        (lambda app: app.stream("a", watermark_delay="1 second"), "name its column by event_time="),
        (lambda app: app.stream("a", event_time="t", watermark_delay="1 month"), "a month has no fixed length"),
        (lambda app: app.stream("a", record="header"), "a record has no 'header'"),
        (lambda app: app.table("a", key="k"), "does not say what its values are"),
        (
            lambda app: app.stream("a", value="k long", on_error="dead"),
            "on_error is 'dead'; it is fail or null or dead",
        ),
        (
            lambda app: app.stream("a", value="k long", on_errors="null"),
            r"app\.stream has no argument 'on_errors'; did you mean on_error\?",
        ),
        (
            lambda app: app.table("a", key="k", value="k long", event_tim="k"),
            r"app\.table has no argument 'event_tim'; did you mean event_time\?",
        ),
        (
            lambda app: app.stream("a", value="k long", key="k"),
            r"app\.stream has no argument 'key'; there are event_time, .* watermark_delay",
        ),
        (lambda app: app.table("a", key="k", value="k long", versions=True), "each from a time on"),
        (lambda app: app.table("a", key=("k", "k"), value="k long"), "each once"),
        (lambda app: app.view("a", key=())(rows), "view 'a' has no key; name the columns that identify a row, as key="),
        (lambda app: app.table("t", key="k", value="k long", record="offset"), "that is for versions=True"),
        (lambda app: app.view("a")(rows), "view 'a' has no key; name the columns that identify a row"),
        (lambda app: app.view("a", key="")(rows), "view 'a' has no key; name the columns that identify a row"),
        (lambda app: app.view(rows), r'given a function, and no name; write @app\.view\("rows", key=...\)'),
        (lambda app: app.topic(rows), r'given a function, and no name; write @app\.topic\("rows", key=...\)'),
        (lambda app: app.view("a", key=("k", "k"))(rows), "name the columns that identify a row, each once"),
        (lambda app: app.view("a b", key="k")(rows), "is not a valid view name"),
        (lambda app: app.view("a", key="k", partitions=0)(rows), "a topic has at least 1"),
        (lambda app: app.view("a", key="k", mode="complete")(rows), "it is append or update"),
        (
            lambda app: app.view("a", key="k", store=SECRET)(rows),
            r"redis://:\*\*\*@db/0 has a password in clear.*\${NAME}",
        ),
        (lambda app: app.view("a", key="k", stores=["sqlite:///a.db", SECRET])(rows), "has a password in clear"),
        (lambda app: app.table("a", key="k", value="k long", start_from=f"{SECRET}#b"), "has a password in clear"),
        (
            lambda app: app.view("a", key="k", store="foo://x")(rows),
            "'foo://x' is not a store; a URL begins with sqlite://, .*postgresql://",
        ),
        (lambda app: app.view("a", key="k", stores=["sqlite://a.db"])(rows), "sqlite://a.db: it has no file"),
        (lambda app: app.view("a", key="k", store="sqlite:///a.db?columns=b")(rows), "nothing may be asked here"),
        (lambda app: app.view("a", key="k", store="redis://:${A}@db:port/0")(rows), "is its port a number"),
        (lambda app: app.view("a", key="k", store="parquet:///a?grace=-1")(rows), "not a number of 0 or more"),
        (lambda app: app.table("a", key="k", value="k long", start_from="foo://x#b"), "'foo://x' is not a store"),
        (lambda app: app.view("a", key="k")(lambda: None), "reads nothing"),
        (lambda app: app.view("a", key="k")(lambda *all: None), "write it as a plain name"),
        (lambda app: app.view("a", key="k")(lambda orders, limit=3: None), "write it as a plain name"),
    ],
)
def test_a_mistake_is_told_with_its_file_and_line(declare: Any, message: str) -> None:
    with pytest.raises(UsageError, match=rf"^{HERE}:\d+: .*{message}") as told:
        declare(shop())
    assert "hunter2" not in str(told.value)


@proves("P1")
def test_an_app_has_a_name_that_topics_and_folders_can_have() -> None:
    with pytest.raises(UsageError, match="'my shop' is not a valid app name"):
        App("my shop")


@proves("P1", "architecture")
def test_nothing_of_spark_is_loaded_by_a_declaration(tmp_path: Path) -> None:
    program = tmp_path / "declared.py"
    program.write_text(
        "import sys\nfrom tidelog import App\napp = App('shop')\napp.stream('orders', value='id long')\n"
        "@app.view('all', key='id')\ndef every(orders):\n    return orders\n"
        "from tidelog.pipelines.graph import as_text, graph_of\nas_text(graph_of(app))\n"
        "print([name for name in ('pyspark', 'pyarrow', 'numpy') if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr


@proves("P1")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "has no App; write app = "),
        ("from tidelog import App\na = App('a')\nb = App('b')", "has 2 Apps; name one, as .*:a"),
        ("from tidelog import App\nnothing_like_this", "app.py:2: NameError"),
        ("from tidelog import App\napp = App(", "app.py:2: SyntaxError"),
    ],
)
def test_a_file_that_has_no_app_is_told_so(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "app.py"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        load_app(str(file))


@proves("P1")
def test_a_file_with_the_name_of_a_module_replaces_none(tmp_path: Path) -> None:
    import json

    file = tmp_path / "json.py"
    file.write_text("from tidelog import App\napp = App('named')")
    assert load_app(str(file)).name == "named"
    assert sys.modules["json"] is json


@proves("P1")
def test_one_of_several_apps_is_named_after_a_colon(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text("from tidelog import App\na = App('first')\nb = App('second')")
    assert load_app(f"{file}:b").name == "second"
    with pytest.raises(UsageError, match="has no App called 'c'; it has a, b"):
        load_app(f"{file}:c")
