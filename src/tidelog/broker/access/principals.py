"""From a client's certificate to a user: the distinguished name as Java writes it, and rules that shorten it. Pure.

`CN=alice,OU=payments,O=Example,C=DE` (RFC 2253: the most particular part first) is the user's name by DEFAULT. A rule
`RULE:PATTERN/REPLACEMENT/[LU]` makes another of it where its pattern fits the whole name; L and U make it small and
capital. The first rule that fits counts, and a name that none fits is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.errors import ConfigError

# As RFC 2253 abbreviates them; Java writes others by number, with the value in hex.
SHORT = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
NUMBERED = {
    "emailAddress": ("1.2.840.113549.1.9.1", 0x16),
    "serialNumber": ("2.5.4.5", 0x13),
    "title": ("2.5.4.12", 0x0C),
    "givenName": ("2.5.4.42", 0x0C),
    "surname": ("2.5.4.4", 0x0C),
}
ESCAPED = frozenset(',+"\\<>;')
DEFAULT = "DEFAULT"
SHORT_LENGTH = 0x7F

Subject = Sequence[Sequence[tuple[str, str]]]


class NameRule(NamedTuple):
    """A pattern of None is DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


def distinguished_name(subject: Subject) -> str:
    """`subject` as Python's `getpeercert` has it: the most general part first."""
    return ",".join("+".join(_part(*one) for one in together) for together in reversed(subject))


def _part(name: str, value: str) -> str:
    if name in SHORT:
        return f"{SHORT[name]}={_escape(value)}"
    number, tag = NUMBERED.get(name, (name, 0x0C))
    encoded = value.encode()
    if len(encoded) > SHORT_LENGTH:
        return f"{number}={_escape(value)}"
    return f"{number}=#{bytes((tag, len(encoded))).hex()}{encoded.hex()}"


def _escape(value: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in ESCAPED else letter for letter in value)
    if escaped.startswith((" ", "#")):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if value.endswith(" ") and len(value) > 1 else escaped


def parse_rules(text: str) -> list[NameRule]:
    """The value of ssl.principal.mapping.rules."""
    rules = []
    rest = text.strip()
    while rest:
        if rest.startswith(DEFAULT):
            rules.append(NameRule(None))
            rest = rest[len(DEFAULT) :]
        else:
            found = re.match(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", rest)
            if found is None:
                raise ConfigError(
                    f"ssl.principal.mapping.rules has {rest!r}; write RULE:PATTERN/REPLACEMENT/[LU] or {DEFAULT}"
                )
            rules.append(NameRule(_pattern(found[1]), found[2].replace("\\/", "/"), found[3]))
            rest = rest[found.end() :]
        rest = rest.lstrip().removeprefix(",").lstrip()
    return rules or [NameRule(None)]


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text.replace("\\/", "/"))
    except re.error as error:
        raise ConfigError(f"ssl.principal.mapping.rules: {text!r} is not a pattern: {error}") from error


def user_of(name: str, rules: Iterable[NameRule]) -> str | None:
    """The user of a certificate with this distinguished name; None if no rule fits it."""
    for rule in rules:
        if rule.pattern is None:
            return name
        found = rule.pattern.fullmatch(name)
        if found is not None:
            user = _filled(rule.replacement, found)
            return {"L": user.lower(), "U": user.upper()}.get(rule.case, user)
    return None


def _filled(replacement: str, found: re.Match[str]) -> str:
    """Java's $1 for the first group."""
    return re.sub(r"\$(\d)", lambda number: found.group(int(number[1])) or "", replacement)
