"""Commands to event stores over HTTP: done once, refused with a reason, and seen by who asks for what came of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tidelog
from gateway.serving import Client, Got
from proving import proves
from sourcing.people import Enrol, Rename, people
from sourcing.seats import Reserve, Reserved, Swap, seats
from tidelog.sourcing import Decider, EventStore, ReadModel, SubjectCipher


class Sender:
    """Requests to one store of the broker that all tests share: its name is its own."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.at = f"/stores/{name}/entities"

    def post(self, path: str, body: object, **headers: str) -> Got:
        return self.client("POST", f"{self.at}/{path}", body, **headers)

    def get(self, path: str) -> Got:
        return self.client("GET", f"{self.at}/{path}")


@pytest.fixture
def sender(client: Client, request: pytest.FixtureRequest) -> Sender:
    return Sender(client, f"seats-{abs(hash(request.node.name)) % 10**9}")


@pytest.fixture
def store(broker: tidelog.Broker, sender: Sender) -> Iterator[EventStore[Any]]:
    with EventStore(sender.name, seats(), bootstrap=broker.bootstrap, partitions=2) as running:
        yield running


@proves("E1", "E2", "http")
def test_a_command_is_done_once_by_its_id_and_refused_with_its_reason(sender: Sender, store: EventStore[Any]) -> None:
    done = sender.post("A1/commands/Reserve?who=desk&correlation=tour", {"who": "anna"}, Idempotency_Key="c1")
    assert done.status == 200
    receipt = done.json["receipt"]
    assert {**receipt, "offset": 0} == {
        "entity": "A1",
        "command": "c1",
        "version": 1,
        "events": 1,
        "partition": receipt["partition"],
        "offset": 0,
        "repeated": False,
    }
    assert done.json["after"] == f"{sender.name}.events:{receipt['partition']}:{receipt['offset']}"
    again = sender.post(
        "A1/commands/Reserve", b' {"who" : "anna"}', Idempotency_Key="c1", Content_Type="application/json"
    )
    assert again.json["receipt"] == {**receipt, "repeated": True}
    assert store.send("A1", Reserve("anna"), id="c1").repeated, "the same command, however it was sent"
    assert sender.get("A1/receipts/c1").json["receipt"]["version"] == 1
    refused = sender.post("A1/commands/Reserve", {"who": "bob"}, Idempotency_Key="c2")
    assert (refused.status, refused.json["refused"]) == (409, {"type": "SeatTaken", "reason": {"by": "anna"}})
    assert refused.json["error_code"] == 409
    assert sender.get("A1/receipts/c2").status == 404, "a refused command is not remembered"
    ((record, (event,)),) = store.history("A1")
    assert (event, record.context.who, record.correlation) == (Reserved("anna"), "desk", "tour")


@proves("E1", "http")
def test_each_kind_of_refusal_has_its_status(sender: Sender, store: EventStore[Any]) -> None:
    sent = sender.post
    assert sent("A1/commands/Reserve?expected=none", {"who": "anna"}, Idempotency_Key="c1").status == 200
    late = sent("A1/commands/Reserve?expected=7", {"who": "bob"})
    assert (late.status, late.json["error"]) == (412, {"type": "WrongVersion", "expected": 7, "actual": 1})
    assert sent("A1/commands/Reserve", {"who": "bob"}, Idempotency_Key="c1").status == 422
    assert sent("A1/commands/Explode", {}).status == 400
    assert sent("A1/commands/Reserve", {"whom": "bob"}).status == 400
    for body in (b"[]", b"{", b"null", b'"x"'):
        assert sent("A1/commands/Reserve", body, Content_Type="application/json").status == 400, body
    assert sent("A1/commands/Reserve", b"who=bob", Content_Type="application/x-www-form-urlencoded").status == 415
    for own in ("tidelog.state", "tidelog.together", "tidelog.past", "tidelog.find"):
        assert sent(f"A1/commands/{own}", {}).status == 400, own
    assert sent("A1/commands/Reserve?expected=soon", {"who": "bob"}).status == 400
    assert sent("A1/commands/Reserve?expcted=1", {"who": "bob"}).status == 400
    assert sent("A1/commands/Reserve", {"who": "bob"}, Idempotency_Key="x" * 201).status == 400
    assert sent("A1/commands/Reserve", {"who": "x" * (2 << 20)}).status == 413
    assert sender.client("POST", "/stores/nothing/entities/A1/commands/Reserve", {"who": "bob"}).status == 404
    assert sent("A1/commands/tidelog.close", {}).json["receipt"]["version"] == 2
    closed = sent("A1/commands/Reserve", {"who": "bob"})
    assert (closed.status, closed.json["error"]["type"]) == (409, "HistoryClosed")
    assert store.state("A1").version == 2, "nothing of what was refused was written"


@proves("E1", "http")
def test_a_member_that_the_commands_type_does_not_have_is_refused_with_those_it_has(
    sender: Sender, store: EventStore[Any]
) -> None:
    refused = sender.post("A1/commands/Reserve", {"who": "anna", "rwo": 3}, Idempotency_Key="c1")
    assert (refused.status, refused.json["message"]) == (400, "Reserve does not have a member 'rwo'; it has who")
    closing = sender.post("A1/commands/tidelog.close", {"reason": "sold"})
    assert (closing.status, "does not have a member 'reason'" in closing.message) == (400, True)
    assert store.state("A1").version == 0
    assert sender.post("A1/commands/Reserve", {"who": "anna"}, Idempotency_Key="c1").status == 200


@proves("E1", "http")
def test_without_an_owner_the_outcome_is_unknown_and_the_same_command_is_done_once_later(
    sender: Sender, broker: tidelog.Broker
) -> None:
    with EventStore(sender.name, seats(), bootstrap=broker.bootstrap, partitions=1):
        pass
    lost = sender.post("A1/commands/Reserve?timeout=0.2", {"who": "anna"}, Idempotency_Key="c1")
    assert (lost.status, "it may be done, or not" in lost.message) == (504, True)
    with EventStore(sender.name, seats(), bootstrap=broker.bootstrap) as store:
        done = sender.post("A1/commands/Reserve", {"who": "anna"}, Idempotency_Key="c1")
        assert (done.status, done.json["receipt"]["repeated"]) == (200, True)
        assert [event for _, (event,) in store.history("A1")] == [Reserved("anna")]


@proves("E1", "http")
def test_a_decider_that_fails_is_told_as_a_fault_of_the_app(sender: Sender, broker: tidelog.Broker) -> None:
    def decide(state: str, command: Any, now: Any) -> list[Any]:
        raise ZeroDivisionError("of the app")

    failing = Decider("", decide, lambda state, event: state, commands=[Reserve], events=[Reserved])
    with EventStore(sender.name, failing, bootstrap=broker.bootstrap, partitions=1):
        got = sender.post("A1/commands/Reserve", {"who": "anna"})
        assert (got.status, "ZeroDivisionError" in got.json["message"]) == (500, True)


@proves("E1", "http")
@pytest.mark.slow
def test_of_many_who_want_one_seat_at_once_one_gets_it(sender: Sender, store: EventStore[Any]) -> None:
    with ThreadPoolExecutor(12) as pool:
        got = list(pool.map(lambda number: sender.post("A1/commands/Reserve", {"who": f"p{number}"}), range(24)))
    assert sorted(one.status for one in got) == [200, *[409] * 23]
    (winner,) = [number for number, one in enumerate(got) if one.status == 200]
    assert {one.json["refused"]["reason"]["by"] for one in got if one.status == 409} == {f"p{winner}"}


def project(rows: Any, event: Any, record: Any) -> None:
    rows[record.entity] = {"holder": getattr(event, "who", None)}


@proves("E3", "http")
def test_a_receipt_lets_the_sender_read_what_it_wrote(sender: Sender, store: EventStore[Any], tmp_path: Path) -> None:
    columns = {"seat": "string", "holder": "string"}
    model = ReadModel("holders", store, project, key="seat", columns=columns)
    with model.following(f"sqlite:///{tmp_path}/holders.db"):
        for number in range(5):
            path = f"B{number}/commands/Reserve"
            after = sender.post(path, {"who": f"p{number}"}).json["after"]
            shown = sender.client("GET", f"/views/holders?key=B{number}&after={after}").json
            assert shown["row"]["holder"] == f"p{number}", shown


@proves("E5", "http")
def test_a_state_is_shown_now_and_then_with_what_changed(sender: Sender, store: EventStore[Any]) -> None:
    assert sender.get("A1/state").status == 404
    store.send("A1", Reserve("anna"), id="c1")
    store.send("A1", Swap("anna", "bob"), id="c2")
    now = sender.get("A1/state").json
    assert (now["version"], now["closed"], now["state"]) == (3, False, {"holder": "bob", "times": 2})
    then = sender.get("A1/state?version=1").json
    assert (then["version"], then["state"]) == (1, {"holder": "anna", "times": 1})
    assert sender.get("A1/state?version=0").json["state"] == {"holder": None, "times": 0}
    assert sender.get("A1/state?at=2001-01-01").json["version"] == 0
    assert sender.get("A1/state?at=2101-01-01").json["state"] == now["state"]
    changed = sender.get("A1/state?version=3&since=1").json["changes"]
    assert {one["field"]: (one["before"], one["after"]) for one in changed} == {
        "holder": ("anna", "bob"),
        "times": (1, 2),
    }
    for wrong in ("version=9", "version=-1", "version=1&since=2", "version=1&at=2001-01-01", "at=noon", "other=1"):
        assert sender.get(f"A1/state?{wrong}").status == 400, wrong


@proves("E5", "E6", "http")
def test_personal_fields_of_a_state_are_not_shown(sender: Sender, broker: tidelog.Broker, tmp_path: Path) -> None:
    cipher = SubjectCipher(sender.name, f"sqlite:///{tmp_path}/keys.db")
    with EventStore(sender.name, people(), bootstrap=broker.bootstrap, partitions=1, cipher=cipher) as store:
        store.send("c1", Enrol("s1", "Alice", "g1", "Gina"))
        store.send("c1", Rename("s1", "Alicia"))
        for path in ("", "?version=1", "?version=2&since=1"):
            got = sender.get(f"c1/state{path}").json
            assert got["state"]["name"] == "(personal)"
