"""A pipeline as who asks sees it: a thread that reads questions and writes replies, and reports how it is."""

from __future__ import annotations

import json
import threading
from typing import Any

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.client.security import Security
from tidelog.control.status import Reporter
from tidelog.errors import BrokerError
from tidelog.views.asking import QUESTIONS, REPLIES, SETTINGS, Pipeline

SECONDS = 60.0


class Answering:
    """`known` is what it keeps by key. `silent`: it reads no questions for now."""

    def __init__(
        self,
        bootstrap: str,
        pipeline: Pipeline,
        known: dict[str, list[dict[str, Any]]],
        security: Security | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.known = known
        self.silent = self.twice = False
        self._is_silent = threading.Event()
        self.asked: list[bytes] = []
        self._cluster, self._telling = (Cluster(bootstrap, security=security) for _ in range(2))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        for prefix, topic in ((QUESTIONS, pipeline.questions), (REPLIES, pipeline.replies)):
            try:
                topics.create(self._cluster, topic, partitions=1, configs=SETTINGS[prefix])
            except BrokerError:
                continue  # it is there

    def __enter__(self) -> Answering:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(SECONDS)
        self._cluster.close()
        self._telling.close()

    def keep_silent(self) -> None:
        """No question from now on is read before `silent` is taken back."""
        self._is_silent.clear()
        self.silent = True
        assert self._is_silent.wait(SECONDS)

    def report(self, state: str, **more: Any) -> None:
        Reporter(self._telling, "query", self.pipeline.part).tell({"state": state, **more}, at_once=True)

    def _run(self) -> None:
        at = TopicPartition(self.pipeline.questions, 0)
        consumer = Consumer(self._cluster, max_wait_ms=20)
        consumer.assign({at: list_offsets(self._cluster, {at: LATEST})[at].offset})
        while not self._ending.is_set():
            if self.silent:
                self._is_silent.set()
                self._ending.wait(0.01)
                continue
            for fetched in consumer.fetch():
                with Producer(self._cluster) as producer:
                    for row in fetched.rows():
                        assert row.key is not None
                        self.asked.append(row.key)
                        for _ in range(1 + self.twice):
                            producer.send(self.pipeline.replies, self._answer(row.value or b""), key=row.key)

    def _answer(self, text: bytes) -> bytes:
        said = json.loads(text)
        key = next(iter(said.values())) if isinstance(said, dict) else said
        rows = self.known.get(key)
        told = {"status": "unknown"} if rows is None else {"status": "answered", "rows": rows}
        return json.dumps(told).encode()
