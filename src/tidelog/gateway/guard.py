"""What a request must be before any route sees it. Pure.

A web page of anybody's can make a browser on this machine send requests to this gateway. Three things keep it from
getting anywhere, and a browser forges none of them:

- `Host` must be a name of ours. A page that has its own name point to 127.0.0.1 (DNS rebinding) still sends its name.
- `Origin`, where there is one, must be this very gateway. So a form or a script of another page is refused.
- `Sec-Fetch-Site`, where there is one, must not be another site, unless a person follows a link, which only reads.

A body must have a content type that no form can send, which the routes see to (`takes`). There is no CORS.

Paths: segments are split before they are decoded, so that an encoded slash stays part of a name. Empty segments, dots
and control characters are refused rather than tidied up. A request whose body has two ends, by its length and by its
chunks, is refused and its connection ended: what another server takes for its rest could be a request of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from tidelog.gateway.limits import HEAD_MAX_BYTES, HEADERS_MAX, TARGET_MAX_BYTES
from tidelog.gateway.route import Refusal

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
READING = ("GET", "HEAD")
OWN_SITES = ("same-origin", "none")
ONE_ONLY = ("host", "origin", "authorization", "content-type", "content-length", "sec-fetch-site", "sec-fetch-mode")

Headers = Sequence[tuple[bytes, bytes]]


class Checked(NamedTuple):
    path: str  # as sent, to be routed by
    headers: dict[str, str]


def check(method: str, raw_path: bytes, query: bytes, headers: Headers, hosts: Collection[str]) -> Checked:
    """`hosts` are the names that this gateway goes by, in lower case and without brackets."""
    if len(raw_path) + len(query) > TARGET_MAX_BYTES:
        raise Refusal(414, f"the path and query have more than {TARGET_MAX_BYTES} bytes; send less")
    found = _headers(headers)
    if "transfer-encoding" in found and "content-length" in found:
        said = "the body has a length and comes in chunks; send it in one of these ways"
        raise Refusal(400, said, headers=(("Connection", "close"),))
    host = found.get("host", "")
    if host_name(host) not in hosts:
        raise Refusal(
            421,
            f"{host[:100]!r} is not a name of this gateway; use {min(hosts)}, or add the name to tidelog.http.hosts",
        )
    _check_origin(method, host, found)
    return Checked(_path(raw_path), found)


def host_name(host: str) -> str:
    """Of a Host header: without its port and brackets, in lower case; nothing if it is not one."""
    if host.startswith("["):
        name, closed, rest = host[1:].partition("]")
        return name.lower() if closed and (not rest or rest[1:].isdigit()) else ""
    name, _, port = host.partition(":")
    return name.lower().rstrip(".") if not port or port.isdigit() else ""


def segment(text: str) -> str:
    """One segment of a path, decoded; Refusal when it is not text, or has what no name has."""
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise Refusal(400, "a segment of the path is not UTF-8; encode it again") from None
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in decoded):
        raise Refusal(400, "a segment of the path has control characters; leave them out")
    return decoded


def _headers(headers: Headers) -> dict[str, str]:
    if len(headers) > HEADERS_MAX:
        raise Refusal(431, f"the request has {len(headers)} headers; send {HEADERS_MAX} at most")
    if sum(len(name) + len(value) for name, value in headers) > HEAD_MAX_BYTES:
        raise Refusal(431, f"the headers have more than {HEAD_MAX_BYTES} bytes; send less")
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name in found and name in ONE_ONLY:
            raise Refusal(400, f"the header {name} is there twice; send it once")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _check_origin(method: str, host: str, headers: dict[str, str]) -> None:
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
        raise Refusal(403, f"a page of {origin[:100]!r} asks; the gateway answers pages of its own alone")
    site = headers.get("sec-fetch-site", "none")
    follows_link = method in READING and headers.get("sec-fetch-mode") == "navigate"
    if site not in OWN_SITES and not follows_link:
        raise Refusal(403, "a page of another site asks; the gateway answers pages of its own alone")


def _path(raw_path: bytes) -> str:
    path = raw_path.decode("ascii", "replace")
    if not path.startswith("/"):
        raise Refusal(400, "the target of the request is not a path; begin it with a slash")
    segments = path[1:].split("/")
    if any(segment(one) in (".", "..") or not one for one in segments) and path != "/":
        raise Refusal(400, "the path has empty segments or dots; write it out")
    return path
