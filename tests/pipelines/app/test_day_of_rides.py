"""An app over a day of rides, stopped in the middle, or killed with its broker: its answers are those of the rides that
were written, and of every operator it is told what became of each row.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from against.apache_kafka import die_with_parent
from against.patience import eventually
from against.tidelog_process import TidelogProcess
from crash.port import free_port
from gateway.serving import Client
from gateway.test_metrics import samples_of
from pipelines.app import day_of_rides
from pipelines.app.day_of_rides import BAD, CLOSING, HOUR_MS, HOURS, PARTITIONS, PIECE_HOURS, Day
from pipelines.app.driven import committed
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control.marks import read_mark
from tidelog.control.status import read_status

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("rides_app.py")
SINKS = {  # and the topics that each has rows and letters in
    "clean": ("rides.clean", "clean"),
    "zones": ("zones.v1", "zones.v1"),
    "drivers": ("drivers.v1", "drivers.v1"),
    "priced": ("rides.priced", "priced"),
    "totals": ("totals.v1", "totals.v1"),
}
OF_RIDES = ("clean", "zones", "drivers", "priced")
PIECES = HOURS // PIECE_HOURS
IN_THE_MIDDLE, AWAY_AT = (5, 8), 6
PATIENCE_S = 900.0
BY_SPARK = {"clean": "dedupeWithinWatermark", "zones": "stateStoreSave"}
NOT_OF_THIS_RUN = (  # names on panels that only others have, or that tell of what did not happen
    "tidelog_capture_",
    "tidelog_overload_",
    "tidelog_broker_disk_left_seconds",
    "tidelog_broker_refused_batches_total",
)


class Town:
    """A broker, and a run of the app."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.away = folder, folder / "away"
        self.http = free_port()
        settings = {"tidelog.http.listener": f"127.0.0.1:{self.http}"}
        self.broker = TidelogProcess(folder / "broker", settings).start()
        self.run: subprocess.Popen[bytes] | None = None
        self.begin()

    def begin(self) -> None:
        words = ["run", str(PROGRAM), "--bootstrap", self.broker.bootstrap, "--memory", "640m"]
        with (self.folder / "run.log").open("ab") as said:
            self.run = subprocess.Popen(
                [sys.executable, "-m", "tidelog", *words],
                cwd=self.folder,
                stdout=said,
                stderr=said,
                env={**os.environ, "RIDES_AWAY": str(self.away)},
                preexec_fn=die_with_parent,
            )

    def stop(self) -> None:
        assert self.run is not None
        self.run.send_signal(signal.SIGTERM)
        assert self.run.wait(PATIENCE_S) == 0, self.said()

    def kill(self) -> None:
        """The run with all its processes, and the broker."""
        assert self.run is not None
        with suppress(psutil.NoSuchProcess):
            program = psutil.Process(self.run.pid)
            for one in (*reversed(program.children(recursive=True)), program):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        self.run.wait()
        self.broker.kill()

    def said(self) -> str:
        return (self.folder / "run.log").read_text(errors="replace")[-4000:]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path)
    try:
        yield made
    finally:
        made.kill()


class Account:
    """What a run of the app has told, beside what its marks have: Spark's own counts end with a run."""

    def __init__(self) -> None:
        self.by_spark: dict[str, Counter[str]] = {name: Counter() for name in BY_SPARK}

    def take(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        for name, operator in BY_SPARK.items():
            self.by_spark[name].update(told[name]["by_spark"].get(operator, {}))


def told_now(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {one.name.removeprefix("rides."): one.figures for one in read_status(cluster) if one.kind == "query"}


def has_read(cluster: Cluster, name: str, topic: str) -> bool:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = {at: one.offset for at, one in list_offsets(cluster, dict.fromkeys(places, LATEST)).items()}
    mark = read_mark(cluster, SINKS[name][0])
    return mark is not None and all(mark.sources.offsets.get(at, 0) >= end for at, end in ends.items())


def reads_all(cluster: Cluster, town: Town, names: tuple[str, ...] = OF_RIDES) -> None:
    for name in names:
        eventually(lambda: has_read(cluster, name, "rides"), seconds=PATIENCE_S)  # noqa: B023
    assert town.run is not None and town.run.poll() is None, town.said()


def day_is_over(cluster: Cluster, town: Town, day: Day) -> None:
    """All windows of the day are closed, and all its rides have their rates."""
    for hours in (2, 4, 6):
        day.close(cluster, hours)
        reads_all(cluster, town)
    for name in ("zones", "priced"):
        eventually(lambda: watermark_of(cluster, name) >= day.begin + (HOURS + 1) * HOUR_MS, seconds=PATIENCE_S)  # noqa: B023
    wanted = sum(rides for rides, _, _ in day_of_rides.totals(day).values())
    eventually(lambda: sum(one["rides"] for one in rows_of(cluster, "totals").values()) >= wanted, seconds=PATIENCE_S)


def watermark_of(cluster: Cluster, name: str) -> int:
    mark = read_mark(cluster, SINKS[name][0])
    return (mark and mark.watermark_ms) or 0


def rows_of(cluster: Cluster, view: str) -> dict[Any, dict[str, Any]]:
    rows: dict[Any, dict[str, Any]] = {}
    for _, record in committed(cluster, SINKS[view][1]):
        rows[record.key] = json.loads(record.value or b"{}")["after"]
    return rows


def zones_of(cluster: Cluster) -> dict[tuple[str, int], tuple[int, int]]:
    rows = [one for one in rows_of(cluster, "zones").values() if one["zone"] != CLOSING]
    return {(one["zone"], day_of_rides.ms(one["window_start"])): (one["rides"], one["fares"]) for one in rows}


def priced_of(cluster: Cluster) -> Counter[tuple[int, int | None]]:
    rows = [json.loads(record.value or b"{}") for _, record in committed(cluster, "priced")]
    return Counter((one["id"], one.get("rate")) for one in rows)


# What is told ---------------------------------------------------------------------------------------------------------


def check_answers(cluster: Cluster, day: Day) -> None:
    rows = [json.loads(record.value or b"{}") for _, record in committed(cluster, "clean")]
    assert Counter(one["id"] for one in rows) == Counter(one.id for one in day_of_rides.clean(day)), "each ride once"
    assert zones_of(cluster) == day_of_rides.zones(day)
    drivers = {one["driver"]: (one["rides"], one["fares"]) for one in rows_of(cluster, "drivers").values()}
    assert drivers == day_of_rides.drivers(day)
    totals = {one["zone"]: (one["rides"], one["fares"], one["tax"]) for one in rows_of(cluster, "totals").values()}
    assert totals == day_of_rides.totals(day)
    of_the_day = Counter({key: count for key, count in priced_of(cluster).items() if key[0] < 1_000_000})
    assert of_the_day == day_of_rides.priced(day)


def check_letters(cluster: Cluster, day: Day) -> None:
    for name in OF_RIDES:
        letters = committed(cluster, f"{SINKS[name][1]}.dead")
        headers = [dict(record.headers) for _, record in letters]
        places = [
            (int(one["__connect.errors.partition"] or b""), int(one["__connect.errors.offset"] or b""))
            for one in headers
        ]
        assert sorted(places) == sorted(day.bad), f"{name}: one letter for each bad record"
        assert {record.value for _, record in letters} == {BAD}
        mark = read_mark(cluster, SINKS[name][0])
        assert mark is not None and mark.counts["records"] == {"rides": {"it is not JSON": len(day.bad)}}


def operators(cluster: Cluster, name: str) -> Mapping[str, Mapping[str, int]]:
    mark = read_mark(cluster, SINKS[name][0])
    assert mark is not None
    return mark.counts["operators"]


def check_ours(cluster: Cluster, day: Day) -> None:
    """rows in = used + late + without a time + waiting, by counts that ride in marks: exact, whatever was killed."""
    late = sum(one.is_late for one in day.rides)
    untimed = sum(one.at is None for one in day.rides)
    shifts = operators(cluster, "drivers")["shifts"]
    assert shifts == {
        "in": len(day.rides),
        "used": len(day.rides) - late - untimed,
        "late": late,
        "without_time": untimed,
    }
    joined = dict(operators(cluster, "priced")["enrich as of event time"])
    waiting = joined.pop("held")
    assert joined.pop("joined") == sum(priced_of(cluster).values())
    assert joined.pop("dropped") == late + untimed
    assert joined == {"in": len(day.rides), "late": late, "without_time": untimed}
    assert len(day.rides) == sum(priced_of(cluster).values()) + late + untimed + waiting and waiting > 0
    assert operators(cluster, "clean")["deduplicate"] == {"without_time": untimed}
    assert operators(cluster, "totals")["view"]["without_key"] > 0
    assert operators(cluster, "zones")["view"]["without_key"] > 0


def check_sparks(cluster: Cluster, day: Day, account: Account, *, is_exact: bool) -> None:
    """What Spark counts ends with a run: of one that was killed nobody knows the last of it."""
    late = sum(one.is_late for one in day.rides)
    untimed = sum(one.at is None for one in day.rides)
    again = len(day_of_rides.used(day)) - len(day_of_rides.clean(day))
    counted, windows = account.by_spark["clean"], account.by_spark["zones"]
    kept = len(committed(cluster, "clean"))
    assert len(day.rides) == kept + again + late + untimed
    if is_exact:
        assert counted == {"kept": kept, "duplicates": again, "late": late}
    else:
        assert counted <= Counter({"kept": kept, "duplicates": again, "late": late})
    assert 0 < windows["late"] <= late, "after rows of a window that one task has read were put together"
    assert set(windows) == {"late"}


def dashboard() -> set[str]:
    """Names of metrics on its panels."""
    panels = json.loads((ROOT / "docs/reference/grafana.json").read_text())["panels"]
    exprs = [one["targets"][0]["expr"] for one in panels if one["type"] != "row"]
    return {name.removesuffix("_bucket") for expr in exprs for name in re.findall(r"tidelog_\w+", expr)}


def served(town: Town) -> set[str]:
    samples = samples_of(Client(town.http)("GET", "/metrics"))
    return {re.sub(r"_seconds_(bucket|sum|count)$", "_seconds", name) for name, _ in samples}


# The day --------------------------------------------------------------------------------------------------------------


def first_hour() -> int:
    """Within what retention keeps."""
    return (int(time.time() * 1000) // HOUR_MS - 40) * HOUR_MS


def begin(cluster: Cluster) -> Day:
    topics.create(cluster, "rides", partitions=PARTITIONS)
    topics.create(cluster, "tariffs", partitions=1, configs={"retention.ms": "-1"})
    seed = int(os.environ.get("RIDES_SEED", "19"))
    print(f"seed {seed}")
    return Day(first_hour(), Random(seed))


def with_the_service_away(cluster: Cluster, town: Town, day: Day, piece: int) -> set[str]:
    """The metrics of a run, one of whose queries retries."""
    town.away.touch()
    day.write(cluster, piece)
    eventually(lambda: told_now(cluster)["totals"]["next_try_ms"] is not None, seconds=PATIENCE_S)
    told = told_now(cluster)["totals"]
    assert told["state"] == "retrying" and "the office of taxes is away" in told["error"]["message"]
    found: set[str] = set()
    while "tidelog_part_next_try_time_seconds" not in found:
        found |= served(town)
    reads_all(cluster, town)
    town.away.unlink()
    eventually(lambda: told_now(cluster)["totals"]["state"] == "running", seconds=PATIENCE_S)
    return found


@proves("P1", "P2", "P3", "metrics")
@pytest.mark.full
@pytest.mark.timeout(3000)
def test_a_day_of_rides_over_a_stop_is_accounted_for_to_the_row_and_every_metric_is_on_the_dashboard(
    town: Town,
) -> None:
    account = Account()
    with Cluster(town.broker.bootstrap) as cluster:
        day = begin(cluster)
        metrics: set[str] = set()
        for piece in range(PIECES):
            if piece == AWAY_AT:
                metrics |= with_the_service_away(cluster, town, day, piece)
                continue
            day.write(cluster, piece)
            if piece == IN_THE_MIDDLE[0]:
                town.stop()
                account.take(told_now(cluster))
                town.begin()
            reads_all(cluster, town)
        day_is_over(cluster, town, day)
        metrics |= served(town)
        town.stop()
        account.take(told_now(cluster))
        check_answers(cluster, day)
        check_letters(cluster, day)
        check_ours(cluster, day)
        check_sparks(cluster, day, account, is_exact=True)
    assert metrics <= dashboard(), "every metric is on a panel"
    missing = {name for name in dashboard() - metrics if not name.startswith(NOT_OF_THIS_RUN)}
    assert not missing, "every metric on a panel is served"


@proves("P1", "P2", "P3")
@pytest.mark.full
@pytest.mark.timeout(3000)
def test_a_day_of_rides_over_kills_of_everything_is_accounted_for_to_the_row(town: Town) -> None:
    random = Random(os.environ.get("RIDES_SEED", "19"))
    with Cluster(town.broker.bootstrap, patient=True) as cluster:
        day = begin(cluster)
        for piece in range(PIECES):
            day.write(cluster, piece)
            if piece in IN_THE_MIDDLE:
                time.sleep(2 * random.random())  # wherever that is
                town.kill()
                town.broker.start()
                town.begin()
            reads_all(cluster, town)
        day_is_over(cluster, town, day)
        account = Account()
        town.stop()
        account.take(told_now(cluster))
        check_answers(cluster, day)
        check_letters(cluster, day)
        check_ours(cluster, day)
        check_sparks(cluster, day, account, is_exact=False)
