"""What holds for every test: it says what it proves, it runs from a known seed, and in CI it is never skipped."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import run_servers
import zygote
from order import is_short
from outcome import outcome_plugins
from programs import host
from proving import fault_of, proven_by
from selecting import Selecting, add_options
from tries import load_profile, profile_of, repeats, seed_of

__all__ = ["host"]  # one a process: a Java machine costs more than most programs on it

REQUIRE_EXTERNAL = os.environ.get("CI_REQUIRE_EXTERNAL") == "1"
MORE_OPEN_FILES_MAX = 200
LONG_TIMEOUT_S = 600
SEED = int(os.environ.get("TIDELOG_SEED", "1"))

# Brokers that tests start as users do would all want the one default port for HTTP; those that test it ask for theirs.
os.environ["TIDELOG_HTTP_LISTENER"] = "-"

known_open_files = 0

# A shell's background job has one ignored, `nohup` the other, and so would have all programs that tests start and end.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# From here on our own programs are started by forks, but where only a fresh interpreter shows what a test is about.
zygote.install()

# Servers that are started once a run end with the last of its processes.
if run_servers.RUN in os.environ:
    run_servers.join()

# Programs that tests start are on Spark for seconds: for their Java machines, too, compiling well does not pay.
# And where there is an archive of Spark's classes (scripts/archive_classes.py) they need not read them one by one.
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
ARCHIVE = Path(__file__).parent.parent / ".make" / "spark.jsa"
QUIETLY = "-Xlog:disable -Xlog:all=error,cds*=off:stderr"  # a Java that cannot use it says nothing of it
ARCHIVED = f' "-XX:SharedArchiveFile={ARCHIVE}" {QUIETLY}' if ARCHIVE.exists() else ""
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIFE)
os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIFE + ARCHIVED)

os.environ.setdefault("TIDELOG_CLASS_ARCHIVE", "off")  # runs of tests make none of their own, in nobody's home

SEED_OF_WORKERS = "tidelog_hypothesis_seed"
PROFILE = profile_of(os.environ)
load_profile(PROFILE)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before hypothesis looks for a seed. A worker has that of who started it."""
    given = getattr(config, "workerinput", {}).get(SEED_OF_WORKERS, config.option.hypothesis_seed)
    try:
        config.option.hypothesis_seed = seed_of(PROFILE, given)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    for plugin in (Selecting(config), *outcome_plugins(config)):
        config.pluginmanager.register(plugin)
    if config.pluginmanager.hasplugin("dsession"):
        from scheduling import Scheduling

        config.pluginmanager.register(Scheduling())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[SEED_OF_WORKERS] = node.config.option.hypothesis_seed


def pytest_sessionstart(session: pytest.Session) -> None:
    told, seed = session.config.pluginmanager.get_plugin("terminalreporter"), session.config.option.hypothesis_seed
    if told is not None and seed is not None:
        told.write_line(repeats(PROFILE, seed))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.hypothesis_seed is not None and terminalreporter.stats.get("failed"):
        terminalreporter.write_line(repeats(PROFILE, config.option.hypothesis_seed))


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


@pytest.fixture
def seed() -> int:
    """Where this test's randomness starts: always the same, but `make soak` sets TIDELOG_SEED anew each round."""
    return SEED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A hang ends after two minutes (pyproject.toml); what is long anyway gets ten."""
    for item in items:
        long = item.get_closest_marker("full") or item.get_closest_marker("external") or item.get_closest_marker("soak")
        if long is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_S))
    items.sort(key=is_short)


def pytest_collection_finish() -> None:
    """All that was imported and collected stays to the end: a million objects, and a third of a second for each search
    for garbage that has to look at them.
    """
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A log that a test leaves as a crash would is a cycle, and its files stay open until it is searched for. So it is
    whenever there are many more than after the last search. And an app that a test loads has its folder on the path,
    where a file of any name may lie.
    """
    global known_open_files
    zygote.use(item.get_closest_marker("real_interpreter") is None)
    path = list(sys.path)
    result = yield
    sys.path[:] = path
    if count_open_files() > known_open_files + MORE_OPEN_FILES_MAX:
        gc.collect()
        known_open_files = count_open_files()
    return result


def count_open_files() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    shared = sys.modules.get("spark.shared_session")
    if shared is not None and "spark" in getattr(item, "fixturenames", ()):
        shared.hand_on(item.nodeid)
    fault = fault_of(proven_by(item))
    if fault:
        pytest.fail(fault, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.excinfo is not None and any(entry._rawentry.tb_lineno is None for entry in call.excinfo.traceback):
        call.excinfo = with_lines(call.excinfo)
    report = yield
    if REQUIRE_EXTERNAL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped where every test must run: {report.longrepr}"
    return report


def with_lines(found: pytest.ExceptionInfo[BaseException]) -> pytest.ExceptionInfo[BaseException]:
    """A time-out may come at an instruction that has no line. Pytest cannot print that, and would end the whole run."""
    try:
        raise RuntimeError(f"{found.value!r}, raised at an instruction without a line")
    except RuntimeError as error:
        return pytest.ExceptionInfo.from_exception(error)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if REQUIRE_EXTERNAL and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped where every test must run: {report.longrepr}"
    return report
