"""Jobs are sent: records of a topic, at once or for later.

`send` connects, sends one, and returns when it is on the broker's disk. Who sends many keeps a `JobSender`, which
belongs to one thread. A delay that the topic does not allow is refused here, for a broker would deliver it at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.client.security import Security
from tidelog.errors import UsageError
from tidelog.work.job import job_id
from tidelog.work.queue import DELAY_MAX, ensure_topic, longest_delay_ms

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DELAY = "tidelog-delay-ms"  # the header by which a broker of ours delays a record


def reached(bootstrap: str | None) -> str:
    return bootstrap or os.environ.get("TIDELOG_BOOTSTRAP") or DEFAULT_BOOTSTRAP


def send(
    topic: str,
    value: bytes | str | None,
    *,
    key: bytes | str | None = None,
    headers: Mapping[str, bytes] | None = None,
    delay_s: float = 0.0,
    bootstrap: str | None = None,
    security: Security | None = None,
) -> str:
    """One job; its id. Text is sent as UTF-8. A topic that is missing is made."""
    with JobSender(bootstrap, security=security) as sender:
        return sender.send(topic, value, key=key, headers=headers, delay_s=delay_s)


class JobSender:
    def __init__(self, bootstrap: str | None = None, *, security: Security | None = None) -> None:
        self._cluster = Cluster(reached(bootstrap), client_id="tidelog-send", security=security)
        self._producer = Producer(self._cluster)
        self._delays: dict[str, int] = {}  # the longest that a topic allows, of those that are known to exist

    def __enter__(self) -> JobSender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes] | None = None,
        delay_s: float = 0.0,
    ) -> str:
        """Returns the job's id when it is on the broker's disk."""
        raw_key, raw_value = _bytes(key, "key"), _bytes(value, "value")
        if topic not in self._delays:
            ensure_topic(self._cluster, topic)
            self._delays[topic] = longest_delay_ms(self._cluster, topic)
        pairs = [*(headers or {}).items()]
        if delay_s != 0:
            pairs.append((DELAY, str(delay_ms(delay_s, self._delays[topic], topic)).encode()))
        delivery = self._producer.send(topic, raw_value, key=raw_key, headers=pairs)
        self._producer.flush()
        return job_id(topic, delivery.at.partition, delivery.offset)


def delay_ms(delay_s: float, longest_ms: int, topic: str) -> int:
    if not math.isfinite(delay_s) or delay_s < 0:
        raise UsageError(f"a delay of {delay_s} s cannot be waited for; give seconds from 0 on")
    wanted = round(delay_s * 1000)
    if wanted > longest_ms:
        raise UsageError(
            f"topic {topic!r} delays jobs by {longest_ms} ms at most, and not by {wanted}; raise its {DELAY_MAX}"
        )
    return wanted


def _bytes(given: bytes | str | None, what: str) -> bytes | None:
    if isinstance(given, str):
        return given.encode()
    if given is None or isinstance(given, bytes | bytearray | memoryview):
        return given
    raise UsageError(f"a job's {what} is text or bytes, and not {type(given).__name__}; json.dumps makes text of it")
