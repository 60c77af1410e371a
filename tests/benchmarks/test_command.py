"""The command that benches share: which rows it takes, when it publishes, and that nothing of a run stays behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from proving import proves

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.command import Command, take, work_folder
from bench.run import Extent, Run

COMMAND = Command(
    package="bench.none",
    about="A bench.",
    rows={"one": "rows:one", "two": "rows:two", "three": "rows:three"},
    reps=3,
    quick_share=0.1,
    keepers="brokers",
)
WHOLE, QUICK = Extent(3, 1.0, False), Extent(1, 0.1, True)


class Published:
    """What was published, one after the other: which rows were taken by then."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []

    def earlier(self) -> dict[str, Any]:
        return {"taken": {"before": {}}, "figures": []}

    def facts(self, run: Run) -> dict[str, Any]:
        return {"reps": run.reps}

    def publish(self, run: Run, earlier: Mapping[str, Any], taken: Mapping[str, Any]) -> None:
        assert earlier == self.earlier()
        self.rows.append(list(taken))


class Server:
    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def start(self) -> None:
        self.said.append(f"{self.name} starts")

    def stop(self) -> None:
        self.said.append(f"{self.name} stops")


def nothing(run: Run) -> None: ...


def broken(run: Run) -> None:
    raise RuntimeError("this row is broken")


def twice(run: Run) -> Iterator[None]:
    yield
    yield


@proves("benchmarks")
@pytest.mark.parametrize("package", ["broker", "spark", "views", "pipelines"])
def test_every_row_of_a_bench_is_there(package: str) -> None:
    command: Command = import_module(f"bench.{package}.__main__").COMMAND
    assert command.package == f"bench.{package}"
    assert [name for name, row in command.chosen([]) if callable(row)] == list(command.rows)


@proves("benchmarks")
def test_rows_are_named_by_words_or_by_commas(capsys: pytest.CaptureFixture[str]) -> None:
    def only(*words: str) -> list[str]:
        found: list[str] = COMMAND.parsed(COMMAND.parser(), list(words)).only
        return found

    assert only() == []
    assert only("--only", "two,one", "three,") == ["two", "one", "three"]
    with pytest.raises(SystemExit):
        only("--only", "one,four")
    assert "no such row: four; rows are one, two, three" in capsys.readouterr().err


@proves("benchmarks")
def test_a_quick_run_does_a_share_of_the_work_once() -> None:
    def extent(*words: str) -> Extent:
        return COMMAND.extent(COMMAND.parsed(COMMAND.parser(), list(words)))

    assert extent() == WHOLE
    assert extent("--reps", "7") == Extent(7, 1.0, False)
    assert extent("--reps", "7", "--quick") == QUICK


@proves("benchmarks")
@pytest.mark.parametrize(("second", "times"), [(nothing, 1), (twice, 2)])
def test_figures_are_published_after_every_row_and_at_its_stops(
    tmp_path: Path, second: Callable[[Run], Iterator[None] | None], times: int
) -> None:
    report = Published()
    take(Run(tmp_path, WHOLE), [("one", nothing), ("two", second)], report)
    assert report.rows == [["before", "one"], *[["before", "one", "two"]] * times]


@proves("benchmarks")
def test_a_broken_row_costs_nothing_of_those_before_it_and_all_is_stopped_the_last_first(tmp_path: Path) -> None:
    report, run, said = Published(), Run(tmp_path, WHOLE), list[str]()

    def with_brokers(run: Run) -> None:
        for name in ("kafka", "tidelog"):
            assert run.started(Server(name, said)).name == name

    with pytest.raises(RuntimeError, match="this row is broken"):
        take(run, [("one", with_brokers), ("two", broken), ("three", nothing)], report)
    assert report.rows == [["before", "one"]]
    assert said == ["kafka starts", "tidelog starts", "tidelog stops", "kafka stops"]


@proves("benchmarks")
def test_a_quick_run_publishes_nothing(tmp_path: Path) -> None:
    report = Published()
    take(Run(tmp_path, QUICK), [("one", nothing), ("two", twice)], report)
    assert report.rows == []


@proves("benchmarks")
def test_the_first_round_warms_up_unless_the_run_is_quick(tmp_path: Path) -> None:
    assert list(Run(tmp_path, WHOLE).rounds()) == [False, True, True, True]
    assert list(Run(tmp_path, QUICK).rounds()) == [True]
    assert [Run(tmp_path, QUICK).amount(full, least=5) for full in (1000, 10)] == [100, 5]


@proves("benchmarks")
@pytest.mark.parametrize("keep", [False, True])
def test_the_folder_of_a_run_goes_with_it_unless_it_is_kept(tmp_path: Path, keep: bool) -> None:
    with pytest.raises(RuntimeError), work_folder(str(tmp_path), keep=keep) as folder:
        (folder / "data").write_text("records")
        broken(Run(folder, WHOLE))
    assert folder.exists() is keep
