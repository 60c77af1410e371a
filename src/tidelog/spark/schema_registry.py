"""Schemas from a registry, over HTTP, for drivers and executors: any that has Confluent's API, ours included.

An id is asked for once in a process: what it means never changes. A login stands in an environment variable, as
USER:PASSWORD, of which only the name travels in a plan. A registry that cannot be reached fails the task, which Spark
tries again: that is no fault of a record's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tidelog.errors import Disconnected, InvalidSchema, UsageError
from tidelog.schema import formats
from tidelog.schema.bounds import REFERENCES_MAX
from tidelog.schema.schema import Schema

NO_SCHEMA = "has no schema"  # in the reason of a value whose schema may yet be registered
TIMEOUT_S = 10.0
PAUSES_S = (0.1, 0.5, 2.0)  # between tries
ANSWER_MAX = 8 << 20
NOT_FOUND = 404
DENIED = (401, 403)
MAY_PASS = 500  # and above: the registry's own trouble


class NoRedirect(HTTPRedirectHandler):
    """A login is for the address that was named, and for no other that it may point to."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Registry(NamedTuple):
    url: str
    login_variable: str | None = None


class Text(NamedTuple):
    """A schema as a registry hands it out, with the texts of what it refers to."""

    format: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


def registry_at(url: str, login_variable: str | None, *, named_by: str = "login_variable") -> Registry:
    """Refuses an address with a login in it, and says nothing of that. A password may have any signs, so all before the
    last @ may be of it, wherever that stands, and a port that is no number may be one too.
    """
    address = url.rpartition("@")[2]
    if address != url:
        raise UsageError(
            f"the address of the registry at {address} has a password in it, which would stand in Spark's plan; put"
            f" USER:PASSWORD into an environment variable and name it by {named_by}"
        )
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  a ValueError where it is no number
    except ValueError:
        raise UsageError(
            "the address of the registry has no number as its port; write it as http://HOST:PORT"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url!r} is not an address of a registry; write it as http://HOST:PORT")
    return Registry(url.rstrip("/"), login_variable)


_known: dict[tuple[Registry, int], Schema] = {}


def schema_of_id(registry: Registry, number: int) -> Schema | str:
    """Or why there is none."""
    found = _known.get((registry, number))
    if found is None:
        answer = ask(registry, f"/schemas/ids/{number}")
        if answer is None:
            return f"the registry at {registry.url} {NO_SCHEMA} {number}"
        text = _text(registry, answer)
        try:
            found = _known[registry, number] = formats.parse(text.format, text.text, dict(text.references))
        except InvalidSchema as error:
            return f"schema {number} cannot be read: {error}"
    return found


def text_of_id(registry: Registry, number: int) -> Text:
    answer = ask(registry, f"/schemas/ids/{number}")
    if answer is None:
        raise UsageError(f"the registry at {registry.url} has no schema {number}; is it the right one?")
    return _text(registry, answer)


def text_of_subject(registry: Registry, subject: str, version: int | str) -> Text:
    answer = ask(registry, f"/subjects/{quote(subject, safe='')}/versions/{version}")
    if answer is None:
        raise UsageError(
            f"the registry at {registry.url} has no version {version} of subject {subject!r}; register it first"
        )
    return _text(registry, answer)


def _text(registry: Registry, answer: Mapping[str, Any]) -> Text:
    found: dict[str, str] = {}
    _gather(registry, answer, found, ())
    return Text(answer.get("schemaType", "AVRO"), answer["schema"], tuple(found.items()))


def _gather(registry: Registry, answer: Mapping[str, Any], found: dict[str, str], above: tuple[str, ...]) -> None:
    """Each after those that it refers to itself."""
    for reference in answer.get("references") or ():
        name, subject, version = reference["name"], reference["subject"], reference["version"]
        if name in found:
            continue
        if name in above or len(found) > REFERENCES_MAX:
            raise InvalidSchema(f"the references of a schema go in a circle by way of {name!r}, or are too many")
        inner = ask(registry, f"/subjects/{quote(subject, safe='')}/versions/{version}")
        if inner is None:
            raise InvalidSchema(f"the registry has no version {version} of {subject!r}, which a schema refers to")
        _gather(registry, inner, found, (*above, name))
        found.setdefault(name, inner["schema"])


def ask(registry: Registry, path: str) -> dict[str, Any] | None:
    """None where there is no such thing."""
    request = Request(f"{registry.url}{path}", headers={"Accept": "application/json", **_login(registry)})
    opener = build_opener(NoRedirect)
    for pause in (*PAUSES_S, None):
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                made: dict[str, Any] = json.loads(answer.read(ANSWER_MAX))
                return made
        except HTTPError as error:
            if error.code == NOT_FOUND:
                return None
            if error.code in DENIED:
                raise UsageError(f"the registry at {registry.url} refuses us ({error.code}); check the login") from None
            if error.code < MAY_PASS or pause is None:
                raise Disconnected(f"the registry at {registry.url} answered {error.code} to {path}") from None
        except (URLError, OSError, ValueError) as error:
            if pause is None:
                raise Disconnected(f"the registry at {registry.url} cannot be asked for {path}: {error}") from error
        time.sleep(pause)
    raise AssertionError("the last try either answers or fails")


def _login(registry: Registry) -> dict[str, str]:
    if registry.login_variable is None:
        return {}
    from base64 import b64encode

    login = os.environ.get(registry.login_variable)
    if not login:
        raise UsageError(f"the environment variable {registry.login_variable} is not set here; it has the login")
    return {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}
