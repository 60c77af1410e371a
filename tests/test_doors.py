"""The public doors: what they hand out, that they load nothing before, and that pages, examples and the texts of
programs use nothing else.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog
from proving import proves

ROOT = Path(__file__).parent.parent
LAZY = ("tidelog", "tidelog.client", "tidelog.sourcing", "tidelog.spark", "tidelog.testing", "tidelog.views")
DOORS = (*LAZY, "tidelog.operators", "tidelog.errors")
# What a program may also do: run a command as the command line does.
ALSO = {"tidelog.cli.main"}
IMPORT = re.compile(r"^\s*(?:from (tidelog[\w.]*) import|import (tidelog[\w.]*))", re.MULTILINE)
IMPORTED = re.compile(r"^\s*from (tidelog[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
NAMED = re.compile(
    r"\btidelog\.(?:pipelines|broker|record|wire|schema|gateway)\.[a-z_]+"
)  # `tidelog.log.` is of settings


def names_of(door: str) -> list[str]:
    module = importlib.import_module(door)
    return sorted(module.HOMES if hasattr(module, "HOMES") else module.__all__)


@proves("doors")
@pytest.mark.parametrize(("door", "name"), [(door, name) for door in DOORS[:-1] for name in names_of(door)])
def test_every_public_name_is_there(door: str, name: str) -> None:
    assert getattr(importlib.import_module(door), name) is not None


@proves("doors")
@pytest.mark.parametrize("door", LAZY)
def test_a_type_checker_sees_the_names_that_a_program_gets(door: str) -> None:
    module = importlib.import_module(door)
    tree = ast.parse(Path(module.__file__ or "").read_text())
    guard = next(node for node in tree.body if isinstance(node, ast.If))
    imported = [(node.module, name) for node in guard.body if isinstance(node, ast.ImportFrom) for name in node.names]
    homes = {name.asname: f"{module}.{name.name}" for module, name in imported}
    # A name is in its home, or is the module itself.
    assert homes == {
        name: home if home.rpartition(".")[2] == name and homes.get(name) == home else f"{home}.{name}"
        for name, home in module.HOMES.items()
    }


@proves("doors")
@pytest.mark.parametrize("door", LAZY)
def test_a_prompt_completes_the_names_of_a_door_and_no_others(door: str) -> None:
    assert dir(importlib.import_module(door)) == names_of(door)


@proves("doors")
def test_any_other_name_is_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'tidelog' has no attribute 'Broke'"):
        tidelog.Broke  # noqa: B018


@proves("doors")
def test_a_door_loads_what_it_is_asked_for_and_nothing_else() -> None:
    program = (
        "import sys, tidelog, tidelog.client, tidelog.views, tidelog.sourcing, tidelog.spark, tidelog.testing\n"
        "rooms = [name for name in sys.modules if name.startswith('tidelog.') and name.count('.') > 1]\n"
        "assert not rooms, rooms\n"
        "from tidelog.client import Producer\n"
        "assert 'tidelog.views.applier' not in sys.modules and 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def told_files() -> list[Path]:
    return [ROOT / "README.md", *(ROOT / "docs" / "guide").glob("*.md"), *(ROOT / "examples").glob("*.py")]


@proves("doors")
def test_pages_and_examples_import_from_doors_alone() -> None:
    found = []
    for file in told_files():
        text = file.read_text()
        modules = {first or second for first, second in IMPORT.findall(text)}
        found += [f"{file.name} imports {module}" for module in modules - set(DOORS) - ALSO]
        found += [f"{file.name} names {name}" for name in NAMED.findall(text)]
    assert found == []


@proves("doors")
def test_what_pages_and_examples_import_is_there() -> None:
    """Also in blocks that are only shown and do not run."""
    wanted = {
        (module, name.partition(" as ")[0].strip(), file.name)
        for file in told_files()
        for module, names in IMPORTED.findall(file.read_text())
        for name in re.sub(r"#.*", "", names).strip("()").replace("\n", " ").split(",")
        if name.strip()
    }
    assert ("tidelog.testing", "AppRun", "debugging.md") in wanted
    assert [one for one in sorted(wanted) if not hasattr(importlib.import_module(one[0]), one[1])] == []


def behind_doors(text: str) -> list[str]:
    """What a text sends its reader to that is not a door: an import, or a module of a room by its name."""
    modules = {first or second for first, second in IMPORT.findall(text)} - set(DOORS) - ALSO
    named = [] if re.fullmatch(r"[\w.]+", text.strip()) else re.findall(r"(?<![\w./-])tidelog(?:\.[a-z_]+){2,}", text)
    there = [name for name in named if (ROOT / "src" / name.replace(".", "/")).with_suffix(".py").is_file()]
    return sorted({*modules, *there})


@proves("doors")
def test_no_text_of_a_program_sends_its_reader_behind_a_door() -> None:
    """Messages, help, and code that is written for users. A name alone is what the program itself loads."""
    found = []
    for file in sorted((ROOT / "src").rglob("*.py")):
        tree, of_code = ast.parse(file.read_text()), set()
        for node in ast.walk(tree):  # what is above comes before what is below
            if isinstance(node, ast.Expr):
                of_code.add(id(node.value))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in of_code:
                found += [f"{file.name}:{node.lineno} names {name}" for name in behind_doors(node.value)]
    assert found == []


@proves("doors")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from tidelog.testing.pipeline_app import ", ["tidelog.testing.pipeline_app"]),
        ("import tidelog.spark.session", ["tidelog.spark.session"]),
        ("use tidelog.client.producer.Producer instead", ["tidelog.client.producer"]),
        ("use what tidelog.client.producer has", ["tidelog.client.producer"]),
        ("tidelog.client.producer", []),
        ("set tidelog.log.level at the start", []),
        ("from tidelog.testing import AppRun", []),
    ],
)
def test_a_text_that_does_would_be_found(text: str, found: list[str]) -> None:
    assert behind_doors(text) == found
