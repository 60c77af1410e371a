"""What holds for every test: it says what it proves, it runs from a known seed, and in CI it is never skipped."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from order import is_short
from outcome import outcome_plugins
from proving import fault_of, proven_by
from selecting import Selecting, add_options

REQUIRE_EXTERNAL = os.environ.get("CI_REQUIRE_EXTERNAL") == "1"
MORE_OPEN_FILES_MAX = 200
SEED = int(os.environ.get("TIDELOG_SEED", "1"))

# Brokers that tests start as users do would all want the one default port for HTTP; those that test it ask for theirs.
os.environ["TIDELOG_HTTP_LISTENER"] = "-"

known_open_files = 0

# A shell's background job has it ignored, and so would have all programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Programs that tests start are on Spark for seconds: for their Java machines, too, compiling well does not pay.
# And where there is an archive of Spark's classes (scripts/archive_classes.py) they need not read them one by one.
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
ARCHIVE = Path(__file__).parent.parent / ".make" / "spark.jsa"
QUIETLY = "-Xlog:disable -Xlog:all=error,cds*=off:stderr"  # a Java that cannot use it says nothing of it
ARCHIVED = f' "-XX:SharedArchiveFile={ARCHIVE}" {QUIETLY}' if ARCHIVE.exists() else ""
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIFE)
os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIFE + ARCHIVED)

# How long an example takes says something of the machine alone.
ANY_PACE = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("house", derandomize=True, **ANY_PACE)
hypothesis.settings.register_profile("soak", max_examples=1000, print_blob=True, **ANY_PACE)
hypothesis.settings.load_profile("soak" if "TIDELOG_SEED" in os.environ else "house")


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (Selecting(config), *outcome_plugins(config)):
        config.pluginmanager.register(plugin)
    if config.pluginmanager.hasplugin("dsession"):
        from scheduling import Scheduling

        config.pluginmanager.register(Scheduling())


@pytest.fixture
def seed() -> int:
    """Where this test's randomness starts: always the same, but `make soak` sets TIDELOG_SEED anew each round."""
    return SEED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=is_short)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """A log that a test leaves as a crash would is a cycle, and its files stay open until it is searched for. So it is
    whenever there are many more than after the last search.
    """
    global known_open_files
    result = yield
    if count_open_files() > known_open_files + MORE_OPEN_FILES_MAX:
        gc.collect()
        known_open_files = count_open_files()
    return result


def count_open_files() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    fault = fault_of(proven_by(item))
    if fault:
        pytest.fail(fault, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if REQUIRE_EXTERNAL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped where every test must run: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if REQUIRE_EXTERNAL and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped where every test must run: {report.longrepr}"
    return report
