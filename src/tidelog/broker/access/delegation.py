"""Logins by certificate that the broker's own HTTP server brings: it has seen the certificate, the broker names users.

A certificate proves who somebody is to whom the TLS connection goes, and to nobody else. So where HTTPS asks clients
for certificates (`ssl.client.auth`), the HTTP server checks them against the same authorities, and tells the broker the
subject. It is believed for a secret that the broker made at its start and gave to that child alone, and only at the
listener that is for it.

    one message    NUL, the subject as JSON (Python's `getpeercert`), NUL, the secret        as PLAIN has them
"""

from __future__ import annotations

import hmac
import os
from typing import NamedTuple

from tidelog.broker.access.logins import LoginRefused, LoginReply
from tidelog.broker.access.principals import NameRule, distinguished_name, parse_rules, user_of
from tidelog.broker.access.state import AccessState

MECHANISM = "TIDELOG-CERTIFICATE"
MESSAGE_BYTES_MAX = 8192
SECRET_BYTES = 32


class Delegation(NamedTuple):
    """What the HTTP server is believed for, and how a subject becomes a user."""

    secret: str
    rules: list[NameRule]

    def __repr__(self) -> str:
        return "Delegation(...)"


def make_delegation(mapping_rules: str) -> Delegation:
    return Delegation(os.urandom(SECRET_BYTES).hex(), parse_rules(mapping_rules))


class DelegatedLogin:
    """In place of `logins.Login`."""

    mechanism = MECHANISM
    user: str | None = None  # a certificate has a subject; what is wrong with it says which

    def __init__(self, delegation: Delegation) -> None:
        self._delegation = delegation

    def step(self, message: bytes, _state: AccessState) -> LoginReply:
        from json import loads

        parts = bytes(message).split(b"\0") if len(message) <= MESSAGE_BYTES_MAX else []
        if len(parts) != 3 or not hmac.compare_digest(parts[2], self._delegation.secret.encode()):
            raise LoginRefused("a delegated login without the secret of this broker's HTTP server")
        try:
            name = distinguished_name(loads(parts[1]))
        except (ValueError, TypeError) as error:
            raise LoginRefused(f"a delegated login without a subject: {error}") from error
        user = user_of(name, self._delegation.rules)
        if not user:
            raise LoginRefused(f"no rule of ssl.principal.mapping.rules fits {name!r}")
        return LoginReply(b"", user)
