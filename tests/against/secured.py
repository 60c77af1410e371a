"""The two brokers with logins, certificates and rules: the same settings on both, and users made by the same request.

Each has a plain listener, for the tests' own administration, and beside it one with TLS and logins and one with mutual
TLS. Sessions last a few seconds, so that every test that takes longer proves re-authentication too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from against.apache_kafka import ApacheKafka
from against.brokers import BROKER_SETTINGS, Broker
from against.patience import eventually
from against.tidelog_process import TidelogProcess
from certificates import Certificates
from crash.port import free_port

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USER, PASSWORD = "alice", "alice has a password"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SESSION_LASTS_MS = 10_000
ITERATIONS = 4096
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Secured(NamedTuple):
    broker: Broker
    login_port: int
    certificate_port: int
    certificates: Certificates
    admin: AdminClient

    def librdkafka(self, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"localhost:{self.login_port}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
            "ssl.ca.location": str(self.certificates.authority),
        }

    def librdkafka_by_certificate(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"localhost:{self.certificate_port}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.certificates.authority),
            "ssl.certificate.location": str(self.certificates.client),
            "ssl.key.location": str(self.certificates.client),
        }

    def python(self, mechanism: str) -> dict[str, Any]:
        """For kafka-python and aiokafka, which name settings alike."""
        return {
            "bootstrap_servers": f"localhost:{self.login_port}",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
            "ssl_context": self.certificates.client_context(),
        }

    def properties(self, folder: Path, mechanism: str) -> Path:
        """A file for Java's --command-config, and for ours."""
        path = folder / f"{mechanism}.properties"
        module = PLAIN_LOGIN if mechanism == "PLAIN" else SCRAM_LOGIN
        path.write_text(
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="{USER}" password="{PASSWORD}";\n'
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.certificates.authority}\n"
        )
        return path

    def allow(self, *rules: tuple[ResourceType, str, AclOperation], principal: str = f"User:{USER}") -> None:
        made = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW)
            for kind, name, operation in rules
        ]
        for future in self.admin.create_acls(made).values():
            future.result(180)
        eventually(lambda: self._rules_of(principal) >= {(rule.name, rule.operation) for rule in made})

    def _rules_of(self, principal: str) -> set[tuple[str, AclOperation]]:
        """What counts by now: at Apache Kafka a rule is taken before it counts."""
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, principal, None, AclOperation.ANY, AclPermissionType.ANY
        )
        return {(rule.name, rule.operation) for rule in self.admin.describe_acls(every).result(180)}

    def allow_all(self, topic: str, group: str, principal: str = f"User:{USER}") -> None:
        self.allow(
            (ResourceType.TOPIC, topic, AclOperation.ALL),
            (ResourceType.GROUP, group, AclOperation.ALL),
            principal=principal,
        )


def settings_of(certificates: Certificates) -> dict[str, str]:
    return {
        **BROKER_SETTINGS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "connections.max.reauth.ms": str(SESSION_LASTS_MS),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }


def further(login_port: int, certificate_port: int) -> str:
    return f"SASL_SSL://127.0.0.1:{login_port},SSL://127.0.0.1:{certificate_port}"


def start_tidelog(folder: Path, certificates: Certificates) -> Secured:
    ports = free_port(), free_port()
    settings = settings_of(certificates)
    process = TidelogProcess(folder, settings, further_listeners=further(*ports)).start()
    return with_users(process, ports, certificates)


def start_kafka(folder: Path, certificates: Certificates) -> Secured:
    ports = free_port(), free_port()
    kafka = ApacheKafka(folder, settings_of(certificates), further_listeners=further(*ports))
    jaas = f'{PLAIN_LOGIN} required user_{USER}="{PASSWORD}";'
    with (folder / "server.properties").open("a") as properties:
        properties.write(f"listener.name.sasl_ssl.plain.sasl.jaas.config={jaas}\n")
        for mechanism in SCRAM:
            name = f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config"
            properties.write(f"{name}={SCRAM_LOGIN} required;\n")
    return with_users(kafka.start(), ports, certificates)


def with_users(broker: Broker, ports: tuple[int, int], certificates: Certificates) -> Secured:
    secured = Secured(broker, *ports, certificates, AdminClient({"bootstrap.servers": broker.bootstrap}))
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, ITERATIONS)
        made = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        secured.admin.alter_user_scram_credentials([made])[USER].result(180)
    return secured
