"""The picture of the house, enforced: which room may import which, read from the imports themselves.

An arrow A -> B in the picture reads "B may import A", and arrows add up: B may import all that A may, and A. Every
import counts, also a late one inside a function and one for the type checker alone.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from proving import proves

SOURCE = Path(__file__).parent.parent / "src"
PACKAGE = SOURCE / "tidelog"

ARROWS = """
    record -> wire -> client
    record -> log -> broker
    wire -> broker
    client -> cli
    broker -> cli
    client -> testing
    broker -> testing
    client -> gateway -> cli
    client -> control -> views -> sql
    control -> parts -> pipelines
    parts -> capture -> cli
    capture -> gateway
    capture -> testing
    views -> sourcing -> gateway
    parts -> sourcing -> cli
    sourcing -> testing
    parts -> work -> gateway
    work -> cli
    work -> testing
    control -> spark
    control -> testing
    schema -> control
    views -> pipelines
    views -> gateway
    sql -> gateway
    client -> spark
    spark -> pipelines
    spark -> testing
    pipelines -> testing
    spark -> cli
    pipelines -> cli
    testing -> cli
    broker -> demo
    gateway -> demo
    pipelines -> demo -> cli
"""

# Modules of no room. Errors are for everyone; record, wire and log get their settings as arguments, never by config.
GROUND = {"clock", "door", "errors", "process"}
# Public doors import from the rooms behind them; those of rooms hand out what stands in rooms to their left, too.
DOORS = {
    "__init__.py",
    "__main__.py",
    "operators.py",
    "client/__init__.py",
    "sourcing/__init__.py",
    "views/__init__.py",
}
CONFIG_USERS = {"broker", "client", "gateway", "views", "spark", "demo", "testing", "cli", "logger"}
LOGGER_USERS = {"broker", "cli", "demo", "gateway"}

# What reads a clock, a file, a socket or chance, or runs beside the caller.
OUTSIDE_WORLD = {
    "os",
    "io",
    "pathlib",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "time",
}
PURE = (
    "record/",
    "schema/",
    "wire/",
    "broker/groups/",
    "broker/decision.py",
    "broker/topic_changes.py",
    "broker/config_changes.py",
    "broker/slow_consumers.py",
    "broker/access/acls.py",
    "broker/access/changes.py",
    "broker/access/checks.py",
    "broker/access/entities.py",
    "broker/access/logins.py",
    "broker/access/principals.py",
    "broker/access/refusing.py",
    "broker/access/rules.py",
    "broker/access/state.py",
    "broker/access/throttling.py",
    "spark/admission.py",
    "spark/offsets.py",
    "spark/options.py",
    "spark/ranges.py",
)

LATE_ONLY = {"deltalake", "duckdb", "numpy", "opensearchpy", "psycopg", "pyarrow", "pyspark", "redis"}
ARROW_ROOMS = ("pipelines/",)  # whose every line is about Arrow's tables, and which nobody imports at start
PYSPARK_ROOMS = ("spark/", "pipelines/", "testing/pipeline", "demo/shop.py")
INHERITS_FROM_PYSPARK = ("spark/source.py", "spark/sink.py", "pipelines/operators/state/processor.py")
OF_SCHEMAS = {"fastavro", "google", "jsonschema", "referencing"}
HTTP = {"anyio", "asyncio", "h11", "starlette", "uvicorn"}
KAFKA_CLIENTS = {"aiokafka", "confluent_kafka", "kafka"}


class Import(NamedTuple):
    file: str
    line: int
    module: str
    late: bool


@cache
def allowed_rooms() -> dict[str, set[str]]:
    """For each room, the rooms it may import: everything that has a way to it along the arrows."""
    direct: dict[str, set[str]] = {}
    for line in ARROWS.strip().splitlines():
        chain = [room.strip() for room in line.split("->")]
        for left, right in pairwise(chain):
            direct.setdefault(left, set())
            direct.setdefault(right, set()).add(left)
    allowed = {room: set(lefts) for room, lefts in direct.items()}
    for _ in allowed:
        for lefts in allowed.values():
            lefts |= {further for left in lefts for further in allowed[left]}
    return allowed


def imports_of(path: Path) -> Iterator[Import]:
    file = path.relative_to(PACKAGE).as_posix()
    yield from _imports_below(ast.parse(path.read_text(), file), file, late=False)


def _imports_below(node: ast.AST, file: str, late: bool) -> Iterator[Import]:
    """Statements alone: an expression imports nothing."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{file}:{child.lineno} has a relative import; write the whole name"
            assert child.module is not None
            names = [f"{child.module}.{alias.name}" for alias in child.names]
        else:
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(child)
                yield from _imports_below(child, file, late or later)
            continue
        for name in names:
            yield Import(file, child.lineno, name, late)


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for path in sorted(PACKAGE.rglob("*.py")) for found in imports_of(path))


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _faults_of_arrow(found: Import) -> str | None:
    parts = found.module.split(".")
    if parts[0] != "tidelog" or len(parts) == 1 or found.file in DOORS:
        return None
    here, there = Path(found.file).parts[0].removesuffix(".py"), parts[1]
    allowed = allowed_rooms().get(here, set()) | GROUND | {here, "__version__"}
    if here in CONFIG_USERS:
        allowed.add("config")
    if here in LOGGER_USERS:
        allowed.add("logger")
    if there in allowed:
        return None
    return f"{found.file}:{found.line} imports {found.module}: {here} may import {', '.join(sorted(allowed - {here}))}"


@proves("architecture")
def test_every_room_imports_only_what_the_picture_allows() -> None:
    assert [fault for fault in map(_faults_of_arrow, all_imports()) if fault] == []


@proves("architecture")
def test_every_room_is_in_the_picture() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms == set(allowed_rooms())


@proves("architecture")
def test_the_picture_has_no_cycle() -> None:
    assert [room for room, lefts in allowed_rooms().items() if room in lefts] == []


@proves("architecture")
@pytest.mark.parametrize(
    ("file", "module", "allowed"),
    [
        ("log/log.py", "tidelog.wire.frame", False),
        ("wire/frame.py", "tidelog.log.log", False),
        ("client/connection.py", "tidelog.broker.broker", False),
        ("record/codec.py", "tidelog.config.BrokerConfig", False),
        ("broker/broker.py", "tidelog.cli.main", False),
        ("views/applier.py", "tidelog.spark.sink", False),
        ("control/catalog.py", "tidelog.views.stores.opening", False),
        ("control/catalog.py", "tidelog.schema.declaration", True),
        ("views/not_yet.py", "tidelog.parts.supervision", False),
        ("parts/running.py", "tidelog.views.applier", False),
        ("pipelines/running.py", "tidelog.parts.running", True),
        ("broker/activation.py", "tidelog.process", True),
        ("sql/topic.py", "tidelog.gateway.route", False),
        ("pipelines/app.py", "tidelog.broker.broker", False),
        ("testing/disk.py", "tidelog.demo.shop", False),
        ("demo/shop.py", "tidelog.testing.disk", False),
        ("broker/broker.py", "tidelog.log.log.Log", True),
        ("cli/run.py", "tidelog.record.codec", True),
        ("testing/disk.py", "tidelog.log.files", True),
    ],
)
def test_a_wrong_import_would_be_found(file: str, module: str, allowed: bool) -> None:
    assert (_faults_of_arrow(Import(file, 1, module, False)) is None) is allowed


@proves("architecture")
def test_the_protocol_and_the_decisions_know_nothing_of_the_world_outside() -> None:
    pure = [found for found in all_imports() if found.file.startswith(PURE)]
    assert pure
    assert [found for found in pure if found.module.split(".")[0] in OUTSIDE_WORLD] == []


@proves("architecture")
def test_only_the_gateway_imports_asyncio_and_http() -> None:
    users = [found for found in all_imports() if found.module.split(".")[0] in HTTP]
    assert [found for found in users if not found.file.startswith("gateway/")] == []


@proves("architecture")
def test_heavy_libraries_are_imported_late() -> None:
    early = [found for found in all_imports() if found.module.split(".")[0] in LATE_ONLY and not found.late]
    inherited = [
        found for found in early if found.module.startswith("pyspark.") and found.file in INHERITS_FROM_PYSPARK
    ]
    of_arrow = [found for found in early if "pyspark" not in found.module and found.file.startswith(ARROW_ROOMS)]
    assert [found for found in early if found not in inherited + of_arrow] == []


@proves("architecture")
def test_only_the_rooms_of_spark_import_it() -> None:
    users = [found for found in all_imports() if found.module.split(".")[0] in ("pyspark", "py4j")]
    assert users
    assert [found for found in users if not found.file.startswith(PYSPARK_ROOMS)] == []


@proves("architecture")
def test_only_schemas_import_what_reads_schemas() -> None:
    users = [found for found in all_imports() if found.module.split(".")[0] in OF_SCHEMAS]
    assert [found for found in users if not found.file.startswith("schema/")] == []


@proves("architecture")
def test_no_room_imports_a_kafka_client() -> None:
    assert [found for found in all_imports() if found.module.split(".")[0] in KAFKA_CLIENTS] == []


@proves("architecture", "T1")
def test_a_broker_that_has_served_has_loaded_nothing_heavy() -> None:
    loaded = {name.split(".")[0] for name in _modules_after(SERVE_ONCE)}
    assert "tidelog" in loaded
    assert loaded & (LATE_ONLY | OF_SCHEMAS | KAFKA_CLIENTS | HTTP | {"logging"}) == set()


@proves("architecture")
def test_importing_the_package_loads_no_room() -> None:
    loaded = _modules_after("import tidelog")
    assert {name for name in loaded if name.startswith("tidelog")} == {"tidelog", "tidelog.door"}


# A broker in its own process and a client of ours in the same one: whatever serving needs has been loaded by then.
SERVE_ONCE = """
import tempfile, tidelog
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
with tempfile.TemporaryDirectory() as folder, tidelog.Broker(folder, in_process=True) as broker:
    with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
        producer.send("topic", b"value")
"""


def _modules_after(program: str) -> set[str]:
    ending = "\nimport sys; print('\\n'.join(['modules:', *sys.modules]))"
    run = subprocess.run([sys.executable, "-c", program + ending], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.partition("modules:\n")[2].split())
