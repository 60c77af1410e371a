"""Settings of topics, brokers and groups: what they are, where each comes from, and changing them one by one.

Settings that begin with `tidelog.` are ours. Another broker does not know them, so there they are left out with one
warning (`portable`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.refusal import check
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER, GROUP = 2, 4, 32
KINDS = {"topic": TOPIC, "broker": BROKER, "group": GROUP}

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OURS = "tidelog."
DOCUMENTATION_SINCE = 3

SOURCES = {
    1: "topic",
    2: "broker (dynamic)",
    3: "all brokers (dynamic)",
    4: "broker (static)",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
CONFIG_TYPES = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}


class Config(NamedTuple):
    name: str
    value: str | None  # None when it is sensitive
    source: str
    read_only: bool
    sensitive: bool
    type: str
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source == SOURCES[5]


def describe(
    cluster: Cluster, kind: int, name: str, *, keys: Iterable[str] | None = None, documentation: bool = False
) -> list[Config]:
    """Every setting of one topic, broker (its node id) or group, by name."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
    )

    def attempt() -> list[Config]:
        connection = _connection(cluster, kind, name)
        version = connection.version_of(DescribeConfigsRequest)
        request = DescribeConfigsRequest(resources=[resource])
        request.include_documentation = documentation and version >= DOCUMENTATION_SINCE
        (result,) = connection.call(request, DescribeConfigsResponse, version=version).results
        check(result.error_code, f"describing {_what(kind, name)}", result.error_message)
        return sorted(_config(given) for given in result.configs)

    return cluster.retry(attempt)


def alter(
    cluster: Cluster,
    kind: int,
    name: str,
    *,
    set: Mapping[str, str] | None = None,
    delete: Iterable[str] = (),
    append: Mapping[str, str] | None = None,
    subtract: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """Changes the settings named, no others. `delete` brings back the default; `append`, `subtract` are for lists."""
    changes: list[tuple[str, int, str | None]] = [(key, DELETE, None) for key in delete]
    for operation, values in ((SET, set), (APPEND, append), (SUBTRACT, subtract)):
        changes += [(key, operation, value) for key, value in (values or {}).items()]
    kept = portable(cluster, dict.fromkeys((key for key, _, _ in changes), ""))
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
            if key in kept
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)

    def attempt() -> None:
        connection = _connection(cluster, kind, name)
        (result,) = connection.call(request, IncrementalAlterConfigsResponse).responses
        check(result.error_code, f"altering {_what(kind, name)}", result.error_message)

    cluster.retry(attempt)


def portable(cluster: Cluster, configs: Mapping[str, str]) -> dict[str, str]:
    """Without our own settings where the broker is not ours; warns, naming what is lost."""
    ours = sorted(key for key in configs if key.startswith(OURS))
    if not ours or cluster.is_tidelog():
        return dict(configs)
    warnings.warn(f"this broker is not Tidelog: {', '.join(ours)} is left out, and what it asks for", stacklevel=3)
    return {key: value for key, value in configs.items() if key not in ours}


def _connection(cluster: Cluster, kind: int, name: str) -> Connection:
    """A broker's own settings are known to that broker alone; an empty name means all brokers' shared ones."""
    return cluster.node(int(name)) if kind == BROKER and name else cluster.any_node()


def _what(kind: int, name: str) -> str:
    noun = next((noun for noun, number in KINDS.items() if number == kind), "resource")
    return f"{noun} {name!r}"


def _config(given: DescribeConfigsResourceResult) -> Config:
    return Config(
        given.name,
        given.value,
        SOURCES.get(given.config_source, "unknown"),
        given.read_only,
        given.is_sensitive,
        CONFIG_TYPES.get(given.config_type, "unknown"),
        given.documentation,
    )
