"""A bank ledger that balances after every batch of transfers.

A transfer is two commands, to two accounts, that count together: the money leaves one and enters the other, or neither.
The sum over all accounts is looked at after every batch, from the events alone, and after a restart from a snapshot.

    python examples/bank_ledger.py
"""

import random
import tempfile
from dataclasses import dataclass
from datetime import datetime

import tidelog
from tidelog.sourcing import Decider, EventStore, Refused

ACCOUNTS = ["anna", "bob", "carl", "dora"]


@dataclass(frozen=True)
class Account:
    cents: int = 0
    may_owe: bool = False


@dataclass(frozen=True)
class Open:
    may_owe: bool = False


@dataclass(frozen=True)
class Withdraw:
    cents: int


@dataclass(frozen=True)
class Deposit:
    cents: int


@dataclass(frozen=True)
class Opened:
    may_owe: bool


@dataclass(frozen=True)
class Moved:
    cents: int


@dataclass(frozen=True)
class NotEnough:
    cents: int


def decide(account: Account, command: Open | Withdraw | Deposit, now: datetime) -> Opened | Moved:
    match command:
        case Open(may_owe):
            return Opened(may_owe)
        case Withdraw(cents):
            if account.cents < cents and not account.may_owe:
                raise Refused(NotEnough(account.cents))
            return Moved(-cents)
        case Deposit(cents):
            return Moved(cents)


def apply(account: Account, event: Opened | Moved) -> Account:
    match event:
        case Opened(may_owe):
            return Account(account.cents, may_owe)
        case Moved(cents):
            return Account(account.cents + cents, account.may_owe)


accounts = Decider(
    Account(), decide, apply, commands=[Open, Withdraw, Deposit], events=[Opened, Moved], refusals=[NotEnough]
)


def transfer(store: EventStore[Account], giver: str, taker: str, cents: int, id: str) -> bool:
    try:
        store.send_together([(giver, Withdraw(cents)), (taker, Deposit(cents))], id=id)
        return True
    except Refused:
        return False


def total(store: EventStore[Account]) -> int:
    """From the log, not from what the store has in memory."""
    return sum(store.decider.fold(e for _, es in store.history(one) for e in es).cents for one in [*ACCOUNTS, "bank"])


with tidelog.Broker(tempfile.mkdtemp()) as broker:
    chance, refused = random.Random(7), 0
    with EventStore("ledger", accounts, bootstrap=broker.bootstrap, partitions=1) as store:
        store.send("bank", Open(may_owe=True))
        for name in ACCOUNTS:
            transfer(store, "bank", name, 10_000, f"start-{name}")
        for batch in range(5):
            for number in range(20):
                giver, taker = chance.sample(ACCOUNTS, 2)
                refused += not transfer(store, giver, taker, chance.randrange(1, 9_000), f"{batch}-{number}")
            print(f"after batch {batch}: the ledger sums up to {total(store)}")
        print("some transfers were refused:", refused > 0)
        again = store.send_together([("bank", Withdraw(10_000)), ("anna", Deposit(10_000))], id="start-anna")
        print("a transfer that was sent again was done once:", [one.repeated for one in again])
        before = {name: store.state(name).state for name in ACCOUNTS}
    with EventStore("ledger", accounts, bootstrap=broker.bootstrap) as store:
        print("the same after a restart:", before == {name: store.state(name).state for name in ACCOUNTS})
        print("nobody owes:", all(one.cents >= 0 for one in before.values()))
