"""By Quix Streams: exactly once, with a transaction each tenth of a second; state in RocksDB, with its changelog topic.
Records come with their key, so nothing goes through a topic between. Runs in Quix Streams' own environment.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from bench.pipelines.sides.marks import work

COMMIT_S = 0.1


def main() -> None:
    from quixstreams import Application

    given = work()
    app = Application(
        given["bootstrap"],
        consumer_group="fresh",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=COMMIT_S,
        state_dir=f"{given['folder']}/quix",
        loglevel="ERROR",
    )
    topic = app.topic(given["topic"], value_deserializer="json", key_deserializer="str")
    output = app.topic(given["output"], value_serializer="json", key_serializer="str")
    app.dataframe(topic).apply(counted, stateful=True).to_topic(output)
    app.run()


def counted(row: dict[str, Any], state: Any) -> dict[str, Any]:
    records, newest = state.get("held") or (0, -1)
    held = (records + 1, max(newest, row["number"]))
    state.set("held", held)
    return {"key": row["key"], "records": held[0], "newest": held[1]}


if __name__ == "__main__":
    main()
