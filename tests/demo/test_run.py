"""`tidelog demo` as people run it: stopped, killed, started again, and the bounded run that checks itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

import tidelog
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.demo.events import events
from tidelog.demo.feeding import make_topics

PATIENCE_S = 400.0
AN_HOUR_MS = 3_600_000
PAGE = re.compile(r"the page is at (\S+)/demo, the broker at (\S+), all data in (\S+)")


class Demo:
    def __init__(self, folder: Path, *words: str) -> None:
        self.log = folder / "said"
        line = [sys.executable, "-m", "tidelog", "demo", "--no-browser", *words]
        with self.log.open("wb") as said:
            self.process = subprocess.Popen(line, cwd=folder, stdout=said, stderr=said, env=dict(os.environ))

    def said(self) -> str:
        return self.log.read_text()

    @property
    def page(self) -> str:
        found = PAGE.search(self.said())
        return found[1] if found else ""

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, how: int) -> int:
        self.process.send_signal(how)
        return self.process.wait(PATIENCE_S)


@contextmanager
def demo(folder: Path, *words: str) -> Iterator[Demo]:
    started = Demo(folder, *words)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
            started.process.wait()


def wait_for(true: Callable[[], bool], one: Demo) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline and one.process.poll() is None, one.said()
        time.sleep(0.05)


@proves("demo")
@pytest.mark.slow
def test_the_page_is_there_before_spark_is_and_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    with demo(tmp_path, "--folder", "data") as one:
        wait_for(lambda: "events are coming" in one.said(), one)
        with urlopen(one.page + "/demo", timeout=PATIENCE_S) as answer:
            assert "The shop" in answer.read().decode()
        children = one.children()
        assert one.end(signal.SIGINT) == 0, one.said()
    assert "stopped before the views were there" in one.said()
    _, left = psutil.wait_procs(children, PATIENCE_S)
    assert len(children) >= 3 and not left
    assert (tmp_path / "data" / "log").is_dir(), "a folder that was named is kept"


@pytest.mark.full
@proves("demo", "P1", "P3", "D6")
def test_a_bounded_run_goes_on_from_what_is_there_and_finds_every_view_equal_to_its_batch_query(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    before, began_ms = list(islice(events(7, 50.0), 100)), int(time.time() * 1000) - AN_HOUR_MS
    with tidelog.Broker(folder / "log") as broker, Cluster(broker.bootstrap) as cluster:
        make_topics(cluster)
        with Producer(cluster) as producer:
            for one in before:
                producer.send(one.topic, one.value(began_ms), key=one.key, timestamp=one.timestamp_ms(began_ms))
    with demo(tmp_path, "--folder", str(folder), "--minutes", "0.05", "--rate", "20") as run:
        assert run.process.wait(PATIENCE_S) == 0, run.said() + (folder / "run.log").read_text()
    assert run.said().endswith("equal: yes\n")
    produced = re.search(r"^produced +([\d,]+)", run.said(), re.MULTILINE)
    counted = re.search(r"^stock +8 +([\d,]+)", run.said(), re.MULTILINE)
    assert produced and counted and _number(counted[1]) == _number(produced[1]) + len(before), run.said()


@proves("demo")
def test_what_a_killed_demo_has_started_ends_by_itself(tmp_path: Path) -> None:
    with demo(tmp_path) as one:
        wait_for(lambda: "events are coming" in one.said(), one)
        children = one.children()
        one.end(signal.SIGKILL)
    _, left = psutil.wait_procs(children, PATIENCE_S)
    assert len(children) >= 3 and not left
    assert (tmp_path / "tidelog-data-demo" / "log").is_dir(), "its data is kept where it says"


@proves("demo", "command_line")
@pytest.mark.parametrize("words", [["--minutes", "0"], ["--rate", "fast"], ["--minutes", "inf"]])
def test_what_is_no_number_above_0_is_refused_before_anything_starts(tmp_path: Path, words: list[str]) -> None:
    with demo(tmp_path, *words) as one:
        assert one.process.wait(PATIENCE_S) == 2
    assert "is not a number above 0" in one.said() and list(tmp_path.iterdir()) == [one.log]


def _number(text: str) -> int:
    return int(text.replace(",", ""))
