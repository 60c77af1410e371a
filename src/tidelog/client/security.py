"""How a client reaches a broker that asks who it is: TLS, a certificate, a login. Kafka's names for all of it.

    security.protocol         PLAINTEXT, SSL (TLS), SASL_PLAINTEXT (a login), SASL_SSL (both)
    sasl.mechanism            SCRAM-SHA-256, SCRAM-SHA-512, PLAIN
    sasl.jaas.config          ... required username="alice" password="...";   or sasl.username and sasl.password
    ssl.truststore.location   a PEM file with the authorities to trust; without it, the system's
    ssl.keystore.location     a PEM file with this client's own key and certificates, for mutual TLS
    ssl.key.password          of that key, if it is encrypted
    ssl.endpoint.identification.algorithm   empty: the name in the broker's certificate is not looked at

`Security.from_file` reads a properties file with them, as Kafka's tools take it by --command-config, by Java's rules.
Secrets are in no repr and no message: of what is not understood, only the first word is said, since a password may come
after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    from tidelog.client.transport import Dial

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN = "PLAIN"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*SCRAM, PLAIN)
PEM = "PEM"

# What librdkafka calls them.
ALIASES = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
}
KNOWN = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
OURS = ("security.", "sasl.", "ssl.")

COMMENTS = ("#", "!")
BLANK = " \t\f"  # and no others, to Java
NAMED_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}  # any other character stands for itself


class Security(NamedTuple):
    protocol: str = PLAINTEXT
    mechanism: str = MECHANISMS[0]
    user: str = ""
    password: str = ""
    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str = ""
    checks_name: bool = True
    where: str = ""  # what these were read from, for whoever has to mend them

    def __repr__(self) -> str:
        return f"Security({self.protocol}, {self.mechanism}, user={self.user!r})"

    @property
    def tls(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def sasl(self) -> bool:
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)

    @classmethod
    def from_file(cls, path: str | Path) -> Security:
        try:
            text = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            advice = "--command-config or TIDELOG_COMMAND_CONFIG names a file of properties"
            raise ConfigError(f"{path} cannot be read: {why}; {advice}") from error
        return cls.from_properties(parse_properties(text), str(path))

    @classmethod
    def from_properties(cls, given: Mapping[str, str], where: str = "the client's settings") -> Security:
        """Settings of other matters are passed over; a security setting that nobody knows is refused."""
        properties = {ALIASES.get(key, key): value for key, value in given.items()}
        _check(properties, where)
        user, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
        if "sasl.jaas.config" in properties:
            user, password = _jaas(properties["sasl.jaas.config"], where)
        made = cls(
            protocol=properties.get("security.protocol", PLAINTEXT).upper(),
            mechanism=properties.get("sasl.mechanism", MECHANISMS[0]).upper(),
            user=user,
            password=password,
            authorities=properties.get("ssl.truststore.location"),
            certificate=properties.get("ssl.keystore.location") or properties.get("ssl.certificate.location"),
            key=properties.get("ssl.key.location"),
            key_password=properties.get("ssl.key.password", ""),
            checks_name=properties.get("ssl.endpoint.identification.algorithm", "https") != "",
            where=where,
        )
        if made.sasl and not (made.user and made.password):
            raise ConfigError(f"{where}: {made.protocol} needs sasl.username and sasl.password, or sasl.jaas.config")
        return made

    def dial(self) -> Dial:
        from tidelog.client.transport import plain

        if not self.tls:
            return plain
        from tidelog.client.tls import tls

        return tls(self.context())

    def context(self) -> ssl.SSLContext:
        """ConfigError names the file that cannot be used."""
        import ssl

        where = self.authorities
        try:
            context = ssl.create_default_context(cafile=self.authorities)
            context.check_hostname = self.checks_name
            if self.certificate is not None:
                where = self.certificate
                context.load_cert_chain(self.certificate, self.key, password=self.key_password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or "it is not PEM"
            raise ConfigError(
                f"{where} cannot be used for TLS: {str(reason).lower()}; it must be a PEM file"
            ) from error
        return context


def _check(properties: Mapping[str, str], where: str) -> None:
    from tidelog.config import nearest

    for key in properties:
        if key.startswith(OURS) and key not in KNOWN:
            advice = nearest(key, KNOWN, "leave it out")
            raise ConfigError(f"{where}: {_first_word(key)} is not a setting that this client knows; {advice}")
    for key in ("ssl.truststore.type", "ssl.keystore.type"):
        if properties.get(key, PEM).upper() != PEM:
            raise ConfigError(f"{where}: {key}={_first_word(properties[key])}; this client reads PEM files only")
    for key, known in (("security.protocol", PROTOCOLS), ("sasl.mechanism", MECHANISMS)):
        if properties.get(key, known[0]).upper() not in known:
            raise ConfigError(f"{where}: {key}={_first_word(properties[key])} is not one of {', '.join(known)}")


def _first_word(text: str) -> str:
    """What may be said of a text that was not understood."""
    import re

    word = re.match(r"[\w.-]*", text, re.ASCII)
    return word[0] if word else ""


def _jaas(text: str, where: str) -> tuple[str, str]:
    import re

    found = dict(re.findall(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"', text))
    if set(found) != {"username", "password"}:
        raise ConfigError(f'{where}: sasl.jaas.config needs username="..." and password="..."')
    user, password = (re.sub(r"\\(.)", r"\1", found[name]) for name in ("username", "password"))
    return user, password


def parse_properties(text: str) -> dict[str, str]:
    r"""A Java properties file: KEY=VALUE, KEY:VALUE or KEY VALUE, with blanks around the sign or not; # and ! begin
    comments; a line goes on after a backslash; \n, \u00e9 and \= are escapes. Values are trimmed, as Kafka does.
    """
    import re

    pair = re.compile(rf"((?:[^\\=:{BLANK}]|\\.)*)[{BLANK}]*[=:]?[{BLANK}]*(.*)", re.DOTALL)
    properties: dict[str, str] = {}
    for line in _whole_lines(re.split(r"\r\n|\r|\n", text)):
        found = pair.fullmatch(line)
        assert found is not None, "a backslash is never the last of a whole line"
        properties[_unescaped(found[1])] = _unescaped(found[2]).strip()
    return properties


def _whole_lines(parts: Iterable[str]) -> Iterator[str]:
    rest = iter(parts)
    for part in rest:
        line = part.lstrip(BLANK)
        while not line.startswith(COMMENTS) and (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(rest, "").lstrip(BLANK)
        if line and not line.startswith(COMMENTS):
            yield line


def _unescaped(text: str) -> str:
    import re

    def meant(found: re.Match[str]) -> str:
        if found[1] == "u":
            raise ConfigError(r"a \u in properties needs four hexadecimal digits after it; write a backslash as \\")
        return chr(int(found[1][1:], 16)) if len(found[1]) > 1 else NAMED_ESCAPES.get(found[1], found[1])

    made = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", meant, text, flags=re.DOTALL)
    # Java writes a character beyond 16 bits as two.
    return made.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
