"""Archives of Spark's classes: named by Java and jars, made by a process of its own, renamed into place, and used."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proving import proves
from tidelog.spark import class_archive
from tidelog.spark.class_archive import Making, folder, launch_options, list_of, name_of, options_of
from tidelog.spark.java import Java, find_java


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(class_archive.CACHE, str(tmp_path))
    monkeypatch.delenv(class_archive.SWITCH, raising=False)
    monkeypatch.delenv(class_archive.SUBMIT_OPTIONS, raising=False)
    return tmp_path / "tidelog"


def java_in(home: Path) -> Java:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("x")
    (home / "release").write_text('JAVA_VERSION="17"')
    return Java(home, 17, is_whole=True)


@proves("P1")
def test_an_archive_is_of_one_java_and_one_set_of_jars(tmp_path: Path) -> None:
    java, jar = java_in(tmp_path / "java"), tmp_path / "a.jar"
    jar.write_bytes(b"one")
    name = name_of(java, [jar])
    assert name == name_of(java, [jar])
    assert name != name_of(java, [jar, tmp_path / "b.jar"])
    assert name != name_of(java_in(tmp_path / "other"), [jar])
    jar.write_bytes(b"another")
    assert name != name_of(java, [jar])


@proves("P1")
def test_a_jvm_is_launched_with_the_archive_or_towards_it_and_as_the_user_says(cache: Path, tmp_path: Path) -> None:
    java = java_in(tmp_path / "java")
    archive = cache / name_of(java, [])
    (first,) = launch_options(java, [], listing=True).values()
    assert first == f'"-XX:DumpLoadedClassList={list_of(archive)}"' and cache.stat().st_mode & 0o777 == 0o700
    assert launch_options(java, [], listing=False) == {}, "a program of the user's begins none"
    archive.write_bytes(b"")
    (then,) = launch_options(java, [], listing=False).values()
    assert then.startswith(f'"-XX:SharedArchiveFile={archive}"')
    own = "-Xmx2g -XX:SharedArchiveFile=/mine.jsa"
    assert options_of(archive, own, listing=True) == own
    assert options_of(archive, "-Xmx2g", listing=True).endswith(" -Xmx2g"), "what the user says comes last, and wins"


@proves("P1")
def test_it_is_turned_off_and_nobody_needs_a_folder_that_can_be_written(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = java_in(tmp_path / "java")
    cache.write_text("not a folder")
    assert launch_options(java, [], listing=True) == {}
    cache.unlink()
    for off in ("off", "0", " OFF "):
        monkeypatch.setenv(class_archive.SWITCH, off)
        assert folder() is None and launch_options(java, [], listing=True) == {}
    assert not cache.exists()


@proves("P1")
def test_lists_of_processes_that_are_no_more_are_removed(cache: Path, tmp_path: Path) -> None:
    cache.mkdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    archive = cache / "classes-0.jsa"
    gone, mine = list_of(archive, ended.pid), list_of(archive)
    for path in (gone, mine):
        path.write_text("java/lang/Object id: 0\n")
    launch_options(java_in(tmp_path / "java"), [], listing=True)
    assert not gone.exists() and mine.exists()


@proves("P1")
@pytest.mark.slow
def test_a_process_makes_the_archive_when_the_jvm_has_ended_and_java_starts_with_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "LISTED_MIN", 100)
    monkeypatch.setattr(os, "nice", lambda _: 0)  # of the tests' own process
    cache.mkdir()
    java = str(find_java().home / "bin" / "java")
    archive = cache / "classes-0.jsa"
    listed = list_of(archive)
    jvm = subprocess.Popen([java, f"-XX:DumpLoadedClassList={listed}", "-Xlog:disable", "-version"], stderr=-3)
    jvm.wait()
    making = Making(str(archive), str(listed), java, "", jvm.pid)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert class_archive._make(making) == 1, "another one is at it"
    assert class_archive.main(json.dumps(making._asdict())) == 0
    assert archive.exists() and not listed.exists() and not list(cache.glob("*.new"))
    words = [java, f"-XX:SharedArchiveFile={archive}", "-Xshare:on", "-version"]
    assert subprocess.run(words, capture_output=True).returncode == 0
    assert class_archive.main(json.dumps(making._asdict())) == 0, "it is there"


@proves("P1")
def test_a_run_that_was_too_short_makes_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "nice", lambda _: 0)
    cache.mkdir()
    archive = cache / "classes-0.jsa"
    listed = list_of(archive)
    listed.write_text("java/lang/Object id: 0\n")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    making = Making(str(archive), str(listed), "/nowhere/java", "", ended.pid)
    assert class_archive.main(json.dumps(making._asdict())) == 1
    assert not archive.exists() and not listed.exists()
