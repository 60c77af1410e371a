"""A run of an app, its JVM, its applier, the broker and the gateway, while the time of day jumps under all of them.

At every look the view is the batch query over what its mark says was read, and a feed and waits by `after=` go on. What
the jumps are is made by a shim (`crash/jumping_clock.py`): the processes really read another time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from against.patience import eventually
from against.tidelog_process import TidelogProcess
from crash.jumping_clock import JumpingClock, jumping_clock
from crash.port import free_port
from pipelines.app.looking import SOURCES, TOPIC, VIEW, Input, Looker, Rows
from pipelines.app.test_view_exactly_once import App
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.control import marks

pytestmark = pytest.mark.full

__all__ = ["jumping_clock"]

HOUR_S, DAY_S = 3600, 86_400
PATIENCE_S = 240.0
PIECES, ORDERS_A_PIECE = 2, 15
# So that Spark looks for heartbeats between a jump and the next of them, as it may.
OFTEN = "spark.network.timeoutInterval 500ms\nspark.executor.heartbeatInterval 3s\n"
SINK = f"{VIEW}.v1"


class Feed:
    """A copy of the view, kept by its changes over HTTP."""

    def __init__(self, address: str) -> None:
        self.rows: Rows = {}
        self._stream = urlopen(f"{address}/views/{VIEW}/changes?cursor=start", timeout=PATIENCE_S)
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        event = ""
        for line in map(bytes.decode, self._stream):
            if line.startswith("event: "):
                event = line[7:].strip()
            elif line.startswith("data: ") and event in ("enter", "change"):
                row = json.loads(line[6:])["row"]
                self.rows[row["product"]] = row


class Shop:
    def __init__(self, folder: Path, seed: int) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self.store = f"sqlite:///{folder}/views.db"
        self.broker = TidelogProcess(folder / "broker", {"tidelog.http.listener": f"127.0.0.1:{port}"}).start()
        self.cluster = Cluster(self.broker.bootstrap, patient=True)
        self.given = Input(Random(seed))
        self.looker = Looker(self.given, [self.store])
        topics.create(self.cluster, TOPIC, partitions=SOURCES)
        self.app = App(self.broker.bootstrap, [self.store], folder)
        self.looker.start()

    def write_and_await(self) -> None:
        for _ in range(PIECES):
            self.given.write(self.cluster, ORDERS_A_PIECE)
            self.await_all()

    def await_all(self) -> None:
        try:
            eventually(self._has_all, seconds=PATIENCE_S)
        except AssertionError as error:
            error.add_note(f"{self.looker.newest}\n{self.app.said()[-4000:]}\n{self.broker.said()[-2000:]}")
            raise

    def _has_all(self) -> bool:
        assert not self.looker.faults, "\n".join(self.looker.faults[:3])
        assert self.app.process.poll() is None, self.app.said()[-6000:]
        return self.looker.reached(self.given.ends)

    def ask(self, path: str) -> Any:
        try:
            with urlopen(f"{self.address}{path}", timeout=PATIENCE_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            return {"status": error.code, "said": error.read().decode()}

    def awaited(self) -> Any:
        """The rows, not before what was written last is among them."""
        self.given.write(self.cluster, ORDERS_A_PIECE)
        after = ",".join(f"{at.topic}:{at.partition}:{end - 1}" for at, end in self.given.ends)
        return self.ask(f"/views/{VIEW}?after={after}&timeout=25")

    def faults(self) -> list[str]:
        """Of parts, as the gateway tells them."""
        return [f"{one['kind']} {one['name']}: {one['fault']}" for one in self.ask("/parts") if one["fault"]]

    def restarts(self) -> int:
        query = next(one for one in self.ask("/parts") if one["kind"] == "query")
        return int(query["figures"]["restarts"])

    def end(self) -> None:
        self.looker.stop()
        self.app.kill()
        self.cluster.close()
        self.broker.kill()


@pytest.fixture
def shop(jumping_clock: JumpingClock, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    (tmp_path / "spark-defaults.conf").write_text(OFTEN)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    made = Shop(tmp_path, seed)
    try:
        yield made
    finally:
        made.end()


@proves("F1", "F2", "F3", "P3")
@pytest.mark.timeout(900)
def test_a_run_goes_on_whether_the_clock_is_set_back_by_an_hour_or_forward_by_a_day(
    shop: Shop, jumping_clock: JumpingClock
) -> None:
    shop.write_and_await()
    feed = Feed(shop.address)
    for ahead_s in (-HOUR_S, DAY_S, 0):
        shop.given.write(shop.cluster, ORDERS_A_PIECE)  # some of it is read while the clock jumps
        jumping_clock.jump_to(ahead_s)
        shop.write_and_await()
        page = shop.awaited()
        assert {row["product"]: row for row in page["rows"]} == shop.given.after(shop.given.ends), page
        eventually(lambda: feed.rows == shop.given.after(shop.given.ends))
        eventually(lambda: shop.faults() == [], seconds=PATIENCE_S)
    every = marks.read_marks(shop.cluster, SINK, marks.end_of_marks(shop.cluster, SINK))
    assert [one.batch_id for one in every] == sorted({one.batch_id for one in every}), "each micro-batch once"
    times = [one.time_ms for one in every]
    assert min(times) < times[0] and max(times) > times[0] + 0.9 * DAY_S * 1000, (
        "the processes had the clock that jumps"
    )
    eventually(lambda: shop.restarts() == 2, seconds=PATIENCE_S)  # once for each time that the clock was set back
    assert "Cannot find endpoint" not in shop.app.said(), "Spark does not take its own JVM for lost"
