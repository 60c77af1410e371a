"""Row `hostile`: what strangers cost those who are connected: the acks of one producer while others attack.

The producer is on a plain listener, sends a record of 100 bytes, waits for its ack, and pauses 2 ms. The attackers are
two processes on the same machine (this module, run by itself), at a listener with TLS and one with logins. Each begins
RATE attacks a second, or as many as the broker lets it: at full speed the broker that takes fewer would look better.

    reconnects     a TLS handshake, then gone
    garbage        bytes that are no handshake
    half-open      the beginning of a handshake, and then silence
    slow senders   hundreds of requests that are begun and come byte by byte, before any login
    oversized      a frame that says it is 100 MB, before any login
    wrong PLAIN    a wrong password, without waiting for the answer
    wrong SCRAM    the same
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from tidelog.record.columns import encode
from tidelog.wire.frame import encode_request
from tidelog.wire.message import Struct
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bench.broker.bench import Bench, Side

ATTACKERS = 2
RATE = 250.0
SECONDS = 2.5
PAUSE_S = 0.002
HALF_OPEN = 400
GARBAGE_BYTES = 2000
SLOW_BYTES = 4
LOAD_MB = 1 << 20

_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_context.check_hostname, _context.verify_mode = False, ssl.CERT_NONE
_open: list[socket.socket] = []


class Ports:
    def __init__(self, tls: int, logins: int) -> None:
        self.tls = tls
        self.logins = logins


def frame(request: Struct, version: int) -> bytes:
    return b"".join(bytes(chunk) for chunk in encode_request(request, version, 1, "bench"))  # type: ignore[arg-type]


# Attacks --------------------------------------------------------------------------------------------------------------


def reconnect(ports: Ports) -> None:
    _context.wrap_socket(socket.create_connection(("127.0.0.1", ports.tls))).close()


def garbage(ports: Ports) -> None:
    with socket.create_connection(("127.0.0.1", ports.tls)) as client:
        client.sendall(b"\0" + os.urandom(GARBAGE_BYTES))
        client.settimeout(1)
        client.recv(100)


def half_open(ports: Ports) -> None:
    client = socket.create_connection(("127.0.0.1", ports.tls))
    client.sendall(b"\x16\x03\x01\x02\x00\x01")
    _open.append(client)
    if len(_open) > HALF_OPEN:
        _open.pop(0).close()


def slow_sender(ports: Ports) -> None:
    """One more of them, and a byte of each request that has waited longest for its next."""
    if len(_open) < HALF_OPEN:
        _open.append(socket.create_connection(("127.0.0.1", ports.logins)))
    for _ in range(SLOW_BYTES):
        client = _open.pop(0)
        client.send(b"\0")  # four make a size that no request has; it is ended, and another takes its place
        _open.append(client)


def oversized(ports: Ports) -> None:
    with socket.create_connection(("127.0.0.1", ports.logins)) as client:
        client.sendall(struct.pack(">i", 100 << 20) + bytes(1000))
        client.settimeout(1)
        client.recv(100)


def guess(mechanism: str, token: bytes) -> Callable[[Ports], None]:
    said = frame(SaslHandshakeRequest(mechanism=mechanism), 1) + frame(SaslAuthenticateRequest(auth_bytes=token), 1)

    def attack(ports: Ports) -> None:
        with socket.create_connection(("127.0.0.1", ports.logins)) as client:
            client.sendall(said)
            client.recv(100)

    return attack


ATTACKS: dict[str, Callable[[Ports], None] | None] = {
    "nobody attacks": None,
    "reconnects": reconnect,
    "garbage": garbage,
    "half-open": half_open,
    "slow senders": slow_sender,
    "oversized": oversized,
    "wrong PLAIN": guess("PLAIN", b"\0alice\0wrong password"),
    "wrong SCRAM": guess("SCRAM-SHA-256", b"n,,n=alice,r=0123456789abcdef"),
}


def attack(name: str, ports: Ports, seconds: float) -> int:
    """How often."""
    attacks, due = 0, time.monotonic()
    end = due + seconds
    one = ATTACKS[name]
    while one is not None and due < end:
        with suppress(OSError):
            one(ports)
        attacks += 1
        due = max(due + 1 / RATE, time.monotonic())  # what was missed is not made up for
        time.sleep(max(0.0, due - time.monotonic()))
    return attacks


# The row --------------------------------------------------------------------------------------------------------------


def run(bench: Bench) -> None:
    from bench.broker.bench import KAFKA_SETTINGS, Side
    from bench.broker.figures import KAFKA, KAFKA_DISK, TIDELOG_DISK

    from against.apache_kafka import ApacheKafka, free_port
    from against.tidelog_process import TidelogProcess
    from certificates import make_certificates

    certificate = make_certificates(bench.new_folder("certificates")).broker
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
    }
    ours, theirs = Ports(free_port(), free_port()), Ports(free_port(), free_port())
    tidelog = TidelogProcess(
        bench.new_folder("tidelog"), {**settings, "tidelog.log.level": "ERROR"}, further_listeners=_listeners(ours)
    )
    kafka = ApacheKafka(
        bench.new_folder("kafka"), {**KAFKA_SETTINGS, **settings, **_jaas()}, further_listeners=_listeners(theirs)
    )
    try:
        for broker in (tidelog.start(), kafka.start()):
            _add_user(broker.bootstrap)
        sides = [
            (Side(TIDELOG_DISK, tidelog.bootstrap, tidelog.pid, {}), ours),
            (Side(KAFKA, kafka.bootstrap, kafka.pid, {}), theirs),
            (Side(KAFKA_DISK, kafka.bootstrap, kafka.pid, {"flush.messages": "1"}), theirs),
        ]
        for name in ATTACKS:
            for counts in bench.rounds():
                for side, ports in sides:
                    _take(bench, side, ports, name, counts=counts)
    finally:
        bench.discard(tidelog)
        bench.discard(kafka)


def _listeners(ports: Ports) -> str:
    return f"SSL://127.0.0.1:{ports.tls},SASL_PLAINTEXT://127.0.0.1:{ports.logins}"


def _jaas() -> dict[str, str]:
    modules, listener = "org.apache.kafka.common.security", "listener.name.sasl_plaintext"
    return {
        f"{listener}.plain.sasl.jaas.config": f'{modules}.plain.PlainLoginModule required user_alice="right";',
        f"{listener}.scram-sha-256.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
    }


def _add_user(bootstrap: str) -> None:
    from tidelog.client.admin.access import set_password
    from tidelog.client.cluster import Cluster

    with Cluster(bootstrap) as cluster:
        set_password(cluster, "alice", "the right password", ["SCRAM-SHA-256"])


def _take(bench: Bench, side: Side, ports: Ports, name: str, *, counts: bool) -> None:
    from bench.broker.process import resident_bytes

    topic = bench.new_topic(side)
    seconds = SECONDS * (0.25 if bench.quick else 1)
    words = [sys.executable, "-m", "bench.broker.hostile", name, str(ports.tls), str(ports.logins), str(seconds)]
    before = resident_bytes(side.pid)
    attackers = range(ATTACKERS if ATTACKS[name] else 0)
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in attackers]
    found = acks(side.bootstrap, topic, seconds)
    attacks = sum(int(one.communicate()[0]) for one in running)
    if counts:
        row = f"acks, {name}"
        bench.figures.add(row, "p50 ms", side.name, found[len(found) // 2])
        bench.figures.add(row, "p99 ms", side.name, found[len(found) * 99 // 100])
        bench.figures.add(row, "attacks/s", side.name, attacks / seconds)
        bench.figures.add(row, "grown MB", side.name, (resident_bytes(side.pid) - before) / LOAD_MB)
    bench.delete_topic(side, topic)


def acks(bootstrap: str, topic: str, seconds: float) -> list[float]:
    """Milliseconds, sorted."""
    records = bytes(encode([(None, b"x" * 100, (), int(time.time() * 1000))]))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    request = frame(ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[data]), 9)
    host, _, port = bootstrap.rpartition(":")
    found, end = [], time.monotonic() + seconds
    with socket.create_connection((host, int(port))) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.monotonic() < end:
            began = time.perf_counter()
            client.sendall(request)
            (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
            client.recv(size, socket.MSG_WAITALL)
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(PAUSE_S)
    return sorted(found)


if __name__ == "__main__":
    print(attack(sys.argv[1], Ports(int(sys.argv[2]), int(sys.argv[3])), float(sys.argv[4])))
