"""Requests of every API with bytes changed at random, by a user without rights: refused or malformed, never a fault."""

from __future__ import annotations

import random

import pytest
from access import ADMIN, AUTHORIZER, PASSWORD, Refused
from test_tables import asked

from proving import proves
from tidelog.broker.dispatch import APIS
from tidelog.wire.frame import encode_request

HEADER_BYTES = 4 + 2 + 2 + 4  # size, API, version, correlation id stay as they are
ANSWER_WITHIN_S = 0.3  # who waits for others, or was never to be answered, is not waited for


@proves("T10")
@pytest.mark.parametrize("rights", [False, True], ids=["without rights", "with all rights"])
def test_no_change_of_bytes_in_a_request_is_a_fault_of_ours(access_broker, seed, rights):
    chance = random.Random(seed)
    broker = access_broker(
        "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        **{"authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN};User:ANONYMOUS"},
    )
    user = ADMIN if rights else "alice"
    with broker.client("PLAINTEXT") as admin:
        broker.add_user(user, PASSWORD, by=admin)
    client = None
    for api_key, entry in APIS.items():
        for version in {entry.min_version, entry.max_version}:
            whole = b"".join(
                bytes(one) for one in encode_request(asked(api_key, version, bytes(16)), version, 1, "raw")
            )
            for _ in range(3):
                frame = bytearray(whole)
                for _ in range(chance.randint(1, 4)):
                    frame[chance.randrange(HEADER_BYTES, len(frame))] = chance.randrange(256)
                if client is None:
                    client = broker.client("SASL_PLAINTEXT")
                    assert client.login(user, PASSWORD).error_code == 0
                client.socket.settimeout(ANSWER_WITHIN_S)
                try:
                    client.socket.sendall(frame)
                    client.exactly(int.from_bytes(client.exactly(4), "big"))
                except (Refused, OSError):
                    client.close()
                    client = None
    if client is not None:
        client.close()
    with broker.client("SASL_PLAINTEXT") as again:
        assert again.login(user, PASSWORD).error_code == 0
    assert "fault" not in broker.said(), broker.said()
