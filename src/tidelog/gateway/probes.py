"""Whether the gateway lives, whether the broker behind it takes records, and what the gateway can do."""

from __future__ import annotations

from tidelog.errors import BrokerError, Disconnected
from tidelog.gateway.openapi import document
from tidelog.gateway.route import Answer, Call, Refusal, Route, as_json
from tidelog.wire.messages.produce import ProduceRequest

STATUS = {"type": "object", "properties": {"status": {"type": "string"}}}


def healthz(_call: Call) -> Answer:
    return as_json({"status": "alive"})


def readyz(call: Call) -> Answer:
    """Asks without credentials: which APIs there are is said before any login."""
    try:
        with call.gateway.anonymous() as connection:
            offered = connection.offers(ProduceRequest)
    except (Disconnected, BrokerError) as error:
        raise Refusal(503, f"no broker answers: {error}") from error
    if not offered:
        raise Refusal(503, f"the broker at {call.gateway.bootstrap} does not accept records; look at its log")
    return as_json({"status": "ready"})


def openapi(call: Call) -> Answer:
    from tidelog import __version__

    return as_json(document(call.gateway.routes, __version__))


ROUTES = (
    Route("GET", "/healthz", healthz, "Whether the gateway's process lives", open=True, answer=STATUS, inline=True),
    Route(
        "GET",
        "/readyz",
        readyz,
        "Whether a broker that takes records answers",
        open=True,
        answer=STATUS,
        refusals={503: "The broker does not answer, or does not accept records"},
    ),
    Route("GET", "/openapi.json", openapi, "This description", open=True, answer={"type": "object"}),
)
