"""Which stores are opened whose URLs came by a record, and which of the environment's variables are put into them.

A view's stores stand in the catalog, and whoever may write that topic says which. Whoever asks would reach them with
its own files, its own network and its own passwords. So a URL that the asker wrote itself (on the command line, in
code, in an app) is opened as it stands, and one that came by a record:

    a file or a folder, without ${NAME}       is read; written to only where it has the view already
    Redis, OpenSearch on loopback, plain      the same: nothing of the asker's goes there
    below an entry of `allowed.stores`        is opened, with the variables that stand in the entry
    anything else                             is refused, with the line that would allow it

PostgreSQL is never plain: libpq adds PGPASSWORD, ~/.pgpass and keys of the asker by itself. The HTTP server goes by the
same rules with a list of its own, `tidelog.http.stores`.

An entry is a URL. What is below it:

- begins with the same text up to the end of the entry's path: scheme, user, address and variables are not interpreted,
  for what a driver would make of another spelling is the driver's to know;
- goes on, if it does, with whole parts of a path that lead nowhere else and have no variable in them;
- has every parameter that the entry has, as it has it, and else only those that say where in a store a view is
  (PLACING). All others can lead elsewhere: libpq takes host, user and password from there, Redis its database.

Everything is pure but for `allowed_stores`, which reads what the asker has set, and `open_recorded`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from tidelog.config import APP_KEYS, find_file, gather, is_loopback, variable
from tidelog.control.urls import VARIABLE, fill, redacted
from tidelog.errors import UsageError
from tidelog.views.stores.opening import IN_FILES, SCHEMES, open_store

if TYPE_CHECKING:
    from tidelog.views.stores.store import Store

TABLE, KEY, OWN = "app", "allowed.stores", "store"
OPTION = "--allow-store"
# Where in a store a view is: which schema, which keys, which columns. Of no other effect.
PLACING = {
    "sqlite+fts": {"columns"},
    "parquet": {"day", "grace"},
    "redis": {"prefix"},
    "rediss": {"prefix"},
    "opensearch+http": {"prefix"},
    "opensearch+https": {"prefix"},
    "postgresql": {"schema"},
}
ADDS_ITS_OWN = {"postgresql": "your own PGPASSWORD or ~/.pgpass"}
ANYWHERE = ":///"  # an entry that ends so is for all paths, absolute ones too
LIST = re.compile(r",\s*(?=[a-z][a-z+]*://)")  # a URL may have a comma
PLAIN_PART = re.compile(r"[\w.-]+")  # of a path on a server
NUMBER = re.compile(r"[0-9]+")
ONE_NAME = {"postgresql": PLAIN_PART, "redis": NUMBER, "rediss": NUMBER}  # whose path is a database: nothing is below
ODD = re.compile(r"[\s#\\]")  # of which parsers of URLs think differently

Allowed = Callable[[], Sequence[str]]  # read when it is needed, and not before


def fill_recorded(url: str, allowed: Sequence[str], environment: Mapping[str, str]) -> str:
    """The URL of a record with its variables filled in; UsageError where the asker has not allowed that."""
    if (reason := refusal(url, allowed)) is not None:
        raise UsageError(reason)
    return fill(url, environment)


def refusal(url: str, allowed: Sequence[str] = ()) -> str | None:
    """Why a URL of a record is not opened, and what to do about it; None where it is."""
    harm = harm_of(url)
    if harm is None or is_allowed(url, allowed):
        return None
    return f"{_came(url)}: opening it would {harm}, so it was not opened; if it is yours, {advice(url)}"


def advice(url: str) -> str:
    shown = redacted(url)
    listed = json.dumps([shown], ensure_ascii=False)  # TOML and Python write it so, too
    return (
        f'write "{KEY}" = {listed} under [{TABLE}] in tidelog.toml, or give {OPTION} {shlex.quote(shown)}'
        f" (in Python stores={listed}), or set {variable(KEY)} to it"
    )


def _came(url: str) -> str:
    return f"the URL {redacted(url)} came by the catalog of views, the topic __tidelog.views, and not from you"


def harm_of(url: str) -> str | None:
    """What could come of opening it, with nothing allowed; None for nothing that its writer could not do himself."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES or not url.isprintable():
        return "take what is not a store's URL for one"
    names = " and ".join(dict.fromkeys(found[1] for found in VARIABLE.finditer(url)))
    if scheme in IN_FILES:
        return f"put the environment variable {names} into the path of a file" if names else None
    where = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2] or "a server"
    if names:
        return f"send the environment variable {names} to {where}"
    if scheme in ADDS_ITS_OWN:
        return f"send {ADDS_ITS_OWN[scheme]} to {where}, if it asks"
    if not is_loopback(host_of(url)):
        return f"have this machine connect to {where}"
    if not _is_plain(scheme, rest):
        return f"ask {where} for more than a view: only {_placing(scheme)} may follow an address"
    return None


def _is_plain(scheme: str, rest: str) -> bool:
    before, _, query = rest.partition("?")
    path = before.partition("/")[2]
    number = scheme in ONE_NAME and NUMBER.fullmatch(path) is not None
    return not ODD.search(rest) and (not path or number) and _parameters(query).keys() <= PLACING[scheme]


def _placing(scheme: str) -> str:
    return " and ".join(["/NUMBER"] * scheme.startswith("redis") + [f"?{name}=" for name in sorted(PLACING[scheme])])


def host_of(url: str) -> str:
    """As drivers take it from the address."""
    try:
        return unquote(urlsplit(url).hostname or "")
    except ValueError:
        return ""


# Entries --------------------------------------------------------------------------------------------------------------


def is_allowed(url: str, allowed: Sequence[str]) -> bool:
    return any(is_below(url, entry) for entry in allowed)


def is_below(url: str, entry: str) -> bool:
    if url == entry:
        return True
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES or not url.isprintable() or (scheme not in IN_FILES and ODD.search(url)):
        return False
    begins, _, asked = url.partition("?")
    allowed, _, demanded = entry.partition("?")
    begins, allowed = _with_path(begins), _with_path(allowed)
    if not begins.startswith(allowed):
        return False
    return _goes_on(scheme, allowed, begins[len(allowed) :]) and _has_parameters(scheme, asked, demanded)


def _with_path(url: str) -> str:
    """An address ends with a slash: db.example.evil.example does not begin with db.example/."""
    return url if "/" in url.partition("://")[2] else f"{url}/"


def _goes_on(scheme: str, allowed: str, rest: str) -> bool:
    """Whether the rest of a path stays below."""
    if not rest:
        return True
    plain = unquote(rest)
    if "${" in rest or not plain.isprintable():
        return False
    if not allowed.endswith("/"):
        if scheme in ONE_NAME or not plain.startswith("/"):
            return False
        plain = plain[1:]
    elif scheme in IN_FILES and allowed.endswith(ANYWHERE):
        plain = plain.removeprefix("/")
    if scheme in ONE_NAME:
        return ONE_NAME[scheme].fullmatch(plain) is not None
    parts = plain.removesuffix("/").split("/") if plain else []
    return not {"", ".", ".."} & set(parts) and (
        scheme in IN_FILES or all(PLAIN_PART.fullmatch(part) for part in parts)
    )


def _has_parameters(scheme: str, asked: str, demanded: str) -> bool:
    given, wanted = _parameters(asked), _parameters(demanded)
    others = {name: said for name, said in given.items() if name not in wanted}
    return (
        all(given.get(name) == said for name, said in wanted.items())
        and others.keys() <= PLACING.get(scheme, set())
        and all(len(said) == 1 and "${" not in said[0] for said in others.values())
    )


def _parameters(query: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, said in parse_qsl(query, keep_blank_values=True):
        found.setdefault(name, []).append(said)
    return found


# What the asker has set -----------------------------------------------------------------------------------------------


def allowed_stores(
    *,
    code: Sequence[str] | None = None,
    command_line: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> tuple[str, ...]:
    """The strongest of code, command line, environment and tidelog.toml; and the asker's own store beside them."""
    environment = os.environ if environment is None else environment
    given = gather(
        APP_KEYS,
        TABLE,
        code={} if code is None else {KEY: tuple(code)},
        command_line=[(KEY, ",".join(command_line))] if command_line else [],
        environment={name: environment[name] for name in map(variable, (KEY, OWN)) if environment.get(name)},
        file=find_file(environment, folder or Path.cwd()),
    )
    own = (given[OWN].text,) if OWN in given else ()
    return (*(listed(given[KEY].text) if KEY in given else ()), *own)


def listed(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in LIST.split(text) if one.strip())


def open_recorded(url: str, view: str, allowed: Allowed, *, write: bool = False) -> Store:
    """A store whose URL came by a record. To `write` there, it must be allowed, or have the view already: nobody's
    record has a file made, or tables put into another's.
    """
    entries = allowed() if write or harm_of(url) is not None else ()
    filled = fill_recorded(url, entries, os.environ)
    if write and not is_allowed(url, entries) and not _has_view(open_store(url, view, filled=filled)):
        raise UsageError(
            f"{_came(url)}: view {view} is not there yet, so nothing is made there; if it is yours, give it by --store,"
            f" or {advice(url)}"
        )
    return open_store(url, view, filled=filled)


def _has_view(store: Store) -> bool:
    try:
        return bool(store.generations())
    finally:
        store.close()
