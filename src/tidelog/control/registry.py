"""A schema registry over HTTP: any that has Confluent's API, ours in the gateway included. Asked, and told new schemas.

A login stands in an environment variable, as USER:PASSWORD, of which only the name travels. A registry that cannot be
reached is `Disconnected`, which may pass; one that refuses is the user's to mend.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tidelog.errors import Disconnected, UsageError

TIMEOUT_S = 10.0
PAUSES_S = (0.1, 0.5, 2.0)  # between tries
ANSWER_MAX = 8 << 20
NOT_FOUND, CONFLICT = 404, 409
DENIED = (401, 403)
MAY_PASS = 500  # and above: the registry's own trouble
MAGIC = b"\0"  # before the id, in every value that has a frame


class NoRedirect(HTTPRedirectHandler):
    """A login is for the address that was named, and for no other that it may point to."""

    def redirect_request(self, *_: Any) -> None:
        return None


class RegistryAddress(NamedTuple):
    url: str
    login_variable: str | None = None


def registry_at(url: str, login_variable: str | None, *, named_by: str = "login_variable") -> RegistryAddress:
    """Refuses an address with a login in it, and says nothing of that. A password may have any signs, so all before the
    last @ may be of it, wherever that stands, and a port that is not a number may be one too.
    """
    address = url.rpartition("@")[2]
    if address != url:
        raise UsageError(
            f"the address of the registry at {address} has a password in it, which would stand in Spark's plan; put"
            f" USER:PASSWORD into an environment variable and name it by {named_by}"
        )
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  a ValueError where it is not a number
    except ValueError:
        raise UsageError(
            "the address of the registry has no number as its port; write it as http://HOST:PORT"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url!r} is not an address of a registry; write it as http://HOST:PORT")
    return RegistryAddress(url.rstrip("/"), login_variable)


def frame(number: int) -> bytes:
    """What stands before a value whose schema has this id."""
    return MAGIC + number.to_bytes(4, "big")


def register(registry: RegistryAddress, subject: str, format: str, text: str) -> int:
    """The id of the schema under this subject, whether it is new or was there. `format` is AVRO, JSON or PROTOBUF."""
    body = {"schema": text} if format == "AVRO" else {"schema": text, "schemaType": format}
    try:
        answer = _sent(registry, f"/subjects/{quote(subject, safe='')}/versions", json.dumps(body).encode())
    except _Refused as error:
        what = f"the registry at {registry.url} refuses a schema of {subject}: {error.said}"
        if error.code == CONFLICT:
            what += (
                f"; change the table so that the new schema fits the old one, or change what the registry asks for by"
                f' PUT {registry.url}/config/{subject} with {{"compatibility": "NONE"}}'
            )
        raise UsageError(what) from None
    if answer is None:
        raise UsageError(f"{registry.url} has no /subjects, so it is not a schema registry; check the address")
    return int(answer["id"])


def ask(registry: RegistryAddress, path: str) -> dict[str, Any] | None:
    """None where there is no such thing."""
    try:
        return _sent(registry, path, None)
    except _Refused as error:
        raise Disconnected(f"the registry at {registry.url} answered {error.code} to {path}") from None


class _Refused(Exception):
    def __init__(self, code: int, said: str) -> None:
        super().__init__(code)
        self.code, self.said = code, said


def _sent(registry: RegistryAddress, path: str, body: bytes | None) -> dict[str, Any] | None:
    heads = {"Accept": "application/json", **_login(registry)}
    heads |= {} if body is None else {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = Request(f"{registry.url}{path}", data=body, headers=heads)
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
            if error.code < MAY_PASS:
                raise _Refused(error.code, _reason(error)) from None
            if pause is None:
                raise Disconnected(f"the registry at {registry.url} answered {error.code} to {path}") from None
        except (URLError, OSError, ValueError) as error:
            if pause is None:
                raise Disconnected(f"the registry at {registry.url} cannot be asked for {path}: {error}") from error
        time.sleep(pause)
    raise AssertionError("the last try either answers or fails")


def _reason(error: HTTPError) -> str:
    """What the registry says of it, in one line."""
    try:
        said = json.loads(error.read(ANSWER_MAX))
        return str(said["message"])[:1000]
    except (ValueError, KeyError, TypeError, OSError):
        return f"status {error.code}"


def _login(registry: RegistryAddress) -> dict[str, str]:
    if registry.login_variable is None:
        return {}
    from base64 import b64encode

    login = os.environ.get(registry.login_variable)
    if not login:
        raise UsageError(f"the environment variable {registry.login_variable} is not set here; it has the login")
    return {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}
