"""Nexmark's queries by Bytewax: two processes, one a core, that exchange rows by key.

Runs in Bytewax's own environment. State is snapshotted every second; rows are written at least once. Partitions of a
topic are not kept in step, and the event clock, one for each key, goes by the latest row and on with the wall clock: so
whatever the lateness, a drain may find rows late. It is as long as the input here, and windows close at its end. What
each query answers: `oracle.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from bench.pipelines.sides.marks import ended, say, work
from bench.pipelines.sides.steps import BID, STEPS, averages, is_wanted, key_of, picked

GIVEN = "BENCH_WORK"
LATENESS = timedelta(days=1)
LENGTH, SLIDE, GAP = timedelta(seconds=10), timedelta(seconds=2), timedelta(seconds=10)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SNAPSHOT_S = "1"


def main() -> None:
    given = work()
    folder = tempfile.mkdtemp(prefix="bytewax-", dir=given["folder"])
    count = given["partitions"]
    subprocess.run([sys.executable, "-m", "bytewax.recovery", folder, str(count)], check=True, stdout=sys.stderr)
    addresses = ";".join(f"127.0.0.1:{port}" for port in free_ports(count))
    flow = f"{Path(__file__).resolve()}:flow"
    command = [sys.executable, "-m", "bytewax.run", flow, "-r", folder, "-s", SNAPSHOT_S, "-b", "0", "-a", addresses]
    environment = {**os.environ, GIVEN: json.dumps(given)}
    say("begin")
    workers = [
        subprocess.Popen([*command, "-i", str(number)], env=environment, stdout=sys.stderr) for number in range(count)
    ]
    codes = [worker.wait() for worker in workers]
    shutil.rmtree(folder, ignore_errors=True)
    if any(codes):
        raise SystemExit(f"a worker ended with {codes}")
    ended()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def flow() -> Any:
    import bytewax.operators as op
    from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
    from bytewax.dataflow import Dataflow

    given = json.loads(os.environ[GIVEN])
    query, brokers = given["query"], [given["bootstrap"]]
    made = Dataflow(query)
    streams = []
    for kind, topic in given["topics"].items():
        read = op.input(f"read_{kind}", made, KafkaSource(brokers, [topic], tail=False, batch_size=10_000))
        streams.append(op.map(f"parse_{kind}", read, parsed(kind)))
    rows = streams[0] if len(streams) == 1 else op.merge("all", *streams)
    answers = QUERIES.get(query, by_steps)(query, rows)
    out = op.map("record", answers, lambda row: KafkaSinkMessage(record_key(query, row), json.dumps(row).encode()))
    op.output("write", out, KafkaSink(brokers, given["output"]))
    return made


def record_key(query: str, row: dict[str, Any]) -> bytes | None:
    keys = {"q4": ("category",), "q9": ("auction",), "q18": ("bidder", "auction")}.get(query, ())
    return ",".join(str(row[name]) for name in keys).encode() or None


def parsed(kind: str) -> Any:
    def parse(message: Any) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(message.value)
        event["kind"] = kind
        return event

    return parse


def at(event: dict[str, Any]) -> datetime:
    return EPOCH + timedelta(milliseconds=event["dateTime"])


def millis(time: datetime) -> int:
    return (time - EPOCH) // timedelta(milliseconds=1)


def by_steps(query: str, rows: Any) -> Any:
    import bytewax.operators as op

    wanted = op.filter("wanted", rows, lambda event: is_wanted(query, event))
    keyed = op.key_on("key", wanted, key_of(query))
    found = op.stateful_flat_map("step", keyed, STEPS[query])
    if query == "q4":
        changes = op.key_on("by_category", op.key_rm("changes", found), lambda change: str(change["category"]))
        found = op.stateful_flat_map("averages", changes, averages)
    return op.key_rm("answers", found)


def q0(query: str, rows: Any) -> Any:
    import bytewax.operators as op

    return op.map("columns", rows, lambda event: picked(event, BID))


def q5(query: str, rows: Any) -> Any:
    import bytewax.operators as op
    import bytewax.operators.windowing as win

    clock = win.EventClock(at, wait_for_system_duration=LATENESS)
    windows = win.SlidingWindower(length=LENGTH, offset=SLIDE, align_to=EPOCH)
    counted = win.count_window("count", rows, clock, windows, key=lambda event: str(event["auction"]))
    counts = op.map("counts", counted.down, count_of)
    both = win.collect_window(
        "collect", op.key_on("one", counts, lambda _: "all"), clock, win.TumblingWindower(length=SLIDE, align_to=EPOCH)
    )
    return op.flat_map("most", op.key_rm("found", both.down), most)


def count_of(found: tuple[str, tuple[int, int]]) -> dict[str, Any]:
    auction, (window, count) = found
    start = window * millis(EPOCH + SLIDE)
    return {"start": start, "auction": int(auction), "n": count, "dateTime": start}


def most(found: tuple[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    highest = max(each["n"] for each in found[1])
    return [each for each in found[1] if each["n"] == highest]


def q7(query: str, rows: Any) -> Any:
    import bytewax.operators as op
    import bytewax.operators.windowing as win

    clock = win.EventClock(at, wait_for_system_duration=LATENESS)
    tumbling = win.TumblingWindower(length=LENGTH, align_to=EPOCH)
    keyed = op.key_on("one", rows, lambda _: "all")
    best = win.max_window("max", keyed, clock, tumbling, by=lambda event: event["price"])
    return op.map(
        "bid", op.key_rm("found", best.down), lambda found: {"start": found[0] * 10_000, **picked(found[1], BID)}
    )


def q11(query: str, rows: Any) -> Any:
    import bytewax.operators as op
    import bytewax.operators.windowing as win

    clock = win.EventClock(at, wait_for_system_duration=LATENESS)
    keyed = op.key_on("bidder", rows, lambda event: str(event["bidder"]))
    sessions = win.fold_window("fold", keyed, clock, win.SessionWindower(gap=GAP), new, grown, merged)
    return op.map("session", sessions.down, session_of)


def new() -> tuple[int, int]:
    return (2**62, 0)


def grown(held: tuple[int, int], event: dict[str, Any]) -> tuple[int, int]:
    return min(held[0], event["dateTime"]), held[1] + 1


def merged(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(one[0], other[0]), one[1] + other[1]


def session_of(found: tuple[str, tuple[int, tuple[int, int]]]) -> dict[str, Any]:
    bidder, (_, (start, n)) = found
    return {"bidder": int(bidder), "start": start, "n": n}


QUERIES = {"q0": q0, "q5": q5, "q7": q7, "q11": q11}

if __name__ == "__main__":
    main()
