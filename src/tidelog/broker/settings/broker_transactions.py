"""The settings of the broker about transactions: how long they may be open, how many ids there may be."""

from __future__ import annotations

from tidelog.broker.settings.setting import INT, Setting, at_least

TRANSACTIONS = [
    Setting(
        "tidelog.max.transactional.ids",
        INT,
        "100000",
        "Transactional ids in all; a producer with a further one is refused.",
        at_least(1),
        dynamic=True,
    ),
    Setting(
        "transaction.max.timeout.ms",
        INT,
        "900000",
        "The longest transaction.timeout.ms that a producer may ask for.",
        at_least(1),
    ),
    Setting(
        "transactional.id.expiration.ms",
        INT,
        "604800000",
        "How long an unused transactional id is kept.",
        at_least(1),
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        "10000",
        "How often transactions are looked for that have been open for too long.",
        at_least(1),
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        "3600000",
        "How often the broker looks for unused transactional ids.",
        at_least(1),
    ),
]
