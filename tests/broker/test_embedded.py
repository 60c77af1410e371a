"""A broker inside a program: started, stopped, killed, left alone."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tidelog
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.errors import TidelogError, UsageError
from tidelog.testing.broker import TestBroker

TRIES = 10


def names(broker: tidelog.Broker) -> list[str]:
    with Cluster(broker.bootstrap) as cluster:
        return topics.names(cluster)


def create(broker: tidelog.Broker, name: str) -> None:
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, name)


@proves("T1")
@pytest.mark.real_interpreter
@pytest.mark.parametrize("in_process", [False, True])
def test_a_broker_keeps_its_data_and_its_address_over_a_restart(tmp_path, in_process):
    broker = tidelog.Broker(tmp_path, in_process=in_process)
    broker.start()
    first = broker.bootstrap
    create(broker, "kept")
    broker.stop()
    broker.start()
    assert broker.bootstrap == first
    assert names(broker) == ["kept"]
    broker.stop()


@proves("T1")
def test_without_a_folder_the_data_is_temporary():
    with tidelog.Broker() as broker:
        folder = broker.data
        create(broker, "t")
        assert folder.is_dir()
    assert not folder.exists()


@proves("T6")
def test_a_killed_broker_comes_back_with_what_it_had(tmp_path):
    with tidelog.Broker(tmp_path) as broker:
        create(broker, "kept")
        broker.kill()
        broker.start()
        assert names(broker) == ["kept"]


@proves("T1")
def test_a_broker_that_is_not_running_says_so():
    with pytest.raises(UsageError, match="not running"):
        _ = tidelog.Broker().bootstrap


@proves("T1")
def test_an_unknown_setting_is_refused_with_the_nearest_known_one():
    with (
        pytest.raises(TidelogError, match=r"num\.partition.*num\.partitions"),
        tidelog.Broker(settings={"num.partition": 3}),
    ):
        pass


@proves("T1")
def test_a_port_that_is_taken_is_named(tidelog_broker: TestBroker):
    taken = tidelog.Broker(listen=tidelog_broker.bootstrap)
    with pytest.raises(TidelogError, match=r"cannot listen on .*: address already in use; stop what uses the port"):
        taken.start()
    with pytest.raises(TidelogError, match="cannot assign requested address; give an address of this machine"):
        tidelog.Broker(listen="192.0.2.1:9092", settings={"tidelog.allow.unauthenticated": True}).start()


@proves("T1", "T5")
def test_starts_that_fail_leave_no_file_open(tidelog_broker: TestBroker, tmp_path: Path):
    open_files = Path("/proc/self/fd")
    taken = tidelog.Broker(tmp_path / "data", listen=tidelog_broker.bootstrap, in_process=True)
    before = len(list(open_files.iterdir()))
    for _ in range(TRIES):
        with pytest.raises(TidelogError, match="address already in use"):
            taken.start()
    gc.collect()
    assert len(list(open_files.iterdir())) < before + TRIES


@proves("T1")
@pytest.mark.parametrize("in_process", [False, True])
def test_a_folder_that_cannot_be_used_is_named_with_what_to_do(tmp_path: Path, in_process: bool):
    (tmp_path / "file").write_text("")
    for data, why in (
        (tmp_path / "file", "file exists; it is a file"),
        (tmp_path / "file" / "under", "not a directory; it lies under a file"),
        (tmp_path / "not" / "there", "no such file or directory; make the folder that it is to be in"),
    ):
        with pytest.raises(TidelogError, match=f"the data folder {data} cannot be used: {why}"):
            tidelog.Broker(data, in_process=in_process).start()


@proves("T1")
def test_the_child_process_ends_when_its_parent_is_killed(tmp_path: Path):
    program = "import sys, time, tidelog\nb = tidelog.Broker().start()\nprint(b.pid, flush=True)\ntime.sleep(600)\n"
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 180
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(child)


@proves("T1")
def test_the_child_process_goes_on_when_something_is_said_to_it():
    with tidelog.Broker() as broker:
        assert broker._child is not None and broker._child.stdin is not None
        for number in range(3):
            broker._child.stdin.write(b"\0")
            broker._child.stdin.flush()
            create(broker, f"t{number}")
        assert names(broker) == ["t0", "t1", "t2"]


@proves("T6")
@pytest.mark.real_interpreter
def test_sigterm_stops_cleanly(tmp_path: Path):
    command = [sys.executable, "-m", "tidelog", "up", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready on 127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    assert process.wait(180) == 0


@proves("T6")
def test_a_stop_that_cannot_mark_the_folder_clean_says_so_once_and_is_a_failure(tmp_path: Path):
    command = [sys.executable, "-m", "tidelog", "up", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready on 127.0.0.1:")
    (tmp_path / "clean").mkdir()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 1
    (line,) = [line for line in said.splitlines() if " INFO " not in line]
    assert " ERROR stopped, but the data folder was not marked clean" in line and "the next start recovers" in line


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
