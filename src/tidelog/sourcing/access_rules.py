"""Who must be allowed what, so that nobody but a store's owners can write its histories: as rules of Kafka's.

    owners      read and write all topics of the store, its transactional ids and its group; status
    senders     write commands, read replies, and nothing else
    followers   read events and replies, write commands; and of each name that they run (a process manager, effects or a
                read model) what it keeps, its transactional ids and groups; the catalog of views; status

Rules:
- Rules only count where the broker has an authorizer and people log in. Whoever may do everything may do this as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.client.admin.access import LITERAL, PREFIXED, Acl, allowing
from tidelog.control.catalog import CATALOG, OWNER_PREFIX
from tidelog.control.status import COMMANDS, STATUS
from tidelog.sourcing.store_topics import StoreTopics, checked_name


def rules(
    named: StoreTopics,
    *,
    owners: Sequence[str] = (),
    senders: Sequence[str] = (),
    followers: Sequence[str] = (),
    follows: Sequence[str] = (),
) -> list[Acl]:
    """`follows` are the names of what the followers run."""
    found = [rule for user in owners for rule in _of_owner(named, user)]
    found += [rule for user in senders for rule in _of_sender(named, user)]
    for user in followers:
        found += _of_follower(named, user)
        found += [rule for name in follows for rule in _of_followed(checked_name(name), user)]
    return found


def _of_owner(named: StoreTopics, user: str) -> Iterator[Acl]:
    for topic in sorted(named.settings()):
        for operation in ("read", "write", "create", "describe", "describe-configs"):
            yield allowing("topic", LITERAL, topic, user, operation)
    yield allowing("group", LITERAL, named.group, user, "read")
    for operation in ("write", "describe"):
        yield allowing("transactional-id", PREFIXED, named.writers, user, operation)
    yield from _of_part(user)


def _of_part(user: str) -> Iterator[Acl]:
    """It tells its status and hears commands. Who tells parts what to do is somebody else."""
    for topic in (STATUS.topic, COMMANDS.topic):
        for operation in ("read", "create", "describe", "describe-configs"):
            yield allowing("topic", LITERAL, topic, user, operation)
    yield allowing("topic", LITERAL, STATUS.topic, user, "write")


def _of_sender(named: StoreTopics, user: str) -> Iterator[Acl]:
    for operation in ("write", "describe"):
        yield allowing("topic", LITERAL, named.commands, user, operation)
    for operation in ("read", "describe"):
        yield allowing("topic", LITERAL, named.replies, user, operation)


def _of_follower(named: StoreTopics, user: str) -> Iterator[Acl]:
    yield from _of_sender(named, user)
    for operation in ("read", "describe"):
        yield allowing("topic", LITERAL, named.events, user, operation)
    yield from _of_part(user)
    for operation in ("read", "write", "create", "describe", "describe-configs"):
        yield allowing("topic", LITERAL, CATALOG.topic, user, operation)


def _of_followed(name: str, user: str) -> Iterator[Acl]:
    for kind in ("process", "effects"):
        for operation in ("read", "write", "create", "describe"):
            yield allowing("topic", LITERAL, f"{name}.{kind}", user, operation)
        yield allowing("group", LITERAL, f"tidelog.{kind}.{name}", user, "read")
        for operation in ("write", "describe"):
            yield allowing("transactional-id", LITERAL, f"tidelog.{kind}.{name}", user, operation)
    for operation in ("write", "describe"):
        yield allowing("transactional-id", LITERAL, OWNER_PREFIX + name, user, operation)
    yield allowing("group", PREFIXED, f"tidelog.{name}.", user, "read")
