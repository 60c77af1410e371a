"""What operators were declared with whose state is Spark's own: said in the plan, and kept beside the checkpoint.

Spark goes on with the state of an aggregate, a join or a set of keys whatever the query says now: what was counted by
the minute goes into windows of five, in silence. So an operator says in the plan what it was declared with, and who
starts a query compares that with what its checkpoint was made with, before anything runs.

    in the plan                            a filter that is always true, of a text: the optimizer takes it out
    <checkpoint>/tidelog-operators.json    {"format": 1, "operators": [{"operator": "windows on a grid",
                                            "declared": {"size": "0:01:00", "by": "['user']", ...}}, ...]}

Rules:
- Operators stand in the order of the plan, from the top and from left to right. Others, or others of them, are refused.
- Names and values are part of the format: who says one of them otherwise refuses what was made before.
- A name that only one of the two has is not a difference: it is from before, or after, there was such a parameter.
- A checkpoint in which no micro-batch has begun has no state: what is kept there is replaced. One that has begun, and
  is from before this was kept, takes the present.
- A folder that is copied has it too: it goes where the state goes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import StateMismatch, StorageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 1
SHOWN = {"lateness": "watermark_delay"}  # what users know a name by that the file keeps
FILE = "tidelog-operators.json"
OFFSETS = "offsets"  # of Spark's: a file for each micro-batch that has begun
MARK = "tidelog operator "  # how the text in a plan begins
ANEW = (
    "go back to what it was, or start over: with another checkpoint, in an app by `tidelog rebuild` of a view, or by "
    "another name of a topic"
)


class Declared(NamedTuple):
    operator: str
    declared: Mapping[str, str]


# In the plan ----------------------------------------------------------------------------------------------------------


def declared_with(rows: DataFrame, operator: str, declared: Mapping[str, str]) -> DataFrame:
    """The same rows, whose plan says so; its columns stay what they are. A batch has no state."""
    from pyspark.sql import functions as F

    if not rows.isStreaming:
        return rows
    return rows.where(F.lit(MARK + json.dumps(Declared(operator, declared)._asdict())).isNotNull())


def declared_in(plan: Any) -> Iterator[Declared]:
    if (said := _said_by(plan)) is not None:
        yield Declared(**json.loads(said))
    children = plan.children()
    for place in range(children.size()):
        yield from declared_in(children.apply(place))


def _said_by(node: Any) -> str | None:
    if str(node.nodeName()) != "Filter" or _kind(node.condition()) != "IsNotNull":
        return None
    asked = node.condition().child()
    text = str(asked.value()) if _kind(asked) == "Literal" else ""
    return text.removeprefix(MARK) if text.startswith(MARK) else None


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


# Beside the checkpoint ------------------------------------------------------------------------------------------------


def keep_to(rows: DataFrame, checkpoint: str) -> None:
    """Refuses a query over `rows` that would go on with state of other operators; call it before the query starts."""
    keep_plan_to(rows.sparkSession, rows._jdf.queryExecution().analyzed(), checkpoint)


def keep_plan_to(spark: SparkSession, plan: Any, checkpoint: str) -> None:
    now, kept = list(declared_in(plan)), Kept(spark, checkpoint)
    before = kept.read()
    if before is not None and kept.has_begun():
        check(before, now, checkpoint)
    elif now or before is not None:
        kept.write(now)


def check(before: list[Declared], now: list[Declared], checkpoint: str) -> None:
    names, are = ([one.operator for one in those] for those in (before, now))
    if names != are:
        had, has = (", ".join(those) or "none" for those in (names, are))
        raise StateMismatch(f"the state in {checkpoint} is that of {had}, and the query now has {has}; {ANEW}")
    for was, is_ in zip(before, now, strict=True):
        changed = changed_names(was, is_)
        if changed:
            then, here = (
                ", ".join(f"{SHOWN.get(name, name)} {one.declared[name]}" for name in changed) for one in (was, is_)
            )
            raise StateMismatch(
                f"the state of {was.operator!r} in {checkpoint} was made with {then}, and the query now has {here};"
                f" {ANEW}"
            )


def changed_names(was: Declared, is_: Declared) -> list[str]:
    """Of parameters that both have."""
    return [name for name, value in was.declared.items() if is_.declared.get(name, value) != value]


class Kept:
    """The file, by Spark's own file systems: a checkpoint may be at s3a://..."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        jvm: Any = spark._jvm
        folder = jvm.org.apache.hadoop.fs.Path(checkpoint)
        self._path, self._new, self._offsets = (
            jvm.org.apache.hadoop.fs.Path(folder, name) for name in (FILE, f".{FILE}.new", OFFSETS)
        )
        self._files: Any = folder.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def has_begun(self) -> bool:
        return bool(self._files.exists(self._offsets)) and len(self._files.listStatus(self._offsets)) > 0

    def read(self) -> list[Declared] | None:
        if not self._files.exists(self._path):
            return None
        stream = self._files.open(self._path)
        try:
            known = json.loads(bytes(stream.readAllBytes()))
        finally:
            stream.close()
        if known["format"] != FORMAT:
            said = f"{self._path} has format {known['format']}"
            raise StateMismatch(f"{said}; this version reads {FORMAT}: use a newer one")
        return [Declared(**one) for one in known["operators"]]

    def write(self, operators: list[Declared]) -> None:
        """Whole or not at all: what was half written has another name."""
        text = json.dumps({"format": FORMAT, "operators": [one._asdict() for one in operators]})
        stream = self._files.create(self._new, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._files.delete(self._path, False)
        if not self._files.rename(self._new, self._path):
            raise StorageError(f"{self._path}, which says what the query was declared with, cannot be written")
