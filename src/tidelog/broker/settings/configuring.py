"""From what was given and altered to what the broker works with, and what no setting can check alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tidelog.broker.settings.broker import BROKER, FOREIGN
from tidelog.broker.settings.describing import DURABILITY, FLUSH_EVERY_MESSAGE, FLUSHES, NO_VALUES, BrokerValues
from tidelog.broker.settings.setting import Setting, default, normal, parse
from tidelog.config import ADVERTISED, BrokerConfig, Given, Value, address, find_file, gather
from tidelog.errors import ConfigError

POLICY = "tidelog.overload.policy"
WATCHED = "tidelog.overload.groups"
LIMITS = ("tidelog.overload.records", "tidelog.overload.bytes", "tidelog.overload.ms")
ALLOW_UNAUTHENTICATED = "tidelog.allow.unauthenticated"

# Settings of which the first may not be above the second.
BOUNDS = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
)


def load_broker_config(
    code: Mapping[str, Any] | None = None,
    *,
    command_line: Iterable[tuple[str, str]] = (),
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> BrokerConfig:
    """The broker's settings from all layers. `folder` is where `tidelog.toml` may lie; None reads no file."""
    environment = environment or {}
    file = find_file(environment, folder) if folder is not None else None
    given = gather(
        BROKER, "broker", code=code, command_line=command_line, environment=environment, file=file, foreign=FOREIGN
    )
    return broker_config(given)


def broker_config(given: Mapping[str, Given], altered: BrokerValues = NO_VALUES) -> BrokerConfig:
    """What was given at the start, under what was altered since. ConfigError says where a bad value stands."""
    static = {key: Given(_checked(BROKER[key], value), value.origin) for key, value in given.items()}
    _check_durability({key: value.text for key, value in static.items()})
    values: dict[str, Value | None] = {}
    for key, setting in BROKER.items():
        text = altered.own.get(key, altered.cluster.get(key))
        if text is None and key in static:
            text = static[key].text
        values[key] = default(setting) if text is None else parse(setting, text)
    config = BrokerConfig(values, static)
    _check_bounds(config)
    _check_listeners(config)
    return config


def _check_listeners(config: BrokerConfig) -> None:
    endpoints = config.endpoints()
    names = {endpoint.name for endpoint in endpoints}
    for text in config.texts(ADVERTISED):
        if address(text)[0] not in names:
            raise ConfigError(f"{ADVERTISED} has {text}, and no listener has that name; name it as in listeners")
    for endpoint in endpoints:
        certified = endpoint.tls and config.text("ssl.client.auth") == "required"
        if not (endpoint.sasl or certified or endpoint.loopback or config.flag(ALLOW_UNAUTHENTICATED)):
            where = f"{endpoint.name}://{endpoint.host or '*'}:{endpoint.port}"
            raise ConfigError(
                f"{where} would let anybody who reaches this machine read and write everything; ask for a login"
                " (SASL_SSL://HOST:PORT, and `tidelog users add`), listen on 127.0.0.1, or say"
                f" {ALLOW_UNAUTHENTICATED}=true"
            )
        if endpoint.tls and not _has_certificate(config):
            raise ConfigError(
                f"the listener {endpoint.name} speaks TLS and has no certificate; set ssl.keystore.location to a PEM"
                " file with the key and the certificates"
            )


def _has_certificate(config: BrokerConfig) -> bool:
    inline = config.values["ssl.keystore.key"] and config.values["ssl.keystore.certificate.chain"]
    return bool(config.values["ssl.keystore.location"] or inline)


def check_topic(configs: Mapping[str, str]) -> None:
    """What no setting of a topic can check alone."""
    _check_durability(configs)
    _check_overload(configs)
    lags = [configs.get(key) for key in ("min.compaction.lag.ms", "max.compaction.lag.ms")]
    if lags[0] is not None and lags[1] is not None and int(lags[0]) > int(lags[1]):
        raise ConfigError(f"min.compaction.lag.ms={lags[0]} is above max.compaction.lag.ms={lags[1]}; lower it")
    if configs.get("tidelog.delete.when") == "acknowledged" and not configs.get("tidelog.delete.groups"):
        raise ConfigError("tidelog.delete.when=acknowledged waits for groups; name them in tidelog.delete.groups")


def _check_overload(configs: Mapping[str, str]) -> None:
    kind = configs.get(POLICY, "buffer")
    if kind == "buffer":
        return
    if all(configs.get(key, "-1") == "-1" for key in LIMITS):
        raise ConfigError(f"{POLICY}={kind} has no limit; set one of {', '.join(LIMITS)}")
    if kind == "block" and not configs.get(WATCHED):
        raise ConfigError(f"{POLICY}=block names no group that producers are to wait for; set {WATCHED}")
    if kind == "drop" and configs.get("cleanup.policy", "delete") != "delete":
        raise ConfigError(
            f"{POLICY}=drop and cleanup.policy={configs['cleanup.policy']} contradict each other: what is dropped may"
            " be the last record of its key; leave one out"
        )


def check_broker(configs: Mapping[str, str]) -> None:
    """What no altered setting of the broker can check alone."""
    _check_durability(configs)


def _checked(setting: Setting, given: Given) -> str:
    try:
        return normal(setting, given.text)
    except ConfigError as error:
        raise ConfigError(f"{error} (from {given.origin})") from None


def _check_durability(configs: Mapping[str, str]) -> None:
    for key in FLUSHES:
        if configs.get(DURABILITY) == "memory" and configs.get(key) == FLUSH_EVERY_MESSAGE:
            raise ConfigError(f"{DURABILITY}=memory and {key}=1 contradict each other; leave one out")


def _check_bounds(config: BrokerConfig) -> None:
    for low, high in BOUNDS:
        if config.int(low) > config.int(high):
            raise ConfigError(
                f"{low}={config.int(low)} is above {high}={config.int(high)}; set both so that they agree"
            )
