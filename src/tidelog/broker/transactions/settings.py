"""Settings and limits of transactions, under Kafka's names where Kafka has one; the defaults are Kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MAX_TRANSACTIONAL_ID_LENGTH = 1024
MAX_GROUPS_IN_TRANSACTION = 1000

KAFKA_NAMES = {
    "transaction.max.timeout.ms": "max_timeout_ms",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "abort_interval_ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "expire_interval_ms",
    "transactional.id.expiration.ms": "id_expiration_ms",
    "tidelog.max.transactional.ids": "max_ids",
}


class TransactionSettings(NamedTuple):
    max_timeout_ms: int = 900_000
    abort_interval_ms: int = 10_000
    expire_interval_ms: int = 3_600_000
    id_expiration_ms: int = 604_800_000
    max_ids: int = 100_000


def settings_from(values: Mapping[str, object]) -> TransactionSettings:
    found = {field: int(str(values[name])) for name, field in KAFKA_NAMES.items() if values.get(name) is not None}
    return TransactionSettings(**found)
