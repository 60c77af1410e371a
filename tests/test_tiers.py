"""What decides over a run of tests is tested itself: tiers, shards, turns, budgets, second tries, costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest

from outcome import SHARED, Outcome, folder_of, read_outcome
from proving import proves
from scheduling import APART, needs_spark, preferred, scope_of
from selecting import SHARDS, STEP, in_turn, shard_name, tiers_named
from tiers import TIERS, tier_of

ROOT = Path(__file__).parent.parent
BURN = "import time\nwhile time.process_time() < 0.3: pass"


@pytest.fixture
def try_change(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import try_change

    return try_change


@pytest.fixture
def try_all(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import try_all

    return try_all


@proves("tiers")
@pytest.mark.parametrize(
    ("marks", "tier"),
    [
        ((), "test"),
        (("proves", "slow"), "change"),
        (("external",), "rest"),
        (("full",), "rest"),
        (("full", "slow"), "rest"),
        (("external", "story"), "change"),
        (("external", "story", "twin"), "rest"),
        (("full", "soak", "story"), "soak"),
        (("lint", "slow"), "lint"),
    ],
)
def test_a_test_is_in_one_tier_by_its_marks(marks: tuple[str, ...], tier: str) -> None:
    assert tier_of(marks) == tier
    assert tier in TIERS


@proves("tiers")
def test_every_folder_of_tests_is_in_one_shard() -> None:
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    folders = {folder_of(file) for file in files}
    named = [folder for shard in SHARDS.values() for folder in shard]
    assert sorted(folders) == sorted(named)


@proves("tiers")
def test_every_folder_of_tests_has_a_budget_and_their_sum_is_fixed(try_change: ModuleType) -> None:
    table = tomllib.loads(try_change.BUDGETS.read_text())
    named = {folder for shard in SHARDS.values() for folder in shard}
    assert set(table["folders"]) - {try_change.TO_COME, SHARED} == named
    assert try_change.budget_faults(table["total"], table["folders"]) == []
    assert try_change.budget_faults(10, {"a": 4, "b": 7}) == ["the budgets sum up to 11, and the total is 10"]


@proves("tiers")
def test_a_shard_is_named_by_a_word_or_a_number() -> None:
    assert [shard_name(f"{number}/4") for number in (1, 2, 3, 4)] == list(SHARDS) == list(map(shard_name, SHARDS))
    for wrong in ("0/4", "5/4", "1/3", "brokers", "x/4"):
        with pytest.raises(pytest.UsageError, match="is not a shard"):
            shard_name(wrong)
    with pytest.raises(pytest.UsageError, match="'tests' is not a tier"):
        tiers_named("test,tests")


@proves("tiers")
@pytest.mark.parametrize("count", [1, 5, STEP, 60, 91])
def test_each_turn_has_all_files_and_each_file_comes_first_in_some_turn_or_soon_after(count: int) -> None:
    files = [f"file{number:02}" for number in range(count)]
    turns = [in_turn(files, turn) for turn in range(count)]
    assert all(sorted(turn) == files for turn in turns)
    assert {file for turn in turns for file in turn[:STEP]} == set(files)


@proves("tiers")
def test_no_files_have_no_turn() -> None:
    assert in_turn([], 3) == []


@proves("tiers")
def test_a_folder_above_its_budget_fails_and_one_without_is_told(try_change: ModuleType) -> None:
    faults = try_change.over_budget({"log": 13.0, "wire": 13.1, "work": 1.0, "shared": 9.0}, {"log": 10, "wire": 10})
    assert len(faults) == 3
    assert faults[0].startswith("tests/wire costs 13 CPU seconds, and its budget is 10")
    assert faults[1].startswith("tests/work has no budget")
    assert faults[2].startswith("what tests share has no budget")


@proves("tiers")
def test_two_failures_may_be_tried_again_and_three_or_a_known_one_may_not(try_change: ModuleType) -> None:
    two = {"a": "x", "b": "y"}
    assert try_change.may_run_again(two, {})[0]
    assert not try_change.may_run_again({**two, "c": "z"}, {})[0]
    assert try_change.may_run_again(two, {"b": {}}) == (False, "failed again, and stands in tests/unsteady.toml: b")


@proves("tiers")
def test_the_lines_of_unsteady_tests_are_ready_to_be_kept_and_grow_old(try_change: ModuleType) -> None:
    noted = date(2026, 11, 1)
    lines = try_change.unsteady_lines({"tests/a.py::test[x]": 'E "quoted" \\n'}, noted)
    entries = tomllib.loads("\n".join(lines))
    assert entries == {"tests/a.py::test[x]": {"failure": "E 'quoted' \\n", "date": noted}}
    assert try_change.unsteady_faults(entries, date(2026, 11, 15)) == []
    assert len(try_change.unsteady_faults(entries, date(2026, 11, 16))) == 1
    assert len(try_change.unsteady_faults({"a": {"date": noted}}, noted)) == 1


@proves("tiers")
def test_the_last_whole_run_is_the_first_row_and_may_be_300_commits_back(
    try_change: ModuleType, try_all: ModuleType
) -> None:
    page = try_change.PAGE.read_text()
    results = {shard: {"tests": 2, "minutes": 1.5, "again": []} for shard in SHARDS}
    newer = try_all.with_row(page, try_all.row_of("abcdef0123", results))
    assert try_change.whole_run_of(newer) == "abcdef0123"
    assert "| 8 | 6 | broker 2, views 2, spark 2, pipelines 2 |" in newer
    results["views"]["again"] = ["tests/a.py::test"]
    assert "pipelines 2; at a second try only: tests/a.py::test |" in try_all.row_of("abcdef0123", results)
    assert try_change.whole_run_faults("abcdef0123", 300) == []
    assert "301 commits back" in try_change.whole_run_faults("abcdef0123", 301)[0]
    assert "names no commit" in try_change.whole_run_faults("abcdef0123", None)[0]
    assert "names no commit" in try_change.whole_run_faults(try_change.whole_run_of("# empty"), 3)[0]


@proves("tiers")
@pytest.mark.parametrize(
    ("path", "shard", "foreign"),
    [
        ("tests/spark/test_sink.py", "views", True),
        ("tests/spark/test_sink.py", "spark", False),
        ("tests/views/stores/test_redis.py", "pipelines", True),
        ("tests/test_guide.py", "views", False),
        ("tests/spark/conftest.py", "views", False),
        ("tests/contract.py", "broker", False),
        ("src/tidelog/views/test_driver.py", "broker", False),
        ("docs/guide/start.md", "broker", False),
    ],
)
def test_only_the_tests_of_another_shard_leave_a_green_shard_green(
    try_all: ModuleType, path: str, shard: str, foreign: bool
) -> None:
    assert try_all.is_foreign(path, shard) is foreign


@proves("tiers")
def test_a_green_shard_counts_until_something_that_it_tries_is_changed(
    try_all: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(try_all, "ROOT", tmp_path)
    monkeypatch.setattr(try_all, "KEPT", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    who = ("-c", "user.name=a", "-c", "user.email=a@b")

    def commit(path: str) -> str:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
        for words in (("add", path), (*who, "commit", "-qm", path)):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)
        return str(try_all._git("rev-parse", "--short=10", "HEAD"))

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    first = commit("src/a.py")
    result = {"tests": 2, "minutes": 1.5, "again": []}
    (tmp_path / "kept" / f"{first}-views.json").write_text(json.dumps(result))
    mended = commit("tests/spark/test_sink.py")
    assert try_all._kept(first, "views") == try_all._kept(mended, "views") == result
    assert try_all._kept(mended, "spark") is None
    changed = commit("src/b.py")
    assert try_all._kept(changed, "views") is None


@proves("tiers")
@pytest.mark.parametrize("below", ["dead", "alive"])
def test_a_cost_is_the_cpu_of_the_process_and_of_all_below_it(below: str) -> None:
    """In a process of its own: below this one others come and go."""
    end = "" if below == "dead" else "\nprint(1, flush=True)\ninput()"
    program = (
        "import subprocess, sys\n"
        f"sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "from outcome import cpu_seconds\n"
        "before = cpu_seconds()\n"
        f"words = ['sh', '-c', '{{}} -c \"$0\"; true'.format(sys.executable), {BURN + end!r}]\n"
        "child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        f"{'child.wait()' if below == 'dead' else 'child.stdout.readline()'}\n"
        "print(cpu_seconds() - before)\n"
        "child.kill()\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert float(ran.stdout or -1) >= 0.25, ran.stderr  # ticks are hundredths of a second


@proves("tiers")
def test_costs_are_summed_by_folder_at_the_pace_of_the_budgets() -> None:
    costs = {"tests/log/a/test_b.py::test": 4.0, "tests/pipelines/app/test_c.py::t[x]": 1.0, "tests/test_d.py::t": 2.0}
    outcome = Outcome(costs, {}, [0.010, 0.010], shared=6.0)
    assert outcome.pace() == 2.0
    assert outcome.by_folder() == {".": 1.0, "log": 2.0, "pipelines/app": 0.5, "shared": 3.0}


@proves("tiers")
@pytest.mark.slow
def test_what_a_fixture_of_the_whole_run_costs_is_not_the_test_s_that_needs_it_first(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        "import pytest, subprocess, sys\n"
        f"def burn(): subprocess.run([sys.executable, '-c', {BURN!r}])\n"
        "@pytest.fixture(scope='session')\n"
        "def server(): burn()\n"
        "@pytest.fixture(scope='session')\n"
        "def client(request): request.getfixturevalue('server')\n"
        "def test_first(client): pass\n"
        "def test_second(client): burn()\n"
    )
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "from outcome import outcome_plugins\n"
        "def pytest_addoption(parser): parser.addoption('--numprocesses')\n"
        "def pytest_configure(config):\n"
        "    for plugin in outcome_plugins(config): config.pluginmanager.register(plugin)\n"
    )
    words = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    environment = {**os.environ, "TESTS_OUTCOME": str(tmp_path / "outcome.json"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run([*words, str(tmp_path)], capture_output=True, text=True, env=environment)
    found = read_outcome(tmp_path / "outcome.json")
    first, second = found.costs["test_one.py::test_first"], found.costs["test_one.py::test_second"]
    assert found.shared >= 0.25 and second >= 0.25, ran.stdout
    assert first < 0.25, ran.stdout


@proves("tiers")
def test_spark_goes_to_one_worker_as_long_as_the_others_have_something_to_do() -> None:
    plain, spark = "tests/log/test_log.py", "tests/spark/test_sink.py"
    assert needs_spark(spark) and not needs_spark(plain)
    assert preferred([plain, spark], on_spark=True) == spark
    assert preferred([spark, plain], on_spark=False) == plain
    assert preferred([spark], on_spark=False) == spark
    assert preferred([plain], on_spark=True) == plain


@proves("tiers")
def test_an_example_and_a_page_are_handed_out_alone_by_what_their_program_needs() -> None:
    assert scope_of("tests/log/test_log.py::test_a[b]") == "tests/log/test_log.py"
    assert all((ROOT / file).is_file() for file in APART)
    on_spark = [
        "tests/test_examples.py::test_the_example_runs[chess.py]",
        "tests/test_guide.py::test_the_code_on_the_page_runs[windows]",
    ]
    plain = [
        "tests/test_examples.py::test_the_example_runs[hello_broker.py]",
        "tests/test_examples.py::test_no_example_is_left_out",
        "tests/test_guide.py::test_the_code_on_the_page_runs[groups]",
        "tests/test_guide.py::test_the_code_on_the_page_runs[README]",
    ]
    assert [scope_of(test) for test in (*on_spark, *plain)] == [*on_spark, *plain]
    assert all(needs_spark(test) for test in on_spark) and not any(needs_spark(test) for test in plain)


@proves("tiers")
def test_a_word_in_a_text_does_not_make_a_file_one_of_spark() -> None:
    assert not needs_spark("tests/test_tiers.py") and not needs_spark("tests/test_doors.py")
    files = ("test_examples.py", "spark/test_typed.py", "pipelines/driver/test_steps.py", "spark/test_session.py")
    assert [needs_spark(f"tests/{file}") for file in files] == [False, True, True, True]


@proves("tiers")
@pytest.mark.parametrize(("left_s", "told"), [(-1, "no tests ran"), (3600, "1 passed")])
def test_no_test_begins_after_the_time_is_up(left_s: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_it(): pass\n")
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "from selecting import Selecting, add_options as pytest_addoption\n"
        "def pytest_configure(config): config.pluginmanager.register(Selecting(config))\n"
    )
    words = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    until = str(time.time() + left_s)
    ran = subprocess.run([*words, "--begin-until", until, str(tmp_path)], capture_output=True, text=True)
    assert told in ran.stdout
