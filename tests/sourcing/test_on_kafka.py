"""What follows a store, on Apache Kafka: each event has its consequences once. On Tidelog other files try its parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from against.patience import eventually
from against.shared_kafka import SharedKafka
from contract import kafka
from proving import proves
from sourcing.orders import Paid, Pay, Place, Placed, Shipping, orders
from sourcing.test_process_manager import commands_of, state_becomes
from tidelog.errors import ProducerFenced
from tidelog.sourcing import Effects, EventStore, ProcessManager, ReadModel

__all__ = ["kafka"]
pytestmark = [pytest.mark.external, pytest.mark.timeout(300)]


def is_paid(event: Any, record: Any) -> bool:
    return isinstance(event, Paid)


def learn(order: str, event: Any) -> str:
    return f"o{event.amount}" if isinstance(event, Placed) else order


def fold(rows: Any, event: Any, record: Any) -> None:
    if is_paid(event, record):
        rows[record.entity] = {"paid": rows.get(record.entity, {"paid": 0})["paid"] + 1}


@proves("E3", "E4", "es.14", "es.15", "es.24")
def test_commands_mails_and_rows_come_once_over_stops_and_a_take_over(
    kafka: SharedKafka, topic: str, tmp_path: Path
) -> None:
    mails, names = list[str](), list[str]()
    with EventStore(topic, orders(), bootstrap=kafka.bootstrap, partitions=2, timeout_s=60) as store:

        def manager() -> ProcessManager:
            more: dict[str, Any] = {"apply": learn, "initial": "", "start": "earliest"}
            return ProcessManager(f"{topic}-shipping", store, Shipping(600.0), **more)

        def mailing() -> Effects:
            name, more = f"{topic}-mails", {"concerns": is_paid, "start": "earliest"}
            return Effects(name, store, lambda event, record, id: mails.append(record.entity), **more)  # type: ignore[arg-type]

        def pay() -> Any:
            names.append(f"o{len(names) + 1}")
            store.send(names[-1], Place(len(names)))
            return store.send(names[-1], Pay())

        model = ReadModel(f"{topic}-paid", store, fold, key="order", columns={"order": "string", "paid": "long"})
        for _ in range(2):
            pay()
            with (
                manager().beside() as elder,
                mailing().beside(),
                model.following(f"sqlite:///{tmp_path}/paid.db") as followed,
            ):
                followed.wait(pay())
                state_becomes(store, names[-1], "shipped")
                eventually(lambda: len(mails), lambda count: count == len(names))
                with manager().beside():
                    pay()
                    state_becomes(store, names[-1], "shipped")
                    with pytest.raises(ProducerFenced):
                        eventually(elder.check, lambda _: False)
                eventually(lambda: len(mails), lambda count: count == len(names))
                followed.wait(store.send(f"last{len(names)}", Place(0)))
                assert {row["order"]: row["paid"] for row in followed.rows()} == dict.fromkeys(names, 1)
        assert Counter(mails) == Counter(names)
        assert commands_of(store, "Ship") == Counter(names)
