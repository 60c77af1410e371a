"""Row `take-over`: a partition with many entities, by a process that knows nothing of it: from fencing its owner to the
first command that it may decide, and the memory that the process has then. The library has no such thing.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

from bench.run import Run
from bench.sourcing.figures import CPU_S, EVENTS_READ, MEMORY, SECONDS, SECONDS_TO_END, TIDELOG
from bench.sourcing.sides import Added, Counter, decider

from tidelog.client import Cluster, TopicPartition
from tidelog.control.owner import Owner
from tidelog.sourcing import EventStore
from tidelog.sourcing.event_record import headers_of
from tidelog.sourcing.store_topics import StoreTopics
from tidelog.testing import TestBroker

ENTITIES = 1_000_000
AT_ONCE = 20_000  # events in a transaction while entities are made


def run(bench: Run) -> None:
    count = bench.amount(ENTITIES)
    with TestBroker(bench.folder / "many") as broker:
        fill(broker.bootstrap, count)
        for what in ("events alone", "snapshots"):  # which the first one writes when it ends
            program = f"from bench.sourcing.take_over import take_over; take_over({broker.bootstrap!r}, {count})"
            said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
            for metric, value in json.loads(said).items():
                bench.figures.add(f"take-over of {ENTITIES:,} entities, from {what}", metric, TIDELOG, value)


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
    """In a process of its own; its figures are printed. Its end writes snapshots of all that it read as events."""
    begun = time.perf_counter()
    with EventStore("many", decider(), bootstrap=bootstrap, snapshot_every=1 << 60, timeout_s=600) as store:
        seconds, cpu_s = time.perf_counter() - begun, time.process_time()
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        (owner,) = store._owners.values()
        assert store.state(f"entity-{count - 1}").state == Counter(count - 1)
        events, ending = owner.figures.loaded_events, time.perf_counter()
    found = {SECONDS: seconds, CPU_S: cpu_s, MEMORY: megabytes, EVENTS_READ: events}
    print(json.dumps({**found, SECONDS_TO_END: time.perf_counter() - ending}), flush=True)
