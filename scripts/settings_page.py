"""Writes docs/reference/settings.md from the tables of settings, so that the page cannot say anything but what they do.

`python scripts/settings_page.py` writes the page; `--check` exits with 1 where the page is not what it would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tidelog.broker.settings.broker import BROKER, FOREIGN
from tidelog.broker.settings.group import GROUP
from tidelog.broker.settings.setting import LONG_MAX, STORED, WORKS, Setting
from tidelog.broker.settings.topic import TOPIC

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"

OPENING = """\
# Settings

Written by `scripts/settings_page.py` from the tables in `src/tidelog/broker/settings/`; do not edit.

Names are Kafka's where Kafka has one; ours begin with `tidelog.`. Defaults are Kafka's unless the text says otherwise.
Every setting **works**, or is **stored**: kept and shown because programs set it and tools look at it, and changing
nothing. A setting that nobody knows is refused, and the error names the nearest that there is.

## Where the broker's settings come from

The first that has a setting wins:

1. code: `tidelog.Broker(settings={"num.partitions": 3})`
2. the command line: `tidelog up --set num.partitions=3`
3. the environment: `TIDELOG_NUM_PARTITIONS=3`; for our own settings without the second `tidelog`, as in
   `TIDELOG_MAX_PARTITIONS=100`
4. `tidelog.toml` in the folder where the broker is started, or the file that `TIDELOG_CONFIG` names:

```toml
[broker]
"num.partitions" = 3
"log.retention.hours" = 24
```

Names may stand without quotes too (`num.partitions = 3`), which TOML reads as nested tables; then a name that
continues another, as `max.connections.per.ip` does `max.connections`, still needs them.

Settings marked *alterable* can be changed while the broker runs, for it alone or as the cluster's default, by any Kafka
tool (`kafka-configs --alter --entity-type brokers`). Such a change is kept, and stands over what was given at the
start.

## Topics

Given when a topic is created, and altered at any time. Where a topic has none of its own, the broker's setting beside
it counts, and then the default. What is different from Apache Kafka:

- `tidelog.durability` says what an ack means. `flush.messages=1` asks for `disk`; no other value of `flush.messages` or
  `flush.ms` changes anything, so only `tidelog.durability=memory` weakens the promise. Both at once are refused.
- `compression.type` is taken and shown with every value that Kafka has, and batches are kept as producers sent them,
  compressed or not. What is to be compressed, the producer compresses.
- `cleanup.policy=compact` keeps the last record of every key. Records without a key are refused in such a topic, as in
  Kafka; those that were there before it was compacted are removed, as in Kafka.
- One copy is kept: `min.insync.replicas` is 1, and a replication factor other than 1 (or -1, the default) is refused.
  Replication is Apache Kafka's job.
- `remote.storage.enable` is `false`: there is no remote storage.
"""

BROKER_OPENING = """\
## The broker

Kafka's settings for what Tidelog does not have are refused, with the reason:
"""

GROUP_OPENING = """\
## Groups

Altered by any Kafka tool that knows groups as a resource (`kafka-configs --alter --entity-type groups`).
"""


def page() -> str:
    parts = [
        OPENING,
        *_tables(TOPIC.values(), "the broker's setting"),
        BROKER_OPENING,
        _foreign(),
        *_tables(BROKER.values(), None),
        GROUP_OPENING,
        *_tables(GROUP.values(), "the broker's setting"),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _tables(settings: Iterable[Setting], synonyms: str | None) -> list[str]:
    every = sorted(settings, key=lambda setting: setting.key)
    works = [setting for setting in every if setting.effect == WORKS]
    stored = [setting for setting in every if setting.effect == STORED]
    found = []
    if works:
        found += ["### Those that work\n", _table(works, synonyms)]
    return [*found, "### Those that are stored\n", _table(stored, synonyms)]


def _table(settings: list[Setting], synonyms: str | None) -> str:
    titles = ["setting", "kind", "default", "takes", *([synonyms] if synonyms else ["alterable"]), "what it is"]
    rows = [titles, ["---"] * len(titles), *(_row(setting, synonyms) for setting in settings)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(setting: Setting, synonyms: str | None) -> list[str]:
    beside = ", ".join(f"`{key}`" for key in setting.synonyms) if synonyms else "yes" if setting.dynamic else ""
    takes = setting.check.wants if setting.check is not None else ""
    return [f"`{setting.key}`", setting.kind, _default(setting.default), takes, beside, _sentence(setting)]


def _sentence(setting: Setting) -> str:
    if not setting.because:
        return setting.doc
    return f"{setting.doc} Kafka's default is {_default(setting.kafka)}; ours differs: {setting.because}."


def _default(text: str | None) -> str:
    if not text:
        return "none"
    return "without limit" if text == str(LONG_MAX) else f"`{text}`"


def _foreign() -> str:
    return "".join(
        f"- `{beginning}{'*' if beginning.endswith('.') else ''}`: {reason}\n" for beginning, reason in FOREIGN.items()
    )


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        if PAGE.is_file() and PAGE.read_text() == page():
            return 0
        print(f"{PAGE} is out of date; run python scripts/settings_page.py", file=sys.stderr)
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
