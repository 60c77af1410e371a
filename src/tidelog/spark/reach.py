"""How the processes of a query reach the brokers, in a form that may stand in a plan: it holds no secret.

Options travel in Spark's plan, and from there to its UI, its event log and its executors. So a secret is refused there;
what travels is where it is: `securityFile`, a properties file as Kafka's tools take it by --command-config, or
`securityVariable`, an environment variable with the same text. Driver and executors each read theirs when they connect,
and again when they connect anew: one that was changed before the broker asks for it again needs no new query.

Each process keeps one cluster for each way to reach one, since a connection costs more than a small fetch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.client.address import parse_addresses
from tidelog.client.cluster import Cluster
from tidelog.client.security import ALIASES, OURS, Security, parse_properties
from tidelog.client.security import KNOWN as KNOWN_OF_SECURITY
from tidelog.config import nearest
from tidelog.errors import ConfigError, UsageError

SECURITY_FILE, SECURITY_VARIABLE = "securityFile", "securityVariable"
BOOTSTRAP = "bootstrap.servers"
REQUEST_TIMEOUT_MS = 30_000
MAX_PARTITION_BYTES = 4 << 20
KAFKA = "kafka."

# Values that are secret, or hold one.
SECRET = (
    "sasl.jaas.config",
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.password",
)
HONOURED = (BOOTSTRAP, "client.id", "group.id", "isolation.level", "max.partition.fetch.bytes", "request.timeout.ms")
REFUSED = {
    "auto.offset.reset": "set startingOffsets instead",
    "enable.auto.commit": "offsets are the checkpoint's",
    "interceptor.classes": "use DataFrame operations",
    "key.deserializer": "keys are bytes; cast them",
    "value.deserializer": "values are bytes; cast them",
}
# Of Kafka's consumer, and without a meaning for this one.
PASSED_OVER = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.include.jmx.reporter",
    "check.crcs",
    "client.dns.lookup",
    "client.rack",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "enable.metrics.push",
    "exclude.internal.topics",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.instance.id",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)


class Reach(NamedTuple):
    bootstrap: str
    client_id: str
    timeout_s: float
    read_committed: bool
    partition_bytes: int
    security: tuple[tuple[str, str], ...]  # settings without secrets
    security_file: str | None
    security_variable: str | None


def read_reach(given: Mapping[str, str]) -> Reach:
    """From the options of a source or a sink."""
    kafka = {key.lower()[len(KAFKA) :]: value for key, value in given.items() if key.lower().startswith(KAFKA)}
    named = {key.lower(): value for key, value in given.items()}
    for key in kafka:
        _check(key)
    if not kafka.get(BOOTSTRAP, "").strip():
        raise UsageError("no broker is named; set the option kafka.bootstrap.servers to HOST:PORT[,HOST:PORT...]")
    parse_addresses(kafka[BOOTSTRAP])
    isolation = kafka.get("isolation.level", "read_uncommitted").lower()
    if isolation not in ("read_uncommitted", "read_committed"):
        raise UsageError(f"option kafka.isolation.level is {isolation!r}; it is read_uncommitted or read_committed")
    return Reach(
        kafka[BOOTSTRAP],
        kafka.get("client.id", "tidelog-spark"),
        _number(kafka, "request.timeout.ms", REQUEST_TIMEOUT_MS) / 1000,
        isolation == "read_committed",
        _number(kafka, "max.partition.fetch.bytes", MAX_PARTITION_BYTES),
        tuple(sorted((key, value) for key, value in kafka.items() if key.startswith(OURS))),
        named.get(SECURITY_FILE.lower()),
        named.get(SECURITY_VARIABLE.lower()),
    )


def _check(key: str) -> None:
    if key in SECRET:
        raise ConfigError(
            f"option {KAFKA}{key} holds a secret, which would stand in Spark's plan, UI and event log; put {key} into a"
            f" properties file on the driver and every executor and name it by the option {SECURITY_FILE}, or into an"
            f" environment variable and name that by {SECURITY_VARIABLE}"
        )
    if key in REFUSED:
        raise ConfigError(f"option {KAFKA}{key} is not supported; {REFUSED[key]}")
    known = (*HONOURED, *KNOWN_OF_SECURITY, *ALIASES, *PASSED_OVER)
    if key not in known:
        advice = nearest(key, known, "leave it out")
        raise ConfigError(f"option {KAFKA}{key} is not a setting that this client knows; {advice}")


def _number(kafka: Mapping[str, str], key: str, default: int) -> int:
    text = kafka.get(key, str(default)).strip()
    if not (text.isascii() and text.isdigit() and int(text)):
        raise UsageError(f"option {KAFKA}{key} is {text!r}; it is a whole number above 0")
    return int(text)


def security_of(reach: Reach) -> Security | None:
    """With the secrets, read where this process runs; None where brokers ask for nothing."""
    properties: dict[str, str] = {}
    where = "the source's options"
    if reach.security_file is not None:
        where = reach.security_file
        try:
            with open(reach.security_file) as file:  # noqa: PTH123  a path as written, of any machine
                properties.update(parse_properties(file.read()))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ConfigError(f"{where}, named by {SECURITY_FILE}, cannot be read: {str(reason).lower()}") from error
    if reach.security_variable is not None:
        where = f"environment variable {reach.security_variable}"
        if reach.security_variable not in os.environ:
            raise ConfigError(f"{where}, named by {SECURITY_VARIABLE}, is not set; set it on driver and executors")
        properties.update(parse_properties(os.environ[reach.security_variable]))
    properties.update(reach.security)
    return Security.from_properties(properties, where) if properties else None


def connect(reach: Reach, *, patient: bool = False) -> Cluster:
    """`patient` where the brokers were reached before, by another process: one that restarts is waited for."""
    return Cluster(
        reach.bootstrap,
        client_id=reach.client_id,
        timeout_s=reach.timeout_s,
        security=security_of(reach),
        patient=patient,
    )


_kept: dict[tuple[int, Reach], Cluster] = {}


def borrow(reach: Reach) -> Cluster:
    """This process's cluster, for one task at a time: taken out of the drawer, and put back by `give_back`.

    The process id is in the key because Spark forks its workers: a socket must not be shared with a parent.
    """
    kept = _kept.pop((os.getpid(), reach), None)
    if kept is not None:
        if not kept.ended() and is_present(reach, kept):
            return kept
        kept.close()
    return connect(reach, patient=True)


def is_present(reach: Reach, cluster: Cluster) -> bool:
    """Whether it logs in by what is said now, in the file or the variable."""
    return cluster.security == security_of(reach)


def give_back(reach: Reach, cluster: Cluster) -> None:
    """Only where nothing is under way on its connections. The drawer has room for one: where queries of one process
    commit at once, the second that comes back is closed.
    """
    if _kept.setdefault((os.getpid(), reach), cluster) is not cluster:
        cluster.close()
