"""ApiVersions: what this broker can do.

    v0    the list of APIs
    v1    throttle time
    v3    flexible; the client's name and version; features
    v4    features with a minimum of 0 are allowed

A version that we do not know is answered in version 0 with UNSUPPORTED_VERSION and the list, so that the client can
try again lower (KIP-511). The feature `tidelog.version` tells our own code that `tidelog.*` settings are understood
here. `transaction.version` 2 (KIP-890) tells producers that Produce and TxnOffsetCommit name what they write to in the
transaction by themselves, and that every end moves the epoch; who does not know it goes on as before. `share.version` 1
(KIP-932) tells that there are share groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.dispatch import API_VERSIONS, APIS
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

# name -> level. Each is supported from 1 on: a minimum of 0 would have to be left out below v4.
FEATURES = {"share.version": 1, "tidelog.version": 1, "transaction.version": 2}


def handle(broker: Broker, request: ApiVersionsRequest | None, call: Call) -> ApiVersionsResponse:
    known = [
        ApiVersion(
            api_key=key,
            min_version=entry.min_version if entry.advertised_min is None else entry.advertised_min,
            max_version=entry.max_version,
        )
        for key, entry in APIS.items()
    ]
    if request is None:
        call.version = APIS[API_VERSIONS].min_version
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known)
    return ApiVersionsResponse(
        api_keys=known,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=1, max_version=level) for name, level in FEATURES.items()
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ],
    )
