"""URLs of databases and stores, and the secrets in them.

    ${NAME}    taken from the environment, percent-encoded where it stands; what is kept and shown is the URL as written

Rules:
- A URL is kept (catalog, status, messages) with `${NAME}` in it, never with the secret. One with a password in clear is
  refused by what would keep it (`without_secret`), and `redacted` wherever else it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from tidelog.errors import UsageError

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Up to the last @ before the path. A port is not one, though an @ may come in the query.
PASSWORD = re.compile(r"(?<=://)([^/@:]*):(?!\d+(?:[/?#]|$))([^/?#]*|[^@]*)@")
# Of a query: libpq's, Redis's, and what others may have.
SECRET = re.compile(r"(?i)(?<=[?&])([^=&#]*(?:passw|pwd|secret|token|api_?key)[^=&#]*)=([^&#]*)")


def redacted(url: str) -> str:
    """As it may be shown: without a password that was written in clear."""
    shown = PASSWORD.sub(lambda found: f"{found[1]}:{_hidden(found[2])}@", url)
    return SECRET.sub(lambda found: f"{found[1]}={_hidden(found[2])}", shown)


def without_secret(url: str, keeper: str = "the catalog of views") -> str:
    """The URL, if all may see it. `keeper` is what would show it."""
    if redacted(url) != url:
        raise UsageError(
            f"{redacted(url)} has a password in clear, which everybody could read who reads {keeper}; write ${{NAME}}"
            " in its place, all of it, and set NAME in the environment"
        )
    return url


def _hidden(password: str) -> str:
    return password if not password or VARIABLE.fullmatch(password) else "***"


def fill(url: str, environment: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        said = environment.get(found[1])
        if said is None:
            raise UsageError(f"{redacted(url)} has ${{{found[1]}}}, and the environment does not; set it")
        return quote(said, safe="")

    return VARIABLE.sub(value, url)
