"""Captures over TLS, of databases that take nothing else; a server with a stranger's certificate is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import tidelog
from against.apache_kafka import Missing
from against.patience import eventually
from capture.captured import envelopes
from capture.sources.mysql.mariadb_server import MariaDbServer
from certificates import Certificates, make_certificates
from crash.port import free_port
from proving import proves
from tidelog.capture.settings import CaptureSettings
from tidelog.capture.sources.opening import open_source
from tidelog.errors import TidelogError


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server(tmp_path: Path, certificates: Certificates) -> Iterator[MariaDbServer]:
    own = str(certificates.broker)
    words = (f"--ssl-cert={own}", f"--ssl-key={own}", f"--ssl-ca={certificates.authority}")
    try:
        made = MariaDbServer(tmp_path / "data", *words).start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield made
    made.kill()


@proves("D1", "hostile")
@pytest.mark.external
def test_a_mariadb_that_wants_tls_is_captured_and_one_that_is_a_stranger_is_not(
    tidelog_broker: tidelog.Broker, server: MariaDbServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "SHOP_PASSWORD", "se'cret")
    server.run(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t (id INTEGER PRIMARY KEY, v TEXT)",
        "INSERT INTO shop.t VALUES (1, 'a')",
        "CREATE USER 'tls'@'%' IDENTIFIED BY 'se''cret' REQUIRE SSL",
        "GRANT SELECT, RELOAD, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO 'tls'@'%'",
    )
    address = f"mariadb://tls:${{SHOP_PASSWORD}}@127.0.0.1:{server.port}/shop"
    bootstrap = tidelog_broker.bootstrap
    with pytest.raises(TidelogError, match="Access denied") as refused:
        open_source(address, "plain", ("shop.t",), None).check()
    assert "se'cret" not in str(refused.value)
    for name, option in (("checked", f"ssl_ca={certificates.authority}"), ("taken", "ssl=true")):
        made = tidelog.capture(f"{address}?{option}", prefix=name, bootstrap=bootstrap, tables="shop.t")
        made.catch_up()
        server.run("UPDATE shop.t SET v = CONCAT(v, 'b')")
        made = tidelog.capture(f"{address}?{option}", prefix=name, bootstrap=bootstrap, tables="shop.t")
        made.catch_up()
        assert [one["op"] for one in envelopes(bootstrap, f"{name}.shop.t")] == ["r", "u"]
    check_stranger(f"{address}?ssl_ca={another(certificates)}", "shop.t")


def another(certificates: Certificates) -> Path:
    """An authority that has signed nothing of the server's."""
    return certificates.authority.parent / "another.pem"


def check_stranger(url: str, table: str) -> None:
    settings = CaptureSettings(url=url, prefix="strange", tables=(table,))
    with pytest.raises(TidelogError, match=r"(?i)certificate") as strange:
        open_source(settings.source_url, "strange", settings.tables, None).check()
    assert "se'cret" not in str(strange.value)


PROGRAMS = Path("/usr/lib/postgresql")


def _answers(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def postgres(tmp_path: Path, certificates: Certificates) -> Iterator[int]:
    """A server of Debian's, since the one that pip has is without TLS; it takes nothing but TLS. Its port."""
    found = sorted(PROGRAMS.glob("*/bin/initdb"))
    if not found:
        pytest.skip("no PostgreSQL of Debian's is here: apt-get install postgresql")
    port, bin = free_port(), found[-1].parent
    with tempfile.TemporaryDirectory(prefix="pgtls") as folder:
        place = Path(folder) / "data"
        shutil.chown(folder, "postgres")
        run = ["-D", str(place), "-U", "postgres", "--auth=trust"]
        subprocess.run([bin / "initdb", *run], user="postgres", cwd="/", check=True, capture_output=True)
        for name in ("server.crt", "server.key"):
            (place / name).write_bytes(certificates.broker.read_bytes())
            (place / name).chmod(0o600)
            shutil.chown(place / name, "postgres")
        (place / "pg_hba.conf").write_text(
            "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n"
            "hostssl replication all 127.0.0.1/32 scram-sha-256\n"
        )
        words = ["-c", "ssl=on", "-c", "wal_level=logical", "-h", "127.0.0.1", "-p", str(port), "-k", folder]
        server = subprocess.Popen(
            [bin / "postgres", "-D", place, *words], user="postgres", cwd="/", stderr=subprocess.DEVNULL
        )
        try:
            eventually(lambda: _answers(f"host={folder} port={port} user=postgres"))
            with psycopg.connect(f"host={folder} port={port} user=postgres", autocommit=True) as connection:
                connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
                connection.execute("INSERT INTO t VALUES (1, 'a')")
                connection.execute("CREATE USER tls SUPERUSER REPLICATION PASSWORD 'se''cret'")
            yield port
        finally:
            server.terminate()
            server.wait(60)


@proves("D1", "hostile")
@pytest.mark.external
def test_a_postgresql_that_wants_tls_is_captured_and_one_that_is_a_stranger_is_not(
    tidelog_broker: tidelog.Broker, postgres: int, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "SHOP_PASSWORD", "se'cret")
    address = f"postgresql://tls:${{SHOP_PASSWORD}}@127.0.0.1:{postgres}/postgres"
    bootstrap, checked = tidelog_broker.bootstrap, f"sslmode=verify-full&sslrootcert={certificates.authority}"
    with pytest.raises(TidelogError, match=r"(?i)no encryption|no pg_hba") as refused:
        open_source(f"{address}?sslmode=disable", "plain", ("public.t",), None).check()
    assert "se'cret" not in str(refused.value)
    tidelog.capture(f"{address}?{checked}", prefix="shop", bootstrap=bootstrap, tables="public.t").catch_up()
    with psycopg.connect(f"postgresql://tls:se%27cret@127.0.0.1:{postgres}/postgres?{checked}") as connection:
        connection.execute("UPDATE t SET v = 'b'")
    tidelog.capture(f"{address}?{checked}", prefix="shop", bootstrap=bootstrap, tables="public.t").catch_up()
    assert [one["op"] for one in envelopes(bootstrap, "shop.public.t")] == ["r", "u"]
    check_stranger(f"{address}?sslmode=verify-full&sslrootcert={another(certificates)}", "public.t")
