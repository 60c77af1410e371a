"""The registry's routes, as Confluent's registry has them; each a question to the state or a decision over it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidelog.errors import BrokerError
from tidelog.gateway.registry import answers, changing, refusals, registering
from tidelog.gateway.registry.registry import Registry
from tidelog.gateway.registry.state import State, Version, all_versions, mode_of, referrers, version_at, versions_of
from tidelog.gateway.route import JSON, Answer, Call, Handle, Parameter, Route, as_json
from tidelog.schema.formats import FORMATS
from tidelog.wire.error_code import ErrorCode

V1 = "application/vnd.schemaregistry.v1+json"
CONTENT_TYPES = (V1, "application/vnd.schemaregistry+json", JSON)

Question = Callable[[State, Call], Any]
Decide = Callable[[State, Call], registering.Decision]
View = Callable[[Any], Any]


def _registry(call: Call) -> Registry:
    return call.gateway.kept("registry", lambda _gateway: Registry())


def _told(value: Any) -> Answer:
    return as_json(value, content_type=V1)


def asks(question: Question) -> Handle:
    def handle(call: Call) -> Answer:
        return _told(_registry(call).read(call, lambda state: question(state, call)))

    return handle


def shows_text(question: Callable[[State, Call], str]) -> Handle:
    def handle(call: Call) -> Answer:
        text = _registry(call).read(call, lambda state: question(state, call))
        return Answer(text.encode(errors="replace"), V1)

    return handle


def changes(decide: Decide, view: View = lambda answer: answer) -> Handle:
    def handle(call: Call) -> Answer:
        try:
            decision = _registry(call).write(call, lambda state: decide(state, call))
        except BrokerError as error:
            if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                said = f"{error}; make the schema smaller, or raise max.message.bytes of the topic _schemas"
                raise refusals.too_large(said) from error
            raise
        return _told(view(decision.answer))

    return handle


# Subjects


def subjects(state: State, call: Call) -> list[str]:
    prefix = call.query.get("subjectPrefix", "").removeprefix(":*:")
    found = []
    for subject in sorted(state.subjects):
        live = bool(versions_of(state, subject))
        wanted = not live if call.flag("deletedOnly") else live or call.flag("deleted")
        if wanted and subject.startswith(prefix):
            found.append(subject)
    return _page(call, found)


def versions(state: State, call: Call) -> list[int]:
    subject = call.path["subject"]
    found = versions_of(state, subject, deleted=call.flag("deleted") or call.flag("deletedOnly"))
    if not found:
        raise refusals.no_subject(subject)
    return _page(call, [one.version for one in found if one.deleted or not call.flag("deletedOnly")])


def version(state: State, call: Call) -> dict[str, Any]:
    return answers.schema_of(state, _version(state, call), call.query.get("format", ""))


def version_text(state: State, call: Call) -> str:
    return answers.text_of(state, _version(state, call), call.query.get("format", ""))


def referenced_by(state: State, call: Call) -> list[int]:
    found = answers.find_version(state, call.path["subject"], call.path["version"], deleted=True)
    ids = {one.id for one in referrers(state, found.subject, found.version, deleted=call.flag("deleted"))}
    return _page(call, sorted(ids))


def look_up(state: State, call: Call) -> dict[str, Any]:
    subject, proposal = call.path["subject"], _proposal(call)
    found = registering.find(state, subject, proposal, deleted=call.flag("deleted"))
    if found is not None:
        return answers.schema_of(state, found, call.query.get("format", ""))
    if not versions_of(state, subject, deleted=call.flag("deleted")):
        raise refusals.no_subject(subject)
    raise refusals.no_schema(f"under subject {subject!r}")


def register(state: State, call: Call) -> registering.Decision:
    return registering.decide_register(state, call.path["subject"], _proposal(call))


def registered(version: Version) -> dict[str, Any]:
    """Without the schema: clients keep what they sent then, in the form in which they sent it."""
    return {"id": version.id, "version": version.version, "guid": version.content.guid}


def delete_subject(state: State, call: Call) -> registering.Decision:
    return changing.decide_delete_subject(state, call.path["subject"], permanent=call.flag("permanent"))


def delete_version(state: State, call: Call) -> registering.Decision:
    subject, permanent = call.path["subject"], call.flag("permanent")
    number = answers.number_of(call.path["version"])
    if number is None:
        number = answers.find_version(state, subject, "latest", deleted=permanent).version
    return changing.decide_delete_version(state, subject, number, permanent=permanent)


def _version(state: State, call: Call) -> Version:
    return answers.find_version(state, call.path["subject"], call.path["version"], deleted=call.flag("deleted"))


def _proposal(call: Call) -> registering.Proposal:
    return registering.read_proposal(call.json(), normalize=call.flag("normalize"))


def _page(call: Call, found: list[Any]) -> list[Any]:
    return answers.part(found, call.query.get("offset", ""), call.query.get("limit", ""))


# Schemas


def schemas(state: State, call: Call) -> list[dict[str, Any]]:
    prefix = call.query.get("subjectPrefix", "").removeprefix(":*:")
    found = [one for one in all_versions(state, deleted=call.flag("deleted")) if one.subject.startswith(prefix)]
    if call.flag("latestOnly"):
        found = list({one.subject: one for one in found}.values())
    return [answers.schema_of(state, one) for one in _page(call, found)]


def schema(state: State, call: Call) -> dict[str, Any]:
    found = answers.find_id(state, call.path["id"])
    wanted = call.query.get("subject")
    told = answers.schema_of(
        state, next((one for one in found if one.subject == wanted), found[0]), call.query.get("format", "")
    )
    del told["id"]
    if call.flag("fetchMaxId"):
        told["maxId"] = state.last_id
    return told


def schema_text(state: State, call: Call) -> str:
    return answers.text_of(state, answers.find_id(state, call.path["id"])[0], call.query.get("format", ""))


def schema_by_guid(state: State, call: Call) -> dict[str, Any]:
    return answers.schema_of(state, answers.find_guid(state, call.path["guid"]), call.query.get("format", ""))


def subjects_of_schema(state: State, call: Call) -> list[str]:
    return _page(call, sorted({one.subject for one in _with_id(state, call)}))


def versions_of_schema(state: State, call: Call) -> list[dict[str, Any]]:
    return _page(call, [{"subject": one.subject, "version": one.version} for one in _with_id(state, call)])


def _with_id(state: State, call: Call) -> list[Version]:
    found = answers.find_id(state, call.path["id"])
    wanted = call.query.get("subject")
    return [
        one for one in found if (call.flag("deleted") or not one.deleted) and (wanted is None or one.subject == wanted)
    ]


def schema_types(_state: State, _call: Call) -> list[str]:
    """Asked as all else is: it is the broker that says whether the user is one."""
    return list(FORMATS)


def contexts(_state: State, _call: Call) -> list[str]:
    """There is one, which everything is in."""
    return ["."]


# Compatibility, and what is set


def compatibility(state: State, call: Call) -> dict[str, Any]:
    subject, proposal = call.path["subject"], _proposal(call)
    against = None
    if "version" in call.path:
        number = answers.number_of(call.path["version"])
        against = versions_of(state, subject)[-1:] if number is None else _live(state, subject, number)
    reasons = registering.reasons_against(
        state, subject, registering.checked(state, subject, proposal), against=against
    )
    told: dict[str, Any] = {"is_compatible": not reasons}
    return {**told, "messages": reasons} if call.flag("verbose") else told


def _live(state: State, subject: str, number: int) -> list[Version]:
    found = version_at(state, subject, number)
    if found is None or found.deleted:
        raise refusals.no_version(subject, number)
    return [found]


def config(state: State, call: Call) -> dict[str, Any]:
    return answers.config_of(state, call.path.get("subject"), or_global=call.flag("defaultToGlobal"))


def set_config(state: State, call: Call) -> registering.Decision:
    return changing.decide_config(state, call.path.get("subject"), call.json())


def delete_config(state: State, call: Call) -> registering.Decision:
    before = answers.config_of(state, call.path.get("subject"), or_global=True)
    return changing.decide_delete_config(state, call.path.get("subject"))._replace(answer=before)


def mode(state: State, call: Call) -> dict[str, Any]:
    subject = call.path.get("subject")
    if subject is not None and subject not in state.modes and not call.flag("defaultToGlobal"):
        raise refusals.no_mode(subject)
    return {"mode": mode_of(state, subject)}


def set_mode(state: State, call: Call) -> registering.Decision:
    return changing.decide_mode(state, call.path.get("subject"), call.json(), force=call.flag("force"))


def delete_mode(state: State, call: Call) -> registering.Decision:
    return changing.decide_delete_mode(state, call.path.get("subject"))


# The table

TEXT, NUMBER, BOOLEAN, OBJECT = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "object"}
TEXTS, NUMBERS, OBJECTS = ({"type": "array", "items": one} for one in (TEXT, NUMBER, OBJECT))
SCHEMA = {
    "type": "object",
    "required": ["schema"],
    "properties": {
        "schema": TEXT,
        "schemaType": {"type": "string", "enum": list(FORMATS)},
        "references": OBJECTS,
        "metadata": OBJECT,
        "ruleSet": OBJECT,
        "id": NUMBER,
        "version": NUMBER,
    },
}
CONFIG = {"type": "object", "properties": {"compatibility": TEXT, "normalize": BOOLEAN}}
MODE = {"type": "object", "required": ["mode"], "properties": {"mode": TEXT}}
FITS = {"type": "object", "properties": {"is_compatible": BOOLEAN, "messages": TEXTS}}

DELETED = Parameter("deleted", "Deleted ones too", BOOLEAN)
DELETED_ONLY = Parameter("deletedOnly", "Only deleted ones", BOOLEAN)
PERMANENT = Parameter("permanent", "For good, of what is deleted already", BOOLEAN)
NORMALIZE = Parameter("normalize", "Normalize the schema first", BOOLEAN)
VERBOSE = Parameter("verbose", "Say why not", BOOLEAN)
FORM = Parameter("format", "`serialized` for Protobuf, `resolved` for Avro")
PREFIX = Parameter("subjectPrefix", "Only subjects that begin with it")
SUBJECT = Parameter("subject", "Only under this subject")
OR_GLOBAL = Parameter("defaultToGlobal", "What holds, where the subject has none of its own", BOOLEAN)
FORCE = Parameter("force", "Although schemas are there", BOOLEAN)
PAGE = (Parameter("offset", "How many to leave out", NUMBER), Parameter("limit", "How many at most", NUMBER))

_route = partial(Route, tag="schemas", takes=CONTENT_TYPES, gives=CONTENT_TYPES, errors_as_given=True)
S, V, ID = "/subjects/{subject}", "/subjects/{subject}/versions/{version}", "/schemas/ids/{id}"

ROUTES = (
    _route("GET", "/subjects", asks(subjects), "Subjects", query=(PREFIX, DELETED, DELETED_ONLY, *PAGE), answer=TEXTS),
    _route(
        "POST",
        S,
        asks(look_up),
        "Whether a schema is there",
        query=(NORMALIZE, DELETED, FORM),
        body=SCHEMA,
        answer=OBJECT,
    ),
    _route("DELETE", S, changes(delete_subject), "Delete a subject", query=(PERMANENT,), answer=NUMBERS),
    _route(
        "GET",
        f"{S}/versions",
        asks(versions),
        "Versions of a subject",
        query=(DELETED, DELETED_ONLY, *PAGE),
        answer=NUMBERS,
    ),
    _route(
        "POST",
        f"{S}/versions",
        changes(register, registered),
        "Register a schema",
        query=(NORMALIZE,),
        body=SCHEMA,
        answer=OBJECT,
    ),
    _route("GET", V, asks(version), "A version", query=(DELETED, FORM), answer=OBJECT),
    _route("DELETE", V, changes(delete_version), "Delete a version", query=(PERMANENT,), answer=NUMBER),
    _route(
        "GET", f"{V}/schema", shows_text(version_text), "The text of a version", query=(DELETED, FORM), answer=OBJECT
    ),
    _route(
        "GET",
        f"{V}/referencedby",
        asks(referenced_by),
        "Ids of schemas that refer to a version",
        query=(DELETED, *PAGE),
        answer=NUMBERS,
    ),
    _route(
        "GET",
        "/schemas",
        asks(schemas),
        "Schemas",
        query=(PREFIX, DELETED, Parameter("latestOnly", "The last of each subject", BOOLEAN), *PAGE),
        answer=OBJECTS,
    ),
    _route("GET", "/schemas/types", asks(schema_types), "Formats of schemas", answer=TEXTS),
    _route(
        "GET",
        ID,
        asks(schema),
        "A schema by its id",
        query=(SUBJECT, FORM, Parameter("fetchMaxId", "Say the highest id too", BOOLEAN)),
        answer=OBJECT,
    ),
    _route(
        "GET", f"{ID}/schema", shows_text(schema_text), "The text of a schema by its id", query=(FORM,), answer=OBJECT
    ),
    _route(
        "GET",
        f"{ID}/subjects",
        asks(subjects_of_schema),
        "Subjects of a schema",
        query=(SUBJECT, DELETED, *PAGE),
        answer=TEXTS,
    ),
    _route(
        "GET",
        f"{ID}/versions",
        asks(versions_of_schema),
        "Versions of a schema",
        query=(SUBJECT, DELETED, *PAGE),
        answer=OBJECTS,
    ),
    _route(
        "GET",
        "/schemas/guids/{guid}",
        asks(schema_by_guid),
        "A schema by the name of its content",
        query=(FORM,),
        answer=OBJECT,
    ),
    _route(
        "POST",
        f"/compatibility{S}/versions",
        asks(compatibility),
        "Whether a schema may come",
        query=(NORMALIZE, VERBOSE),
        body=SCHEMA,
        answer=FITS,
    ),
    _route(
        "POST",
        f"/compatibility{V}",
        asks(compatibility),
        "Whether a schema gets on with a version",
        query=(NORMALIZE, VERBOSE),
        body=SCHEMA,
        answer=FITS,
    ),
    _route("GET", "/config", asks(config), "The compatibility of all", query=(OR_GLOBAL,), answer=OBJECT),
    _route("PUT", "/config", changes(set_config), "Set the compatibility of all", body=CONFIG, answer=CONFIG),
    _route("DELETE", "/config", changes(delete_config), "Back to the default", answer=OBJECT),
    _route(
        "GET", "/config/{subject}", asks(config), "The compatibility of a subject", query=(OR_GLOBAL,), answer=OBJECT
    ),
    _route(
        "PUT",
        "/config/{subject}",
        changes(set_config),
        "Set the compatibility of a subject",
        body=CONFIG,
        answer=CONFIG,
    ),
    _route("DELETE", "/config/{subject}", changes(delete_config), "Back to the compatibility of all", answer=OBJECT),
    _route("GET", "/mode", asks(mode), "The mode of all", answer=MODE),
    _route("PUT", "/mode", changes(set_mode), "Set the mode of all", query=(FORCE,), body=MODE, answer=MODE),
    _route("DELETE", "/mode", changes(delete_mode), "Back to READWRITE", answer=MODE),
    _route("GET", "/mode/{subject}", asks(mode), "The mode of a subject", query=(OR_GLOBAL,), answer=MODE),
    _route(
        "PUT", "/mode/{subject}", changes(set_mode), "Set the mode of a subject", query=(FORCE,), body=MODE, answer=MODE
    ),
    _route("DELETE", "/mode/{subject}", changes(delete_mode), "Back to the mode of all", answer=MODE),
    _route("GET", "/contexts", asks(contexts), "Contexts: one", answer=TEXTS),
)
