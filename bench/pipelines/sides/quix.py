"""Nexmark's queries by Quix Streams: two processes of one consumer group, one a core.

Runs in Quix Streams' own environment. Offsets are committed every second, at least once; state is in RocksDB, with its
changelog topics. Rows come without a key, so a query by key first sends them through a topic of its own, as `group_by`
has it. When nothing has come for IDLE_S, rows are sent that close windows; what was waited does not count. What each
query answers: `oracle.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from bench.pipelines.sides.marks import ended, say, work
from bench.pipelines.sides.steps import BID, STEPS, Event, averages, is_wanted, key_of, picked

ROLE = "BENCH_ROLE"
IDLE_S = 10.0
START_S = 60.0
COMMIT_S = 1.0
GRACE_MS = 30_000  # by how much processes may be apart in a topic between them
HOUR_MS, CLOSING_HOURS = 3_600_000, 3
WINDOWED = ("q5", "q7", "q11")
KEYS = {"q4": ("category",), "q9": ("auction",), "q18": ("bidder", "auction")}


def main() -> None:
    given = work()
    if role := os.environ.get(ROLE):
        return drain(given, role)
    folder = tempfile.mkdtemp(prefix="quix-", dir=given["folder"])
    say("begin")
    command = [sys.executable, __file__, sys.argv[1]]
    workers = [
        subprocess.Popen(command, env={**os.environ, ROLE: f"{folder}/{number}"}, stdout=subprocess.PIPE, text=True)
        for number in range(given["partitions"])
    ]
    said = [told(worker) for worker in workers]
    if given["query"] in WINDOWED:
        close(given, said[0]["topics"])
    times = [told(worker) for worker in workers]
    codes = [worker.wait() for worker in workers]
    shutil.rmtree(folder, ignore_errors=True)
    if any(codes):
        raise SystemExit(f"a worker ended with {codes}")
    began = min(each["first"] for each in times if each["first"])
    ended(seconds=max(each["last"] for each in times) - began - max(each["waited"] for each in times))
    return None


def told(worker: subprocess.Popen[str]) -> dict[str, Any]:
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise SystemExit("a worker failed")


def close(given: dict[str, Any], topics: list[str]) -> None:
    """Rows far behind all others close windows. They are sent when all else is through: processes are not in step."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": given["bootstrap"]})
    for hour in range(1, CLOSING_HOURS + 1):
        at = given["end"] + hour * HOUR_MS
        row = json.dumps({"auction": -hour, "bidder": -hour, "price": -hour, "dateTime": at, "kind": "bid"})
        for topic in topics:
            for partition in range(given["partitions"]):
                producer.produce(topic, row, str(-hour).encode(), partition, timestamp=at)
        producer.flush()


class Progress:
    """When rows came; and `idle`, once, when none has come for long enough."""

    def __init__(self, topics: Callable[[], list[str]]) -> None:
        self.first = self.last = self.waited = 0.0
        self.topics = topics
        self.said = False

    def note(self, topic: str, partition: int, offset: int) -> None:
        now = time.time()
        if self.said and not self.waited:
            self.waited = now - self.last
        self.last, self.first = now, self.first or now

    def watch(self) -> None:
        launched = time.time()
        while time.time() - max(self.last, launched) < (IDLE_S if self.last else START_S):
            time.sleep(0.1)
        self.said = True
        print(json.dumps({"topics": self.topics()}), flush=True)


def drain(given: dict[str, Any], folder: str) -> None:
    from quixstreams import Application

    progress = Progress(lambda: [topic.name for topic in app._topic_manager.repartition_topics.values()])
    app = Application(
        given["bootstrap"],
        consumer_group=f"quix-{given['output']}",
        auto_offset_reset="earliest",
        commit_interval=COMMIT_S,
        state_dir=folder,
        on_message_processed=progress.note,
        loglevel="ERROR",
    )
    topics = {kind: app.topic(name, value_deserializer="json") for kind, name in given["topics"].items()}
    output = app.topic(given["output"], value_serializer="json", key_serializer="str")
    streams = [app.dataframe(topic).apply(tagged(kind)) for kind, topic in topics.items()]
    query = given["query"]
    if query in WINDOWED:
        streams = [stream.filter(lambda event: event["auction"] >= 0) for stream in streams]
    answers = q5(app, f"{given['output']}-counts", streams[0]) if query == "q5" else QUERIES[query](query, streams)
    answers.to_topic(output, key=lambda row: ",".join(str(row[name]) for name in KEYS.get(query, ())) or None)
    watcher = threading.Thread(target=progress.watch, daemon=True)
    watcher.start()
    app.run(timeout=2 * IDLE_S, collect=False)
    watcher.join()
    print(json.dumps({"first": progress.first, "last": progress.last, "waited": progress.waited}), flush=True)


def tagged(kind: str) -> Callable[[Event], Event]:
    def tag(event: Event) -> Event:
        event["kind"] = kind
        return event

    return tag


def stepping(step: Callable[..., Any]) -> Callable[[Event, Any], list[Event]]:
    def apply(event: Event, state: Any) -> list[Event]:
        held, found = step(state.get("state"), event)
        state.set("state", held)
        return found

    return apply


def by_steps(query: str, streams: list[Any]) -> Any:
    grouped = [
        stream.filter(lambda event: is_wanted(query, event)).group_by(key_of(query), name="key") for stream in streams
    ]
    rows = grouped[0] if len(grouped) == 1 else grouped[0].concat(grouped[1])
    found = rows.apply(stepping(STEPS[query]), stateful=True, expand=True)
    if query == "q4":
        found = found.group_by("category").apply(stepping(averages), stateful=True, expand=True)
    return found


def q0(query: str, streams: list[Any]) -> Any:
    return streams[0].apply(lambda event: picked(event, BID))


def q5(app: Any, between: str, bids: Any) -> Any:
    """A group_by of a group_by is refused there: so the topic between them is made by hand."""
    counted = bids.group_by("auction").hopping_window(10_000, 2_000, grace_ms=GRACE_MS).count()
    counts = counted.final(closing_strategy="partition").apply(
        lambda found, key, at, headers: {"start": found["start"], "n": found["value"], "auction": int(key)},
        metadata=True,
    )
    topic = app.topic(between, value_serializer="json", value_deserializer="json", key_serializer="str")
    counts.to_topic(topic, key=lambda row: str(row["start"]))
    windows = app.dataframe(topic).tumbling_window(2_000, grace_ms=GRACE_MS).reduce(most, lambda row: [row])
    return windows.final(closing_strategy="partition").apply(lambda found: found["value"], expand=True)


def most(held: list[Event], row: Event) -> list[Event]:
    if row["n"] > held[0]["n"]:
        return [row]
    return [*held, row] if row["n"] == held[0]["n"] else held


def q7(query: str, streams: list[Any]) -> Any:
    everything = streams[0].group_by(lambda event: "all", name="all")
    best = everything.tumbling_window(10_000, grace_ms=GRACE_MS).reduce(higher, lambda event: picked(event, BID))
    return best.final(closing_strategy="partition").apply(lambda found: {"start": found["start"], **found["value"]})


def higher(held: Event, event: Event) -> Event:
    return picked(event, BID) if event["price"] > held["price"] else held


def q11(query: str, streams: list[Any]) -> Any:
    sessions = streams[0].group_by("bidder").session_window(10_000, grace_ms=GRACE_MS).count()
    return sessions.final(closing_strategy="partition").apply(
        lambda found, key, at, headers: {"bidder": int(key), "start": found["start"], "n": found["value"]},
        metadata=True,
    )


QUERIES = {"q0": q0, "q7": q7, "q11": q11, **dict.fromkeys(STEPS, by_steps)}

if __name__ == "__main__":
    main()
