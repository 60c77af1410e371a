"""The catalog of views as each user may read it.

The catalog is read on from where it was read last, by the user who asks: so each request costs one fetch, and is
refused by the broker as soon as that user may not read it any more.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.offsets import EARLIEST, list_offsets
from tidelog.control.catalog import CATALOG, VIEW, Catalog, View, note
from tidelog.control.reading import news
from tidelog.control.starting import check_not_coming
from tidelog.errors import BrokerError, UsageError
from tidelog.gateway.access import Credentials
from tidelog.gateway.limits import CATALOGS_MAX
from tidelog.gateway.route import Refusal
from tidelog.views.captured import PREFIX, captured_view
from tidelog.wire.error_code import ErrorCode


class Catalogs:
    """Safe from any thread. What is handed out is a copy."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._read: OrderedDict[Credentials | None, tuple[Catalog, int]] = OrderedDict()

    def read(self, cluster: Cluster, credentials: Credentials | None) -> Catalog:
        with self._lock:
            catalog, position = self._read.get(credentials, ({}, -1))
        try:
            found, position = _on(cluster, dict(catalog), position)
        except BrokerError as error:
            if error.code in UNKNOWN_TOPIC:
                return {}
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            found, position = _on(cluster, {}, -1)
        with self._lock:
            self._read[credentials] = (found, position)
            self._read.move_to_end(credentials)
            while len(self._read) > CATALOGS_MAX:
                self._read.popitem(last=False)
        return dict(found)

    def view(self, cluster: Cluster, credentials: Credentials | None, name: str) -> View:
        """Or a captured table, by its name in feeds."""
        if name.startswith(PREFIX):
            try:
                return captured_view(cluster, name.removeprefix(PREFIX))
            except UsageError as error:
                raise Refusal(404, str(error)) from error
        found = self.read(cluster, credentials).get((VIEW, name))
        if not isinstance(found, View):
            check_not_coming(cluster, name)
            raise Refusal(404, f"view {name[:100]!r} does not exist; GET /views lists all views")
        return found

    def close(self) -> None:
        self._read.clear()


def _on(cluster: Cluster, catalog: Catalog, position: int) -> tuple[Catalog, int]:
    if position < 0:
        position = list_offsets(cluster, {CATALOG: EARLIEST})[CATALOG].offset
    positions, before = {CATALOG: position}, -1
    while before < positions[CATALOG]:
        before = positions[CATALOG]
        for _, row in news(cluster, positions):
            note(catalog, row.key or b"", row.value)
    return catalog, before
