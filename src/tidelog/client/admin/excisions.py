"""Excision: single records are taken out of every file of a Tidelog broker; their offsets stay, as gaps.

Kafka's protocol has no request for it. On Tidelog it is an order in the form of a topic's setting, `tidelog.excise`,
which every admin client can send; who may alter the topic's settings may order it. Apache Kafka cannot take a single
record out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.client.cluster import Cluster
from tidelog.client.refusal import check
from tidelog.errors import UsageError
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

EXCISE = "tidelog.excise"
AUDIT_TOPIC = "__tidelog.excisions"
TOPIC, SET = 2, 0
PATIENCE_S = 600.0
NOT_TIDELOG = (
    "this broker is not Tidelog, and Apache Kafka cannot take single records out; delete all records up to them with"
    " `tidelog topics truncate`, write a tombstone where the topic is compacted, or copy the topic without them and"
    " delete it"
)

Places = Mapping[int, Sequence[tuple[int, int]]]  # first and last offset, by partition


def excise(
    cluster: Cluster,
    topic: str,
    places: Places,
    reason: str,
    *,
    validate_only: bool = False,
    patience_s: float = PATIENCE_S,
) -> None:
    """Returns when the records are in no file of the broker any more. It is not tried again: the order stands."""
    if not cluster.is_tidelog():
        raise UsageError(NOT_TIDELOG)
    words = [f"{index}:{first}-{last}" for index, ranges in sorted(places.items()) for first, last in ranges]
    config = AlterableConfig(name=EXCISE, config_operation=SET, value=f"{','.join(words)} {reason}")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    connection = cluster.any_node()
    sent = connection.send(request, IncrementalAlterConfigsResponse, patience_s=patience_s)
    (result,) = connection.receive(sent).responses
    check(result.error_code, f"excising records of {topic!r}", result.error_message)
