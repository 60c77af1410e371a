"""The settings of the broker that change what it does. `BROKER` joins them with those that are stored and shown only.

By Kafka's names where Kafka has one, else `tidelog.*`. `dynamic` keys can be altered while the broker runs
(IncrementalAlterConfigs on the broker, or on the cluster's default); the others are read at the start.
"""

from __future__ import annotations

from tidelog.broker.settings.broker_access import ACCESS
from tidelog.broker.settings.broker_cleaner import CLEANER
from tidelog.broker.settings.broker_groups import GROUPS
from tidelog.broker.settings.broker_stored import STORED_BY_BROKER
from tidelog.broker.settings.broker_transactions import TRANSACTIONS
from tidelog.broker.settings.setting import (
    BOOLEAN,
    INT,
    INT_MAX,
    LIST,
    LONG,
    STORED,
    STRING,
    Setting,
    at_least,
    each_of,
    exactly_one,
    one_of,
    table,
)
from tidelog.broker.settings.topic import COMPRESSIONS, NEVER, ONE_COPY, SEGMENT_BYTES_MIN

UNLIMITED = str(INT_MAX)
MIB = 1 << 20

LISTENING = [
    Setting(
        "node.id",
        INT,
        "1",
        "The number of this broker in its cluster of one.",
        at_least(0),
        kafka="",
        because="one node needs no choice",
    ),
    Setting("broker.rack", STRING, None, "The rack that Metadata names for this broker."),
    Setting(
        "listeners",
        LIST,
        "PLAINTEXT://127.0.0.1:9092",
        "Where the broker listens, as NAME://HOST:PORT with a name of listener.security.protocol.map; port 0 takes any"
        " free one. Addresses that are not of this machine alone need a login (tidelog.allow.unauthenticated).",
        kafka="PLAINTEXT://:9092",
        because="without authentication, only programs of this machine reach the broker unless you say otherwise",
    ),
    Setting(
        "advertised.listeners",
        LIST,
        None,
        "The addresses that clients connect to, where they differ from `listeners`.",
    ),
    Setting(
        "socket.request.max.bytes",
        INT,
        "104857600",
        "The largest request that is read; a larger one ends its connection.",
        at_least(1),
    ),
    Setting(
        "socket.send.buffer.bytes",
        INT,
        "102400",
        "SO_SNDBUF of connections; -1 leaves it to the system, which is better over long distances and worse nearby.",
        at_least(-1),
    ),
    Setting(
        "fetch.max.bytes",
        INT,
        "57671680",
        "The most that one fetch is answered with, whatever the client asks for.",
        at_least(1024),
    ),
    Setting(
        "log.retention.check.interval.ms",
        LONG,
        "300000",
        "How often retention looks for segments to delete.",
        at_least(1),
    ),
    Setting(
        "tidelog.retention.hold",
        BOOLEAN,
        "false",
        "Whether retention deletes nothing for now, by time or by size, of any topic and whatever its settings are: for"
        " a restored backup that is older than they allow. Disks fill meanwhile. Only at the start: what was altered"
        " once would be in the backup, and count for more than what is set at the start of the restored one.",
    ),
    Setting(
        "tidelog.retention.warning.ms",
        LONG,
        None,
        "How long before retention deletes what a group has not read a warning is given (__tidelog.warnings); 0 gives"
        " none before. Not set: an hour, or a tenth of retention.ms if that is less.",
        at_least(0),
        dynamic=True,
    ),
    Setting(
        "queued.max.request.bytes",
        LONG,
        str(64 * MIB),
        "Bytes of requests in memory, of all connections; at the limit the broker stops reading until some are done."
        " -1 is without limit.",
        at_least(-1),
        kafka="-1",
        because="memory is bounded by default",
    ),
    Setting(
        "max.connections",
        INT,
        UNLIMITED,
        "Connections in all; a further one is closed at once.",
        at_least(0),
        dynamic=True,
    ),
    Setting(
        "max.connections.per.ip",
        INT,
        UNLIMITED,
        "Connections from one address; a further one is closed at once.",
        at_least(0),
        dynamic=True,
    ),
    Setting(
        "tidelog.max.connections.per.user",
        INT,
        UNLIMITED,
        "Connections of one user, by password or certificate; a further login is refused.",
        at_least(0),
        dynamic=True,
    ),
    Setting(
        "connections.max.idle.ms",
        LONG,
        "600000",
        "After how long without a request a connection is closed; -1 is never.",
        at_least(-1),
    ),
    Setting(
        "max.request.partition.size.limit",
        INT,
        "2000",
        "Partitions in one answer to DescribeTopicPartitions.",
        at_least(1),
    ),
    Setting(
        "tidelog.log.level",
        STRING,
        "INFO",
        "The least important lines that the broker's own log has.",
        one_of("DEBUG", "INFO", "WARNING", "ERROR"),
    ),
    Setting("tidelog.log.format", STRING, "text", "How the broker writes its own log lines.", one_of("text", "json")),
    Setting(
        "tidelog.http.listener",
        STRING,
        "127.0.0.1:8642",
        "Where HTTP is served, by a process that starts with the first request: HOST:PORT, https://HOST:PORT with"
        " ssl.keystore.location, http://HOST:PORT for other machines behind a proxy with TLS, or - for nowhere.",
    ),
    Setting(
        "tidelog.http.hosts",
        LIST,
        None,
        "Names by which HTTP may be asked for, beside localhost, 127.0.0.1 and ::1; requests for others are refused.",
    ),
    Setting(
        "tidelog.http.stores",
        LIST,
        None,
        "Prefixes of the URLs of stores that HTTP may read views from, such as sqlite:////var/views/. Default: files,"
        " and Redis and OpenSearch on this machine, where logins are off; where logins are on, no store.",
    ),
]

TOPICS = [
    Setting("num.partitions", INT, "1", "Partitions of a topic that is created without saying how many.", at_least(1)),
    Setting(
        "default.replication.factor",
        INT,
        "1",
        "Replicas of a topic that is created without saying how many.",
        one_of("1", reason=ONE_COPY),
    ),
    Setting(
        "auto.create.topics.enable",
        BOOLEAN,
        "true",
        "Whether a topic is created when a client first asks for its metadata.",
    ),
    Setting("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted."),
    Setting(
        "tidelog.max.partitions",
        INT,
        "20000",
        "Partitions in all; creating more is refused.",
        at_least(1),
        dynamic=True,
    ),
    Setting(
        "tidelog.max.partitions.per.topic",
        INT,
        "10000",
        "Partitions of one topic; creating more is refused.",
        at_least(1),
        dynamic=True,
    ),
]

LOG = [
    Setting(
        "log.dirs",
        LIST,
        "tidelog-data",
        "The data folder.",
        exactly_one("one data folder"),
        kafka="",
        because="data is not temporary, and belongs where you started the broker",
    ),
    Setting(
        "tidelog.durability",
        STRING,
        "disk",
        "tidelog.durability of topics that do not set it.",
        one_of("disk", "memory"),
        dynamic=True,
    ),
    Setting(
        "message.max.bytes",
        INT,
        "1048588",
        "max.message.bytes of topics that do not set it.",
        at_least(0),
        dynamic=True,
    ),
    Setting(
        "log.cleanup.policy",
        LIST,
        "delete",
        "cleanup.policy of topics that do not set it.",
        each_of("compact", "delete"),
        dynamic=True,
    ),
    Setting(
        "log.flush.interval.messages",
        LONG,
        NEVER,
        "flush.messages of topics that do not set it: 1 asks for disk, other values change nothing.",
        at_least(1),
        dynamic=True,
    ),
    Setting(
        "log.index.interval.bytes",
        INT,
        "4096",
        "index.interval.bytes of topics that do not set it.",
        at_least(0),
        dynamic=True,
    ),
    Setting(
        "log.message.timestamp.after.max.ms",
        LONG,
        "3600000",
        "message.timestamp.after.max.ms of topics that do not set it.",
        at_least(0),
        dynamic=True,
    ),
    Setting(
        "log.message.timestamp.before.max.ms",
        LONG,
        NEVER,
        "message.timestamp.before.max.ms of topics that do not set it.",
        at_least(0),
        dynamic=True,
    ),
    Setting(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "message.timestamp.type of topics that do not set it.",
        one_of("CreateTime", "LogAppendTime"),
        dynamic=True,
    ),
    Setting(
        "log.retention.bytes", LONG, "-1", "retention.bytes of topics that do not set it.", at_least(-1), dynamic=True
    ),
    Setting(
        "log.retention.ms",
        LONG,
        None,
        "retention.ms of topics that do not set it.",
        at_least(-1),
        dynamic=True,
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    Setting(
        "log.retention.minutes", INT, None, "The same in minutes, where log.retention.ms is not set.", at_least(-1)
    ),
    Setting(
        "log.retention.hours",
        INT,
        "168",
        "The same in hours, where log.retention.minutes is not set either.",
        at_least(-1),
    ),
    Setting(
        "log.roll.ms",
        LONG,
        None,
        "segment.ms of topics that do not set it.",
        at_least(1),
        dynamic=True,
        synonyms=("log.roll.ms", "log.roll.hours"),
    ),
    Setting("log.roll.hours", INT, "168", "The same in hours, where log.roll.ms is not set.", at_least(1)),
    Setting(
        "log.segment.bytes",
        INT,
        "1073741824",
        "segment.bytes of topics that do not set it.",
        at_least(SEGMENT_BYTES_MIN),
        dynamic=True,
    ),
    Setting(
        "compression.type",
        STRING,
        "producer",
        "compression.type of topics that do not set it.",
        one_of(*COMPRESSIONS),
        STORED,
        dynamic=True,
    ),
    Setting(
        "min.insync.replicas",
        INT,
        "1",
        "min.insync.replicas of topics that do not set it.",
        one_of("1", reason=ONE_COPY),
        dynamic=True,
    ),
    Setting(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "After how long without a batch a partition forgets an idempotent producer.",
        at_least(1),
        dynamic=True,
    ),
]

BROKER: dict[str, Setting] = table(
    [*LISTENING, *ACCESS, *TOPICS, *LOG, *CLEANER, *GROUPS, *TRANSACTIONS, *STORED_BY_BROKER]
)

MAKE_USERS = "make a user for each program with `tidelog users add NAME`, who logs in by SCRAM or PLAIN"

# Kafka's settings that Tidelog does not know, by how they begin: an error can then say more than "unknown".
FOREIGN = {
    "controller.quota.": "how often topics are made is not bounded; tidelog.max.partitions bounds how many there are",
    "controller.": "Tidelog does not have a controller quorum: one process is the cluster",
    "process.roles": "Tidelog does not have a controller quorum: one process is the cluster",
    "metadata.log.": "Tidelog keeps its metadata in the topic __tidelog.topics",
    "replica.": "nothing is replicated: Apache Kafka does that",
    "inter.broker.": "a Tidelog cluster has one broker",
    "remote.log.": "Tidelog does not have remote storage",
    "ssl.engine.": "TLS is OpenSSL's here, with PEM files",
    "ssl.keymanager.": "TLS is OpenSSL's here, with PEM files",
    "ssl.provider": "TLS is OpenSSL's here, with PEM files",
    "ssl.secure.random.": "TLS is OpenSSL's here, with PEM files",
    "ssl.trustmanager.": "TLS is OpenSSL's here, with PEM files",
    "sasl.jaas.": f"users are kept by the broker; {MAKE_USERS}",
    "sasl.kerberos.": f"Tidelog does not support Kerberos; {MAKE_USERS}",
    "sasl.login.": "a Tidelog cluster has one broker, which logs in nowhere",
    "sasl.mechanism.": "a Tidelog cluster has one broker, which logs in nowhere",
    "sasl.oauthbearer.": f"Tidelog does not support OAuth; {MAKE_USERS}",
    "sasl.server.": "tidelog.frame.bytes.before.authentication bounds logins, and users are kept by the broker",
    "listener.name.": "settings of TLS and logins are for all listeners; write it without listener.name.NAME, and"
    " without the mechanism that may stand before the setting",
    "security.": "a Tidelog cluster has one broker",
    "principal.builder.": "principals come from logins and certificates (ssl.principal.mapping.rules)",
    "share.coordinator.": "the state of share groups is a fold of __tidelog.queues, with nothing to set",
    "group.streams.": "Kafka Streams groups are not supported yet",
}
