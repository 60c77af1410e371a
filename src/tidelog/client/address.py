"""Where a broker listens, and how people write it: `HOST:PORT[,...]`, IPv6 in brackets, 9092 when no port is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.errors import UsageError

DEFAULT_PORT = 9092
PORT_LIMIT = 65535


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    written = text.strip()
    if written.startswith("["):
        host, closed, rest = written[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise UsageError(f"{text!r} is not an address; write [IPV6]:PORT")
        port = rest[1:] if rest else str(DEFAULT_PORT)
    elif written.count(":") > 1:
        raise UsageError(f"{text!r} is not an address; put an IPv6 address in brackets: [::1]:9092")
    else:
        host, colon, port = written.partition(":")
        port = port if colon else str(DEFAULT_PORT)
    if not host:
        raise UsageError(f"{text!r} has no host; write HOST:PORT")
    return Address(host, _port(port, text))


def parse_addresses(bootstrap: str | Iterable[str]) -> tuple[Address, ...]:
    """Several addresses of one cluster, in the order in which they are tried."""
    pieces = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = tuple(parse_address(piece) for piece in pieces if piece.strip())
    if not addresses:
        raise UsageError(f"no address in {bootstrap!r}; write HOST:PORT[,HOST:PORT...]")
    return addresses


def _port(port: str, text: str) -> int:
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) <= PORT_LIMIT:
        raise UsageError(f"{text!r} has no valid port; a port is a number from 1 to {PORT_LIMIT}")
    return int(port)
