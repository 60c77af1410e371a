"""The graph of an app: order, circles, pictures; and fingerprints that change when what is computed changes."""

from __future__ import annotations

import ast
import linecache
import sys
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from proving import proves
from tidelog.control.derived import TopicGeneration
from tidelog.errors import UsageError
from tidelog.pipelines.app import App
from tidelog.pipelines.fingerprints import said_difference
from tidelog.pipelines.graph import Graph, Node, as_dot, as_mermaid, as_text, graph_of
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
WITH_NULL = "c26fb0358748047a"  # what the program with on_error='null' was called by versions that counted it


def of(tmp_path: Path, **changes: Any) -> str:
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM.format(**{**PLAIN, **changes}))
    graph: Graph = graph_of(load_app(str(file)))
    return graph.node("top").fingerprint


@pytest.fixture
def fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(linecache, "cache", {})
    return of(tmp_path)


@proves("eo.26", "P1")
@pytest.mark.parametrize(
    "change", [{"comment": "another"}, {"docstring": '"""What it does."""'}, {"annotation": ": object"}]
)
def test_what_changes_no_result_changes_no_fingerprint(tmp_path: Path, fingerprint: str, change: Any) -> None:
    linecache.clearcache()
    assert of(tmp_path, **change) == fingerprint


@proves("eo.26", "P1")
def test_what_becomes_of_bad_records_is_no_other_view_and_older_fingerprints_that_had_it_are_known(
    tmp_path: Path, fingerprint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    linecache.clearcache()
    assert of(tmp_path, time="on_error='dead_letter'") == fingerprint
    linecache.clearcache()
    node = graph_of(load_app(str(tmp_path / "shop.py"))).node("top")
    assert WITH_NULL in node.older and node.is_code_of(TopicGeneration(1, "top", "top", WITH_NULL))
    assert not node.is_code_of(TopicGeneration(1, "top", "top", "another"))


@proves("eo.26", "P1")
@pytest.mark.parametrize(
    "change",
    [{"limit": 200}, {"more": ".where('id > 0')"}, {"time": "event_time='timestamp', watermark_delay='1 second'"}],
)
def test_other_code_constants_or_inputs_are_another_fingerprint(tmp_path: Path, fingerprint: str, change: Any) -> None:
    linecache.clearcache()
    assert of(tmp_path, **change) != fingerprint


TIMED = """
from tidelog import App
from tidelog.operators import event_time
app = App("shop")
app.stream("orders", value="{value}", event_time="at", {stream})
RATE = {rate}

def net(rows):
    return rows.where("amount > %d" % RATE)

@app.topic("top", key="{key}")
def top(orders):
    return net(orders.transform(event_time("at", {operator})))
"""
AS_IT_WAS = {"value": "id long, at timestamp", "stream": "watermark_delay='1 second'", "rate": 2, "key": "id"}
AS_IT_WAS |= {"operator": "'1 second'"}


def timed(tmp_path: Path, **changes: Any) -> Node:
    linecache.clearcache()
    file = tmp_path / "shop.py"
    file.write_text(TIMED.format(**{**AS_IT_WAS, **changes}))
    return graph_of(load_app(str(file))).node("top")


@proves("dt.11", "dt.12")
@pytest.mark.parametrize(
    "change",
    [
        {"stream": "watermark_delay='1 hour'"},
        {"stream": "watermark_delay='1 second', idle_after='1 minute'"},
        {"stream": "watermark_delay='1 second', on_error='null'"},
        {"operator": "'1 hour'"},
        {"operator": "watermark_delay='1 hour', idle_after='1 minute'"},
    ],
)
def test_how_late_rows_may_come_is_no_other_output(tmp_path: Path, change: Any) -> None:
    was = timed(tmp_path)
    built = TopicGeneration(1, "top", "shop.top", was.fingerprint, was.parts)
    assert timed(tmp_path, **change).is_code_of(built)
    assert timed(tmp_path).is_code_of(replace(built, code={})), "one of a version that kept no parts"


@proves("dt.10", "dt.1")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate": 3}, "changed: constant RATE"),
        ({"value": "id long, at timestamp, more int"}, "changed: columns of stream orders"),
        ({"key": "at"}, "changed: key"),
        ({"operator": "'1 second', align_by='x'"}, "changed: function top"),
    ],
)
def test_a_change_is_named_in_words(tmp_path: Path, change: Any, said: str) -> None:
    was, now = timed(tmp_path), timed(tmp_path, **change)
    assert not now.is_code_of(TopicGeneration(1, "top", "shop.top", was.fingerprint, was.parts))
    assert said_difference(was.parts, now.parts) == said
    assert said_difference({}, now.parts) == "" == said_difference(was.parts, was.parts)


@proves("dt.11")
def test_another_function_that_is_called_event_time_counts_with_its_arguments(tmp_path: Path) -> None:
    own = TIMED.replace(
        "from tidelog.operators import event_time", "def event_time(*of):\n    return lambda rows: rows\n"
    )
    found = []
    for delay in ("'1 second'", "'1 hour'"):
        linecache.clearcache()
        (tmp_path / "shop.py").write_text(own.format(**{**AS_IT_WAS, "operator": delay}))
        found.append(graph_of(load_app(str(tmp_path / "shop.py"))).node("top").parts)
    assert said_difference(*found) == "changed: function top"


@proves("eo.26", "E3")
def test_a_file_that_is_edited_while_its_app_runs_is_not_taken_for_the_code_that_runs(
    tmp_path: Path, fingerprint: str
) -> None:
    """Else a run would go on, by its old code, with what a rebuild has built by the new one."""
    file = tmp_path / "shop.py"
    running = graph_of(load_app(str(file)))
    assert running.node("top").fingerprint == fingerprint
    edited = of(tmp_path, more=".where('id > 0')")
    assert edited != fingerprint
    assert running.node("top").fingerprint == fingerprint
    assert graph_of(running.app).node("top").fingerprint == fingerprint, "also where its graph is made again"
    file.write_text("# all of it is gone\n")
    assert graph_of(running.app).node("top").fingerprint == fingerprint


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


# What versions of Python compile, write and generate differently.
MANY_KINDS = '''
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from tidelog import App

app = App("shop")
app.stream("orders", value="id long, amount double")
LIMIT, KINDS = 100, {"b", "a"}
WAYS = {"net": lambda rows: rows.where("amount > 1"), "gross": lambda rows: (lambda rows: rows.limit(3))(rows)}


@dataclass(frozen=True)
class Rate:
    share: float = 0.5
    names: list[str] = field(default_factory=list)

    def of(self, rows):
        return [f"{name!r:>{width}} it's {rows['a']:}" f"{{}}" for name, width in zip(self.names, range(9))]


class Pair(NamedTuple):
    left: int = 3


def expensive(rows, *more, most=LIMIT, **named):
    pairs = {**named, **{k: v for k, v in named.items() if v is not None}}
    first, *rest = (1, 2, 3)
    chosen = more[(0, *rest)] if (n := len(more)) > 3 else (lambda: (yield))
    with open(f"""{LIMIT}"x\\n""") as a, open("b") as b:
        match pairs:
            case {"a": 1, **others}:
                return rows.where(f"amount > {LIMIT:,}")
    return rows.where("amount > %d" % LIMIT), chosen, a, b, n, first, -1, 1e300, 1j, b"x", ..., u"u"


@app.view("top", key="id")
def top(orders: object):
    keep = partial(expensive, most=3)
    return WAYS["net"](keep(orders)), WAYS["gross"], Rate().of(orders), KINDS, Pair()


app.view("all", key="id")(
    lambda orders: orders.where(f"id > {LIMIT}"))
'''
KNOWN = {"top": "3a0a66ceb95a4a1a", "all": "eacce312c915acc3"}


# As a user wrote it before parameters got the names that Flink and Spark have, and as it is written since.
RENAMED = """
from tidelog import App
from tidelog.operators import aggregates as agg, event_time, tumbling

app = App("shop")
app.stream("orders", value="id long, at timestamp")


@app.view("late", key="id")
def late(orders):
    timed = orders.transform(event_time("at", {delay}="10 seconds"))
    policy = {{"late": "correct"}}
    rows = {{"n": agg.count()}}
    counted = tumbling("1 minute", by="id", aggregates=rows, {allowed}="1 hour", beyond="{side}", **policy)
    return timed.transform(counted)
"""
BEFORE, SINCE = ("lateness", "allowed", "divert"), ("watermark_delay", "allowed_lateness", "side_output")


@proves("eo.26", "P1")
@pytest.mark.parametrize("names", [BEFORE, SINCE], ids=["before", "since"])
def test_a_renamed_parameter_is_not_another_view(tmp_path: Path, names: tuple[str, ...]) -> None:
    """The digest is that of the version before the rename: who writes the new names rebuilds nothing."""
    linecache.clearcache()
    words = dict(zip(("delay", "allowed", "side"), names, strict=True))
    (tmp_path / "shop.py").write_text(RENAMED.format(**words))
    assert graph_of(load_app(str(tmp_path / "shop.py"))).node("late").fingerprint == "1fc59ebc8579ee5c"


@proves("eo.26", "P1")
def test_only_the_renamed_words_of_a_call_count_as_before(tmp_path: Path) -> None:
    def of_call(call: str) -> str:
        linecache.clearcache()
        (tmp_path / "shop.py").write_text(PROGRAM.format(**{**PLAIN, "more": call}))
        return graph_of(load_app(str(tmp_path / "shop.py"))).node("top").fingerprint

    assert of_call('.to(late="side_output")') == of_call('.to(late="divert")')
    assert of_call('.to(name="side_output")') != of_call('.to(name="divert")')
    assert of_call('.to(late="side_output")') != of_call('.to(late="drop")')


def fingerprints_of(program: Path) -> dict[str, str]:
    linecache.clearcache()
    return {node.name: node.fingerprint for node in graph_of(load_app(str(program))).nodes}


@proves("eo.26", "P1")
def test_a_fingerprint_is_that_of_every_version_before(tmp_path: Path) -> None:
    """If the form of fingerprints is ever to change, these values do, and every view would have to be rebuilt."""
    (tmp_path / "shop.py").write_text(MANY_KINDS)
    assert fingerprints_of(tmp_path / "shop.py") == KNOWN


class AsOtherPython(ast.NodeTransformer):
    """What `ast.parse` of a version makes of the same text: seen with 3.11.7, 3.12.1 and 3.13.0, which differ in no
    other field of `MANY_KINDS`.
    """

    def __init__(self, *, has_type_params: bool, ends_formats: bool) -> None:
        self.has_type_params, self.ends_formats = has_type_params, ends_formats

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node._fields = tuple(name for name in node._fields if name != "type_params")
            if self.has_type_params:
                node._fields = (*node._fields, "type_params")
                node.type_params = []
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
            parts = [one for one in node.format_spec.values if getattr(one, "value", None) != ""]
            ends = parts and self.ends_formats and isinstance(parts[-1], ast.FormattedValue)
            node.format_spec.values = [*parts, ast.Constant("")] if ends else parts
        return node


OTHER_PYTHONS = {
    "3.11": AsOtherPython(has_type_params=False, ends_formats=False),
    "3.12": AsOtherPython(has_type_params=True, ends_formats=True),
    "3.13": AsOtherPython(has_type_params=True, ends_formats=False),
}


@proves("eo.26", "P1")
@pytest.mark.parametrize("version", OTHER_PYTHONS)
def test_what_another_version_of_python_parses_otherwise_is_not_another_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    (tmp_path / "shop.py").write_text(MANY_KINDS)
    parse = ast.parse
    with monkeypatch.context() as patched:  # pytest parses, too
        patched.setattr(ast, "parse", lambda text: OTHER_PYTHONS[version].visit(parse(text)))
        found = fingerprints_of(tmp_path / "shop.py")
    assert found == KNOWN


@proves("eo.26")
def test_each_lambda_of_a_line_is_told_from_the_others(tmp_path: Path) -> None:
    ways = {
        "inner": "LAST = (lambda rows: (lambda rows: rows.limit({}))(rows), lambda rows: rows)",
        "first": "LAST = {{'a': lambda rows: rows.limit({}), 'b': lambda rows: rows.limit(9)}}",
        "last": "LAST = {{'a': lambda rows: rows.limit(9), 'b': lambda rows: rows.limit({})}}",
    }
    for way, line in ways.items():
        found = []
        for number in (1, 2, 1):
            text = f"from tidelog import App\napp = App('shop')\napp.stream('orders')\n{line.format(number)}\n"
            text += "@app.view('top', key='id')\ndef top(orders): return LAST\n"
            (tmp_path / "shop.py").write_text(text)
            linecache.clearcache()
            found.append(graph_of(load_app(str(tmp_path / "shop.py"))).node("top").fingerprint)
        assert found[0] == found[2] != found[1], way


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
