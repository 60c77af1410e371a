"""Who must be allowed what, so that nobody but a store's owners can write its histories: as rules of Kafka's.

    owners      read and write all topics of the store, its transactional ids and its group
    senders     write commands, read replies, and nothing else

Rules:
- Rules only count where the broker has an authorizer and people log in. Whoever may do everything may do this as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.client.admin.access import LITERAL, OPERATIONS, PERMISSIONS, PREFIXED, RESOURCES, Acl
from tidelog.sourcing.store_topics import StoreTopics

EVERYWHERE = "*"


def rules(named: StoreTopics, *, owners: list[str], senders: list[str]) -> list[Acl]:
    found = [rule for user in owners for rule in _of_owner(named, user)]
    return found + [rule for user in senders for rule in _of_sender(named, user)]


def _of_owner(named: StoreTopics, user: str) -> Iterator[Acl]:
    for topic in sorted(named.settings()):
        for operation in ("read", "write", "create", "describe", "describe-configs"):
            yield _rule("topic", LITERAL, topic, user, operation)
    yield _rule("group", LITERAL, named.group, user, "read")
    for operation in ("write", "describe"):
        yield _rule("transactional-id", PREFIXED, named.writers, user, operation)


def _of_sender(named: StoreTopics, user: str) -> Iterator[Acl]:
    for operation in ("write", "describe"):
        yield _rule("topic", LITERAL, named.commands, user, operation)
    for operation in ("read", "describe"):
        yield _rule("topic", LITERAL, named.replies, user, operation)


def _rule(resource: str, pattern: int, name: str, user: str, operation: str) -> Acl:
    allow = PERMISSIONS["allow"]
    return Acl(RESOURCES[resource], pattern, name, f"User:{user}", EVERYWHERE, OPERATIONS[operation], allow)
