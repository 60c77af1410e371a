"""Which stores are opened whose URLs came by a record: pure, over all kinds and all ways out of an entry."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from proving import proves
from tidelog.errors import UsageError
from tidelog.views.stores.allowing import (
    allowed_stores,
    fill_recorded,
    is_allowed,
    is_below,
    listed,
    open_recorded,
    refusal,
)
from tidelog.views.stores.opening import open_store
from views.stores.applied import REVENUE

SECRET = {"AWS_SECRET_ACCESS_KEY": "hush", "PASSWORD": "p/w"}
PG = "postgresql://app:${PASSWORD}@db.example/shop"


@proves("hostile", "D7")
@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///shop.db",
        "sqlite:////var/lib/shop.db",
        "sqlite+fts:////var/lib/shop.db?columns=title",
        "parquet:////var/lib/warehouse?day=day",
        "delta:///warehouse",
        "redis://127.0.0.1:6379/0?prefix=shop",
        "redis://localhost",
        "rediss://[::1]:6379/3",
        "opensearch+http://localhost:9200/?prefix=shop",
    ],
)
def test_what_is_on_this_machine_and_takes_nothing_of_the_askers_is_opened_unasked(url: str) -> None:
    assert fill_recorded(url, (), {}) == url


@proves("hostile", "D7")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://evil:${AWS_SECRET_ACCESS_KEY}@127.0.0.1:5432/x", "AWS_SECRET_ACCESS_KEY to 127.0.0.1:5432"),
        ("postgresql://evil:${A}${PASSWORD}@evil.example/x", "A and PASSWORD to evil.example"),
        ("postgresql://evil.example/x", "your own PGPASSWORD or ~/.pgpass to evil.example"),
        ("postgresql://127.0.0.1:6543/x", "PGPASSWORD"),
        ("postgresql:///x?host=/tmp", "PGPASSWORD"),
        ("redis://evil.example/0", "connect to evil.example"),
        ("redis://:${PASSWORD}@localhost/0", "PASSWORD to localhost"),
        ("redis://127.0.0.1.evil.example/0", "connect to 127.0.0.1.evil.example"),
        ("redis://127.0.0.1@evil.example/0", "connect to evil.example"),
        ("redis://localhost/0?db=7", "more than a view"),
        ("redis://localhost/0?ssl_keyfile=/home/me/key", "more than a view"),
        ("redis://localhost/0?host=evil.example", "more than a view"),
        ("opensearch+http://localhost:2375/containers/create", "more than a view"),
        ("opensearch+https://localhost:9200/?ca_certs=/etc/shadow", "more than a view"),
        ("opensearch+https://search.example:9200/", "connect to search.example:9200"),
        ("opensearch+http://localhost:${PASSWORD}/", "PASSWORD"),
        ("sqlite:////net/evil.example/${AWS_SECRET_ACCESS_KEY}.db", "AWS_SECRET_ACCESS_KEY into the path"),
        ("parquet:///${PASSWORD}", "PASSWORD into the path"),
        ("delta:///x/${PASSWORD}", "PASSWORD into the path"),
        ("sqlite:///a\x1b]0;title\x07.db", "not a store's URL"),
        ("http://evil.example/", "not a store's URL"),
    ],
)
def test_no_record_chooses_what_is_sent_and_where(url: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        fill_recorded(url, (), SECRET)
    told = str(refused.value)
    assert said in told and "__tidelog.views" in told and "not from you" in told
    assert "hush" not in told and "p/w" not in told


@proves("hostile", "D7")
def test_a_refusal_has_the_line_that_allows_it_in_every_way(tmp_path: Path) -> None:
    told = refusal(PG) or ""
    line = told[told.index('"allowed.stores"') : told.index(" under [app]")]
    (tmp_path / "tidelog.toml").write_text(f"[app]\n{line}\n")
    assert tomllib.loads(line)["allowed.stores"] == [PG]
    for allowed in (
        allowed_stores(environment={}, folder=tmp_path),
        allowed_stores(environment={"TIDELOG_ALLOWED_STORES": PG}, folder=tmp_path / "none"),
        allowed_stores(command_line=[PG], environment={}, folder=tmp_path / "none"),
        allowed_stores(code=[PG], environment={}, folder=tmp_path / "none"),
        allowed_stores(environment={"TIDELOG_STORE": PG}, folder=tmp_path / "none"),
    ):
        assert fill_recorded(PG, allowed, SECRET) == "postgresql://app:p%2Fw@db.example/shop"
    assert f"--allow-store '{PG}'" in told and "TIDELOG_ALLOWED_STORES" in told


@proves("hostile", "D7")
def test_nobody_is_told_to_run_what_a_record_says() -> None:
    told = refusal("redis://evil.example/'; rm -rf ~; '") or ""
    assert """--allow-store 'redis://evil.example/'"'"'; rm""" in told


@proves("D7")
def test_the_strongest_layer_says_which_stores_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "tidelog.toml").write_text('[app]\n"allowed.stores" = ["redis://a/", "sqlite+fts:///x?columns=a,b"]\n')
    environment = {"TIDELOG_ALLOWED_STORES": "redis://b/,redis://c/"}
    assert allowed_stores(environment={}, folder=tmp_path) == ("redis://a/", "sqlite+fts:///x?columns=a,b")
    assert allowed_stores(environment=environment, folder=tmp_path) == ("redis://b/", "redis://c/")
    assert allowed_stores(command_line=["redis://d/"], environment=environment, folder=tmp_path) == ("redis://d/",)
    assert allowed_stores(code=["redis://e/"], command_line=["redis://d/"], environment=environment) == ("redis://e/",)
    assert allowed_stores(environment={}, folder=tmp_path / "none") == ()
    assert listed("") == () and listed("redis://a/, redis://b/") == ("redis://a/", "redis://b/")


BELOW = [
    ("postgresql://db.example", "postgresql://db.example/shop?schema=views"),
    ("postgresql://db.example/", "postgresql://db.example/shop"),
    (PG, f"{PG}?schema=views"),
    (f"{PG}?sslmode=verify-full", f"{PG}?schema=views&sslmode=verify-full"),
    ("redis://:${PASSWORD}@db.example/", "redis://:${PASSWORD}@db.example/0?prefix=shop"),
    ("opensearch+https://search.example/", "opensearch+https://search.example/proxied?prefix=shop"),
    ("sqlite:////var/views", "sqlite:////var/views/a/shop.db"),
    ("sqlite:////var/views/", "sqlite:////var/views/my%20shop.db"),
    ("sqlite:///", "sqlite:////var/views/shop.db"),
    ("sqlite:///${HOME}/views", "sqlite:///${HOME}/views/shop.db"),
    ("parquet:////var/views", "parquet:////var/views/shop?day=day&grace=5"),
    ("postgresql://db.example/shop?host=/tmp&service=mine", "postgresql://db.example/shop?host=/tmp&service=mine"),
]
LEADS_AWAY = [
    ("postgresql://db.example", "postgresql://db.example.evil.example/shop"),
    ("postgresql://db.example", "postgresql://db.example@evil.example/shop"),
    ("postgresql://db.example", "postgresql://db.example:6543/shop"),
    ("postgresql://db.example", "postgresql://me:${PASSWORD}@db.example/shop"),
    ("postgresql://db.example", "postgresql://evil.example#@db.example/shop"),
    ("postgresql://db.example", "postgresql://evil.example\\@db.example/shop"),
    ("postgresql://db.example/shop", "postgresql://db.example/shopping"),
    ("postgresql://db.example/shop", "postgresql://db.example/shop/more"),
    ("postgresql://db.example/", "postgresql://db.example/host%3Devil.example"),
    ("postgresql://db.example/", "postgresql://db.example/postgresql:%2F%2Fevil.example"),
    ("postgresql://db.example/", "postgresql://db.example/${PASSWORD}"),
    (f"{PG}?sslmode=verify-full", PG),
    (f"{PG}?sslmode=verify-full", f"{PG}?sslmode=disable"),
    (f"{PG}?sslmode=verify-full", f"{PG}?sslmode=verify-full&sslmode=disable"),
    (PG, f"{PG}?schema=a&schema=b"),
    (PG, f"{PG}?schema=${{AWS_SECRET_ACCESS_KEY}}"),
    *(
        (PG, f"{PG}?{name}=x")
        for name in (
            *("host", "HOST", "%68ost", "hostaddr", "port", "Port", "dbname", "user", "password", "options", "service"),
            *("servicefile", "passfile", "sslmode", "sslkey", "sslcert", "sslrootcert", "sslpassword", "krbsrvname"),
            *("gsslib", "requirepeer", "channel_binding", "load_balance_hosts", "application_name", "replication"),
            *("target_session_attrs", "require_auth", "oauth_issuer", "sslkeylogfile", ""),
        )
    ),
    ("redis://db.example/1", "redis://db.example/1/0"),
    ("redis://db.example/1", "redis://db.example/10"),
    ("redis://db.example/", "redis://db.example/0x"),
    ("redis://db.example/0", "redis://db.example/0?db=1"),
    *(
        ("redis://db.example/", f"redis://db.example/0?{name}=x")
        for name in ("db", "host", "path", "unix_socket_path", "ssl_ca_certs", "ssl_keyfile", "username", "password")
    ),
    ("redis://db.example/", "rediss://db.example/0"),
    ("opensearch+https://search.example/", "opensearch+http://search.example/"),
    ("opensearch+https://search.example/", "opensearch+https://search.example/?ca_certs=/home/me/key"),
    ("opensearch+https://search.example/a", "opensearch+https://search.example/a/../b"),
    ("opensearch+https://search.example/a", "opensearch+https://search.example/a/%2e%2e%2fb"),
    ("opensearch+https://search.example/a", "opensearch+https://search.example/a/b c"),
    ("sqlite:////var/views", "sqlite:////var/views-of-others/shop.db"),
    ("sqlite:////var/views", "sqlite:////var/views/../../etc/passwd"),
    ("sqlite:////var/views", "sqlite:////var/views/%2e%2E/secret.db"),
    ("sqlite:////var/views", "sqlite:////var/views/a%2f..%2f..%2fsecret.db"),
    ("sqlite:////var/views", "sqlite:////var/views/shop.db?mode=rw"),
    ("sqlite:////var/views", "sqlite:////var/views/shop.db%00.txt"),
    ("sqlite:////var/views", "sqlite:////var/views/${PASSWORD}.db"),
    ("sqlite:///views/", "sqlite:///views//etc/shop.db"),
    ("sqlite:///${HOME}/views", "sqlite:///${PASSWORD}/views/shop.db"),
    ("parquet:////var/views", "parquet:////var/views/shop?endpoint=http://evil.example"),
    ("parquet:////var/views", "parquet:////var/views/shop?day=${PASSWORD}"),
    ("delta:////var/views", "delta:////var/views/shop?AWS_ENDPOINT_URL=http://evil.example"),
    ("delta:////var/views", "sqlite:////var/views/shop.db"),
    ("s3://bucket/", "s3://bucket/shop"),
]


@proves("hostile", "D7")
@pytest.mark.parametrize(("entry", "url"), BELOW)
def test_what_is_below_an_entry_is_allowed(entry: str, url: str) -> None:
    assert is_below(url, entry) and is_allowed(url, ("delta:///other", entry))


@proves("hostile", "D7")
@pytest.mark.parametrize(("entry", "url"), LEADS_AWAY)
def test_no_address_path_or_parameter_leads_out_of_an_entry(entry: str, url: str) -> None:
    assert not is_below(url, entry)


@proves("hostile", "D7")
def test_no_record_has_a_file_made_or_tables_put_into_anothers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/.bash_profile"
    with pytest.raises(UsageError, match="nothing is made there"):
        open_recorded(url, "revenue", tuple, write=True)
    assert not (tmp_path / ".bash_profile").exists() or not (tmp_path / ".bash_profile").stat().st_size
    open_recorded(url, "revenue", lambda: (f"sqlite:///{tmp_path}/",), write=True).prepare(1, REVENUE)
    open_recorded(url, "revenue", tuple, write=True).prepare(1, REVENUE)
    with pytest.raises(UsageError, match="view other is not there yet"):
        open_recorded(url, "other", tuple, write=True)
    assert open_store(url, "revenue").generations() == open_recorded(url, "revenue", tuple).generations() != {}
