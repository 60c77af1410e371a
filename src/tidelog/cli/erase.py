"""`tidelog erase SUBJECT --store NAME --keys URL --reason TEXT`: a person's key is destroyed; what is left is said."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.main import FAILED, OK
from tidelog.cli.terminal import confirm, count_text, show_json
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.sourcing.erasure.erasing import ErasureOutcome

EXAMPLES = """\
  tidelog erase s-4711 --store courses --reason 'request of May 3'
  tidelog erase s-4711 --store courses --store billing --reason 'request of May 3' --yes \\
      --keys 'postgresql://${USER}:${PASSWORD}@db/keys'
"""

KEYS = "TIDELOG_KEYS"

OTHERS = """\
not touched, and for you to see to:
  backups        of the broker: they are unreadable without the key, but for what was excised (tidelog restore --shun)
  processes      what a process manager derived and kept in clear (NAME.process): raise its state_version
  PostgreSQL     tables that you filled: delete the rows and VACUUM FULL; then replicas, archives of its log, backups
  Redis          delete the keys, then BGREWRITEAOF or SAVE: its files have them until then
  OpenSearch     delete the documents, then force a merge with only_expunge_deletes; snapshots have them
  Spark          what a pipeline has revealed is in checkpoints and state; encrypted fields are unreadable there, too
  elsewhere      mails, logs and exports"""


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser(
        "erase", "Destroy the key of a person, so that his fields are unreadable everywhere.", EXAMPLES, parent=reach
    )
    made.add_argument("subject", metavar="SUBJECT", help="the data subject's id, as events have it")
    made.add_argument("--store", metavar="NAME", action="append", default=[], help="an event store (may be repeated)")
    made.add_argument("--keys", metavar="URL", help=f"the store of keys (default: {KEYS}, else sqlite:///keys.db)")
    made.add_argument("--reason", metavar="TEXT", help="the reason; it is kept forever, so do not name a person in it")
    made.add_argument(
        "--settle",
        metavar="SECONDS",
        type=command.seconds,
        help="how long to wait until owners have forgotten the key (default: 15; as long as their cache_s, at least)",
    )
    made.add_argument(
        "--rebuilt",
        metavar="SECONDS",
        type=command.seconds,
        help="how long to wait until the programs that have read models have rebuilt them (default: 60)",
    )
    made.add_argument("--yes", action="store_true", help="do not ask")
    command.add_allowed(made)
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    from tidelog.sourcing.erasure.digest_keys import is_used_by
    from tidelog.sourcing.erasure.erasing import SETTLE_S, erase
    from tidelog.sourcing.erasure.keys import open_keys
    from tidelog.sourcing.erasure.purging import REBUILT_S
    from tidelog.sourcing.store_topics import StoreTopics, partitions_of

    options = command.parse(parser(), arguments)
    if not options.store:
        raise UsageError("erase: from which store? say --store NAME")
    if not (options.reason or "").strip():
        raise UsageError("erase: why? say --reason TEXT; it is kept with the proof")
    url = options.keys or os.environ.get(KEYS) or "sqlite:///keys.db"
    keys = open_keys(url, make=False)
    with command.connect(options) as cluster:
        for name in options.store:
            partitions_of(cluster, StoreTopics(name))  # one that is misspelt is told before anything is destroyed
        if not options.yes and not confirm("destroy the key? nobody can bring it back"):
            raise UsageError("nothing was destroyed; say --yes to do it without being asked")
        done = erase(
            cluster,
            options.store,
            options.subject,
            keys,
            reason=options.reason,
            settle_s=SETTLE_S if options.settle is None else options.settle,
            rebuilt_s=REBUILT_S if options.rebuilt is None else options.rebuilt,
            allowed=command.allowed(options),
        )
    if done is None:
        print(no_key(url, [name for name in options.store if not is_used_by(keys, name)]))
        return FAILED
    if options.json:
        show_json([one._asdict() for one in done])
    else:
        show(done)
    return OK


def no_key(url: str, strangers: list[str]) -> str:
    """`strangers` are stores that have never written with these keys."""
    from tidelog.control.urls import redacted

    said = f"the subject never had a key in {redacted(url)}"
    if strangers:
        names = ", ".join(strangers)
        return f"{said}, and nor had store {names}: is it the store of keys that the SubjectCipher of {names} has?"
    return f"{said}; nothing of it was encrypted. `tidelog excise` takes records out"


def show(done: list[ErasureOutcome]) -> None:
    for one in done:
        events = count_text(one.events, "event")
        print(f"{one.store}: key {one.key} is destroyed; personal fields of {events} read as erased")
        for topic, count in one.purged.items():
            print(f"{one.store}: {count_text(count, 'record')} of {topic} taken out")
        for name in one.rebuilt:
            print(f"{one.store}: read model {name} is rebuilt, and its old rows are overwritten")
        for line in one.left:
            print(f"to do: {line}")
    print(OTHERS)
