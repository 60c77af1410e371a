"""Effects: a mail for an event, sent to a real server, and none for a replay, a rebuild or a crash at any step."""

from __future__ import annotations

import smtplib
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from threading import Event
from typing import Any

import pytest

from against.patience import eventually
from proving import proves
from sourcing.follower_process import DIED, start
from sourcing.mail_server import MailServer, mail_server
from sourcing.orders import Paid, Pay, Place, orders
from tidelog.client.metadata import TopicPartition
from tidelog.control.reading import read_all
from tidelog.errors import UsageError
from tidelog.sourcing import Effects, EventStore, ReadModel
from tidelog.testing.broker import TestBroker


@pytest.fixture
def store(tidelog_broker: TestBroker) -> Iterator[EventStore[str]]:
    with EventStore("orders", orders(), bootstrap=tidelog_broker.bootstrap, partitions=1) as running:
        yield running


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mail_server() as running:
        yield running


def mailing(port: int) -> Callable[[Any, Any, str], None]:
    def mail(event: Any, record: Any, id: str) -> None:
        message = EmailMessage()
        message["Subject"], message["Message-ID"] = f"{record.entity} is paid", f"<{id}@shop>"
        message["From"], message["To"] = "shop@example.org", "anna@example.org"
        with smtplib.SMTP("127.0.0.1", port) as smtp:
            smtp.send_message(message)

    return mail


def is_paid(event: Any, record: Any) -> bool:
    return isinstance(event, Paid)


def effects(store: EventStore[str], handle: Callable[[Any, Any, str], Any], **more: Any) -> Effects:
    return Effects("confirmations", store, handle, **{"concerns": is_paid, "tries": 3, **more})


def paid(store: EventStore[str], *names: str) -> None:
    for name in names:
        store.send(name, Place(1))
        store.send(name, Pay())


def subjects(server: MailServer) -> list[str]:
    return [str(mail["Subject"]) for mail in server.mails]


def kept(store: EventStore[str], kind: str) -> list[bytes]:
    with store.connect() as cluster:
        rows = {row.key or b"": row.value for row in read_all(cluster, TopicPartition("confirmations.effects", 0))}
    return [value for key, value in rows.items() if key.startswith(kind.encode()) and value is not None]


@proves("E3")
def test_an_event_sends_one_mail_and_history_sends_none(
    store: EventStore[str], server: MailServer, tmp_path: Any
) -> None:
    paid(store, "o1")
    with effects(store, mailing(server.port)).beside():
        eventually(lambda: kept(store, "position/"), bool)  # from here on, what comes is not history
        paid(store, "o2", "o3")
        eventually(lambda: subjects(server), lambda found: len(found) == 2)
    with effects(store, mailing(server.port)).beside():
        paid(store, "o4")
        eventually(lambda: subjects(server), lambda found: len(found) == 3)
        rows = ReadModel("paid", store, lambda rows, event, record: None, key="id", columns={"id": "string"})
        with rows.following(f"sqlite:///{tmp_path}/rows.db"):
            pass  # a read model that is built from all events
    assert subjects(server) == ["o2 is paid", "o3 is paid", "o4 is paid"]
    assert len({mail["Message-ID"] for mail in server.mails}) == 3


@proves("E3", "F3")
@pytest.mark.parametrize("in_doubt", ["skip", "again"])
@pytest.mark.parametrize("after", [False, True], ids=["killed before it is sent", "killed after it is sent"])
def test_killed_at_a_step_no_second_mail_goes_out_unless_that_was_chosen(
    store: EventStore[str], server: MailServer, in_doubt: str, after: bool
) -> None:
    mail = mailing(server.port)

    paid(store, "o1", "o2", "o3")
    child = start("effects", store.bootstrap, str(server.port), "after" if after else "before")
    assert child.wait() == DIED
    going_on = effects(store, mail, start="earliest", in_doubt=in_doubt)
    with going_on.beside():
        eventually(lambda: subjects(server), lambda found: "o3 is paid" in found)
    again = ["o2 is paid"] if in_doubt == "again" else []
    assert subjects(server) == ["o1 is paid", *(["o2 is paid"] if after else []), *again, "o3 is paid"]
    twice = [mail["Message-ID"] for mail in server.mails if mail["Subject"] == "o2 is paid"]
    assert len(set(twice)) <= 1  # whoever gets it twice can tell
    assert len(kept(store, "skipped/")) == going_on.skipped == (in_doubt == "skip")
    assert not kept(store, "doing/")


@proves("E3")
def test_a_function_that_fails_is_tried_again_and_then_passed_over_and_told(store: EventStore[str]) -> None:
    tried: list[tuple[str, str]] = []

    def failing(event: Any, record: Any, id: str) -> None:
        tried.append((record.entity, id))
        if record.entity == "o1" or len(tried) == 4:
            raise ConnectionError("mail server is away")

    paid(store, "o1", "o2")
    running = effects(store, failing, start="earliest")
    with running.beside():
        eventually(lambda: running.done, lambda done: done == 1)
    assert [entity for entity, _ in tried] == ["o1", "o1", "o1", "o2", "o2"]
    assert len({id for entity, id in tried if entity == "o1"}) == 1
    (why,) = kept(store, "failed/")
    assert b"ConnectionError: mail server is away" in why


@proves("E3")
def test_a_choice_that_does_not_exist_is_refused(store: EventStore[str]) -> None:
    with pytest.raises(UsageError, match=r"in_doubt='maybe'; it is 'skip' or 'again'"):
        effects(store, mailing(1), in_doubt="maybe")
    with pytest.raises(UsageError, match=r"start='then'; it is 'now' or 'earliest'"):
        effects(store, mailing(1), start="then").run(Event())
