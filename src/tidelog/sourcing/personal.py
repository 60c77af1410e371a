"""Personal fields of events and states: which they are, and the cipher that a store may have for them.

    @dataclass(frozen=True)
    class Enrolled:
        student_id: str
        name: Annotated[str, Personal("student_id")]     under the key of the subject that `student_id` names
        note: Annotated[str, Personal()]                 under the key of the entity itself

Rules:
- A personal field is a `str` (or `str | None`). Whatever it is, its text is encrypted, never a part of it.
- With a cipher it is stored as `{"personal": "..."}`, under the key of its subject, with where it stands (`identity`)
  as associated data. Without a cipher it is stored as it is.
- A field whose key is destroyed reads as ERASED, a text of a type of its own. Folds go on with it.
- What was stored in clear stays readable when a cipher comes later.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Protocol, get_args, get_origin, get_type_hints

from tidelog.errors import UsageError

STORED_AS = "personal"


class Personal:
    """`subject` is the name of the field with the data subject's id; without it the entity is the subject."""

    __slots__ = ("subject",)

    def __init__(self, subject: str | None = None) -> None:
        self.subject = subject

    def __repr__(self) -> str:
        return f"Personal({self.subject!r})" if self.subject else "Personal()"


class Erased(str):
    """What reads in place of a personal field whose key is destroyed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ERASED"


ERASED = Erased("(erased)")


class Cipher(Protocol):
    """`identity` says where a text stands (`ENTITY/VERSION/TYPE/FIELD`): a text that was moved does not decrypt."""

    def encrypt(self, subject: str, identity: str, plaintext: str) -> str: ...

    def decrypt(self, subject: str, identity: str, text: str) -> str | Erased: ...


class PersonalField(NamedTuple):
    name: str
    subject: str | None


def personal_fields(cls: type) -> tuple[PersonalField, ...]:
    """Of a dataclass, a msgspec Struct or a pydantic model."""
    hints = get_type_hints(cls, include_extras=True)
    found = []
    for name, hint in hints.items():
        marks = [one for one in get_args(hint)[1:] if isinstance(one, Personal)] if _is_annotated(hint) else []
        if not marks:
            continue
        kinds = {one for one in (get_args(get_args(hint)[0]) or (get_args(hint)[0],)) if one is not type(None)}
        if kinds != {str}:
            raise UsageError(f"{cls.__name__}.{name} is personal and not a str; keep it as text")
        if marks[0].subject is not None and marks[0].subject not in hints:
            raise UsageError(
                f"{cls.__name__}.{name} is personal by {marks[0].subject!r}, and {cls.__name__} has no such field"
            )
        found.append(PersonalField(name, marks[0].subject))
    return tuple(found)


def _is_annotated(hint: Any) -> bool:
    return get_origin(hint) is Annotated


def conceal(
    fields: dict[str, Any], personal: tuple[PersonalField, ...], entity: str, place: str, cipher: Cipher
) -> dict[str, Any]:
    """Fields as they are stored. What was read as ERASED is stored as an erased text again: empty."""
    stored = dict(fields)
    for name, by in personal:
        value = fields.get(name)
        if value is None or isinstance(value, dict):
            continue
        subject = entity if by is None else str(fields[by])
        text = "" if isinstance(value, Erased) else cipher.encrypt(subject, f"{place}/{name}", value)
        stored[name] = {STORED_AS: text}
    return stored


def reveal(
    stored: dict[str, Any], personal: tuple[PersonalField, ...], entity: str, place: str, cipher: Cipher | None
) -> dict[str, Any]:
    """Fields in clear. Without a cipher, what is encrypted reads as ERASED: its keys are not here."""
    fields = dict(stored)
    for name, by in personal:
        value = stored.get(name)
        if not isinstance(value, dict):
            continue
        text = str(value.get(STORED_AS, ""))
        subject = entity if by is None else str(stored.get(by))
        known = cipher is not None and text != ""
        fields[name] = cipher.decrypt(subject, f"{place}/{name}", text) if cipher is not None and known else ERASED
    return fields
