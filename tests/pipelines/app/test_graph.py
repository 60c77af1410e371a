"""The graph of an app: order, circles, pictures; and fingerprints that change when what is computed changes."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.app import App
from tidelog.pipelines.graph import Graph, as_dot, as_mermaid, as_text, graph_of
from tidelog.pipelines.loading import load_app

LIMIT = 100


def shop() -> App:
    app = App("shop")
    app.stream("orders", value="id long, amount double")

    @app.view("top", key="id")
    def top(big_orders: Any) -> Any:
        return big_orders

    @app.topic("big-orders", key="id")
    def big_orders(orders: Any) -> Any:
        return orders.where(f"amount > {LIMIT}")

    return app


@proves("P1")
def test_what_is_read_runs_before_who_reads_it() -> None:
    assert [node.name for node in graph_of(shop()).nodes] == ["big-orders", "top"]


@proves("P1")
def test_only_some_outputs_may_be_run() -> None:
    graph = graph_of(shop())
    assert [node.name for node in graph.only(["top"]).nodes] == ["top"]
    assert graph.only([]) is graph
    with pytest.raises(UsageError, match="app shop has no output 'tops'; did you mean 'top'"):
        graph.only(["tops"])


@proves("P1")
def test_a_parameter_that_names_nothing_is_refused_with_the_nearest_name() -> None:
    app = shop()
    app.view("every", key="id")(lambda order: order)
    with pytest.raises(UsageError, match=r"test_graph.py:\d+: view 'every' reads 'order', .*did you mean 'orders'"):
        graph_of(app)


@proves("P1")
def test_a_circle_is_refused_by_the_names_in_it() -> None:
    app = App("loop")
    app.topic("a", key="id")(lambda b: b)
    app.topic("b", key="id")(lambda c: c)
    app.topic("c", key="id")(lambda a: a)
    with pytest.raises(UsageError, match="a reads b reads c reads a: a circle"):
        graph_of(app)


@proves("P1")
def test_an_app_without_outputs_is_refused() -> None:
    with pytest.raises(UsageError, match="has neither views nor topics"):
        graph_of(App("empty"))


@proves("P1")
def test_the_plan_is_text_and_two_kinds_of_graphs() -> None:
    graph = graph_of(shop())
    assert [line.split("  ")[0] for line in as_text(graph).splitlines() if line and line[0] != " "] == [
        "app shop",
        "stream orders",
        "topic",
        "view",
    ]
    told = App("shop")
    told.stream("orders")
    told.view("all", key="id", store="redis://:${PASSWORD}@db/0")(lambda orders: orders)
    assert "stores redis://:${PASSWORD}@db/0" in as_text(graph_of(told))
    assert "  big_orders --> top" in as_mermaid(graph).splitlines()
    assert '  "orders" -> "big-orders"' in as_dot(graph).splitlines()


# Fingerprints ---------------------------------------------------------------------------------------------------------

PROGRAM = """
from tidelog import App
app = App("shop")
app.stream("orders", value="id long, amount double", {time})
LIMIT = {limit}

def expensive(rows):
    {docstring}
    return rows.where("amount > %d" % LIMIT){more}

@app.view("top", key="id")
def top(orders{annotation}):
    # {comment}
    return expensive( orders )
"""
PLAIN = {"time": "", "limit": 100, "docstring": "", "more": "", "annotation": "", "comment": "x"}


def of(tmp_path: Path, **changes: Any) -> str:
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM.format(**{**PLAIN, **changes}))
    graph: Graph = graph_of(load_app(str(file)))
    return graph.node("top").fingerprint


@pytest.fixture
def fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    import linecache

    monkeypatch.setattr(linecache, "cache", {})
    return of(tmp_path)


@proves("eo.26", "P1")
@pytest.mark.parametrize(
    "change", [{"comment": "another"}, {"docstring": '"""What it does."""'}, {"annotation": ": object"}]
)
def test_what_changes_no_result_changes_no_fingerprint(tmp_path: Path, fingerprint: str, change: Any) -> None:
    import linecache

    linecache.clearcache()
    assert of(tmp_path, **change) == fingerprint


@proves("eo.26", "P1")
@pytest.mark.parametrize(
    "change", [{"limit": 200}, {"more": ".where('id > 0')"}, {"time": "event_time='timestamp', lateness='1 second'"}]
)
def test_other_code_constants_or_inputs_are_another_fingerprint(tmp_path: Path, fingerprint: str, change: Any) -> None:
    import linecache

    linecache.clearcache()
    assert of(tmp_path, **change) != fingerprint


@proves("eo.26")
def test_a_function_without_a_source_has_a_fingerprint_by_its_code() -> None:
    found = []
    for text in ("lambda orders: orders", "lambda orders: orders.where('id > 1')", "lambda orders: orders"):
        app = App("shop")
        app.stream("orders")
        made = eval(text)
        assert isinstance(made, FunctionType)
        app.view("all", key="id")(made)
        found.append(graph_of(app).node("all").fingerprint)
    assert found[0] == found[2] != found[1]


MODULE = "prices"
REACHED = {
    "by a module": ("import prices", "prices.net(orders)", "def net(rows): return rows.where('{}')"),
    "a module's constant": ("import prices", "orders.limit(prices.MOST)", "MOST = len('{}')"),
    "wrapped": ("from prices import net", "net(orders)", "from functools import wraps\ndef wrapping(f):\n"
        "    @wraps(f)\n    def wrapper(rows): return f(rows).where('{}')\n    return wrapper\n"
        "@wrapping\ndef net(rows): return rows"),
    "within a wrapper": ("from prices import net", "net(orders)",
        "from functools import lru_cache\n@lru_cache\ndef net(rows): return rows.where('{}')"),
    "a Python UDF": ("from prices import net", "orders.select(net('id'))", "from pyspark.sql.functions import udf\n"
        "from pyspark.sql.types import StringType\n@udf(returnType=StringType())\ndef net(one): return '{}'"),
    "a default": ("from prices import net", "net(orders)", "MOST = '{}'\ndef net(rows, most=MOST): return most"),
    "a base class": ("from prices import Net", "Net.of(orders)",
        "class Base:\n    rate = '{}'\nclass Net(Base):\n    @classmethod\n    def of(cls, rows): return rows"),
    "a static method": ("from prices import Net", "Net.of(orders)",
        "MOST = '{}'\nclass Net:\n    @staticmethod\n    def of(rows): return rows.where(MOST)"),
    "a partial": ("from prices import net", "net(orders)",
        "from functools import partial\ndef keep(rows, what): return rows.where(what)\nnet = partial(keep, what='{}')"),
    "a set": ("from prices import KINDS", "orders.where(orders.id.isin(*KINDS))", "KINDS = {{'{}', 'b'}}"),
    "a decimal": ("from prices import RATE", "orders.limit(RATE)",
        "from decimal import Decimal\nRATE = Decimal(len('{}'))"),
    "a table of functions": ("from prices import WAYS", "WAYS['net'](orders)",
        "def net(rows): return rows.where('{}')\nWAYS = {{'net': net}}"),
}  # fmt: skip


@proves("eo.26", "P1")
@pytest.mark.parametrize("way", REACHED)
def test_whatever_code_is_reached_by_it_belongs_to_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    import linecache
    import sys

    imported, used, module = REACHED[way]
    program = (
        f"from tidelog import App\n{imported}\napp = App('shop')\napp.stream('orders')\n"
        f"@app.view('top', key='id')\ndef top(orders):\n    return {used}\n"
    )
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [*sys.path])
    found = []
    for number, text in enumerate(("amount > 1", "amount > 10", "amount > 1")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "shop.py").write_text(program)
        (folder / f"{MODULE}.py").write_text(module.format(text))
        monkeypatch.delitem(sys.modules, MODULE, raising=False)
        linecache.clearcache()
        found.append(graph_of(load_app(str(folder / "shop.py"))).node("top").fingerprint)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    assert found[0] == found[2] != found[1]
