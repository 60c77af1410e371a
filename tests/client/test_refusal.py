"""What a refusal says: what was asked, Kafka's name and number, the broker's own words, and what to do, once."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.client.refusal import refused
from tidelog.wire.error_code import ErrorCode


@proves("T1")
@pytest.mark.parametrize(
    ("said", "told"),
    [
        (None, "; `tidelog configs describe` shows the settings and their values"),
        ("Unknown topic config name: zzz.", ": Unknown topic config name: zzz; `tidelog configs describe` shows"),
        ("zzz is not a topic setting; did you mean preallocate?", ": zzz is not a topic setting; did you mean"),
    ],
    ids=["no words", "words without advice", "words with advice"],
)
def test_what_to_do_is_said_once(said: str | None, told: str) -> None:
    message = str(refused(ErrorCode.INVALID_CONFIG, "creating topic 't'", said))
    assert message.startswith(f"creating topic 't' was refused with INVALID_CONFIG (40){told}")
    assert message.count("; ") == 1


@proves("T1")
@pytest.mark.parametrize(
    ("code", "what", "rule"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 'orders'", "--topic orders --operation ..."),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "creating topic 'orders'", "--topic orders --operation create"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "offset 4 of orders[0]", "--topic NAME --operation ..."),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "the coordinator of 'mail'", "--group mail --operation read"),
        (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "the coordinator of 'tidelog.revenue.v1'",
            "--transactional-id tidelog.revenue.v1 --operation write",
        ),
    ],
)
def test_who_may_not_is_told_the_rule_that_lacks(code: int, what: str, rule: str) -> None:
    assert str(refused(code, what)).endswith(f"ask for a rule: `tidelog acls add --user YOU {rule}`")
