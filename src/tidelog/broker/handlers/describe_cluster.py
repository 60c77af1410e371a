"""DescribeCluster: the one broker that there is.

v0    the first      v1    brokers or controllers (KIP-919)      v2    fenced brokers: there are none
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.leadership import CLUSTER_OPERATIONS
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

BROKERS = 1
CONTROLLERS = 2


def handle(broker: Broker, request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return _refuse(request.endpoint_type)
    node_id = broker.config.int("node.id")
    host, port = call.listener
    rack = broker.config.optional_text("broker.rack")
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=node_id,
        brokers=[DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _refuse(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        code, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker; a controller does not exist here"
    else:
        code, message = (
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"endpoint type {endpoint_type} is neither that of brokers nor that of controllers",
        )
    return DescribeClusterResponse(error_code=code, error_message=message)
