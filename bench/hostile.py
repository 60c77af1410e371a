"""What strangers cost those who are connected: the ack latency of one producer while others attack, row by row.

    python bench/hostile.py                    every row, five seconds each
    python bench/hostile.py --seconds 2 --only reconnects

A producer on a plain listener sends a record of 100 bytes, waits for its ack, and pauses 2 ms; attackers run in two
processes of their own on the same machine. `ms` are of those acks; `attacks/s` is what the broker kept up with; `MB` is
how much the broker's memory has grown over the row. The first row has no attacker.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import tidelog
from tidelog.client.admin.access import set_password
from tidelog.client.cluster import Cluster
from tidelog.record.columns import encode
from tidelog.wire.frame import encode_request
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest

ATTACKERS = 2
PAUSE_S = 0.002
HALF_OPEN = 400
GARBAGE_BYTES = 2000


def frame(request: object, version: int) -> bytes:
    return b"".join(bytes(chunk) for chunk in encode_request(request, version, 1, "bench"))  # type: ignore[arg-type]


CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CONTEXT.check_hostname, CONTEXT.verify_mode = False, ssl.CERT_NONE


def reconnect(ports: dict[str, int]) -> None:
    """A TLS handshake, then gone."""
    CONTEXT.wrap_socket(socket.create_connection(("127.0.0.1", ports["SSL"]))).close()


def garbage(ports: dict[str, int]) -> None:
    """Random bytes where a handshake is expected."""
    with socket.create_connection(("127.0.0.1", ports["SSL"])) as client:
        client.sendall(b"\0" + os.urandom(GARBAGE_BYTES))
        client.recv(100)


def guess(mechanism: str) -> Callable[[dict[str, int]], None]:
    """A wrong password; the broker holds its answer back, so nobody waits for it."""
    hello = frame(SaslHandshakeRequest(mechanism=mechanism), 1)
    token = b"\0alice\0wrong password" if mechanism == "PLAIN" else b"n,,n=alice,r=0123456789abcdef"

    def attack(ports: dict[str, int]) -> None:
        with socket.create_connection(("127.0.0.1", ports["SASL_PLAINTEXT"])) as client:
            client.sendall(hello + frame(SaslAuthenticateRequest(auth_bytes=token), 1))
            client.recv(100)

    return attack


def oversized(ports: dict[str, int]) -> None:
    """A frame that says it is 100 MB, before any login."""
    with socket.create_connection(("127.0.0.1", ports["SASL_PLAINTEXT"])) as client:
        client.sendall(struct.pack(">i", 100 << 20) + bytes(1000))
        client.recv(100)


_open: list[socket.socket] = []


def half_open(ports: dict[str, int]) -> None:
    """The beginning of a handshake, and then silence; the oldest goes when there are many."""
    client = socket.create_connection(("127.0.0.1", ports["SSL"]))
    client.sendall(b"\x16\x03\x01\x02\x00\x01")
    _open.append(client)
    if len(_open) > HALF_OPEN:
        _open.pop(0).close()


ROWS: dict[str, Callable[[dict[str, int]], None] | None] = {
    "nobody": None,
    "reconnects": reconnect,
    "garbage": garbage,
    "half-open": half_open,
    "oversized": oversized,
    "wrong PLAIN": guess("PLAIN"),
    "wrong SCRAM": guess("SCRAM-SHA-256"),
}


def attack(name: str, ports: dict[str, int], seconds: float) -> int:
    attacks, end = 0, time.monotonic() + seconds
    one = ROWS[name]
    while one is not None and time.monotonic() < end:
        with suppress(OSError):
            one(ports)
        attacks += 1
    return attacks


def acks(port: int, seconds: float) -> list[float]:
    records = bytes(encode([(None, b"x" * 100, (), 0)]))
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    request = frame(ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[topic]), 9)
    found, end = [], time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.monotonic() < end:
            began = time.perf_counter()
            client.sendall(request)
            size = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))[0]
            client.recv(size, socket.MSG_WAITALL)
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(PAUSE_S)
    return sorted(found)


def memory_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def certificate(folder: Path) -> Path:
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "crt")]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", *files]
    subprocess.run(made, check=True, capture_output=True)
    both = folder / "broker.pem"
    both.write_text((folder / "key").read_text() + (folder / "crt").read_text())
    return both


def row(name: str, broker: tidelog.Broker, ports: dict[str, int], seconds: float) -> str:
    before = memory_mb(broker.pid or 0)
    words = [sys.executable, __file__, "--attack", name, "--seconds", str(seconds)]
    words += ["--ports", ",".join(f"{key}={port}" for key, port in ports.items())]
    attackers = range(ATTACKERS if ROWS[name] else 0)
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in attackers]
    found = acks(ports["PLAINTEXT"], seconds)
    attacks = sum(int(one.communicate()[0]) for one in running)
    p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
    grown = memory_mb(broker.pid or 0) - before
    return f"{name:<14}{p50:8.2f}{p99:8.2f}{found[-1]:8.2f}{attacks / seconds:12.0f}{grown:8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", choices=list(ROWS))
    parser.add_argument("--attack", choices=list(ROWS), help=argparse.SUPPRESS)
    parser.add_argument("--ports", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        ports = {name: int(port) for name, port in (one.split("=") for one in options.ports.split(","))}
        print(attack(options.attack, ports, options.seconds))
        return
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "ssl.keystore.location": certificate(Path(folder)),
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            "tidelog.log.level": "ERROR",
        }
        listen = ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT"))
        with tidelog.Broker(listen=listen, settings=settings) as broker:
            names = [one.partition("://") for one in broker._listen.split(",")]
            ports = {name: int(address.rpartition(":")[2]) for name, _, address in names}
            with Cluster(broker.bootstrap) as cluster:
                set_password(cluster, "alice", "the right password", ["SCRAM-SHA-256"])
                cluster.partitions("t", auto_create=True)
            print(f"{'attack':<14}{'p50 ms':>8}{'p99 ms':>8}{'max ms':>8}{'attacks/s':>12}{'MB':>8}")
            for name in [options.only] if options.only else ROWS:
                print(row(name, broker, ports, options.seconds), flush=True)


if __name__ == "__main__":
    main()
