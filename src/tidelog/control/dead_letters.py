"""Dead letters: the headers of a record that somebody could not take, as Kafka Connect writes them to its dead-letter
topics, so that tools which know those know these.

    __connect.errors.topic, .partition, .offset     where the record stands, or was to stand
    __connect.errors.stage                          VALUE_CONVERTER, KEY_CONVERTER, TASK_PUT, ...
    __connect.errors.class.name                     what was to take it
    __connect.errors.exception.class.name, .exception.message          the error

Those of an output of an app stand in `<its topic>.dead`, and also say which output and generation they are of:
`__connect.errors.connector.name`, the name of its sink.
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "__connect.errors."
MESSAGE, OWNER = "exception.message", "connector.name"
SUFFIX = ".dead"  # of the topic of an output's letters
# A letter has the time of its record, which may be old; and who has letters wants to see all of them.
SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1"}


def topic_of_letters(topic: str) -> str:
    return topic + SUFFIX


def told_of_error(stage: str, class_name: str, exception: str) -> dict[str, str]:
    """In the order in which Connect writes them; where the record stands comes before, the message behind."""
    return {"stage": stage, "class.name": class_name, "exception.class.name": exception}


def headers(place: Mapping[str, object], error: Mapping[str, str], message: str) -> list[tuple[str, bytes]]:
    told = {**place, **error, MESSAGE: message}
    return [(PREFIX + name, str(value).encode()) for name, value in told.items()]
