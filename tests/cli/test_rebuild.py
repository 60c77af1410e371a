"""`tidelog rebuild`: what it refuses before it starts Spark, how many tasks it asks for, how it tells how far it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from proving import proves
from tidelog.cli import rebuild
from tidelog.cli.options import parse
from tidelog.errors import UsageError
from tidelog.pipelines.catching_up import Done
from tidelog.pipelines.running import Settings

PROGRAM = """
from tidelog import App

app = App("shop")
app.stream("orders", value="id long, product string")
app.topic("big-orders", key="id")(lambda orders: orders)
app.view("revenue", key="product")(lambda orders: orders)
"""


@proves("E3", "command_line")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["revenues"], "app shop has no output 'revenues'; did you mean 'revenue'?"),
        (["big-orders", "--in-place"], "topic big-orders is kept: --in-place writes the difference to it, or, where"),
        (["revenue", "--in-place", "--yes"], "revenue is a view, whose name moves to the new generation by itself"),
        (["revenue", "--parallelism", "0"], "'0' is not a whole number above 0"),
        (["revenue", "--only", "revenue"], "unrecognized arguments: --only"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    with pytest.raises(UsageError) as refused:
        rebuild.run([*words, "--app", str(tmp_path / "shop.py")])
    assert message in str(refused.value)


@proves("E3")
def test_so_many_tasks_as_are_asked_for_run_here_or_on_the_cluster_that_is_named() -> None:
    plain = Settings("127.0.0.1:9092", "checkpoints")
    assert rebuild.in_parallel(plain, None) == plain
    eight = rebuild.in_parallel(plain, 8)
    assert (eight.master, eight.spark) == ("local[8]", {"spark.sql.shuffle.partitions": "8"})
    on_cluster = rebuild.in_parallel(Settings("127.0.0.1:9092", "checkpoints", master="spark://host:7077"), 8)
    assert on_cluster.master == "spark://host:7077"


@proves("E3", "command_line")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the same command"),
        (["--again"], "the same command without --again"),
        (["--again", "--with-readers"], "`tidelog rebuild revenue --app shop.py --with-readers`"),
        (
            ["--with-readers", "--in-place", "--yes"],
            "`tidelog rebuild revenue --app shop.py --with-readers --in-place --yes`",
        ),
    ],
)
def test_who_stops_a_rebuild_hears_of_a_command_that_goes_on_and_does_not_begin_anew(
    words: list[str], said: str
) -> None:
    options = parse(rebuild.parser(), ["revenue", "--app", "shop.py", *words])
    assert rebuild.going_on("revenue", options) == said


@proves("E3")
def test_where_nobody_watches_progress_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    telling = rebuild.Telling(lambda *_, **__: None)
    for records in (100, 200):
        telling(Done(records, 1000, None, None))
    assert capsys.readouterr().err == "100 of 1,000 records (10 %)\n"
