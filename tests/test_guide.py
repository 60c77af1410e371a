"""The code on the pages runs: every fenced block of README and guide that is marked so, against a real broker.

    ```python run       a program, run by itself
    ```python pytest    a test file, run by pytest with the plugin
    ```bash run         commands, run by bash; the first that fails ends them
    ```text shown       what the block before it prints; `...` stands for anything within a line
    ```bash beside      a command in a terminal of its own, which runs on (`terminals.py`)
    ```text beside      what the newest of those has printed, or prints soon
    ```text stopped     ^C, given to the newest of those, and what it prints then; it has to end with 0

Pages speak of a broker at 127.0.0.1:9092 and of HTTP at 127.0.0.1:8642; here each page gets a broker of its own at
another port, or starts one by `tidelog up`, and the addresses are put in before a block runs. The blocks of a page run
in the order in which they stand, in one folder; test files with nothing between them by one pytest. A program whose
first line is `# shop.py` is kept under that name, and one with `# shop.py, at the end` is added to it. What is on a
Spark session of Tidelog's runs in turns in one process (`programs`).
"""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tidelog
from programs import Done, Host, run
from proving import proves
from terminals import Terminals

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+) (run|pytest|shown|beside|stopped)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (\w+\.py)(, at the end)?\n")
ADDRESS = "127.0.0.1:9092"
HTTP = "127.0.0.1:8642"
ON_SPARK = ("tidelog.spark_session(", "tidelog_pipeline")
# They are on Spark, and what they show has shorter tests.
LONG = ("apps", "joins", "own_operators", "spark", "start", "testing_pipelines", "typed_values", "windows")
QUICK = ("README", "getting_started")  # of those above a second of CPU, what a newcomer meets first
STORY = "start"  # one of them at every change


class Block(NamedTuple):
    language: str
    way: str
    text: str
    line: int


def blocks_of(page: str) -> list[Block]:
    return [
        Block(found[1], found[2], found[3], page.count("\n", 0, found.start()) + 1) for found in BLOCK.finditer(page)
    ]


def steps_of(page: str) -> Iterator[list[Block]]:
    """Each block by itself, but test files with nothing between them together."""
    for is_tests, found in groupby(blocks_of(page), lambda block: block.way == "pytest"):
        blocks = list(found)
        yield from [blocks] if is_tests else ([block] for block in blocks)


def words_of(step: list[Block], folder: Path) -> list[str]:
    """Those behind `python`."""
    paths = [written(block, folder) for block in step]
    alone = ["-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(folder)] if step[0].way == "pytest" else []
    return [*alone, *map(str, paths)]


def written(block: Block, folder: Path) -> Path:
    named = NAMED.match(block.text)
    path = folder / (named[1] if named else f"test_block_{block.line}.py")
    before = path.read_text() if named and named[2] else ""
    path.write_text(before + block.text)
    return path


def run_step(step: list[Block], folder: Path, environment: Mapping[str, str], host: Host) -> Done:
    if step[0].language == "bash":
        return run(["bash", "-euo", "pipefail", "-c", step[0].text], folder, environment)
    words = words_of(step, folder)
    if any(word in block.text for block in step for word in ON_SPARK):
        return host.run(words, folder, environment)
    return run([sys.executable, *words], folder, environment)


def missing_lines(shown: str, output: str) -> list[str]:
    """The lines that a page shows and the output lacks, in order."""
    lines = iter(output.splitlines())
    missing = []
    for expected in shown.splitlines():
        pattern = re.compile(re.escape(expected.strip()).replace(r"\.\.\.", ".*"))
        if not any(pattern.fullmatch(line.strip()) for line in lines):
            missing.append(expected)
    return missing


def run_page(page: str, folder: Path, environment: Mapping[str, str], host: Host) -> Iterator[str]:
    """What is wrong with the page, block by block."""
    output = ""
    with Terminals(folder, environment, missing_lines) as terminals:
        for step in steps_of(page):
            block = step[0]
            match block.language, block.way:
                case "text", "shown":
                    told = [f"shows {line!r}; it printed:\n{output}" for line in missing_lines(block.text, output)]
                case "bash", "beside":
                    told = terminals.open(block.text)
                case "text", "beside":
                    told = terminals.wait(block.text)
                case "text", "stopped":
                    told = terminals.interrupt(block.text.removeprefix("^C\n"))
                case _:
                    done = run_step(step, folder, environment, host)
                    output = done.stdout
                    ended = f"ended with {done.returncode}:\n{done.stdout}{done.stderr}"
                    told = [ended] if done.returncode != 0 else []
            yield from (f"line {block.line} {one}" for one in told)
        while terminals:
            yield from terminals.interrupt("")


@contextmanager
def at_a_broker(page: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The page with the addresses that count here, and the environment of its blocks."""
    text = page.read_text()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    with ExitStack() as stack:
        if any(block.way == "beside" and block.text.startswith("tidelog up") for block in blocks_of(text)):
            bootstrap, http = (f"127.0.0.1:{port}" for port in free_ports(2))
            environment |= {"TIDELOG_LISTENERS": f"PLAINTEXT://{bootstrap}", "TIDELOG_HTTP_LISTENER": http}
        else:
            broker = stack.enter_context(tidelog.Broker(settings={"tidelog.http.listener": "127.0.0.1:0"}))
            bootstrap, http = broker.bootstrap, broker.http.removeprefix("http://")
        yield text.replace(ADDRESS, bootstrap).replace(HTTP, http), {**environment, "TIDELOG_BOOTSTRAP": bootstrap}


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        bound = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in bound]


PAGES_WITH_CODE = [page for page in PAGES if blocks_of(page.read_text())]


def param_of(page: Path) -> Any:
    marks = [pytest.mark.full] if page.stem in LONG else [] if page.stem in QUICK else [pytest.mark.slow]
    return pytest.param(page, id=page.stem, marks=[*marks, *([pytest.mark.story] if page.stem == STORY else [])])


@proves("guide")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [param_of(page) for page in PAGES_WITH_CODE])
def test_the_code_on_the_page_runs(page: Path, host: Host, tmp_path: Path) -> None:
    with at_a_broker(page) as (text, environment):
        assert list(run_page(text, tmp_path, environment, host)) == []


@proves("guide")
def test_a_line_that_was_not_printed_is_missed() -> None:
    assert missing_lines("a 1 b\nc ... d\n", "x\na 1 b\ny\nc 22 d\n") == []
    assert missing_lines("a 1 b\nc ... d\n", "c 22 d\na 1 b\n") == ["c ... d"]


@proves("guide")
def test_blocks_are_found_with_their_lines() -> None:
    page = "text\n\n```python\nnot run\n```\n\n```bash run\ntrue\n```\n```text shown\nx\n```\n"
    assert blocks_of(page) == [Block("bash", "run", "true\n", 7), Block("text", "shown", "x\n", 10)]


@proves("guide")
def test_test_files_with_nothing_between_them_are_one_step() -> None:
    page = "".join(f"```{kind}\n```\n" for kind in ("python pytest", "python pytest", "bash run", "python pytest"))
    assert [[block.line for block in step] for step in steps_of(page)] == [[1, 3], [5], [7]]


@proves("guide")
def test_the_readme_and_the_start_page_have_the_same_program() -> None:
    readme, start = (blocks_of((ROOT / page).read_text()) for page in ("README.md", "docs/guide/start.md"))
    programs = [block.text for block in readme if NAMED.match(block.text)]
    assert programs
    assert [text for text in programs if text not in [block.text for block in start]] == []


@proves("guide")
def test_a_program_with_a_name_is_kept_and_added_to(tmp_path: Path) -> None:
    first = Block("python", "run", "# shop.py\nA = 1\n", 1)
    more = Block("python", "run", "# shop.py, at the end\nprint(A)\n", 9)
    assert written(first, tmp_path) == tmp_path / "shop.py"
    done = run([sys.executable, *words_of([more], tmp_path)], tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert written(first, tmp_path).read_text() == first.text


@proves("guide")
def test_a_command_in_a_terminal_of_its_own_is_waited_for_and_stopped(tmp_path: Path) -> None:
    waits = "import signal as s; s.pthread_sigmask(0, [2]); print(1, flush=True); s.sigwait([2]); print(2)"
    ready = f"```bash beside\npython -c '{waits}'\n```\n"
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    pages = {
        f"{ready}```text beside\n1\n```\n```text stopped\n^C\n2\n```\n": [],
        f"{ready}```text beside\n1\n```\n```text stopped\n^C\n3\n```\n": ["line 7 shows ['3'] and ended with 0"],
        "```bash beside\nfalse\n```\n```text beside\n1\n```\n": ["line 4 shows ['1']", "shows [] and ended with 1"],
    }
    for page, faults in pages.items():
        told = [fault.partition(";")[0] for fault in run_page(page, tmp_path, environment, Host(tmp_path))]
        assert told == faults


@proves("guide")
@pytest.mark.parametrize("index", ["docs/README.md", "docs/decisions/README.md"])
def test_the_index_names_every_page(index: str) -> None:
    folder = (ROOT / index).parent
    text = (ROOT / index).read_text()
    pages = [page.relative_to(folder).as_posix() for page in folder.rglob("*.md")]
    elsewhere = () if folder.name == "decisions" else ("decisions/",)
    assert [page for page in pages if page != "README.md" and not page.startswith(elsewhere) and page not in text] == []


@proves("guide")
def test_the_limits_on_the_page_are_those_of_the_broker() -> None:
    from tidelog.broker.settings.broker import BROKER
    from tidelog.broker.settings.setting import WORKS

    page = (ROOT / "docs" / "guide" / "limits.md").read_text()
    shown = dict(re.findall(r"^\| `([\w.]+)` \| (\d+) \|", page, re.MULTILINE))
    assert shown
    assert shown == {name: BROKER[name].default for name in shown}
    assert [name for name in shown if BROKER[name].effect != WORKS] == []


# What a sample imports ------------------------------------------------------------------------------------------------

DOORS = ("", ".client", ".operators", ".sourcing", ".spark", ".testing", ".views")
ELSEWHERE = {"F", "Consumer", "KafkaProducer", "Producer", "dataclass", "json", "np", "pa", "pc", "pytest", "timedelta"}
SAMPLE = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def unbound(text: str) -> set[str]:
    """Names that a sample uses and does not make. Pure."""
    used, bound = set(), set(dir(builtins))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name():
                (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                bound.add(node.name)
            case ast.arg():
                bound.add(node.arg)
            case ast.alias():
                bound.add((node.asname or node.name).partition(".")[0])
    return used - bound


def public_names() -> set[str]:
    doors = [vars(importlib.import_module(f"tidelog{door}")) for door in DOORS]
    return {name for door in doors for name in door.get("HOMES") or door["__all__"]} | {"tidelog"}


@proves("guide")
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_samples_name_what_they_import(page: Path) -> None:
    """What is the reader's own (rows, an app) need not be there; what comes by an import must say from where."""
    imported = public_names() | ELSEWHERE
    text = page.read_text()
    missing = {
        text.count("\n", 0, found.start()) + 1: names
        for found in SAMPLE.finditer(text)
        if (names := sorted(unbound(found[1]) & imported))
    }
    assert not missing, f"by line: {missing}"


@proves("guide")
def test_the_first_pages_leave_nothing_in_each_others_topics() -> None:
    """Whoever follows both has one broker: text of the one page is not JSON for the app of the other."""
    guide = ROOT / "docs" / "guide"
    produced = [
        set(re.findall(r"tidelog produce ([\w.-]+)", (page).read_text()))
        for page in (guide / "getting_started.md", guide / "start.md", ROOT / "README.md")
    ]
    assert all(produced) and not produced[0] & (produced[1] | produced[2])
