"""What the registry refuses, by the numbers that its clients know. One function a number; the sentences are ours."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.gateway.route import Refusal


def no_subject(subject: str) -> Refusal:
    return Refusal(404, f"subject {subject!r} is not there; GET /subjects lists what is", code=40401)


def no_version(subject: str, version: object) -> Refusal:
    said = f"version {version} of subject {subject!r} is not there; GET /subjects/SUBJECT/versions lists what is"
    return Refusal(404, said, code=40402)


def no_schema(what: str) -> Refusal:
    return Refusal(404, f"schema {what} is not there; register it first", code=40403)


def subject_deleted(subject: str) -> Refusal:
    return Refusal(404, f"subject {subject!r} is deleted already; permanent=true removes it for good", code=40404)


def subject_not_deleted(subject: str) -> Refusal:
    return Refusal(404, f"subject {subject!r} is not deleted; delete it without permanent=true first", code=40405)


def version_deleted(subject: str, version: int) -> Refusal:
    said = f"version {version} of subject {subject!r} is deleted already; permanent=true removes it for good"
    return Refusal(404, said, code=40406)


def version_not_deleted(subject: str, version: int) -> Refusal:
    said = f"version {version} of subject {subject!r} is not deleted; delete it without permanent=true first"
    return Refusal(404, said, code=40407)


def no_config(subject: str) -> Refusal:
    said = f"subject {subject!r} has no compatibility of its own; defaultToGlobal=true gives the one that holds"
    return Refusal(404, said, code=40408)


def no_mode(subject: str) -> Refusal:
    said = f"subject {subject!r} has no mode of its own; defaultToGlobal=true gives the one that holds"
    return Refusal(404, said, code=40409)


def incompatible(subject: str, reasons: Sequence[str]) -> Refusal:
    said = f"the schema is not compatible with what is registered under {subject!r}: {'; '.join(reasons)}"
    return Refusal(409, said, code=40901)


def invalid_schema(said: str) -> Refusal:
    return Refusal(422, said, code=42201)


def invalid_version(text: str) -> Refusal:
    said = f"{text[:50]!r} is not a version; use a number from 1 to 2147483647, or latest"
    return Refusal(422, said, code=42202)


def invalid_level(known: Sequence[str]) -> Refusal:
    return Refusal(422, f"that is not a compatibility level; use {', '.join(known)}", code=42203)


def invalid_mode(known: Sequence[str]) -> Refusal:
    return Refusal(422, f"that is not a mode; use {', '.join(known)}", code=42204)


def not_permitted(said: str) -> Refusal:
    return Refusal(422, said, code=42205)


def referenced(subject: str, version: int, by: Sequence[str]) -> Refusal:
    said = f"version {version} of subject {subject!r} is referred to by {', '.join(by)}; delete that first"
    return Refusal(422, said, code=42206)


def invalid_subject(subject: str) -> Refusal:
    return Refusal(422, f"{subject[:50]!r} cannot be a subject; choose another name", code=42208)


def too_large(said: str) -> Refusal:
    return Refusal(422, said, code=42209)


def timed_out() -> Refusal:
    said = "other gateways kept writing, and this one did not get its turn; try again"
    return Refusal(503, said, code=50002, headers=(("Retry-After", "1"),))
