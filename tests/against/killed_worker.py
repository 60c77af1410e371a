"""A worker that a test kills: it writes to a file `done N` when it has done job N, then `accepted N` when it could.

Arguments: bootstrap, topic, group, file. A job whose number is a multiple of 50 is poison: the worker dies of it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from confluent_kafka import ShareConsumer


def main() -> None:
    bootstrap, topic, group, path = sys.argv[1:]
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({**settings, "log_level": 0})
    consumer.subscribe([topic])
    with Path(path).open("ab", buffering=0) as file:
        while True:
            for message in consumer.poll(0.2):
                number = int(message.value() or b"0")
                if number % 50 == 0:
                    os._exit(9)
                file.write(b"done %d\n" % number)
                consumer.acknowledge(message)
                for outcome in consumer.commit_sync(60.0).values():
                    if outcome is None:
                        file.write(b"accepted %d\n" % number)


if __name__ == "__main__":
    main()
