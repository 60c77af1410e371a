"""POST /pipelines/NAME/ask: a question to an operator that runs. An unknown key is 404, an answer that does not come in
time 504, a pipeline that does not run 503.

The question is put by the request's own user: who may write the topic of questions may ask, and must be allowed to read
that of replies (`views/asking.py`). A view is asked at /views/NAME?key=, which reads its store.
"""

from __future__ import annotations

from typing import Any

from tidelog.client.cluster import UNKNOWN_TOPIC
from tidelog.errors import BrokerError, NotAnswered, PipelineStopped, UnknownKey, UsageError
from tidelog.gateway.limits import AFTER_MAX_S
from tidelog.gateway.route import Answer, Call, Parameter, Refusal, Route, as_json
from tidelog.gateway.views.asking import timeout_of
from tidelog.gateway.views.catalogs import Catalogs
from tidelog.views.asking import ask, pipeline_of

UNKNOWN_KEY, NO_PIPELINE = 40401, 40402


def asked(call: Call) -> Answer:
    with call.cluster() as cluster:
        who = call.credentials if call.gateway.login else None
        catalogs: Catalogs = call.gateway.kept("catalogs", lambda _: Catalogs())
        try:
            pipeline = pipeline_of(catalogs.read(cluster, who), call.path["name"])
        except UsageError as error:
            raise Refusal(404, str(error), code=NO_PIPELINE) from error
        timeout_s, key = timeout_of(call.query), _key_of(call)
        try:
            found = ask(cluster, pipeline, key, timeout_s)
        except UnknownKey as error:
            raise Refusal(404, str(error), code=UNKNOWN_KEY) from error
        except NotAnswered as error:
            raise Refusal(504, str(error)) from error
        except PipelineStopped as error:
            raise Refusal(503, str(error), headers=(("Retry-After", "5"),)) from error
        except BrokerError as error:
            if error.code in UNKNOWN_TOPIC:
                raise Refusal(404, str(error), code=NO_PIPELINE) from error
            raise
    return as_json({"rows": found.rows, "more": found.more})


def _key_of(call: Call) -> Any:
    said = call.json()
    if not isinstance(said, dict) or set(said) != {"key"}:
        raise UsageError('the body is not a question; write {"key": ...}: an object by column, a list, or one value')
    return said["key"]


ROUTES = (
    Route(
        "POST",
        "/pipelines/{name}/ask",
        asked,
        "What a running pipeline keeps of a key",
        strict=True,
        query=(Parameter("timeout", f"Seconds to wait for the answer, {AFTER_MAX_S:g} at most", {"type": "number"}),),
        body={"type": "object", "required": ["key"], "properties": {"key": {}}},
        answer={
            "type": "object",
            "required": ["rows"],
            "properties": {
                "rows": {"type": "array", "items": {"type": "object"}},
                "more": {"type": "integer", "description": "How many rows there are beyond these."},
            },
        },
        refusals={
            400: "The body is not a question, or the pipeline has another key, or does not take questions",
            403: "The broker does not let this user ask",
            404: f"The key has no state (error_code {UNKNOWN_KEY}), or the pipeline does not exist ({NO_PIPELINE})",
            503: "The pipeline does not run",
            504: "It runs, and has not answered in time",
        },
        tag="views",
        body_max_bytes=16 << 10,
        waits=True,
    ),
)
