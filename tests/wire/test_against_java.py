"""Kafka's own encoders and decoders give the same bytes, for every message and version.

Needs a JDK and the jars of Apache Kafka 4.3. Our messages go to Java as JSON, which Kafka's generated converters read,
so nothing of our codec takes part in what Java encodes.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from against.apache_kafka import Missing, kafka_jars
from proving import proves
from tidelog.wire.codec import decode, encode
from tidelog.wire.field import Field, span
from tidelog.wire.frame import encode_request, parse_request_header
from tidelog.wire.message import Struct
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.metadata import MetadataRequest
from wire.any_message import SEEDS_KNOWN, any_message, digest_of, known_digests, messages_and_versions

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]

SEEDS_PER_VERSION = 12
Ask = Callable[[list[str]], list[str]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    try:
        lib = kafka_jars()
    except Missing as error:
        pytest.skip(f"not compared with Kafka: {error}")
    if shutil.which("javac") is None:
        pytest.skip("not compared with Kafka: no javac on the path; install a JDK (Debian: default-jdk-headless)")
    classes = tmp_path_factory.mktemp("classes")
    source = Path(__file__).parent / "java" / "Messages.java"
    subprocess.run(["javac", "-cp", f"{lib}/*", "-d", str(classes), str(source)], check=True)

    def ask_java(lines: list[str]) -> list[str]:
        command = ["java", "-XX:+UseSerialGC", "-cp", f"{classes}:{lib}/*", "Messages"]
        text = "\n".join(lines) + "\n"
        answers = subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
        assert len(answers) == len(lines) + 1
        return answers[:-1]

    return ask_java


def java_name(message: Struct) -> str:
    name = type(message).__name__
    return name if name.startswith("ConsumerProtocol") else name + "Data"


def camel(name: str) -> str:
    first, *rest = name.removesuffix("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def to_json(message: Struct, version: int) -> dict[str, Any]:
    """As Kafka's converters want it: all fields of the version; tagged ones only when they are there."""
    result = {}
    for field in type(message).SCHEMA.fields:
        value = getattr(message, field.name)
        if version in span(field.versions) and not (field.tag >= 0 and value is None):
            result[camel(field.name)] = _field_to_json(field, value, version)
    return result


def _field_to_json(field: Field, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_value_to_json(field.element, one, version) for one in value]
    return _value_to_json(field.kind, value, version)


def _value_to_json(kind: str, value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return to_json(value, version)
    if kind == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


@proves("T1")
@pytest.mark.story
def test_kafka_encodes_what_our_messages_say_to_our_bytes(ask: Ask) -> None:
    cases = []
    for cls, version in messages_and_versions():
        for seed in range(SEEDS_PER_VERSION):
            cases.append((any_message(Random(seed), cls, version, unknown_tags=False), version))
    lines = [f"encode {java_name(one)} {version} {json.dumps(to_json(one, version))}" for one, version in cases]
    for (message, version), answer in zip(cases, ask(lines), strict=True):
        ours = b"".join(encode(message, version)).hex()
        assert answer == ours, f"{message!r} in version {version}"
        decoded, end = decode(type(message), version, bytes.fromhex(answer))
        assert decoded == message
        assert end == len(answer) // 2


@proves("T1")
@pytest.mark.story
def test_the_digests_that_are_kept_are_those_of_kafkas_bytes(ask: Ask, tmp_path: Path) -> None:
    cases = [(cls, version, seed) for cls, version in messages_and_versions() for seed in range(SEEDS_KNOWN)]
    made = [any_message(Random(seed), cls, version, unknown_tags=False) for cls, version, seed in cases]
    asked = [
        f"encode {java_name(one)} {version} {json.dumps(to_json(one, version))}"
        for one, (_, version, _) in zip(made, cases, strict=True)
    ]
    theirs: dict[tuple[str, int], list[bytes]] = {}
    for (cls, version, _), answer in zip(cases, ask(asked), strict=True):
        theirs.setdefault((cls.__name__, version), []).append(bytes.fromhex(answer))
    found = {place: digest_of(answers) for place, answers in theirs.items()}
    anew = tmp_path / "kafka_digests.txt"
    anew.write_text("".join(f"{name} {version} {digest}\n" for (name, version), digest in found.items()))
    assert found == known_digests(), f"what Kafka says is in {anew}"


@proves("T1")
@pytest.mark.story
def test_kafka_reads_our_bytes_with_unknown_tagged_fields_and_writes_the_same(ask: Ask) -> None:
    cases = []
    for cls, version in messages_and_versions():
        for seed in range(100, 100 + SEEDS_PER_VERSION):
            message = any_message(Random(seed), cls, version)
            cases.append((message, version, b"".join(encode(message, version)).hex()))
    lines = [f"echo {java_name(message)} {version} {data}" for message, version, data in cases]
    for (message, version, data), answer in zip(cases, ask(lines), strict=True):
        assert answer == data, f"{message!r} in version {version}"


@proves("T1")
@pytest.mark.story
def test_kafka_reads_our_request_headers_as_we_do(ask: Ask) -> None:
    cases = [
        (FetchRequest(), 11, "tide"),
        (FetchRequest(), 12, "tide"),
        (MetadataRequest(), 0, ""),
        (MetadataRequest(), 13, "ü"),
    ]
    frames = [b"".join(encode_request(one, version, 7, client))[4:] for one, version, client in cases]
    answers = ask([f"header {frame.hex()}" for frame in frames])
    for frame, answer in zip(frames, answers, strict=True):
        header = parse_request_header(memoryview(frame))
        assert answer == " ".join(str(value) for value in header)
