"""The pytest plugin: a fresh broker for a test, in a tenth of a second; Spark pipelines, one step at a time.

    def test_orders(tidelog_broker):
        tidelog_broker.create_topic("orders", partitions=3)
        ...                                   # any Kafka client, with tidelog_broker.bootstrap
        assert [row.value for row in tidelog_broker.records("orders")] == [b"..."]

`tidelog_broker` is new for each test; `tidelog_session_broker` is one for the whole session, for tests that use
topics of their own. `@pytest.mark.tidelog(settings={"num.partitions": 4})` starts a test's broker with other
settings. Every fixture returns only when produce works. The broker is a child process with a temporary folder; it
ends with the test, however the test ends.

`tidelog_pipeline` drives Spark pipelines step by step (`pipeline.py`), in the session `tidelog_spark`, which is one for
all tests of a process. A project that has a session of its own gives it that name, in its conftest.py:

    @pytest.fixture(scope="session")
    def tidelog_spark(my_session):
        return my_session

Nothing is imported until a fixture is used, so that the plugin costs nothing in projects that have it installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.testing.broker import TestBroker
    from tidelog.testing.pipeline import PipelineDriver


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "tidelog(settings={...}): the settings of the broker that this test's fixture starts"
    )


@pytest.fixture
def tidelog_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestBroker]:
    """A Kafka broker of this test alone; `.bootstrap` is what clients take as `bootstrap.servers`."""
    mark = request.node.get_closest_marker("tidelog")
    options = dict(mark.kwargs) if mark is not None else {}
    yield from _running(tmp_path / "tidelog", **options)


@pytest.fixture(scope="session")
def tidelog_session_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """A Kafka broker for the whole test session. Give each test topics of its own: `broker.unique("orders")`."""
    yield from _running(tmp_path_factory.mktemp("tidelog"))


def _running(data: Path, *, settings: dict[str, object] | None = None) -> Iterator[TestBroker]:
    from tidelog.testing.broker import TestBroker

    with TestBroker(data, settings=settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def tidelog_spark() -> Iterator[Any]:
    """The Spark session of this process: the one that runs already, or a new one for the whole test session."""
    from tidelog.testing.pipeline_session import shared_session

    with shared_session() as session:
        yield session


@pytest.fixture
def tidelog_pipeline(request: pytest.FixtureRequest, tidelog_spark: Any) -> Iterator[PipelineDriver]:
    """Runs pipelines of this test, one step at a time; all of them end with it."""
    from tidelog.testing.pipeline import PipelineDriver
    from tidelog.testing.pipeline_session import travelling_whole

    with travelling_whole(request.module), PipelineDriver(tidelog_spark) as driver:
        yield driver
