"""A broker inside a program that asks for logins still asks for them after a restart."""

from __future__ import annotations

import time

import pytest

import tidelog
from proving import proves
from tidelog.broker.access import session
from tidelog.client.cluster import Cluster
from tidelog.client.security import Security
from tidelog.errors import TidelogError

PASSWORD = "secret of alice"
SESSION_S = 1000


@proves("T10")
@pytest.mark.parametrize("in_process", [True, False])
def test_a_restart_keeps_the_ports_and_what_is_spoken_there(in_process, tmp_path):
    from tidelog.client.admin.access import set_password

    broker = tidelog.Broker(
        tmp_path / "data", listen="SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", in_process=in_process
    )
    with broker:
        login = broker.bootstrap
        plain = broker._listen.rpartition("://")[2]
        with Cluster(plain) as cluster:
            set_password(cluster, "alice", PASSWORD, ["SCRAM-SHA-256"])
    with broker:
        assert broker.bootstrap == login
        with Cluster(login, timeout_s=5) as stranger, pytest.raises(TidelogError):
            stranger.ask_metadata(())
        alice = Security("SASL_PLAINTEXT", "SCRAM-SHA-256", "alice", PASSWORD)
        with Cluster(login, security=alice) as cluster:
            assert len(cluster.ask_metadata(()).nodes) == 1
        wrong = alice._replace(password="wrong")
        refused = pytest.raises(TidelogError, match="SASL_AUTHENTICATION_FAILED")
        with Cluster(login, security=wrong) as cluster, refused:
            cluster.ask_metadata(())


@proves("T10")
def test_our_client_logs_in_again_in_the_same_connection_before_its_session_ends(tmp_path, monkeypatch):
    from tidelog.client.admin.access import set_password

    monkeypatch.setattr(session, "REAUTHENTICATION_PAUSE_S", 0.0)
    settings = {"connections.max.reauth.ms": SESSION_S * 1000}
    broker = tidelog.Broker(
        tmp_path / "data",
        listen="SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        settings=settings,
        in_process=True,
    )
    with broker:
        with Cluster(broker._listen.rpartition("://")[2]) as cluster:
            set_password(cluster, "alice", PASSWORD, ["SCRAM-SHA-256"])
        with Cluster(
            broker.bootstrap, security=Security("SASL_PLAINTEXT", "SCRAM-SHA-256", "alice", PASSWORD)
        ) as cluster:
            first = cluster.any_node()
            for _ in range(3):
                renew_at = first._log_in_at
                assert renew_at is not None and renew_at < time.monotonic() + SESSION_S, "not before its session ends"
                cluster.ask_metadata(())
                assert first._log_in_at == renew_at, "sooner than it must"
                first._log_in_at = 0.0  # the time has come
                cluster.ask_metadata(())
                assert first._log_in_at is not None and first._log_in_at > renew_at
            assert cluster.any_node() is first and not first.closed
