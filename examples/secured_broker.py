"""From nothing to a broker with TLS, logins, rules and quotas; a user writes what it may, and is refused the rest.

python examples/secured_broker.py

Needs the `openssl` command for the certificate.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import KafkaException, Producer

import tidelog

folder = Path(tempfile.mkdtemp())
data, certificate = folder / "data", folder / "broker.pem"


def command(*words: str, says: str = "", environment: dict[str, str] | None = None) -> None:
    """A tidelog command as it would be typed; passwords go to its standard input."""
    subprocess.run(
        [sys.executable, "-m", "tidelog", *words],
        input=says,
        text=True,
        check=True,
        env={**os.environ, **(environment or {})},
    )


# 1. A certificate that signs itself, and the first user, made while no broker runs on the folder.
names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
openssl = ["openssl", "req", *kind, "-subj", "/CN=localhost", "-addext", names, *files]
subprocess.run(openssl, check=True, capture_output=True)
certificate.write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())
certificate.chmod(0o600)
command("users", "add", "admin", "--data", str(data), says="a password for admin\n")

# 2. A broker that asks for a login, and where rules say who may do what.
settings = {
    "ssl.keystore.location": certificate,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
with tidelog.Broker(data, listen="SASL_SSL://127.0.0.1:0", settings=settings) as broker:
    # 3. The administrator's own file, which Kafka's tools take too.
    properties = folder / "admin.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.username=admin\n"
        "sasl.password=a password for admin\n"
        f"ssl.truststore.location={folder / 'certificate.pem'}\n"
    )
    admin = {"TIDELOG_COMMAND_CONFIG": str(properties), "TIDELOG_BOOTSTRAP": broker.bootstrap}
    command("topics", "create", "orders", environment=admin)
    command("topics", "create", "salaries", environment=admin)
    command("users", "add", "alice", says="a password for alice\n", environment=admin)
    command("acls", "add", "--user", "alice", "--topic", "orders", "--operation", "write", environment=admin)
    command("quotas", "set", "--user", "alice", "--producer-byte-rate", "1000000", environment=admin)

    # 4. Alice, with any Kafka client.
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "a password for alice",
            "ssl.ca.location": str(folder / "certificate.pem"),
        }
    )
    for topic in ("orders", "salaries"):
        try:
            producer.produce(
                topic,
                b"1",
                on_delivery=lambda error, message: print(f"{message.topic()}: {error.name() if error else 'written'}"),
            )
        except KafkaException as error:  # the client may know it before it sends
            print(f"{topic}: {error.args[0].name()}")
        producer.flush(30)
