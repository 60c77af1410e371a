"""Style that matters is a test, and runs in `make lint`: sizes, docstrings, names, words that may not stand in the
tree, the changelog's shape.

The sizes are tripwires with a ratchet. What is listed below as larger may stay but not grow, and leaves the list when
it has shrunk; nothing may be added to the lists without a reason beside it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from proving import proves

pytestmark = pytest.mark.lint

ROOT = Path(__file__).parent.parent

FUNCTION_LINES = 60
FILE_LINES = 600

# Each with its size and the reason why it is better long than cut.
LONG_FUNCTIONS: dict[str, int] = {}
LONG_FILES: dict[str, int] = {}

# Names that are several classes, by how many: a reader who searches for one finds the others too. A name may
# go down or leave the list, and none may come: a new class has a name of its own.
NAMES_OF_SEVERAL_CLASSES = {
    4: ("Checked Span State Step Written"),
    3: ("Call Column Connection Entry Found Kept Model Name Pace Read Reader Reading Refusal Shape Shown"),
    2: (
        "AclFilter AsOf Ask Asking Begun Beside Bounds Broker Change Choice Columns Decided Decision Declared "
        "Deletion Fault Field Groups Index Listed Live Moved Node Outbound Pattern Piece PlainTransport Plan Reach "
        "Row Run Sample Schema Server Settings Side Slot Subscriber Summary Taken Target Telling TlsTransport Token "
        "Transport Unread Watch Writing"
    ),
}

# Rooms whose names users import from the room (`from tidelog.client import Producer`): loaded when used.
ROOMS_WITH_A_DOOR = {"client", "sourcing", "spark", "testing", "views"}

# Rooms that are functions too (`tidelog.sql("select ...")`): Python gives the name to the room when it is loaded.
ROOMS_TO_CALL = {"capture", "sql"}

BANNED_NAMES = {"base", "common", "core", "helper", "helpers", "misc", "models", "types", "util", "utils"}
GENERATED = ("src/tidelog/wire/messages/",)

# What messages are not to say: "is not a", "does not exist", "again" and "forever" are what the field says.
OLD_WORDS = re.compile(r"\bis no\b|\bis none\b|\bare no\b|\banew\b|\bfor ever\b")

# Words that are no things of the field, and how many files of src have one in their names: it may only fall.
OLD_NAMES = {"told", "said", "made", "found", "kept", "one"} | {
    *("beside", "divided", "held", "mixed", "near", "opened", "shown", "unread", "written", "yet")
}
OLD_NAMES_LEFT = 1
# The same of functions, methods and classes of src, for the words that are least of a name. Locals may be called so.
NOT_NAMES, NOT_NAMES_LEFT = {"told", "said", "made", "found", "kept", "one"}, 144

# Spelt in halves, so that this file passes its own test.
LEFT_OVERS = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
REGISTRIES = (
    "py" + "pi.org",
    "python" + "hosted.org",
    "repo1.maven" + ".org",
    "repo.maven" + ".apache.org",
    "npm" + "js.org",
)

RELEASE = re.compile(r"## (Unreleased|\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d)")
CHANGE_GROUPS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@cache
def tracked_files() -> tuple[str, ...]:
    """What git has or would take: left-overs of a build do not count, a new file does before it is committed."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def modules(*folders: str, generated: bool = False) -> list[str]:
    prefixes = tuple(f"{folder}/" for folder in folders)
    found = [name for name in tracked_files() if name.endswith((".py", ".pyx")) and name.startswith(prefixes)]
    return [name for name in found if generated or not name.startswith(GENERATED)]


def functions_of(name: str) -> Iterator[tuple[str, int]]:
    """Every function of a module as `path::Class.name`, with its lines from `def` to its end."""

    def walk(node: ast.AST, outer: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                continue  # there is no function with a name in it, and most nodes are of that kind
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield outer + child.name, (child.end_lineno or child.lineno) - child.lineno + 1
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from walk(child, f"{outer}{child.name}.")
            else:
                yield from walk(child, outer)

    yield from walk(ast.parse((ROOT / name).read_text()), f"{name}::")


def over(sizes: dict[str, int], tripwire: int, exceptions: dict[str, int]) -> list[str]:
    """What breaks the tripwire, what has outgrown its exception, and which exception is no longer needed."""
    large = {name: size for name, size in sizes.items() if size > tripwire}
    grown = [f"{name} has {size} lines" for name, size in large.items() if size > exceptions.get(name, tripwire)]
    idle = [f"{name} is no longer over {tripwire}; strike it off the list" for name in exceptions if name not in large]
    return grown + idle


@proves("tidy")
def test_no_function_is_longer_than_a_screen_or_so() -> None:
    python = [name for name in modules("src", "scripts", "tests", "examples", "bench") if name.endswith(".py")]
    sizes = {function: lines for name in python for function, lines in functions_of(name)}
    assert over(sizes, FUNCTION_LINES, LONG_FUNCTIONS) == []


@proves("tidy")
def test_no_file_is_too_long_to_be_known() -> None:
    sizes = {
        name: len((ROOT / name).read_text().splitlines()) for name in modules("src", "scripts", "tests", "examples")
    }
    assert over(sizes, FILE_LINES, LONG_FILES) == []


@proves("tidy")
def test_the_ratchet_turns_one_way() -> None:
    assert over({"a": 61, "b": 70, "c": 80}, 60, {"b": 70, "c": 79, "d": 90}) == [
        "a has 61 lines",
        "c has 80 lines",
        "d is no longer over 60; strike it off the list",
    ]


def classes_of(name: str) -> set[str]:
    """At the top of a module, without those that are its own (`_Walk`)."""
    body = ast.parse((ROOT / name).read_text()).body
    return {one.name for one in body if isinstance(one, ast.ClassDef) and not one.name.startswith("_")}


def unlike(found: dict[str, int], table: dict[int, str]) -> list[str]:
    """Which names stand for more classes than the table says, and which for fewer."""
    listed = {name: count for count, names in table.items() for name in names.split()}
    more = [f"{name} is {count} classes" for name, count in found.items() if count > listed.get(name, 1)]
    fewer = [f"{name} is {found.get(name, 0)}; list it so" for name in listed if found.get(name, 0) < listed[name]]
    return more + fewer


@proves("tidy")
def test_a_name_is_one_class_unless_it_is_listed() -> None:
    python = [name for name in modules("src") if name.endswith(".py")]
    found = Counter(one for name in python for one in classes_of(name))
    assert unlike(found, NAMES_OF_SEVERAL_CLASSES) == []


@proves("tidy")
def test_the_list_of_names_shrinks_only() -> None:
    assert unlike({"A": 2, "B": 3, "C": 1, "D": 2}, {3: "C", 2: "B D"}) == [
        "A is 2 classes",
        "B is 3 classes",
        "C is 1; list it so",
    ]


@proves("tidy")
def test_every_module_says_what_it_is_for() -> None:
    python = [name for name in modules("src", "scripts", "tests", "examples", "bench") if name.endswith(".py")]
    told = re.compile(r'\A(#.*\n)*r?"""\s*[^"\s]')
    silent = [name for name in python if not told.match((ROOT / name).read_text())]
    assert silent == []


@proves("tidy")
def test_a_room_has_a_card_and_no_imports() -> None:
    for room in sorted((ROOT / "src" / "tidelog").glob("*/**/__init__.py")):
        tree = ast.parse(room.read_text())
        if room.parent.name in ROOMS_WITH_A_DOOR and room.parent.parent.name == "tidelog":
            assert "__getattr__, __dir__ = door(" in room.read_text(), f"{room} is to load its names when they are used"
            continue
        if room.parent.name in ROOMS_TO_CALL:
            assert "def __call__(self" in room.read_text(), f"{room} is to be called"
            continue
        assert len(tree.body) == 1, f"{room} holds more than its docstring; only tidelog/__init__.py exports names"


@proves("tidy")
def test_modules_are_named_after_things_of_the_field() -> None:
    assert [name for name in modules("src", "tests") if Path(name).stem in BANNED_NAMES] == []


@proves("tidy")
def test_no_more_files_have_a_word_for_their_name_that_is_no_thing() -> None:
    found = [name for name in modules("src") if OLD_NAMES & set(Path(name).stem.split("_"))]
    assert len(found) <= OLD_NAMES_LEFT, found


def names_without_a_thing(code: str) -> list[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    named = [node.name for node in ast.walk(ast.parse(code)) if isinstance(node, kinds)]
    return [name for name in named if NOT_NAMES & set(name.lower().strip("_").split("_"))]


@proves("tidy")
def test_no_more_functions_and_classes_have_a_word_for_their_name_that_is_no_thing() -> None:
    assert names_without_a_thing(
        "class Found:\n def said_of(self): told = 1\ndef find_one_row(): ...\ndef done(): ..."
    ) == [
        "Found",
        "find_one_row",
        "said_of",
    ]
    python = [name for name in modules("src") if name.endswith(".py")]
    found = [f"{name} {one}" for name in python for one in names_without_a_thing((ROOT / name).read_text())]
    assert len(found) <= NOT_NAMES_LEFT, f"{len(found)}, name them after what they are: {found}"


@proves("tidy")
@pytest.mark.parametrize("words", [LEFT_OVERS, REGISTRIES], ids=["left-overs", "registries"])
def test_no_file_holds_a_word_that_does_not_belong(words: tuple[str, ...]) -> None:
    pattern = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in words))
    found = []
    for name in tracked_files():
        data = (ROOT / name).read_bytes()
        if b"\0" in data:
            continue
        lines = data.decode().splitlines()
        found += [f"{name}:{number} {line.strip()}" for number, line in enumerate(lines, 1) if pattern.search(line)]
    assert found == []


@proves("tidy")
def test_no_message_sends_a_reader_to_a_file_that_only_the_repository_has() -> None:
    """Who has installed the package has commands and the guide, not these paths. Docstrings may name them."""
    assert messages_with(re.compile(r"\bdocs/|\b\w+\.md\b|rows\.toml")) == []


@proves("tidy")
def test_no_message_says_that_something_is_no_other_thing() -> None:
    assert messages_with(OLD_WORDS) == []


@proves("tidy")
@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('raise ValueError(f"{x!r} is no time")', True),
        ('say("there are no " "users")', True),
        ('"""A fold that is none of ours."""', False),
        ('say("x is not a time")', False),
        ('say("is none" "theless")', False),
    ],
)
def test_messages_are_told_from_docstrings(code: str, found: bool) -> None:
    assert bool(list(literals_with(OLD_WORDS, code))) is found


def messages_with(pattern: re.Pattern[str]) -> list[str]:
    """Where texts of src match, docstrings aside."""
    python = [name for name in modules("src") if name.endswith(".py")]
    return [f"{name}:{line}" for name in python for line in literals_with(pattern, (ROOT / name).read_text())]


def literals_with(pattern: re.Pattern[str], code: str) -> Iterator[int]:
    tree = ast.parse(code)
    said_of_code = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said_of_code
        if is_text and pattern.search(node.value):
            yield node.lineno


@proves("tidy")
def test_the_changelog_names_every_command() -> None:
    from tidelog.cli.main import COMMANDS

    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert [command for command in COMMANDS if f"`{command}`" not in changelog] == []


@proves("tidy")
def test_the_changelog_has_its_shape() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert lines[0] == "# Changelog"
    releases = [line for line in lines if line.startswith("## ")]
    assert releases, "no release in it"
    assert [line for line in releases if not RELEASE.fullmatch(line)] == []
    groups = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert groups <= CHANGE_GROUPS


@proves("tidy")
def test_the_version_is_one() -> None:
    import tidelog

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == tidelog.__version__


@proves("tidy")
def test_every_link_between_pages_leads_somewhere() -> None:
    link = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
    broken = []
    for name in tracked_files():
        if name.endswith(".md"):
            targets = [target for target in link.findall((ROOT / name).read_text()) if "://" not in target]
            broken += [f"{name} -> {target}" for target in targets if not ((ROOT / name).parent / target).exists()]
    assert broken == []
