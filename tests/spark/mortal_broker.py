"""A broker of a test's own, to be killed, on its own data: Tidelog as a process, and Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from against.apache_kafka import ApacheKafka, Missing
from against.tidelog_process import TidelogProcess

MortalBroker = ApacheKafka | TidelogProcess


@pytest.fixture(params=["tidelog", pytest.param("apache_kafka", marks=pytest.mark.external)])
def mortal_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MortalBroker]:
    try:
        made = (TidelogProcess if request.param == "tidelog" else ApacheKafka)(tmp_path / "broker")
    except Missing as missing:
        pytest.skip(str(missing))
    made.start()
    yield made
    made.kill()
