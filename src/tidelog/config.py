"""Where settings come from: code, command line, environment, `tidelog.toml`; the first that has a key wins.

    code            Broker(settings={"num.partitions": 3}), or num_partitions for the same key
    command line    tidelog up --set num.partitions=3
    environment     TIDELOG_NUM_PARTITIONS=3           (of tidelog.max.groups: TIDELOG_MAX_GROUPS)
    tidelog.toml    [broker]
                    "num.partitions" = 3               (or num.partitions = 3, which TOML reads as nested tables)

`tidelog.toml` has two tables: [broker], and [app] for `tidelog run` and the commands beside it (`cli/app_settings.py`).

Rules:
- Keys of the broker are Kafka's own names where Kafka has one; ours begin with `tidelog.`. Keys of apps are plain words
  (`APP_KEYS`), the same as their options on the command line.
- A key that nobody knows is an error that names the nearest known one, wherever it came from.
- Each value remembers its origin, so that an error about it can say where it stands.
- This module imports no room. A room has its table of settings (`broker/settings`) and gathers its values here. Those
  of the broker become an immutable object, which is here (`BrokerConfig`), with addresses to listen on (`Endpoint`,
  `HttpListener`), since the gateway and commands read them too.
- Nothing is read unless `gather` is called; TOML is parsed only where a file exists.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.errors import ConfigError

FILE_NAME = "tidelog.toml"
PREFIX = "TIDELOG_"
TABLES = ("broker", "app")
PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
PROTOCOL_MAP = "listener.security.protocol.map"
ADVERTISED = "advertised.listeners"
PORT_MAX = 65535
ALL_LISTED = "leave it out; with a broker up, `tidelog configs describe broker --all` lists all that there are"

# Variables that are ours and no setting: which file to read, whom commands talk to, tracebacks, and what tests go by.
FILE_VARIABLE = "TIDELOG_CONFIG"
OTHER_VARIABLES = frozenset(
    {
        FILE_VARIABLE,
        "TIDELOG_BOOTSTRAP",
        "TIDELOG_CLASS_ARCHIVE",
        "TIDELOG_COMMAND_CONFIG",
        "TIDELOG_DEBUG",
        "TIDELOG_EXAMPLES",
        "TIDELOG_SEED",
        "TIDELOG_KAFKA_LIB",
        "TIDELOG_SPARK_KAFKA_LIB",
    }
)
# Of apps (`cli/app_settings.py`): both kinds may stand in one environment.
APP_KEYS = ("bootstrap", "checkpoints", "store", "allowed.stores", "master", "memory", "trigger", "command.config")


Value = bool | int | float | str | tuple[str, ...]


class Given(NamedTuple):
    """A value that somebody set: its text, and where it stands."""

    text: str
    origin: str


class Endpoint(NamedTuple):
    """A listener: where it is and what is spoken there. An empty host is every address of the machine."""

    name: str
    host: str
    port: int
    protocol: str = PLAINTEXT

    @property
    def tls(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def sasl(self) -> bool:
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)


class BrokerConfig(NamedTuple):
    """The broker's settings, every one of them, by Kafka's names: `config.int("num.partitions")`.

    `values` are parsed and checked; None is what is not set and has no default. `given` keeps what was set at the start
    as text and with its origin. What is altered while the broker runs comes as a new BrokerConfig.
    """

    values: Mapping[str, Value | None]
    given: Mapping[str, Given]

    def int(self, key: str) -> builtins.int:
        value = self.values[key]
        assert isinstance(value, int) and not isinstance(value, bool), f"{key} is {value!r}"
        return value

    def text(self, key: str) -> str:
        value = self.values[key]
        assert isinstance(value, str), f"{key} is {value!r}"
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self.values[key] is None else self.text(key)

    def flag(self, key: str) -> bool:
        value = self.values[key]
        assert isinstance(value, bool), f"{key} is {value!r}"
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list; one that is not set is empty."""
        value = self.values[key]
        assert value is None or isinstance(value, tuple), f"{key} is {value!r}"
        return value or ()

    def listeners(self) -> list[tuple[str, builtins.int]]:
        """Where to listen. An empty host is every address of the machine."""
        return [address(text)[1:] for text in self.texts("listeners")]

    def endpoints(self) -> list[Endpoint]:
        """The listeners, with what is spoken at each. ConfigError for a name that stands for no protocol."""
        protocols = {}
        for row in filter(None, self.text(PROTOCOL_MAP).replace(" ", "").split(",")):
            name, colon, protocol = row.partition(":")
            if not colon or protocol.upper() not in PROTOCOLS:
                known = ", ".join(PROTOCOLS)
                raise ConfigError(f"{PROTOCOL_MAP} has {row!r}; write NAME:PROTOCOL, with one of {known}")
            protocols[name.upper()] = protocol.upper()
        found = []
        for text in self.texts("listeners"):
            name, host, port = address(text)
            if name not in protocols:
                advice = f"one of {', '.join(protocols)}, or a name that {PROTOCOL_MAP} has"
                raise ConfigError(f"{text} begins with an unknown protocol; write {advice}")
            found.append(Endpoint(name, host, port, protocols[name]))
        return found

    def advertised(self, host: str, port: builtins.int, listener: str | None = None) -> tuple[str, builtins.int]:
        """What a client that reached the broker at this address is to connect to.

        Without `advertised.listeners` it is the address itself, which the client has just shown to work. With them it
        is the one of the same name as the listener; port 0 stands for the port that the client came by.
        """
        advertised = {name: (to_host, to_port) for name, to_host, to_port in map(address, self.texts(ADVERTISED))}
        names = [name for name, _, at_port in map(address, self.texts("listeners")) if at_port in (0, port)]
        if listener is not None and (listener in advertised or len(self.texts("listeners")) > 1):
            # Another listener's address would speak another protocol.
            to_host, to_port = advertised.get(listener, (host, port))
            return to_host or host, to_port or port
        for name in (*names, *advertised):
            if name in advertised:
                to_host, to_port = advertised[name]
                return to_host or host, to_port or port
        return host, port


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach it: an address, or `localhost`. Any other name is whose it is: also
    127.0.0.1.some.name is a name.
    """
    if host in ("127.0.0.1", "::1", "localhost"):
        return True
    from ipaddress import IPv6Address, ip_address

    try:
        found = ip_address(host)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def address(text: str) -> tuple[str, str, int]:
    """A listener as (name, host, port): PLAINTEXT://127.0.0.1:9092, 127.0.0.1:9092, [::1]:9092 or :9092."""
    name, separator, rest = text.rpartition("://")
    host, colon, port = rest.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX or (":" in bare and bare == host):
        raise ConfigError(f"{text} is not an address to listen on; write HOST:PORT or {PLAINTEXT}://HOST:PORT")
    return name.upper() if separator else PLAINTEXT, bare, int(port)


class HttpListener(NamedTuple):
    """Where HTTP is served: HOST:PORT, https://HOST:PORT, or http://HOST:PORT where a proxy in front speaks TLS."""

    host: str
    port: int
    scheme: str  # http, https, or nothing where none was written

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    def check(self, login: bool) -> None:
        """ConfigError where others would be let in, or could listen. `login`: whether the broker demands one."""
        if is_loopback(self.host):
            return
        where = f"{self.host or '*'}:{self.port}"
        if not login:
            raise ConfigError(
                f"HTTP at {where} would let anybody who reaches this machine do everything, because the broker demands"
                " no login; serve it at 127.0.0.1, or have all listeners of the broker demand one"
            )
        if not self.scheme:
            raise ConfigError(
                f"HTTP at {where} would send passwords in the clear; write https://{where}, or http://{where} where a"
                " proxy in front of it speaks TLS"
            )


def http_listener(text: str) -> HttpListener:
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme.lower() not in ("http", "https"):
        raise ConfigError(f"{text} is not an address for HTTP; write HOST:PORT, https://HOST:PORT or http://HOST:PORT")
    _, host, port = address(rest)
    return HttpListener(host, port, scheme.lower())


def attribute(key: str) -> str:
    """The name of a key in code: `num.partitions` -> `num_partitions`, `tidelog.max.groups` -> `max_groups`."""
    return key.removeprefix("tidelog.").replace(".", "_").replace("-", "_")


def variable(key: str) -> str:
    return PREFIX + attribute(key).upper()


def nearest(name: str, known: Iterable[str], otherwise: str = ALL_LISTED) -> str:
    """What to do about an unknown name, as the end of an error message; `otherwise` when none is near."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else otherwise


def gather(
    known: Collection[str],
    table: str,
    *,
    code: Mapping[str, Any] | None = None,
    command_line: Iterable[tuple[str, str]] = (),
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    foreign: Mapping[str, str] | None = None,
) -> dict[str, Given]:
    """The values of all layers, the strongest of each key. `file` is a path to read; None reads no file.

    `foreign` has beginnings of keys that are somebody else's, each with the reason why it has no place here, and after
    a semicolon what to do, if there is more to do than to leave it out.
    """
    keys = _Keys(known, foreign or {})
    layers = [
        _from_code(keys, code or {}),
        _from_command_line(keys, command_line),
        _from_environment(keys, environment or {}),
        _from_file(keys, table, file) if file is not None else {},
    ]
    given: dict[str, Given] = {}
    for layer in reversed(layers):
        given.update(layer)
    return given


class _Keys(NamedTuple):
    known: Collection[str]
    foreign: Mapping[str, str]

    def refuse(self, where: str, key: str) -> ConfigError:
        for beginning, reason in self.foreign.items():
            if key.startswith(beginning):
                advice = "" if "; " in reason else "; leave it out"  # a reason may have its own
                foreign = f"{where}{key} is a setting of Apache Kafka that Tidelog does not have"
                return ConfigError(f"{foreign}: {reason}{advice}")
        return ConfigError(f"{where}{key} is not a setting; {nearest(key, self.known)}")


def find_file(environment: Mapping[str, str], folder: Path) -> Path | None:
    """The file to read: the one that TIDELOG_CONFIG names, which must exist, else `tidelog.toml` in the folder."""
    named = environment.get(FILE_VARIABLE)
    if named is None:
        path = folder / FILE_NAME
        return path if path.is_file() else None
    if not Path(named).is_file():
        raise ConfigError(f"{FILE_VARIABLE} names {named}, which is not a file; correct or unset it")
    return Path(named)


def _from_code(keys: _Keys, values: Mapping[str, Any]) -> dict[str, Given]:
    attributes = {attribute(key): key for key in keys.known}
    given = {}
    for name, value in values.items():
        key = name if name in keys.known else attributes.get(name)
        if key is None:
            raise keys.refuse("", name)
        given[key] = Given(_text(name, value), "code")
    return given


def _from_command_line(keys: _Keys, settings: Iterable[tuple[str, str]]) -> dict[str, Given]:
    given = {}
    for key, value in settings:
        if key not in keys.known:
            raise keys.refuse(f"--set {key}={value}: ", key)
        given[key] = Given(value, f"--set {key}={value}")
    return given


def _from_environment(keys: _Keys, environment: Mapping[str, str]) -> dict[str, Given]:
    ours = [name for name in environment if name.startswith(PREFIX)]
    if not ours:
        return {}
    variables = {variable(key): key for key in keys.known}
    others = {*OTHER_VARIABLES, *map(variable, APP_KEYS)} - variables.keys()
    ours = [name for name in ours if name not in others]
    given = {}
    for name in ours:
        key = variables.get(name)
        if key is None:
            raise ConfigError(f"the environment variable {name} is not a setting; {nearest(name, variables)}")
        given[key] = Given(environment[name], f"the environment variable {name}")
    return given


def _from_file(keys: _Keys, table: str, path: Path) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for key, value in _flat(_read(path).get(table, {}), ""):
        if key not in keys.known:
            raise keys.refuse(f"{path} [{table}]: ", key)
        if key in given:
            raise ConfigError(f"{path} [{table}]: {key} is there twice, quoted and as nested tables; keep one")
        given[key] = Given(_text(key, value), f"{path} [{table}]")
    return given


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    for name, content in document.items():
        if name not in TABLES or not isinstance(content, dict):
            raise ConfigError(
                f"{path}: {name} is not a table of settings; {nearest(name, TABLES, 'tables are [broker] and [app]')}"
            )
    return document


def _flat(content: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(_text(key, part) for part in value)
    if isinstance(value, str | int | float | Path):
        return str(value)
    raise ConfigError(
        f"{key} has a value of type {type(value).__name__}; settings are text, numbers, booleans or lists of them"
    )
