"""The broker's settings of access: what is spoken on a listener, TLS, logins, rules and quotas.

`RELOADED` are those that SIGHUP reads again, beside the alterable ones and the log's level.
"""

from __future__ import annotations

from tidelog.broker.settings.setting import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    PASSWORD,
    STORED,
    STRING,
    Setting,
    at_least,
    each_of,
    one_of,
)

PEM_ONLY = "OpenSSL reads PEM; keytool and openssl turn the others into it"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

ACCESS = [
    Setting(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "What is spoken on a listener, by its name: PLAINTEXT, SSL (TLS), SASL_PLAINTEXT (a login) or SASL_SSL (both).",
    ),
    Setting(
        "tidelog.allow.unauthenticated",
        BOOLEAN,
        "false",
        "Whether a listener without authentication may have an address that other machines reach.",
    ),
    Setting(
        "tidelog.frame.bytes.before.authentication",
        INT,
        "65536",
        "The largest request of a client that has not logged in; a larger one ends its connection.",
        at_least(1024),
    ),
    Setting(
        "tidelog.max.handshakes",
        INT,
        "500",
        "TLS handshakes that may be under way; then one that waits for its client is ended, or newcomers wait.",
        at_least(1),
        dynamic=True,
    ),
    Setting(
        "tidelog.handshake.timeout.ms",
        INT,
        "10000",
        "After how long a TLS handshake that is not done is ended.",
        at_least(1),
        dynamic=True,
    ),
    Setting(
        "sasl.enabled.mechanisms",
        LIST,
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "How clients may log in: SCRAM-SHA-256, SCRAM-SHA-512, and PLAIN, which sends the password itself and belongs"
        " on SASL_SSL.",
        each_of("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"),
        kafka="GSSAPI",
        because="Kerberos is not spoken here",
    ),
    Setting(
        "connections.max.reauth.ms",
        LONG,
        "0",
        "After how long a client must log in again, or loses its connection; 0 is never.",
        at_least(0),
    ),
    Setting(
        "connection.failed.authentication.delay.ms",
        INT,
        "100",
        "How long the answer to a failed login is held back.",
        at_least(0),
    ),
    Setting(
        "ssl.keystore.type",
        STRING,
        "PEM",
        "The form of the key store.",
        one_of("PEM", reason=PEM_ONLY),
        kafka="JKS",
        because=PEM_ONLY,
    ),
    Setting("ssl.keystore.location", STRING, None, "A PEM file with the broker's private key and its certificates."),
    Setting("ssl.keystore.key", PASSWORD, None, "The private key itself, as PEM, in place of a file."),
    Setting(
        "ssl.keystore.certificate.chain", PASSWORD, None, "The certificates themselves, as PEM, in place of a file."
    ),
    Setting("ssl.key.password", PASSWORD, None, "The password of the private key, if it is encrypted."),
    Setting(
        "ssl.truststore.type",
        STRING,
        "PEM",
        "The form of the trust store.",
        one_of("PEM", reason=PEM_ONLY),
        kafka="JKS",
        because=PEM_ONLY,
    ),
    Setting(
        "ssl.truststore.location", STRING, None, "A PEM file with the authorities that clients' certificates are of."
    ),
    Setting("ssl.truststore.certificates", PASSWORD, None, "Those authorities themselves, as PEM, in place of a file."),
    Setting(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients of SSL listeners are asked for a certificate; required makes it their login.",
        one_of("none", "requested", "required"),
    ),
    Setting(
        "ssl.enabled.protocols",
        LIST,
        "TLSv1.2,TLSv1.3",
        "The versions of TLS that are spoken.",
        each_of("TLSv1.2", "TLSv1.3"),
    ),
    Setting("ssl.protocol", STRING, "TLSv1.3", "The TLS version that Kafka makes its contexts with.", effect=STORED),
    Setting("ssl.cipher.suites", LIST, "", "The cipher suites of TLS 1.2 that are offered, by OpenSSL's names."),
    Setting(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes a user: DEFAULT (the whole name), or rules as"
        " RULE:^CN=(.*?),.*$/$1/L,DEFAULT, of which the first that fits counts.",
    ),
    Setting(
        "authorizer.class.name",
        STRING,
        "",
        "Rules decide who may do what, as Kafka's StandardAuthorizer does; without it everybody who can log in may do"
        " everything.",
        one_of("", STANDARD_AUTHORIZER),
    ),
    Setting(
        "super.users",
        STRING,
        None,
        "Who may do everything whatever the rules say, as User:NAME;User:NAME.",
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        "false",
        "Whether what no rule is about is allowed to everybody.",
    ),
    Setting("quota.window.num", INT, "11", "Over how many windows the rates of quotas are taken.", at_least(1)),
    Setting("quota.window.size.seconds", INT, "1", "How long such a window is.", at_least(1)),
]

RELOADED = frozenset(
    setting.key
    for setting in ACCESS
    if setting.key.startswith(("ssl.", "sasl.", "connection"))
    or setting.key in ("super.users", "allow.everyone.if.no.acl.found", "tidelog.frame.bytes.before.authentication")
) | {"tidelog.log.level", "tidelog.http.hosts", "tidelog.http.stores"}
