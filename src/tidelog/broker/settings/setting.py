"""What a setting is, and how its text becomes a value.

    kind        value                  text, as Kafka writes it
    boolean     bool                   true | false, in any case
    short       int of 16 bits         42
    int         int of 32 bits         42
    long        int of 64 bits         42
    double      float                  0.5
    list        tuple of str           a,b (spaces around a part do not count)
    string      str                    as it is, without spaces at its ends
    password    str                    never shown

    effect      meaning
    works       changes what the broker does
    stored      kept and shown, because programs set it and tools look at it; changes nothing

A default is given as text too, and None is null: nothing set. Where our default is not Kafka's, `kafka` has Kafka's
and `because` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidelog.config import Value, nearest
from tidelog.errors import ConfigError

WORKS = "works"
STORED = "stored"

BOOLEAN = "boolean"
SHORT = "short"
INT = "int"
LONG = "long"
DOUBLE = "double"
LIST = "list"
STRING = "string"
PASSWORD = "password"

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
LONG_DIGITS = 19
_BITS = {SHORT: 15, INT: 31, LONG: 63}


class Check(NamedTuple):
    """Which values of the right kind are taken; `wants` says it in words."""

    wants: str
    takes: Callable[[Value], bool]


def at_least(low: int) -> Check:
    return Check(f"at least {low}", lambda value: isinstance(value, int | float) and value >= low)


def between(low: int, high: int) -> Check:
    return Check(f"{low} to {high}", lambda value: isinstance(value, int | float) and low <= value <= high)


def one_of(*choices: str, reason: str = "") -> Check:
    wants = " or ".join(choices) + (f" ({reason})" if reason else "")
    return Check(wants, lambda value: show(value) in choices)


def each_of(*choices: str) -> Check:
    return Check(
        f"any of {', '.join(choices)}",
        lambda value: isinstance(value, tuple) and all(part in choices for part in value),
    )


def exactly_one(reason: str) -> Check:
    return Check(f"exactly one ({reason})", lambda value: isinstance(value, tuple) and len(value) == 1)


class Setting(NamedTuple):
    key: str
    kind: str
    default: str | None
    doc: str
    check: Check | None = None
    effect: str = WORKS
    dynamic: bool = False
    synonyms: tuple[str, ...] = ()
    kafka: str | None = None
    because: str = ""
    hidden: bool = False

    @property
    def sensitive(self) -> bool:
        return self.kind == PASSWORD


def table(settings: list[Setting]) -> dict[str, Setting]:
    named = {setting.key: setting for setting in settings}
    assert len(named) == len(settings), "a key stands twice in a table of settings"
    return named


def parse(setting: Setting, text: str) -> Value:
    """The value of a text; ConfigError says what the setting takes."""
    text = text.strip()
    value = _value(setting.kind, text)
    if value is None:
        raise ConfigError(f"{setting.key}={text} is not {_article(setting.kind)}; it takes {_wants(setting)}")
    if setting.check is not None and not setting.check.takes(value):
        raise ConfigError(f"{setting.key}={text} is refused; it takes {_wants(setting)}")
    return value


def show(value: Value) -> str:
    """The text of a value, as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e", "E")
    return ",".join(value) if isinstance(value, tuple) else str(value)


def normal(setting: Setting, text: str) -> str:
    """The text as it is stored: checked, and written the one way."""
    return show(parse(setting, text))


def default(setting: Setting) -> Value | None:
    return None if setting.default is None else parse(setting, setting.default)


def known(settings: Mapping[str, Setting], key: str, what: str) -> Setting:
    setting = settings.get(key)
    if setting is None:
        listed = (
            f"`tidelog configs describe {what} {'' if what == 'broker' else 'NAME '}--all` lists all that there are"
        )
        raise ConfigError(f"{key} is not a {what} setting; {nearest(key, settings, listed)}")
    return setting


def _value(kind: str, text: str) -> Value | None:
    if kind == BOOLEAN:
        return {"true": True, "false": False}.get(text.lower())
    if kind in _BITS:
        return _integer(text, _BITS[kind])
    if kind == DOUBLE:
        return _float(text)
    if kind == LIST:
        return tuple(part for part in (part.strip() for part in text.split(",")) if part)
    return text


def _integer(text: str, bits: int) -> int | None:
    # int() alone would take 1_000 and digits of other scripts, which Kafka does not.
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > LONG_DIGITS:
        return None
    value = int(text)
    return value if -(1 << bits) <= value < (1 << bits) else None


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None


def _article(kind: str) -> str:
    return f"an {kind}" if kind == INT else f"a {kind}"


def _wants(setting: Setting) -> str:
    return setting.check.wants if setting.check is not None else _article(setting.kind)
