"""Users, access rules and quotas: a fold over `__tidelog.access`.

    key                                                              value (a tombstone: there is none any more)
    {"v":1,"kind":"user","name":U,"mechanism":M}                     {"salt":B64,"iterations":N,"stored_key":B64,
                                                                     "server_key":B64}    M as SCRAM-SHA-256
    {"v":1,"kind":"acl","resource":R,"pattern":P,"name":N,           {}    numbers are Kafka's
     "principal":U,"host":H,"operation":O,"permission":A}
    {"v":1,"kind":"quota","user":U,"client-id":C}                    {"producer_byte_rate":N,...}    null is the default
                                                                     entity; a field that is missing is not in it
    {"v":1,"kind":"secret"}                                          {"secret":B64}    see `logins.decoy`

Rules:
- Keys are written in this order of fields, so that equal keys are equal bytes. What is newer or unknown is refused.
- A password is in no record: what is kept of it checks a proof and cannot make one. It would still let somebody guess
  at leisure, so no client can read this topic, whatever it may read else (`SECRET_TOPICS` in `topics`).
- `shapes` is what can be seen of users' credentials without a login, counted: decoys are of the same shapes.
- `revision` counts changes: what is derived from this state and remembered goes by it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.broker.access.entities import Entity
from tidelog.broker.decision import NewRecord
from tidelog.broker.record_text import decode, decode_key, encode
from tidelog.wire.acl import Acl
from tidelog.wire.scram import Credential

VERSION = 1
KINDS = ("user", "acl", "quota", "secret")
ACL_FIELDS = ("resource", "pattern", "name", "principal", "host", "operation", "permission")


class Shape(NamedTuple):
    """What SCRAM tells of a credential to whoever gives the user's name."""

    iterations: int
    salt_bytes: int


@dataclass(slots=True)
class AccessState:
    """Made by `fresh`, changed by `apply` alone."""

    users: dict[tuple[str, str], Credential] = field(default_factory=dict)
    acls: dict[Acl, None] = field(default_factory=dict)
    quotas: dict[Entity, Mapping[str, float]] = field(default_factory=dict)
    secret: bytes = b""
    shapes: dict[str, Counter[Shape]] = field(default_factory=dict, compare=False)  # by mechanism
    revision: int = field(default=0, compare=False)


def fresh() -> AccessState:
    return AccessState()


def apply(state: AccessState, key: bytes, value: bytes | None) -> None:
    parsed = decode_key(key, "__tidelog.access", VERSION, KINDS)
    content: dict[str, Any] | None = None if value is None else decode(value)
    state.revision += 1
    kind = parsed["kind"]
    if kind == "user":
        _put_user(state, parsed["name"], parsed["mechanism"], None if content is None else _credential(content))
    elif kind == "acl":
        acl = Acl(*(parsed[name] for name in ACL_FIELDS))
        if content is None:
            state.acls.pop(acl, None)
        else:
            state.acls[acl] = None
    elif kind == "quota":
        entity = Entity(tuple((name, parsed[name]) for name in ("user", "client-id") if name in parsed))
        _put(state.quotas, entity, content)
    else:
        assert content is not None, "the secret is never taken back"
        state.secret = b64decode(content["secret"])


def to_records(state: AccessState) -> Iterator[NewRecord]:
    """The records whose fold is this state again."""
    if state.secret:
        yield secret_record(state.secret)
    for (name, mechanism), credential in state.users.items():
        yield user_record(name, mechanism, credential)
    for acl in state.acls:
        yield acl_record(acl)
    for entity, values in state.quotas.items():
        yield quota_record(entity, values)


def user_record(name: str, mechanism: str, kept: Credential | None) -> NewRecord:
    key = encode({"v": VERSION, "kind": "user", "name": name, "mechanism": mechanism})
    if kept is None:
        return NewRecord(key, None)
    content = {
        "salt": b64encode(kept.salt).decode(),
        "iterations": kept.iterations,
        "stored_key": b64encode(kept.stored_key).decode(),
        "server_key": b64encode(kept.server_key).decode(),
    }
    return NewRecord(key, encode(content))


def acl_record(acl: Acl, *, gone: bool = False) -> NewRecord:
    key = {"v": VERSION, "kind": "acl", **dict(zip(ACL_FIELDS, acl, strict=True))}
    return NewRecord(encode(key), None if gone else b"{}")


def quota_record(entity: Entity, values: Mapping[str, float]) -> NewRecord:
    """Without any values, a tombstone."""
    key = {"v": VERSION, "kind": "quota", **dict(entity.parts)}
    return NewRecord(encode(key), encode(dict(values)) if values else None)


def secret_record(secret: bytes) -> NewRecord:
    return NewRecord(encode({"v": VERSION, "kind": "secret"}), encode({"secret": b64encode(secret).decode()}))


def _credential(content: dict[str, Any]) -> Credential:
    salt, stored_key, server_key = (b64decode(content[name]) for name in ("salt", "stored_key", "server_key"))
    return Credential(salt, content["iterations"], stored_key, server_key)


def _put_user(state: AccessState, name: str, mechanism: str, kept: Credential | None) -> None:
    shapes = state.shapes.setdefault(mechanism, Counter())
    before = state.users.get((name, mechanism))
    if before is not None:
        shapes[_shape(before)] -= 1
    if kept is not None:
        shapes[_shape(kept)] += 1
    state.shapes[mechanism] = +shapes  # without those that nobody has any more
    _put(state.users, (name, mechanism), kept)


def _shape(kept: Credential) -> Shape:
    return Shape(kept.iterations, len(kept.salt))


def _put(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
