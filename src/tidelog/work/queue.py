"""The topic and the share group of a queue: made as workers need them, and whether anything is left in it.

Rules:
- What somebody has set stays. A group without settings of its own begins with what was sent before it
  (`share.auto.offset.reset=earliest`: Kafka's default skips that), and waits BACKOFF_MS after a delivery that failed.
- A topic that is made here takes delays up to DELAY_MAX_MS. One that is there keeps its settings.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.admin import configs, share_groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.errors import BrokerError, TidelogError, UsageError
from tidelog.wire.error_code import ErrorCode

BACKOFF_MS = 1_000
DELAY_MAX_MS = 24 * 3_600_000
RESET, BACKOFF = "share.auto.offset.reset", "tidelog.retry.backoff.ms"
ATTEMPTS, LETTERS = "share.delivery.count.limit", "errors.deadletterqueue.topic.name"
LETTERS_PREFIX = "errors.deadletterqueue.topic.name.prefix"
DELAY_MAX, MAY_HAVE_LETTERS = "tidelog.delay.max.ms", "errors.deadletterqueue.group.enable"
DEFAULTS = {RESET: "earliest", BACKOFF: str(BACKOFF_MS)}


def group_settings(
    *, backoff_s: float | None = None, attempts: int | None = None, dead_letters: str | None = None
) -> dict[str, str]:
    """Those that are given."""
    if backoff_s is not None and backoff_s < 0:
        raise UsageError(f"a back-off of {backoff_s} s is negative; 0 means none")
    given = {
        BACKOFF: None if backoff_s is None else str(round(backoff_s * 1000)),
        ATTEMPTS: None if attempts is None else str(attempts),
        LETTERS: dead_letters,
    }
    return {name: value for name, value in given.items() if value is not None}


def prepare(cluster: Cluster, topic: str, group: str, given: Mapping[str, str]) -> int | None:
    """Before the first worker: the topic, the topic of dead letters if one is named, and the group's settings. Returns
    at which delivery a job that fails is given up, if the broker tells.
    """
    if LETTERS in given:
        check_letters(cluster, given[LETTERS])
    ensure_topic(cluster, topic)
    if LETTERS in given:
        topics.ensure(cluster, given[LETTERS], configs={MAY_HAVE_LETTERS: "true"})
    described = configs.describe(cluster, configs.GROUP, group)
    own = {one.name for one in described if not one.is_default}
    ours = cluster.is_tidelog()
    wanted = {name: value for name, value in DEFAULTS.items() if name not in own and (ours or name == RESET)}
    configs.alter(cluster, configs.GROUP, group, set={**wanted, **given})
    limit = {**{one.name: one.value for one in described}, **given}.get(ATTEMPTS)
    return None if limit is None else int(limit)


def check_letters(cluster: Cluster, name: str) -> None:
    """Before anything is made: a name that the broker refuses must not leave a topic behind."""
    try:
        node = str(min(cluster.ask_metadata([]).nodes))
        found = configs.describe(cluster, configs.BROKER, node, keys=[LETTERS_PREFIX])
    except TidelogError:  # not for this user, or another broker: it will tell
        return
    prefix = next((one.value for one in found if one.name == LETTERS_PREFIX), None) or ""
    if not name.startswith(prefix):
        raise UsageError(
            f"dead letters go to a topic whose name begins with {prefix!r}, and {name!r} does not; call it"
            f" {prefix}{name}, or set {LETTERS_PREFIX} of the broker"
        )


def ensure_topic(cluster: Cluster, topic: str) -> None:
    try:
        cluster.partitions(topic)
    except BrokerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        topics.ensure(cluster, topic, configs={DELAY_MAX: str(DELAY_MAX_MS)} if cluster.is_tidelog() else None)


def longest_delay_ms(cluster: Cluster, topic: str) -> int:
    """0 where the topic, or another broker, delays nothing."""
    found = configs.describe(cluster, configs.TOPIC, topic, keys=[DELAY_MAX])
    return next((int(one.value) for one in found if one.name == DELAY_MAX and one.value), 0)


def is_empty(cluster: Cluster, topic: str, group: str) -> bool:
    """Whether each record that is there is done with: accepted, or given up. What is delayed is not."""
    partitions = cluster.partitions(topic)
    firsts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    begun = {one.at: one for one in _begun(cluster, group)}
    for at in partitions:
        start = begun[at].start if at in begun else firsts[at].offset
        if start < ends[at].offset and not (at in begun and begun[at].lag == 0):
            return False
    return True


def _begun(cluster: Cluster, group: str) -> list[share_groups.ShareOffset]:
    """Nothing, of a group whose first worker is about to join."""
    try:
        return share_groups.offsets(cluster, group)
    except BrokerError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return []
