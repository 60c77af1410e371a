"""What SIGHUP changes: settings that can be read again are, certificates are opened anew, and the log says what cannot.

    read again          `RELOADED` (TLS, logins, super users, the log's level) and what may be altered while it runs
    needs a restart     everything else that differs from what the broker was started with; it is named, and waits
    never mind          users, rules and quotas: they are the broker's own state, and count at once

Either all of it counts or nothing does: a file that cannot be read leaves the broker as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.settings.broker import BROKER
from tidelog.broker.settings.broker_access import RELOADED
from tidelog.config import BrokerConfig, Given
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.tls import Handshakes
    from tidelog.logger import Logger


class Differences(NamedTuple):
    """`given` is what counts from now on; the names say what changed and what would only after a restart."""

    given: dict[str, Given]
    changed: list[str]
    waiting: list[str]


def differences(now: BrokerConfig, read: BrokerConfig) -> Differences:
    given, changed, waiting = dict(now.given), [], []
    for key, setting in BROKER.items():
        before, after = now.given.get(key), read.given.get(key)
        if (before.text if before else None) == (after.text if after else None):
            continue
        if key not in RELOADED and not setting.dynamic:
            waiting.append(key)
            continue
        changed.append(key)
        if after is None:
            del given[key]
        else:
            given[key] = after
    return Differences(given, changed, waiting)


def reload(
    broker: Broker,
    handshakes: Handshakes | None,
    logger: Logger,
    read: Callable[[], BrokerConfig],
    *,
    https: bool = False,
) -> BrokerConfig:
    """The settings that count from now on; the very same as before when they could not be read.

    With `https` certificates are checked also where no other listener has them: the HTTP server is started anew with
    them, and would not come up.
    """
    try:
        found = differences(broker.config, read())
        candidate = broker.with_given(found.given)
        if handshakes is not None or https:
            from tidelog.broker.tls import server_context

            context = server_context(candidate)
            if handshakes is not None:
                handshakes.context = context
    except ConfigError as error:
        logger.error("not reloaded", why=f"{error}; then send SIGHUP again, until then all is as it was")
        return broker.config
    broker.reload(found.given)
    logger.set_level(broker.config.text("tidelog.log.level"))
    said = {"changed": ", ".join(found.changed) or "nothing"}
    if handshakes is not None:
        said["certificates"] = "read again"
    if found.waiting:
        said["needs_restart"] = ", ".join(found.waiting)
    logger.info("reloaded", **said)
    return broker.config
