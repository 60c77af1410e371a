"""What a client is told of TLS and logins: names of Kafka and of librdkafka; mistakes are named, secrets are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from proving import proves
from tidelog.client.security import Security, parse_properties
from tidelog.errors import ConfigError

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="se;cr=et";'


@proves("T10")
def test_a_file_for_kafkas_tools_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    escaped = JAAS.replace("\\", "\\\\")
    path.write_text(
        "# a comment\n! another\n\nsecurity.protocol = SASL_SSL\nsasl.mechanism:SCRAM-SHA-512\n"
        f"sasl.jaas.config={escaped[:40]}\\\n    {escaped[40:]}\n"
        "ssl.truststore.type=PEM\nssl.truststore.location=/etc/ca.pem\nclient.id=something else\n"
        "ssl.endpoint.identification.algorithm=\n"
    )
    made = Security.from_file(path)
    assert (made.protocol, made.mechanism, made.user, made.password) == (
        "SASL_SSL", "SCRAM-SHA-512", 'al"ice', "se;cr=et",
    )  # fmt: skip
    assert (made.authorities, made.checks_name) == ("/etc/ca.pem", False)
    assert "se;cr=et" not in repr(made)


@proves("T10")
def test_librdkafkas_names_are_taken_too() -> None:
    made = Security.from_properties(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "ssl.ca.location": "ca.pem",
            "ssl.certificate.location": "own.pem",
            "ssl.key.location": "own.key",
        }
    )
    assert (made.protocol, made.mechanism, made.user) == ("SASL_SSL", "PLAIN", "alice")
    assert (made.authorities, made.certificate, made.key) == ("ca.pem", "own.pem", "own.key")


@proves("T10")
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is not one of PLAINTEXT, SSL"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI is not one of"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.username and sasl.password"),
        ({"ssl.keystore.type": "JKS"}, "reads PEM files only"),
        ({"sasl.mechansim": "PLAIN"}, r"did you mean sasl.mechanism\?"),
        ({"sasl.jaas.config": "nothing to see"}, "needs username"),
    ],
)
def test_a_mistake_is_named(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Security.from_properties(properties)


@proves("T10")
def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nonsense")
    with pytest.raises(ConfigError, match=r"wrong\.pem cannot be used for TLS"):
        Security("SSL", authorities=str(wrong)).context()
    with pytest.raises(ConfigError, match=r"none\.pem cannot be used for TLS"):
        Security("SSL", authorities=str(tmp_path / "none.pem")).context()
    with pytest.raises(ConfigError, match="cannot be read"):
        Security.from_file(tmp_path / "none.properties")


@proves("T10")
def test_properties_are_read_as_people_write_them() -> None:
    assert parse_properties("a=1\n b : 2\nc\nd=x=y:z\n") == {"a": "1", "b": "2", "c": "", "d": "x=y:z"}


@proves("T10")
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a 1", {"a": "1"}),
        ("\ta\t1  ", {"a": "1"}),
        ("a\f=\f1", {"a": "1"}),
        ("a = 1\r\nb : 2\rc 3", {"a": "1", "b": "2", "c": "3"}),
        ("a = = 1", {"a": "= 1"}),
        ("a b=1", {"a": "b=1"}),
        (r"a\ b\=c\:d=1", {"a b=c:d": "1"}),
        (r"a=x\ty\\z\q", {"a": "x\ty\\zq"}),
        (r"a=caf\u00e9 \ud83d\ude00", {"a": "café \N{GRINNING FACE}"}),
        ("a=1\\\n   2\\\n\t3", {"a": "123"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("# a\\\nb=2\n  ! c", {"b": "2"}),
        ("a=1\u2028b=2", {"a": "1\u2028b=2"}),
    ],
)
def test_properties_are_split_as_java_does(text: str, meant: dict[str, str]) -> None:
    assert parse_properties(text) == meant


@proves("T10", "secrets")
@pytest.mark.parametrize("sign", [" ", "\t", "  =  ", "=", " : ", "\f"])
def test_a_password_after_any_sign_is_a_password(sign: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        f"security.protocol{sign}SASL_SSL\nsasl.username{sign}alice\nsasl.password{sign}hunter2\n"
        f"ssl.key.password{sign}hunter3\n"
    )
    made = Security.from_file(path)
    assert (made.protocol, made.user, made.password, made.key_password) == ("SASL_SSL", "alice", "hunter2", "hunter3")


@proves("T10", "secrets")
@pytest.mark.parametrize(
    "line",
    [
        r"sasl.password\ hunter2",
        r"sasl.password\=hunter2",
        "sasl.password,hunter2",
        "sasl.password\u00a0hunter2",
        r"ssl.key.password\thunter2",
        "sasl.pasword hunter2",
        "security.protocol=SASL_SSLL sasl.password=hunter2",
        "sasl.mechanism=PLAIN,sasl.password=hunter2",
        "ssl.keystore.type=JKS ssl.key.password=hunter2",
        "sasl.jaas.config=password=hunter2",
        r"sasl.password=\users\hunter2",
    ],
)
def test_a_line_that_is_not_understood_is_named_by_its_first_word(line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Security.from_properties(parse_properties(line))
    assert "hunter2" not in str(raised.value)
    assert line[:4] in str(raised.value) or r"\u" in str(raised.value)
