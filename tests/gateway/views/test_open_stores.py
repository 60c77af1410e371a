"""Which store of a view answers: the first that does, and one that did not is asked last for a while."""

from __future__ import annotations

from typing import Any

import pytest

from proving import proves
from tidelog.errors import Disconnected, QueryTimedOut, StorageError, UsageError
from tidelog.gateway.route import Refusal
from tidelog.gateway.views import open_stores
from tidelog.gateway.views.open_stores import Opened, not_the_store, wait_for
from tidelog.views import waiting
from tidelog.views.waiting import After

URLS = ["sqlite:///a.db", "redis://:secret@b/0", "sqlite:///c.db"]


class Told:
    """A store that is nothing but its URL."""

    def __init__(self, url: str, _: str) -> None:
        self.url = url

    def close(self) -> None:
        pass

    def shown(self) -> int:
        raise Disconnected(f"{self.url} is killed")


@pytest.fixture(autouse=True)
def stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_stores, "open_store", Told)


class Asking:
    """Asks, and notes whom; of these nobody answers."""

    def __init__(self, down: dict[str, Exception]) -> None:
        self.down = down
        self.asked: list[str] = []

    def __call__(self, store: Any) -> str:
        self.asked.append(store.url)
        if store.url in self.down:
            raise self.down[store.url]
        return str(store.url)


@proves("D7")
def test_the_next_store_answers_for_one_that_does_not_and_that_is_asked_last_from_then_on() -> None:
    kept, ask = Opened(), Asking({URLS[0]: Disconnected("no answer")})
    assert kept.answer(URLS, "revenue", ask) == URLS[1] and ask.asked == URLS[:2]
    ask.down = {URLS[1]: StorageError("no room")}
    assert kept.answer(URLS, "revenue", ask) == URLS[2] and ask.asked[2:] == URLS[1:]
    assert kept.answer(URLS, "revenue", ask) == URLS[2] and ask.asked[4:] == URLS[2:]


@proves("D7")
def test_where_none_answers_it_is_told_which_were_asked_without_their_passwords() -> None:
    down: dict[str, Exception] = {url: Disconnected(f"not reached ({number})") for number, url in enumerate(URLS)}
    with pytest.raises(Disconnected, match="none of the 3 stores of view revenue answers") as found:
        Opened().answer(URLS, "revenue", Asking(down))
    assert "redis://:***@b/0: not reached (1); sqlite:///c.db: not reached (2)" in str(found.value)
    with pytest.raises(Disconnected, match=r"^not reached \(0\)$"):
        Opened().answer(URLS[:1], "revenue", Asking(down))


@proves("D7")
def test_what_is_wrong_with_the_question_or_the_broker_no_other_store_is_asked_for() -> None:
    ask = Asking({URLS[0]: UsageError("no column 'x'")})
    with pytest.raises(UsageError):
        Opened().answer(URLS, "revenue", ask)

    def of_the_broker(store: Any) -> None:
        ask.asked.append(store.url)
        with not_the_store():
            raise Disconnected("the broker is away")

    with pytest.raises(Refusal, match="the broker is away") as found:
        Opened().answer(URLS, "revenue", of_the_broker)
    assert found.value.status == 503 and ask.asked == URLS[:1] * 2


@proves("D7", "hostile")
def test_a_question_that_takes_too_long_is_asked_of_no_other_store_and_none_is_asked_last_for_it() -> None:
    kept, ask = Opened(), Asking({URLS[0]: QueryTimedOut("not answered in its time")})
    with pytest.raises(QueryTimedOut, match="not answered in its time"):
        kept.answer(URLS, "revenue", ask)
    ask.down = {}
    assert kept.answer(URLS, "revenue", ask) == URLS[0] and ask.asked == URLS[:1] * 2


@proves("D8")
def test_a_store_that_is_killed_during_a_wait_is_told_from_a_broker_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(store: Any) -> str:
        if store.url == URLS[0]:
            wait_for(nobody, "revenue", After(), 0.0, store)
        return str(store.url)

    def away(_: Any) -> None:
        raise Disconnected("the broker is away")

    nobody: Any = None
    kept = Opened()
    monkeypatch.setattr(waiting, "read_catalog", lambda _: {})
    assert kept.answer(URLS, "revenue", ask) == URLS[1]
    assert kept.answer(URLS, "revenue", lambda store: str(store.url)) == URLS[1], "it is noted down"
    monkeypatch.setattr(waiting, "read_catalog", away)
    with pytest.raises(Refusal, match="the broker is away"):
        Opened().answer(URLS, "revenue", ask)
