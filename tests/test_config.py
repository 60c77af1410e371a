"""Where settings come from: four layers, the stronger over the weaker; an error says where a bad value stands."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from proving import proves
from tidelog.broker.settings.broker import BROKER
from tidelog.broker.settings.configuring import load_broker_config
from tidelog.config import Endpoint, HttpListener, address, attribute, gather, is_loopback, variable
from tidelog.errors import ConfigError

LAYERS = ["file", "environment", "command line", "code"]


def loaded(folder: Path, layers: tuple[str, ...]) -> tuple[int, str]:
    """num.partitions and its origin, when these layers have it: the first 1, the second 2, and so on."""
    values = {layer: str(number) for number, layer in enumerate(LAYERS, 1) if layer in layers}
    if "file" in values:
        (folder / "tidelog.toml").write_text(f'[broker]\n"num.partitions" = {values["file"]}\n')
    config = load_broker_config(
        {"num.partitions": values["code"]} if "code" in values else {},
        command_line=[("num.partitions", values["command line"])] if "command line" in values else [],
        environment={"TIDELOG_NUM_PARTITIONS": values["environment"]} if "environment" in values else {},
        folder=folder,
    )
    return config.int("num.partitions"), config.given["num.partitions"].origin


@proves("T1")
@pytest.mark.parametrize("layers", [some for size in range(1, 5) for some in combinations(LAYERS, size)])
def test_the_strongest_layer_wins_and_is_remembered(tmp_path: Path, layers: tuple[str, ...]) -> None:
    number, origin = loaded(tmp_path, layers)
    strongest = layers[-1]
    assert number == LAYERS.index(strongest) + 1
    assert (
        origin
        == {
            "code": "code",
            "command line": "--set num.partitions=3",
            "environment": "the environment variable TIDELOG_NUM_PARTITIONS",
            "file": f"{tmp_path / 'tidelog.toml'} [broker]",
        }[strongest]
    )


@proves("T1")
def test_without_any_layer_everything_has_its_default(tmp_path: Path) -> None:
    config = load_broker_config(folder=tmp_path)
    assert config.given == {}
    assert set(config.values) == set(BROKER)
    assert (config.int("num.partitions"), config.flag("auto.create.topics.enable")) == (1, True)
    assert config.values["log.retention.ms"] is None


@proves("T1")
def test_code_may_use_names_of_python() -> None:
    config = load_broker_config({"num_partitions": 3, "max_partitions": 7, "auto_create_topics_enable": False})
    assert (config.int("num.partitions"), config.int("tidelog.max.partitions")) == (3, 7)
    assert config.flag("auto.create.topics.enable") is False


@proves("T1")
@pytest.mark.parametrize(
    ("content", "values"),
    [
        ('[broker]\n"num.partitions" = 3', {"num.partitions": 3}),
        ("[broker]\nnum.partitions = 3", {"num.partitions": 3}),
        ("[broker.num]\npartitions = 3", {"num.partitions": 3}),
        ('[broker]\nlog.dirs = ["/data"]', {"log.dirs": ("/data",)}),
        ('[broker]\nlog.dirs = "/data"', {"log.dirs": ("/data",)}),
        ("[broker]\ndelete.topic.enable = false", {"delete.topic.enable": False}),
        ("[broker]\nlog.cleaner.min.cleanable.ratio = 0.25", {"log.cleaner.min.cleanable.ratio": 0.25}),
        ("", {}),
    ],
)
def test_the_file_has_kafkas_names_quoted_or_nested(tmp_path: Path, content: str, values: dict[str, object]) -> None:
    (tmp_path / "tidelog.toml").write_text(content)
    config = load_broker_config(folder=tmp_path)
    assert {key: config.values[key] for key in values} == values
    assert set(config.given) == set(values)


@proves("T1")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "[broker]\nnum.partition = 3",
            r"tidelog.toml \[broker\]: num.partition is not a setting; did you mean num.partitions\?",
        ),
        ("[brokr]\nx = 1", r"brokr is not a table of settings; did you mean broker\?"),
        ("num = 1", r"num is not a table of settings; tables are \[broker\]"),
        ("[broker", r"tidelog.toml cannot be read: .*"),
        ('[broker]\nnum.partitions = 3\n"num.partitions" = 4', r"num.partitions is there twice"),
        ("[broker]\nnum.partitions = 2020-01-01", r"num.partitions has a value of type date"),
        (
            "[broker]\nnum.partitions = 0",
            r"num.partitions=0 is refused; it takes at least 1 \(from .*tidelog.toml \[broker\]\)",
        ),
    ],
)
def test_what_is_wrong_in_the_file_is_said_with_its_place(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "tidelog.toml").write_text(content)
    with pytest.raises(ConfigError, match=message):
        load_broker_config(folder=tmp_path)


@proves("T1")
def test_another_file_is_named_by_a_variable(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[broker]\nnum.partitions = 3")
    environment = {"TIDELOG_CONFIG": str(tmp_path / "other.toml")}
    assert load_broker_config(environment=environment, folder=tmp_path).int("num.partitions") == 3
    with pytest.raises(ConfigError, match="which is not a file; correct or unset it"):
        load_broker_config(environment={"TIDELOG_CONFIG": str(tmp_path / "none.toml")}, folder=tmp_path)


@proves("T1")
@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ({"code": {"num.partitons": 1}}, r"^num.partitons is not a setting; did you mean num.partitions\?$"),
        ({"code": {"zzz": 1}}, r"^zzz is not a setting; .*`tidelog configs describe broker --all` lists all"),
        ({"code": {"num.partitions": object()}}, "num.partitions has a value of type object"),
        ({"code": {"num.partitions": "x"}}, r"num.partitions=x is not an int; it takes at least 1 \(from code\)"),
        ({"command_line": [("num.partitons", "1")]}, r"^--set num.partitons=1: num.partitons is not a setting"),
        ({"command_line": [("num.partitions", "0")]}, r"\(from --set num.partitions=0\)"),
        ({"environment": {"TIDELOG_NUM_PARTITION": "1"}}, r"did you mean TIDELOG_NUM_PARTITIONS\?"),
        ({"environment": {"TIDELOG_NUM_PARTITIONS": "0"}}, r"\(from the environment variable TIDELOG_NUM_PARTITIONS\)"),
        (
            {"code": {"process.roles": "broker"}},
            r"process.roles is a setting of Apache Kafka that Tidelog does not have: .*",
        ),
        ({"code": {"sasl.jaas.config": "x"}}, "users are kept by the broker; make a user .* `tidelog users add NAME`"),
        ({"code": {"sasl.oauthbearer.jwks.endpoint.url": "x"}}, "does not support OAuth; make a user for each program"),
        ({"code": {"sasl.enabled.mechanisms": "OAUTHBEARER"}}, "takes .*SCRAM-SHA-256, SCRAM-SHA-512, PLAIN"),
        (
            {"code": {"listener.name.inside.ssl.client.auth": "none"}},
            "for all listeners; write it without listener.name",
        ),
        ({"code": {"controller.quota.window.num": 11}}, "not bounded; tidelog.max.partitions bounds how many"),
        ({"code": {"replica.lag.time.max.ms": 1}}, "nothing is replicated: Apache Kafka does that; leave it out"),
        ({"code": {"listeners": "9092"}}, r"9092 is not an address to listen on; write HOST:PORT"),
        (
            {"code": {"listeners": "SSL://:9092"}},
            r"SSL://\*:9092 would let anybody .* tidelog.allow.unauthenticated=true",
        ),
        ({"code": {"listeners": "PLAINTEXT://10.0.0.5:9092"}}, "would let anybody who reaches this machine"),
        ({"code": {"listeners": "INSIDE://127.0.0.1:9092"}}, "begins with an unknown protocol"),
        ({"code": {"advertised.listeners": "OUTSIDE://h:9092"}}, "no listener has that name"),
        ({"code": {"log.dirs": "a,b"}}, r"log.dirs=a,b is refused; it takes exactly one \(one data folder\)"),
        ({"code": {"compression.type": "brotli"}}, "uncompressed or zstd or lz4 or snappy or gzip or producer"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_its_origin(layers: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_broker_config(**layers)  # type: ignore[arg-type]


@proves("T1")
def test_variables_of_others_are_left_alone() -> None:
    environment = {"PATH": "/bin", "TIDELOG_BOOTSTRAP": "x:1", "KAFKA_NUM_PARTITIONS": "9"}
    environment |= {"TIDELOG_SEED": "3", "TIDELOG_EXAMPLES": "slice"}
    assert load_broker_config(environment=environment).given == {}


@proves("T1")
def test_every_setting_has_a_variable_and_an_attribute_of_its_own() -> None:
    assert len({variable(key) for key in BROKER}) == len({attribute(key) for key in BROKER}) == len(BROKER)


@proves("T1")
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("PLAINTEXT://127.0.0.1:9092", ("PLAINTEXT", "127.0.0.1", 9092)),
        ("plaintext://h:1", ("PLAINTEXT", "h", 1)),
        ("127.0.0.1:0", ("PLAINTEXT", "127.0.0.1", 0)),
        (":9092", ("PLAINTEXT", "", 9092)),
        ("[::1]:9092", ("PLAINTEXT", "::1", 9092)),
        ("INSIDE://[::]:9092", ("INSIDE", "::", 9092)),
    ],
)
def test_an_address_is_read_in_the_usual_ways(text: str, parts: tuple[str, str, int]) -> None:
    assert address(text) == parts


@proves("T1")
@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:70000", "::1:9092", "host:-1", "host:٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address to listen on"):
        address(text)


@proves("T1")
@pytest.mark.parametrize(
    ("listeners", "advertised", "told"),
    [
        ("127.0.0.1:9092", None, ("10.0.0.5", 9092)),
        (":9092", "broker.example:19092", ("broker.example", 19092)),
        ("127.0.0.1:0", "broker.example:0", ("broker.example", 9092)),
        (":9092", ":0", ("10.0.0.5", 9092)),
    ],
)
def test_a_client_is_told_an_address_that_it_can_reach(
    listeners: str, advertised: str | None, told: tuple[str, int]
) -> None:
    settings = {"listeners": listeners, "tidelog.allow.unauthenticated": True} | (
        {"advertised.listeners": advertised} if advertised else {}
    )
    config = load_broker_config(settings)
    assert config.advertised("10.0.0.5", 9092) == told


@proves("T1")
def test_several_addresses_may_be_listened_on() -> None:
    config = load_broker_config({"listeners": "127.0.0.1:9092,[::1]:9093"})
    assert config.listeners() == [("127.0.0.1", 9092), ("::1", 9093)]


@proves("T1")
def test_gathering_knows_no_room() -> None:
    given = gather({"a.b"}, "broker", code={"a_b": [1, True]})
    assert given["a.b"].text == "1,true"


@proves("T2")
def test_settings_load_without_anything_heavy() -> None:
    program = "import tidelog.broker.settings.configuring as c; c.load_broker_config(); import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    heavy = {"tomllib", "difflib", "json", "argparse", "logging", "asyncio", "inspect"}
    assert heavy & set(run.stdout.split()) == set()


@proves("T10", "hostile")
@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("localhost", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("127.0.0.1.some.name", False),
        ("127.example", False),
        ("localhost.example", False),
        ("127.0.0.1@elsewhere", False),
        ("::ffff:10.0.0.1", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.127.0.1", False),
        ("", False),
    ],
)
def test_a_name_that_begins_as_a_loopback_address_is_not_one(host: str, is_one: bool) -> None:
    assert Endpoint("PLAINTEXT", host, 9092).loopback is is_one
    told = None
    try:
        HttpListener(host, 8642, "").check(False)
    except ConfigError as error:
        told = str(error)
    assert (told is None) is is_one
    assert is_loopback(host) is is_one
