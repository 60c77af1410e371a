"""The stores of the contract: one line a kind, and every test of `contract/` runs over each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from against.apache_kafka import Missing
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Store
from views.stores.kinds import Kind
from views.stores.opensearch_node import OpenSearchNode, OpenSearchPlace, shared_node
from views.stores.redis_server import RedisServer


def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue("tmp_path")
    return found


KINDS = [
    Kind("sqlite", lambda request: f"sqlite:///{folder(request)}/views.db"),
    Kind("sqlite_text", lambda request: f"sqlite+fts:///{folder(request)}/views.db"),
    # A change of a table is a file and a log entry: five times the cost of a row in SQLite.
    Kind("delta", lambda request: f"delta:///{folder(request)}/warehouse", shared=False, marks=(pytest.mark.slow,)),
    Kind("parquet", lambda request: f"parquet:///{folder(request)}/warehouse", shared=False),
    Kind("redis", lambda request: str(request.getfixturevalue("redis_url")), marks=(pytest.mark.external,)),
    Kind(
        "opensearch",
        lambda request: str(request.getfixturevalue("opensearch_url")),
        transactions=False,
        shared=False,
        marks=(pytest.mark.external,),
    ),
    Kind("postgres", lambda request: str(request.getfixturevalue("postgres_url"))),
]

Open = Callable[..., Store]


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    try:
        server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    return f"{redis_server.url}?prefix={uuid4().hex}"


@pytest.fixture(scope="session")
def opensearch_node() -> OpenSearchPlace:
    try:
        return shared_node()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def own_opensearch_node() -> Iterator[OpenSearchNode]:
    """For a test that kills it."""
    # Not pytest's own folder: a node that root starts runs as nobody, who may not enter that.
    with TemporaryDirectory(prefix="tidelog-opensearch-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        try:
            node = OpenSearchNode(Path(folder)).start()
        except Missing as missing:
            pytest.skip(str(missing))
        yield node
        node.stop()


@pytest.fixture
def opensearch_url(opensearch_node: OpenSearchPlace) -> Iterator[str]:
    prefix = f"t{uuid4().hex}"
    yield f"{opensearch_node.url}?prefix={prefix}"
    opensearch_node.delete(prefix)


@pytest.fixture(params=[kind.parameter() for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def url(kind: Kind, request: pytest.FixtureRequest) -> str:
    return kind.url(request)


@pytest.fixture(params=[kind.parameter() for kind in KINDS if kind.transactions])
def transactional_url(request: pytest.FixtureRequest) -> str:
    found: Kind = request.param
    return found.url(request)


@pytest.fixture(params=[kind.parameter() for kind in KINDS if kind.shared])
def shared_url(request: pytest.FixtureRequest) -> str:
    found: Kind = request.param
    return found.url(request)


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens stores, and closes them at the end."""
    stores: list[Store] = []

    def open_one(url: str, view: str = "revenue") -> Store:
        stores.append(open_store(url, view))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(url: str, opened: Open) -> Store:
    return opened(url)
