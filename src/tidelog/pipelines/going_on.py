"""Whether other code of a derived topic may go on from where the old code was: what is there stays, and no state mixes.

    may        nothing is kept between micro-batches; or the part of the plan whose state is kept is the same
    may not    rows begin or cease to replace each other by key; other topics are read; what is kept may rest on what
               has changed

What is kept rests on the plan up to its topmost operator with state, so the digest of that text is kept with the
generation (`state_of`). Where Python computes in it, its text does not say what: all of the code counts then. It is
compared with the same version of Spark alone: another one may write the same plan otherwise.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidelog.control.derived import TopicGeneration
from tidelog.pipelines.view_topic import is_stateful

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIGEST_LENGTH = 16
BY_PYTHON = ("Python", "PySpark", "Pandas", "Arrow")  # in names of operators
OF_INPUTS = ("inputs", "topic of ")  # how parts are called that say what is read
NUMBERS = re.compile(r"#-?\d*L?(-T\d+ms)?")  # of columns, and how late they may be
RELATION = re.compile(r"StreamingRelation.*$", re.MULTILINE)
WATERMARK = re.compile(r"EventTimeWatermark [^,]+, (.*), .*$", re.MULTILINE)


def why_not(current: TopicGeneration, made: TopicGeneration) -> str | None:
    """Why the code of `made` cannot go on with `current`. Pure."""
    if current.keyed != made.keyed:
        return (
            "its rows replace each other by key, and did not" if made.keyed else "its rows replaced each other by key"
        )
    parts = {name for name in {**current.code, **made.code} if current.code.get(name) != made.code.get(name)}
    if any(name.startswith(OF_INPUTS) for name in parts):
        return "it reads other topics than before"
    if current.state != made.state:
        return "its query keeps state, which may rest on what has changed"
    return None


def state_of(frame: DataFrame, code: str) -> str:
    """A digest of what the state of this stream rests on; empty where it keeps none. `code`: its fingerprint."""
    tops = list(_topmost(frame._jdf.queryExecution().analyzed()))
    if not tops:
        return ""
    text = "\n".join(plan_text(str(one.canonicalized().toString())) for one in tops)
    by_python = code if any(_is_by_python(frame, one) for one in tops) else ""
    said = f"{frame.sparkSession.version}\n{by_python}\n{text}"
    return hashlib.sha256(said.encode()).hexdigest()[:DIGEST_LENGTH]


def plan_text(said: str) -> str:
    """Without what differs from one start to the next, where brokers are, and how late rows may come."""
    return WATERMARK.sub(r"EventTimeWatermark \1", RELATION.sub("StreamingRelation", NUMBERS.sub("#", said)))


def _topmost(plan: Any) -> Iterator[Any]:
    if is_stateful(plan):
        yield plan
        return
    for child in _children(plan):
        yield from _topmost(child)


def _is_by_python(frame: DataFrame, plan: Any) -> bool:
    jvm: Any = frame.sparkSession._jvm
    if plan.containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()):
        return True
    return _has_python(plan)


def _has_python(plan: Any) -> bool:
    if any(word in str(plan.nodeName()) for word in BY_PYTHON):
        return True
    return any(_has_python(child) for child in _children(plan))


def _children(plan: Any) -> list[Any]:
    found = plan.children()
    return [found.apply(place) for place in range(found.size())]
