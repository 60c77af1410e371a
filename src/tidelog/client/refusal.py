"""From an error code in a broker's answer to a `BrokerError` that a person can act on.

The message has what was asked, Kafka's name of the code with its number, what the broker itself said, and what to do.
"""

from __future__ import annotations

import re

from tidelog.errors import BrokerError
from tidelog.wire.error_code import ErrorCode, is_retriable, name

ADVICE = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "it was deleted, or not yet written; start from earliest or latest",
    ErrorCode.CORRUPT_MESSAGE: "a checksum is wrong; if it is in the log, `tidelog repair` shows what is lost",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`tidelog topics` lists what there is, `tidelog topics create` makes one",
    ErrorCode.UNKNOWN_TOPIC_ID: "the topic was deleted, perhaps created again; look it up again",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader; try again, or look at the broker's log",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition moved to another broker; try again",
    ErrorCode.REQUEST_TIMED_OUT: "the broker was too slow; try again, or wait longer",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller batches, or raise max.message.bytes of the topic",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its coordinator cannot answer yet, or cannot write; try again, or look at the"
    " broker's log",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a name has 1 to 249 letters, digits, dots, hyphens or underscores",
    ErrorCode.RECORD_LIST_TOO_LARGE: "send smaller batches, or raise segment.bytes of the topic",
    ErrorCode.NOT_ENOUGH_REPLICAS: "too few replicas are in sync; bring brokers back, or lower min.insync.replicas",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop its consumers first",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group has members; stop its consumers first",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "shorten the metadata of the commit",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask for a rule: `tidelog acls add --user YOU --topic NAME --operation ...`",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask for a rule: `tidelog acls add --user YOU --group NAME --operation read`",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask for a rule: `tidelog acls add --user YOU --cluster --operation ...`",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old for it",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "check the user and the password: one may have changed",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "set sasl.mechanism to one of them (--command-config)",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "ask for a rule:"
    " `tidelog acls add --user YOU --transactional-id NAME --operation write`",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or alter the topic",
    ErrorCode.INVALID_PARTITIONS: "a topic has one partition at least, and partitions are only ever added",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the cluster has fewer brokers; leave it out for the broker's own",
    ErrorCode.INVALID_CONFIG: "`tidelog configs describe` shows the settings and their values",
    ErrorCode.POLICY_VIOLATION: "the broker's policy forbids it",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "an earlier batch is missing; what was sent after it was not written",
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer took over; stop this one",
    ErrorCode.PRODUCER_FENCED: "another producer took over; stop this one",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's disk failed or is full; look at its log",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop its consumers first",
    ErrorCode.GROUP_ID_NOT_FOUND: "`tidelog groups` lists what there is",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`tidelog transactions` lists what there is",
    ErrorCode.CONCURRENT_TRANSACTIONS: "its last transaction is still being ended; try again",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "ask for less, or raise transaction.max.timeout.ms of the broker",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group still reads the topic; stop its consumers first",
    ErrorCode.INVALID_RECORD: "the broker refused a record of it, for instance one without a key in a compacted topic",
    ErrorCode.INVALID_TIMESTAMP: "the record's time is too far from the broker's; see message.timestamp.*.max.ms",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker has delete.topic.enable=false",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose another compression",
}

QUOTED = re.compile(r"'([\w.-]+)'")
SAID_BETTER = {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_PARTITIONS, ErrorCode.KAFKA_STORAGE_ERROR}
"""Codes of many meanings: what the broker says of one is to the point, and advice for all of them may not be."""


def refused(code: int, what: str, said: str | None = None) -> BrokerError:
    """`what` says what was asked, as a noun: "topic 'orders'", "a commit of group 'g'"."""
    told = f": {said.strip().rstrip('.')}" if said and said.strip() else ""
    advised = told and (code in SAID_BETTER or "; " in told)  # behind a semicolon, as in our own messages
    advice = f"; {_advice(code, what)}" if code in ADVICE and not advised else ""
    return BrokerError(code, f"{what} was refused with {name(code)} ({int(code)}){told}{advice}")


def _advice(code: int, what: str) -> str:
    """With the name that was refused, where `what` has one, so that the command can be copied."""
    advice, quoted = ADVICE[code], QUOTED.search(what)
    if "--user YOU" not in advice or quoted is None:
        return advice
    named = advice.replace("NAME", quoted[1])
    return named.replace("--operation ...", "--operation create") if what.startswith("creating") else named


def may_pass(code: int) -> bool:
    """Whether a second try may help. Kafka counts CORRUPT_MESSAGE as such, but over TCP nothing goes wrong on the way:
    the batch was made wrong, or lies wrong on the disk, and stays so.
    """
    return is_retriable(code) and code != ErrorCode.CORRUPT_MESSAGE


def check(code: int, what: str, said: str | None = None) -> None:
    if code:
        raise refused(code, what, said)
