"""A store by its URL: `sqlite:///shop.db`, `postgresql://${USER}:${PASSWORD}@host/shop`, ...

    scheme     the module that has it, with `connect(url, view) -> Store`; loaded when a store of that kind is opened,
               or its URL is checked. What it refuses it says without a piece of the URL, which has secrets in it by
               then. One in files takes the URL as it was written, too: its errors name the path so (`location.py`)
    ${NAME}    taken from the environment, percent-encoded where it stands; what is kept and shown is the URL as written

Rules:
- A URL is kept (catalog, status, messages) with `${NAME}` in it, never with the secret (`control/urls.py`): the catalog
  is for all who may read views, and the URL of an applier stands in the list of processes.
- Who opens a URL that came by a record (the catalog) goes by `allowing.py`: its writer does not choose what of the
  environment is sent, and where.
- A file's path is `sqlite:///relative/file.db` or `sqlite:////absolute/file.db`, as elsewhere.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urlsplit

from tidelog.control.urls import VARIABLE, fill, redacted, without_secret
from tidelog.errors import UsageError
from tidelog.schema.declaration import check_name

if TYPE_CHECKING:
    from tidelog.views.stores.store import Store

SCHEMES = {
    "sqlite": "tidelog.views.stores.sqlite",
    "sqlite+fts": "tidelog.views.stores.sqlite_text",
    "parquet": "tidelog.views.stores.parquet",
    "delta": "tidelog.views.stores.delta",
    "redis": "tidelog.views.stores.redis",
    "rediss": "tidelog.views.stores.redis",
    "opensearch+http": "tidelog.views.stores.opensearch",
    "opensearch+https": "tidelog.views.stores.opensearch",
    "postgresql": "tidelog.views.stores.postgres",
}
IN_FILES = ("sqlite", "sqlite+fts", "parquet", "delta")
LIBRARIES = {  # what it needs, and the extra that brings it
    "parquet": ("pyarrow", "warehouse"),
    "delta": ("deltalake", "warehouse"),
    "redis": ("redis", "redis"),
    "rediss": ("redis", "redis"),
    "opensearch+http": ("opensearchpy", "opensearch"),
    "opensearch+https": ("opensearchpy", "opensearch"),
    "postgresql": ("psycopg", "postgres"),
}
NAME_PART = re.compile(r"[^A-Za-z0-9_.-]+")
DIGEST_CHARACTERS = 6
ANYTHING = "1"  # a name, a host, a port and a number


def open_store(url: str, view: str, *, filled: str | None = None) -> Store:
    """`view` is a name; nothing need be there of it yet. The URL is the asker's own, and filled in with all that is in
    the environment: one that came by a record is opened by `allowing.open_recorded`.
    """
    scheme = scheme_of(url)
    library, extra = LIBRARIES.get(scheme, ("re", ""))
    if find_spec(library) is None:
        raise UsageError(f"{scheme}:// needs {library}; pip install 'tidelog[{extra}]'")
    return _connected(url, fill(url, os.environ) if filled is None else filled, check_name(view))


def checked(url: str) -> str:
    """The URL as it may be kept: all may see it, and a store can be opened by it, as far as its form tells. Its library
    and what `${NAME}` stands for need not be here.
    """
    _connected(without_secret(url), VARIABLE.sub(ANYTHING, url), "any")
    return url


def _connected(url: str, filled: str, view: str) -> Store:
    scheme = scheme_of(url)
    module = import_module(SCHEMES[scheme])
    try:
        return cast("Store", module.connect(filled, view, *([url] if scheme in IN_FILES else [])))
    except UsageError as error:
        raise UsageError(f"{redacted(url)}: {error}") from None
    except ValueError:  # its own text has a piece of what was filled in
        raise UsageError(f"{redacted(url)} is not a URL; is its port a number?") from None


def scheme_of(url: str) -> str:
    scheme, found, _ = url.partition("://")
    if not found or scheme not in SCHEMES:
        raise UsageError(
            f"{redacted(url)!r} is not a store; a URL begins with {', '.join(f'{one}://' for one in SCHEMES)}"
        )
    return scheme


def absolute(url: str) -> str:
    """A store in a file by its whole path: who reads it may be in another folder."""
    scheme, _, path = url.partition(":///")
    if scheme not in IN_FILES or not path or path.startswith(("/", "${")):
        return url
    return f"{scheme}:///{quote(str(Path.cwd()))}/{path}"


def name_of(url: str) -> str:
    """Short, for names of groups and parts: `sqlite-shop-3f0a1c`. Of the URL as written, so it has no secret."""
    last = PurePosixPath(urlsplit(url).path).stem
    parts = (scheme_of(url), NAME_PART.sub("-", last).strip("-"), sha256(redacted(url).encode()).hexdigest())
    return "-".join(part for part in (*parts[:2], parts[2][:DIGEST_CHARACTERS]) if part)
