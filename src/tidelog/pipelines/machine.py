"""What this machine tells of a run before Spark is started: folders that cannot be written to, ports that are taken.

Rules:
- Nothing is made here. A folder that is not there yet can be written to if the nearest one above it that is there can.
- Spark takes the next port where one is taken, unless `spark.port.maxRetries` is 0: only then a taken one is a fault.
- A store's path may have a secret in it (`${NAME}`): it is told as its URL was written.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from tidelog.control.urls import fill, redacted
from tidelog.errors import DataFolderError, ListenError, UsageError
from tidelog.pipelines.app import VIEW
from tidelog.pipelines.graph import Graph
from tidelog.pipelines.locks import local_folder
from tidelog.pipelines.placing import Target, stores_of
from tidelog.views.stores.location import path_in
from tidelog.views.stores.opening import IN_FILES, scheme_of

PORTS = ("spark.driver.port", "spark.driver.blockManager.port", "spark.blockManager.port")
RETRIES = "spark.port.maxRetries"
HERE = "127.0.0.1"


def check_machine(graph: Graph, checkpoints: str, spark: Mapping[str, str]) -> None:
    folder = local_folder(checkpoints)
    if folder is not None and (why := why_not_writable(folder / graph.app.name)) is not None:
        raise DataFolderError(
            f"checkpoints cannot be written to {folder}: {why}; give a folder by --checkpoints, or let this user write"
        )
    check_ports(spark)


def check_store_folders(graph: Graph, targets: Iterable[Target], default: str | None, *, stays: bool) -> None:
    """`targets` are as they were placed before. `stays`: the default store is for new views alone."""
    for one in (one for one in targets if one.node.output.kind == VIEW and one.changed is None):
        output = one.node.output
        kept = one.stores if stays and not output.stores else ()
        for url in kept or stores_of(graph, output, default):
            if (why := _why_not_writable(url)) is not None:
                raise UsageError(
                    f"{output.place}: view {output.name!r} cannot be written to {redacted(url)}: {why}; name another"
                    " store by store= or --store"
                )


def why_not_writable(folder: Path) -> str | None:
    """Of a folder, or of the nearest above it that is there."""
    for each in (folder, *folder.parents):
        if each.is_dir():
            return None if os.access(each, os.W_OK | os.X_OK) else f"{each} is not for this user to write to"
        if each.exists():
            return f"{each} is a file"
    return None


def _why_not_writable(url: str) -> str | None:
    """Of a store in files; others are asked when an applier opens them."""
    scheme = scheme_of(url)
    if scheme not in IN_FILES:
        return None
    file = Path(path_in(fill(url, os.environ), f"{scheme}:///"))
    why = why_not_writable(file.parent)
    if why is None and file.exists() and not os.access(file, os.W_OK):
        why = "it is not for this user to write to"
    return why if why is None or "${" not in url else "a folder above it is a file, or not for this user to write to"


def check_ports(spark: Mapping[str, str]) -> None:
    if spark.get(RETRIES) != "0":
        return
    for name in PORTS:
        if (port := spark.get(name, "0")).isdigit() and int(port) and _is_taken(int(port)):
            raise ListenError(f"port {port} of {name} is taken by another process; give another by --set {name}=PORT")


def _is_taken(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Spark does: one at its end is no fault
        try:
            tried.bind((HERE, port))
        except OSError:
            return True
    return False
