"""All brokers of one cluster: where they are, who leads a partition, who coordinates a group, and what if that changes.

Rules:
- Nothing is connected before it is needed; connections are kept, one a node, and replaced when they have ended.
- `bootstrap` is asked in order. When none of it answers at first, that is an error at once: the address is probably
  wrong, unless the caller knows better (`patient`).
- Whatever is known of leaders and coordinators may be old. So an operation is written as an attempt that looks them
  up, and `retry` runs it again after a retriable code or a lost connection, with all that was known forgotten, until
  `timeout_s` has passed.
- A cluster belongs to one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from tidelog.client.address import Address, parse_addresses
from tidelog.client.backoff import waits
from tidelog.client.connection import REQUEST_TIMEOUT_S, Connection
from tidelog.client.metadata import NO_LEADER, Metadata, Node, TopicMetadata, TopicPartition, read_metadata
from tidelog.client.refusal import check, may_pass, refused
from tidelog.client.security import Security
from tidelog.client.transport import Dial, plain
from tidelog.errors import BrokerError, Disconnected
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

GROUP, TRANSACTION = 0, 1  # kinds of coordinators
TIDELOG_FEATURE = "tidelog.version"

# A topic made a moment ago may be unknown to this broker for as long; one that does not exist should be said so soon.
UNKNOWN_TOPIC_TRIES = 4
UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

Result = TypeVar("Result")


class Cluster:
    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        client_id: str = "tidelog",
        timeout_s: float = REQUEST_TIMEOUT_S,
        dial: Dial = plain,
        security: Security | None = None,
        patient: bool = False,
    ) -> None:
        """`security` is how to reach brokers that ask for TLS or a login; `dial` is for tests.

        `patient` is for addresses that are known to be right: a broker that cannot be reached at first is waited for.
        """
        self.bootstrap = parse_addresses(bootstrap)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.cluster_id: str | None = None
        self.nodes: dict[int, Node] = {}
        self.security = security
        self._dial = dial if security is None else security.dial()
        self._reached = patient
        self._connections: dict[Address, Connection] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._controller = -1

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def ended(self) -> bool:
        """Whether a broker has ended one of the connections. To be asked between requests: then none has bytes."""
        import select

        looked = select.poll()
        for connection in self._connections.values():
            if connection.closed:
                return True
            looked.register(connection.fileno(), select.POLLIN)
        return bool(looked.poll(0))

    def is_tidelog(self) -> bool:
        return TIDELOG_FEATURE in self.any_node().features

    # Connections

    def any_node(self) -> Connection:
        """One that is open, else the first that answers: bootstrap addresses first, then the nodes that are known."""
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        tried: dict[Address, str] = {}
        advised = ""
        for address in dict.fromkeys((*self.bootstrap, *(node.address for node in self.nodes.values()))):
            try:
                return self._connection(address)
            except Disconnected as error:
                tried[address], _, advice = str(error).partition("; ")
                advised = advised or advice
        advised = advised or "is it up, and is its address right?"
        raise Disconnected(f"no broker was reached: {', '.join(tried.values())}; {advised}")

    def node(self, node_id: int) -> Connection:
        if node_id not in self.nodes:
            self.ask_metadata(())
        if node_id not in self.nodes:
            raise refused(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id}", "it is not in the cluster's metadata")
        address = self.nodes[node_id].address
        try:
            return self._connection(address)
        except Disconnected as error:
            if address in self.bootstrap:
                raise
            advice = "the cluster gave this address of it; see advertised.listeners"
            raise Disconnected(f"node {node_id}: {str(error).partition('; ')[0]}; {advice}") from error

    def controller(self) -> Connection:
        """Who changes topics. Brokers without ZooKeeper pass such requests on, so any will do where none is named."""
        if not self.nodes:
            self.ask_metadata(())
        return self.node(self._controller) if self._controller in self.nodes else self.any_node()

    def leader(self, at: TopicPartition, *, auto_create: bool = False) -> Connection:
        return self.node(self.leader_id(at, auto_create=auto_create))

    def leader_id(self, at: TopicPartition, *, auto_create: bool = False) -> int:
        partitions = self.topic(at.topic, auto_create=auto_create).partitions
        partition = partitions.get(at.partition)
        if partition is None:
            has = f"the topic has partitions 0 to {len(partitions) - 1}"
            raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {at}", has)
        if partition.leader == NO_LEADER:
            raise refused(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {at}")
        return partition.leader

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        grouped: dict[int, list[TopicPartition]] = {}
        for at in partitions:
            grouped.setdefault(self.leader_id(at), []).append(at)
        return grouped

    def coordinator(self, key: str, kind: int = GROUP) -> Connection:
        known = self._coordinators.get((kind, key))
        if known is None or known not in self.nodes:
            known = self._coordinators[kind, key] = self._find_coordinator(key, kind)
        return self.node(known)

    # What the cluster says of itself

    def topic(self, name: str, *, auto_create: bool = False) -> TopicMetadata:
        """From memory, else asked for; a code for the topic is raised."""
        known = self._topics.get(name)
        if known is None:
            answered = self.ask_metadata([name], auto_create=auto_create).topics.get(name)
            known = answered or TopicMetadata(name, bytes(16), False, {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        check(known.error_code, f"topic {name!r}")
        return known

    def partitions(self, topic: str, *, auto_create: bool = False) -> list[TopicPartition]:
        found = self.retry(lambda: self.topic(topic, auto_create=auto_create))
        return [TopicPartition(topic, index) for index in found.partitions]

    def ask_metadata(self, topics: Iterable[str] | None, *, auto_create: bool = False) -> Metadata:
        """Asks one broker, and remembers the answer. None asks for all topics, an empty list for the nodes alone."""
        connection = self.any_node()
        version = connection.version_of(MetadataRequest)
        request = MetadataRequest(allow_auto_topic_creation=auto_create or version < 4)
        if topics is None:
            request.topics = None if version >= 1 else []
        else:
            names = list(topics)
            request.topics = [MetadataRequestTopic(name=name) for name in names]
        answer = connection.call(request, MetadataResponse, version=version)
        check(answer.error_code, f"metadata at {connection.address}")
        read = read_metadata(answer)
        self.cluster_id, self.nodes, self._controller = read.cluster_id, read.nodes, read.controller
        self._topics.update({name: topic for name, topic in read.topics.items() if topic.led})
        return read

    def _find_coordinator(self, key: str, kind: int) -> int:
        connection = self.any_node()
        version = connection.version_of(FindCoordinatorRequest)
        request = FindCoordinatorRequest(key_type=kind)
        if version >= 4:
            request.coordinator_keys = [key]
        else:
            request.key = key
        answer = connection.call(request, FindCoordinatorResponse, version=version)
        found = answer.coordinators[0] if version >= 4 else answer
        check(found.error_code, f"the coordinator of {key!r}", found.error_message)
        self.nodes[found.node_id] = Node(found.node_id, Address(found.host, found.port))
        return found.node_id

    # Trying again

    def retry(self, attempt: Callable[[], Result], *, timeout_s: float | None = None) -> Result:
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        unknown_topic = 0
        for wait in waits():
            try:
                return attempt()
            except Disconnected:
                if not self._reached or time.monotonic() + wait > deadline:
                    raise
            except BrokerError as error:
                unknown_topic += error.code in UNKNOWN_TOPIC
                out_of_patience = unknown_topic == UNKNOWN_TOPIC_TRIES or time.monotonic() + wait > deadline
                if out_of_patience or not may_pass(error.code):
                    raise
            self.forget()
            time.sleep(wait)
        raise AssertionError("waits never end")

    def wait_until(self, seen: Callable[[], bool]) -> None:
        """For what is promised but not yet known to all brokers. Gives up silently: the promise stands."""
        deadline = time.monotonic() + self.timeout_s
        for wait in waits():
            if seen() or time.monotonic() + wait > deadline:
                return
            time.sleep(wait)

    def forget(self) -> None:
        """Drops what is known of leaders and coordinators; it is asked for again. Open connections stay."""
        self._topics.clear()
        self._coordinators.clear()

    def _connection(self, address: Address) -> Connection:
        known = self._connections.get(address)
        if known is None or known.closed:
            known = Connection.open(
                address,
                client_id=self.client_id,
                timeout_s=self.timeout_s,
                dial=self._dial,
                security=self.security,
            )
            self._connections[address] = known
            self._reached = True
        return known
