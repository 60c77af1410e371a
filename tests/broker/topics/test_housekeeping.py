"""What the broker does when nobody asks, beside topics that come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.topics.serving import serving
from proving import proves
from tidelog.broker import housekeeping
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest


@proves("T6")
def test_a_topic_that_is_deleted_while_it_is_scrubbed_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "SCRUB_BYTES", 100)
    with serving(tmp_path / "data") as served:
        for name in ("deleted", "there"):
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            served.ask(CreateTopicsRequest(topics=[topic]), 5)
            for _ in range(5):
                served.produce(name, 0, b"x" * 5000)
        partition = served.broker.partition("deleted", 0)
        assert partition is not None
        while served.broker.housekeeping._scrubbing is not partition:
            served.broker.housekeeping._turn()
        served.ask(DeleteTopicsRequest(topic_names=["deleted"]), 5)
        for _ in range(50):
            served.broker.housekeeping._turn()
        assert "scrub failed" not in served.log_lines.getvalue()
