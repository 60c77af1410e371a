"""What a streaming DataFrame reads, found in its plan: its sources, where a column comes from, and other options.

A DataFrame is a description until a query is started on it. So what an operator needs of a source (`alignment`, say)
can still be said when the operator is declared, and the user need not know of it.

Rules:
- A column comes from a source's column when it is that column under any name: selected, renamed, passed on by filters,
  unions, joins, watermarks, and by functions over Arrow batches, which are taken to keep what keeps its name.
- Anything computed comes from nowhere.
- `with_options` changes nothing but the options: the columns and their identities stay, so that what was declared on
  the DataFrame before holds still.

Spark's plans are the JVM's, reached by py4j: PySpark has no other way to them, and Spark Connect has none at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.spark.registration import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KAFKA = "kafka"  # the format of Spark's own connector
RELATION = "StreamingRelationV2"
OVER_ARROW = ("MapInArrow", "MapInPandas")

Plan = Any


class PlanLeaf(NamedTuple):
    """A leaf of the plan. Names of options are as the user wrote them."""

    format: str
    options: Mapping[str, str]
    leaf: Plan

    def option(self, name: str) -> str | None:
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), None)


class Origin(NamedTuple):
    source: PlanLeaf
    column: str


def sources(rows: DataFrame) -> list[PlanLeaf]:
    """The streaming sources that it reads, from left to right; one that is read twice is there twice."""
    leaves = _analyzed(rows).collectLeaves()
    return [_source(leaf) for leaf in _items(leaves) if _kind(leaf) == RELATION]


def origins(rows: DataFrame) -> dict[str, list[Origin]]:
    """Which columns of sources each column is; several where inputs are united."""
    plan = _analyzed(rows)
    return {name: list(_origins(plan, place)) for place, name in enumerate(rows.columns)}


def made_of(rows: DataFrame, column: str) -> list[Origin]:
    """Columns of sources that a column is, or is computed from."""
    return list(_origins(_analyzed(rows), rows.columns.index(column), computed=True))


def with_options(rows: DataFrame, more: Mapping[str, str]) -> DataFrame:
    """The same rows, with these options for each of Tidelog's sources in it."""
    from pyspark.sql import DataFrame as Frame

    jvm: Any = rows.sparkSession._jvm
    plan = _rewritten(rows, _analyzed(rows), more)
    return Frame(
        jvm.org.apache.spark.sql.classic.Dataset.ofRows(rows.sparkSession._jsparkSession, plan), rows.sparkSession
    )


def _analyzed(rows: DataFrame) -> Plan:
    return rows._jdf.queryExecution().analyzed()


def _kind(node: Plan) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


def _source(leaf: Plan) -> PlanLeaf:
    return PlanLeaf(str(leaf.sourceName()), dict(leaf.extraOptions().asCaseSensitiveMap()), leaf)


# --- where a column comes from ----------------------------------------------------------------------------------------


def _origins(node: Plan, place: int, *, computed: bool = False) -> Iterator[Origin]:
    """Of the output column at this place; with `computed`, also of what it is computed from."""
    kind, children = _kind(node), _items(node.children())
    column = node.output().apply(place)
    if kind == RELATION:
        yield Origin(_source(node), str(column.name()))
    elif kind == "Union":
        for child in children:
            yield from _origins(child, place, computed=computed)
    elif kind in OVER_ARROW:
        yield from _below(children, lambda one: one.name() == column.name(), computed=computed)
    elif kind == "Project":
        yield from _projected(node, place, children, computed=computed)
    else:
        yield from _below(children, lambda one: one.exprId().equals(column.exprId()), computed=computed)


def _projected(node: Plan, place: int, children: list[Plan], *, computed: bool) -> Iterator[Origin]:
    said = node.projectList().apply(place)
    if _kind(said) == "Alias":
        said = said.child()
    named = [said] if _kind(said) == "AttributeReference" else _items(said.references().toSeq()) if computed else []
    for one in named:
        yield from _below(children, partial(_is_same, one.exprId()), computed=computed)


def _is_same(wanted: Any, column: Any) -> bool:
    return bool(column.exprId().equals(wanted))


def _below(children: list[Plan], is_it: Any, *, computed: bool) -> Iterator[Origin]:
    for child in children:
        for place, column in enumerate(_items(child.output())):
            if is_it(column):
                yield from _origins(child, place, computed=computed)
                return


# --- other options ----------------------------------------------------------------------------------------------------


def _rewritten(rows: DataFrame, node: Plan, more: Mapping[str, str]) -> Plan:
    if _kind(node) == RELATION:
        return _with_options(rows, _source(node), more) if str(node.sourceName()) == FORMAT else node
    children = _items(node.children())
    if not children:
        return node
    jvm: Any = rows.sparkSession._jvm
    changed = jvm.java.util.ArrayList()
    for child in children:
        changed.add(_rewritten(rows, child, more))
    return node.withNewChildren(jvm.scala.jdk.javaapi.CollectionConverters.asScala(changed).toSeq())


def _with_options(rows: DataFrame, source: PlanLeaf, more: Mapping[str, str]) -> Plan:
    """A Python source keeps what it was loaded with: so it is loaded anew, and put where the old one was."""
    from pyspark.sql.types import StructType

    given = {name: value for name, value in source.options.items() if name.lower() not in {one.lower() for one in more}}
    schema = StructType.fromJson(_json(source.leaf.schema().json()))
    reader = rows.sparkSession.readStream.format(source.format).schema(schema).options(**given, **more)
    loaded = _analyzed(reader.load())
    new = {name: getattr(loaded, name)() for name in ("source", "table", "extraOptions")}
    fields = [str(source.leaf.productElementName(place)) for place in range(source.leaf.productArity())]
    return source.leaf.copy(*(new.get(name) or source.leaf.productElement(place) for place, name in enumerate(fields)))


def _json(text: Any) -> dict[str, Any]:
    import json

    read: dict[str, Any] = json.loads(str(text))
    return read
