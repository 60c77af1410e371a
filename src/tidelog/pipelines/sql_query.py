"""A view in SQL: a query of Spark's over the app's streams and plain derived topics, as a function of DataFrames.

    app.view("revenue", key="product", sql="SELECT product, sum(amount) AS revenue FROM orders GROUP BY product")

Rules:
- It is to the rest of an app what a function is: its parameters are the relations that it names, `big-orders` in
  backquotes or as `big_orders`. So graph, run, batch, rebuild, driver and debugger know nothing of SQL.
- Rows in, rows out. What has changes instead of rows (a table, a view, a derived topic whose rows replace each other)
  is refused: SQL knows no retractions, and would count them as rows.
- Relations are known in a clone of the session, for as long as it takes to analyse the query: nothing of the user's is
  replaced, and two outputs at once do not meet.
- Only a query: a command would run while the app is looked at.
- An error names the line of the user's file, where the SQL stands there as it is; elsewhere the line of the SQL.
"""

from __future__ import annotations

import re
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import UsageError
from tidelog.pipelines.sql_text import bare, first_line, line_in, not_a_query, relations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OF_SPARK = re.compile(r"^\s*(?:\[[A-Z_.0-9]+\]\s*)?(?P<said>.*?)\s*(?:SQLSTATE:.*|;\s*line \d+.*)?$")
POSITION = re.compile(r"\(?line (?P<line>\d+),? pos \d+\)?")
CHANGES = (
    "SQL has no word for a row that is taken back, and would count it as one more; write a function with an operator"
    " that takes changes (join_tables, latest_by_key, ...), or read the stream that it is made of"
)


class SqlPlace(NamedTuple):
    """A line of the SQL, and where that is, if it stands in a file as it is."""

    file: str
    line: int  # of the file where it is known, else of the declaration
    line_of_sql: int | None

    def __str__(self) -> str:
        from pathlib import Path

        inner = "" if self.line_of_sql is None else f", line {self.line_of_sql} of its SQL"
        return f"{Path(self.file).name}:{self.line}{inner}"


class SqlFault(UsageError):
    """With the place in the SQL."""

    def __init__(self, message: str, place: SqlPlace) -> None:
        super().__init__(message)
        self.place = place


class SqlQuery:
    """What a declared view has for a function. Called with a DataFrame for each relation, in their order or by name."""

    def __init__(self, text: str, file: str, line: int) -> None:
        self.text = text
        self.file, self.line = file, line
        self._first = first_line(file, line, text)
        if (wrong := not_a_query(text)) is not None:
            said = "has nothing in it" if not wrong.text else f"has {wrong.text!r} in it, and is one query: SELECT ..."
            raise SqlFault(f"its SQL {said}", self.place(wrong.at))
        self.names = {_parameter(one.name): one for one in relations(text)}
        if unfit := next((one for one in self.names.values() if not _parameter(one.name).isidentifier()), None):
            raise SqlFault(f"{unfit.name!r} is not a name that an app can have", self.place(unfit.at))
        self.__signature__ = Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in self.names])

    @property
    def bare(self) -> str:
        """For the fingerprint."""
        return bare(self.text)

    def place(self, at: int) -> SqlPlace:
        """Of a character of the SQL."""
        return self._line(line_in(self.text, at))

    def place_of(self, name: str) -> SqlPlace:
        return self.place(self.names[name].at)

    def _line(self, number: int) -> SqlPlace:
        if self._first is None:
            return SqlPlace(self.file, self.line, number + 1)
        return SqlPlace(self.file, self._first + number, None)

    def __call__(self, *frames: DataFrame, **named: DataFrame) -> DataFrame:
        from tidelog.pipelines.operators.changelog import OP  # it loads pyarrow, and a declaration does not

        given = self.__signature__.bind(*frames, **named).arguments
        for name, frame in given.items():
            if OP in frame.columns:
                raise SqlFault(f"{self.names[name].name!r} has changes and not rows: {CHANGES}", self.place_of(name))
        try:
            return self._analysed(given)
        except Exception as error:
            if not type(error).__module__.startswith("pyspark.errors"):
                raise
            raise SqlFault(said_of(str(error)), self._place_in(error)) from None

    def _analysed(self, given: dict[str, DataFrame]) -> DataFrame:
        from pyspark.sql import DataFrame as Frame

        session = next(iter(given.values())).sparkSession
        jvm: Any = session._jvm
        dataset, clone = jvm.org.apache.spark.sql.classic.Dataset, session._jsparkSession.cloneSession()
        for name, frame in given.items():
            view = self.names[name].name.replace("`", "``")
            dataset.ofRows(clone, frame._jdf.queryExecution().analyzed()).createOrReplaceTempView(f"`{view}`")
        plan = clone.sql(self.text).queryExecution().analyzed()
        return Frame(dataset.ofRows(session._jsparkSession, plan), session)

    def _place_in(self, error: Any) -> SqlPlace:
        """As Spark tells it: by a part of the text, or by a line."""
        try:
            contexts = error.getQueryContext()
            if contexts:
                return self.place(int(contexts[0].startIndex()))
        except Exception:  # of a version, or an error, that has none
            pass
        found = POSITION.search(str(error))
        return self._line(int(found["line"]) - 1 if found else 0)


def said_of(text: str) -> str:
    """What an error of Spark's says, without its class and the plan behind it."""
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    found = OF_SPARK.match(lines[0]) if lines else None
    return (found["said"] if found else text).rstrip(" .;") or text.strip()


def _parameter(name: str) -> str:
    return re.sub(r"[-.]", "_", name)
