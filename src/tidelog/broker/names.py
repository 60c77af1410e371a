"""The names of topics: which are legal, which collide, which are the broker's own.

The rules are Kafka's: 1 to 249 of the characters a-z A-Z 0-9 . _ -, and neither "." nor "..". Two names that differ
only in "." and "_" collide, because Kafka makes names of metrics from them with one for the other; the second is
refused.

Names that begin with `__tidelog.` are internal: they are left out where a client asks for all topics, so that who
reads everything does not read notes. Some of them are clients' (`CLIENT_PREFIXES`: the marks of sinks, what a sink has
staged, questions to pipelines and the replies, which jobs are done; `CLIENT_TOPICS`: the catalog of views, the progress
of captures, and commands to long-running parts) and are topics like any other in everything else. The rest are the
broker's own: clients may read such a topic by its name, and neither create, alter, delete nor write it. The status
topic alone they may write to: every long-running part reports there.
"""

from __future__ import annotations

NAME_LENGTH_MAX = 249
LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
INTERNAL_PREFIX = "__tidelog."
CLIENT_PREFIXES = (
    "__tidelog.marks.",
    "__tidelog.staging.",
    "__tidelog.questions.",
    "__tidelog.replies.",
    "__tidelog.seed.",
    "__tidelog.done.",
)
CLIENT_TOPICS = ("__tidelog.views", "__tidelog.captures", "__tidelog.commands")


def fault_of(name: str) -> str | None:
    """What is wrong with a topic's name, None if nothing is."""
    if not name:
        return "a topic's name is empty; give it one"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}; choose another name"
    if len(name) > NAME_LENGTH_MAX:
        return f"a topic's name has {len(name)} characters; at most {NAME_LENGTH_MAX} are allowed"
    if not LEGAL.issuperset(name):
        return f"{name!r} is not a topic's name; use letters, digits, '.', '_' and '-' only"
    return None


def is_internal(name: str) -> bool:
    return name.startswith(INTERNAL_PREFIX)


def is_own(name: str) -> bool:
    """Whether it is the broker's alone."""
    return is_internal(name) and name not in CLIENT_TOPICS and not name.startswith(CLIENT_PREFIXES)


def collision_key(name: str) -> str:
    """The same for names that collide."""
    return name.replace(".", "_")
