"""From a content to a schema: its references gathered from the state, then parsed. What was parsed is kept a while."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tidelog.errors import InvalidSchema
from tidelog.gateway.registry.refusals import invalid_schema
from tidelog.gateway.registry.state import Content, Reference, State, version_at
from tidelog.schema import formats
from tidelog.schema.bounds import REFERENCES_MAX
from tidelog.schema.schema import Schema

KEPT = 128  # parsed schemas
KEPT_MAX = 64 << 10  # characters of one that is kept
REFERENCES_DEEP = 100  # references of references


def parse(state: State, content: Content, *, normalize: bool = False) -> Schema:
    texts = tuple(gather(state, content.references).items())
    try:
        small = len(content.text) + sum(len(text) for _, text in texts) <= KEPT_MAX
        return (_parse if small else _parse.__wrapped__)(content.format, content.text, texts, normalize)
    except InvalidSchema as error:
        raise invalid_schema(str(error)) from error


@lru_cache(KEPT)
def _parse(format: str, text: str, references: tuple[tuple[str, str], ...], normalize: bool) -> Schema:
    return formats.parse(format, text, dict(references), normalize=normalize)


def gather(state: State, references: Iterable[Reference]) -> dict[str, str]:
    """Texts by name, each after those that it refers to itself. Deleted versions still count: data refers to them.

    Each reference is followed once, however many lead to it: else thirty schemas that each refer to the one before
    twice would be followed a thousand million times.
    """
    found: dict[str, str] = {}
    under_way: set[Reference] = set()
    followed: set[Reference] = set()

    def add(reference: Reference) -> None:
        if reference in followed:
            return
        if reference in under_way:
            raise invalid_schema(f"references go in a circle by way of {reference.subject!r}; break it")
        if len(under_way) >= REFERENCES_DEEP:
            raise invalid_schema(f"references go more than {REFERENCES_DEEP} deep; refer to fewer one after the other")
        version = version_at(state, reference.subject, _number(state, reference))
        if version is None:
            said = (
                f"the reference {reference.name!r} is to version {reference.version} of subject {reference.subject!r}"
            )
            raise invalid_schema(f"{said}, which is not there; register it first")
        under_way.add(reference)
        for inner in version.content.references:
            add(inner)
        under_way.discard(reference)
        followed.add(reference)
        found.setdefault(reference.name, version.content.text)
        if len(followed) > REFERENCES_MAX:
            raise invalid_schema(f"the schema refers to more than {REFERENCES_MAX} others; split it up")

    for reference in references:
        add(reference)
    return found


def _number(state: State, reference: Reference) -> int:
    """Version -1 is the last one."""
    if reference.version != -1:
        return reference.version
    live = [number for number, version in state.subjects.get(reference.subject, {}).items() if not version.deleted]
    return max(live, default=-1)
