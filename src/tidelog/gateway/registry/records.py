"""The records of `_schemas`, as Confluent's registry writes and reads them: JSON without spaces, members in this order.

    key                                                          value
    {"keytype":"SCHEMA","subject":S,"version":N,"magic":1}       {"subject","version","id","schemaType","references",
                                                                  "metadata","ruleSet","schema","deleted"}
    {"keytype":"CONFIG","subject":S or null,"magic":0}           {"subject","compatibilityLevel","normalize"}
    {"keytype":"MODE","subject":S or null,"magic":0}             {"subject","mode"}
    {"keytype":"DELETE_SUBJECT","subject":S,"magic":0}           {"subject","version"}: all up to it are deleted
    {"keytype":"NOOP","magic":0}                                 null, or {"lastId":N}: ids up to it were given

Confluent's registry looks at no value of NOOP; ours has the last id there when versions are taken away for good, whose
records compaction forgets. A schemaType that is not there is AVRO. Null takes the record of that key away. Members that
are not named here are kept as they are, and other types of keys are left alone: newer registries have more of both.
"""

from __future__ import annotations

from json import dumps, loads
from typing import Any, NamedTuple

TOPIC = "_schemas"
SCHEMA, CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT = "SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT"
NOOP = "NOOP"
AVRO = "AVRO"


class RegistryRecord(NamedTuple):
    key: bytes
    value: bytes | None


class Read(NamedTuple):
    kind: str
    subject: str | None
    version: int
    value: dict[str, Any] | None


def schema_record(value: dict[str, Any] | None, subject: str, version: int) -> RegistryRecord:
    return _record({"keytype": SCHEMA, "subject": subject, "version": version, "magic": 1}, value)


def config_record(subject: str | None, value: dict[str, Any] | None) -> RegistryRecord:
    return _record(_of_subject(CONFIG, subject), _with_subject(subject, value))


def mode_record(subject: str | None, mode: str | None) -> RegistryRecord:
    return _record(_of_subject(MODE, subject), _with_subject(subject, None if mode is None else {"mode": mode}))


def delete_subject_record(subject: str, version: int) -> RegistryRecord:
    return _record(_of_subject(DELETE_SUBJECT, subject), {"subject": subject, "version": version})


def last_id_record(last_id: int) -> RegistryRecord:
    return _record({"keytype": NOOP, "magic": 0}, {"lastId": last_id})


def read(key: bytes | None, value: bytes | None) -> Read | None:
    """None for what is not a record of a registry's, or of a kind that is not known here."""
    try:
        found = loads(key or b"")
        held = None if value is None else loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(held, dict | None):
        return None
    kind, subject, version = found.get("keytype"), found.get("subject"), found.get("version", 0)
    if kind == NOOP:
        return Read(NOOP, None, 0, held) if held is not None and isinstance(held.get("lastId"), int) else None
    if kind not in (SCHEMA, CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT):
        return None
    if not isinstance(subject, str | None) or not isinstance(version, int):
        return None
    if subject is None and kind not in (CONFIG, MODE):
        return None
    return Read(kind, subject, version, held)


def _of_subject(kind: str, subject: str | None) -> dict[str, Any]:
    return {"keytype": kind, "subject": subject, "magic": 0}


def _with_subject(subject: str | None, value: dict[str, Any] | None) -> dict[str, Any] | None:
    return value if value is None or subject is None else {"subject": subject, **value}


def _record(key: dict[str, Any], value: dict[str, Any] | None) -> RegistryRecord:
    return RegistryRecord(_bytes(key), None if value is None else _bytes(value))


def _bytes(value: dict[str, Any]) -> bytes:
    try:
        return dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a letter in metadata or rules, which only an escape can say
        return dumps(value, separators=(",", ":")).encode()
