"""An app's part of a restore: where its pieces have come to lie, and how it is run with them.

Files are copied and checked by `broker/backup`; here Spark's own paths in them are made those of the new folder, and
what is in the backup is told in the words of a run's options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tidelog.pipelines.backup.taking import CHECKPOINTS
from tidelog.spark.moved_checkpoints import settle


class Restored(NamedTuple):
    """One app."""

    app: str
    checkpoints: str
    queries: tuple[str, ...]
    left_out: tuple[str, ...]  # sinks whose checkpoint the backup has not
    store: str | None  # the URL of its default store


class RestoredStore(NamedTuple):
    url: str  # as the catalog has it
    views: tuple[str, ...]
    file: str | None  # where it is now; None: it is not in the backup


def settle_checkpoints(folder: str, about: Mapping[str, Any]) -> None:
    for one in apps_in(folder, about):
        for query in one.queries:
            settle(f"{one.checkpoints}/{one.app}/{query}")


def apps_in(folder: str, about: Mapping[str, Any]) -> list[Restored]:
    whole = Path(folder).resolve()
    schemes = {one["file"]: one["url"].partition("://")[0] for one in about["stores"] if one["file"]}
    return [
        Restored(
            one["name"],
            str(whole / CHECKPOINTS),
            tuple(query["folder"] for query in one["queries"]),
            tuple(one["left_out"]),
            f"{schemes[one['store']]}:///{quote(str(whole / one['store']))}" if one["store"] else None,
        )
        for one in about["apps"]
    ]


def stores_in(folder: str, about: Mapping[str, Any]) -> Iterator[RestoredStore]:
    whole = Path(folder).resolve()
    for one in about["stores"]:
        yield RestoredStore(one["url"], tuple(one["views"]), str(whole / one["file"]) if one["file"] else None)
