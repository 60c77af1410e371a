"""Whether a request's user may read what a store has: the broker is asked for every topic that its rows come from.

Rules:
- The catalog names a view's topic and its stores, and whoever may write it may name a topic of their own beside
  somebody else's store. What a store has was written by its applier, with the topics' names: these count.
- A topic is asked for once in a request.
- One that is gone cannot be asked for. Where everybody is the same user that refuses nobody; else it is 503, until the
  store shows the next generation.
"""

from __future__ import annotations

from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.consumer import check_readable
from tidelog.client.metadata import TopicPartition
from tidelog.control.catalog import View
from tidelog.errors import BrokerError, NotShown
from tidelog.gateway.views.open_stores import not_the_store
from tidelog.views.stores.store import Place


class Rights:
    def __init__(self, cluster: Cluster, view: View, *, alone: bool) -> None:
        """Of a view whose live topic was asked for. `alone`: everybody is the same user."""
        self._cluster = cluster
        self._view = view.name
        self._alone = alone
        self._readable = {"" if view.current is None else view.current.topic}

    def check(self, place: Place) -> None:
        for topic in sorted({at.topic for at in place.ends} - self._readable):
            try:
                with not_the_store():
                    check_readable(self._cluster, TopicPartition(topic, 0))
            except BrokerError as error:
                if error.code not in UNKNOWN_TOPIC:
                    raise
                if not self._alone:
                    raise NotShown(
                        f"view {self._view} is shown by its store from {topic}, which is gone: who may read it is not"
                        " known; try again when the next generation is shown"
                    ) from error
            self._readable.add(topic)
