"""What is generated is what the generator writes, and holds together; importing it costs next to nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from against.apache_kafka import Missing, kafka_jars
from proving import proves
from tidelog.wire import error_code
from tidelog.wire.api import APIS, ApiKey, request_class, response_class
from tidelog.wire.error_code import RETRIABLE, ErrorCode, is_retriable
from tidelog.wire.field import FIXED
from tidelog.wire.message import struct_named
from wire.any_message import message_classes

ROOT = Path(__file__).parents[2]
WIRE = ROOT / "src" / "tidelog" / "wire"
FEWEST_ERRORS = 130


@proves("T1")
@pytest.mark.external
def test_the_modules_are_what_the_generator_writes(tmp_path: Path) -> None:
    try:
        (jar,) = kafka_jars().glob("kafka-clients-4.3.*.jar")
    except Missing as error:
        pytest.skip(str(error))
    subprocess.run([sys.executable, ROOT / "scripts" / "generate_messages.py", jar, tmp_path], check=True)
    written = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.py")}
    assert {path: (WIRE / path).read_text() for path in written} == written
    modules = {path.relative_to(WIRE) for path in (WIRE / "messages").glob("*.py")}
    assert modules - written.keys() == {Path("messages/__init__.py")}


@proves("T1")
def test_every_api_has_its_key_its_request_and_its_response() -> None:
    keys = {value for name, value in vars(ApiKey).items() if name.isupper()}
    assert keys == set(APIS)
    for key, api in APIS.items():
        request, response = request_class(key).SCHEMA, response_class(key).SCHEMA
        assert request.api_key == response.api_key == api.key == key
        assert request.versions == response.versions
        assert request.versions[0] == api.min
        assert api.max in request.versions
        assert (request.flexible[0] if request.flexible else 1 << 15) == api.flexible_since


@proves("T1")
def test_an_unstable_version_is_not_counted() -> None:
    assert (APIS[ApiKey.INIT_PRODUCER_ID].max, request_class(ApiKey.INIT_PRODUCER_ID).SCHEMA.versions[-1]) == (5, 6)


@proves("T1")
def test_every_struct_that_a_field_names_is_there() -> None:
    waiting, seen = message_classes(), set()
    while waiting:
        cls = waiting.pop()
        seen.add(cls)
        for field in cls.SCHEMA.fields:
            if field.element and field.element not in (*FIXED, "string", "bytes"):
                struct = struct_named(cls, field.element)
                waiting += [struct] if struct not in seen else []
    assert len(seen) > len(message_classes())


@proves("T1")
def test_error_codes_have_kafkas_numbers_and_names() -> None:
    assert (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNSUPPORTED_VERSION) == (0, -1, 35)
    assert error_code.name(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_code.name(31999) == "ERROR_31999"
    assert is_retriable(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not is_retriable(ErrorCode.TOPIC_ALREADY_EXISTS)
    codes = [value for name, value in vars(ErrorCode).items() if name.isupper()]
    assert sorted(codes) == list(range(-1, len(codes) - 1))
    assert len(codes) >= FEWEST_ERRORS
    assert set(codes) > RETRIABLE


@proves("T2")
def test_importing_the_room_loads_no_message_and_no_client() -> None:
    program = "import sys, tidelog.wire.frame; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "tidelog.wire.codec" in modules
    unwanted = ("tidelog.wire.messages", "asyncio", "json", "dataclasses", "inspect", "logging", "kafka")
    assert not [name for name in modules if name.startswith(unwanted)]
