"""The machine against an oracle that a page can hold: clients that live and die, in any order, under two ids.

The oracle knows who took an id last and what was written since the last end. From that alone it says what may happen:

- Nobody but the last holder of an id is ever answered NONE, and nobody else's batch is let in.
- What is let in lies in a place that the transaction names, so that its marker will come there.
- An end that was answered stands: what was written in it is all committed, or all aborted, whatever comes behind it.
- After a restart everything is as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from broker.transactions.machine import TIMEOUT_MS, Machine
from proving import proves
from tidelog.broker.transactions.adding import Writer
from tidelog.broker.transactions.initialising import Holder
from tidelog.broker.transactions.outcome import Later, TransactionOutcome
from tidelog.broker.transactions.state import LAST_EPOCH_FOR_CLIENTS, PartitionName, record
from tidelog.broker.transactions.states import State
from tidelog.wire.error_code import ErrorCode as E
from tries import tries

IDS = ("a", "b")
PLACES: tuple[PartitionName, ...] = (("orders", 0), ("orders", 1))
NOT_THE_HOLDER = (E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING)
COMMITTED = {State.PREPARE_COMMIT: True, State.PREPARE_ABORT: False}


@dataclass
class Client:
    """One process: it knows an id, and the producer id and epoch that it was given."""

    name: str
    version_2: bool
    me: Writer | None = None
    asked: tuple[Writer, bool] | None = None  # an end whose reply it has not seen


@dataclass
class Oracle:
    holder: dict[str, Client | None] = field(default_factory=lambda: dict.fromkeys(IDS))
    written: dict[str, set[PartitionName]] = field(default_factory=lambda: {name: set() for name in IDS})
    outcome: dict[str, bool | None] = field(default_factory=lambda: dict.fromkeys(IDS))  # of what is being marked


class Story:
    def __init__(self) -> None:
        self.machine = Machine()
        self.oracle = Oracle()
        self.clients = [Client(name, version_2) for name in IDS for version_2 in (False, True)]

    def look(self, name: str) -> None:
        """The state of an id against what the oracle knows of it."""
        found = self.machine.state.transactions.get(name)
        written, outcome = self.oracle.written[name], self.oracle.outcome[name]
        if found is None:
            assert not written
            return
        if found.state is State.ONGOING:
            assert outcome is None
        if written:
            assert found.state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT), found
            assert written <= found.partitions, "a marker would be missing"
        if found.is_prepared:
            assert outcome in (None, COMMITTED[found.state]), "an outcome was changed"
            self.oracle.outcome[name] = COMMITTED[found.state]

    def settle(self, name: str) -> None:
        """The markers are written, if there are any to write."""
        found = self.machine.state.transactions.get(name)
        if found is not None and found.is_prepared:
            self.machine.complete(name)
            self.oracle.written[name] = set()
            self.oracle.outcome[name] = None

    # What may happen ----------------------------------------------------------------------------------------------

    def init(self, client: Client, _place: PartitionName, names_itself: bool) -> None:
        expected = Holder(*client.me[1:]) if names_itself and client.me is not None else None
        is_holder = self.oracle.holder[client.name] is client
        was_open = client.name in self.machine.state.transactions and self.machine[client.name].state is State.ONGOING
        outcome = self.machine.init(client.name, expected)
        if isinstance(outcome, Later):
            return
        if expected is not None and not is_holder and self.oracle.holder[client.name] is not None:
            assert outcome.error_code == E.PRODUCER_FENCED
        if outcome.error_code:
            assert expected is not None and outcome.error_code == E.PRODUCER_FENCED
            return
        if was_open:  # it was aborted, and marked, on the way
            self.oracle.written[client.name], self.oracle.outcome[client.name] = set(), None
        self.oracle.holder[client.name] = client
        client.me, client.asked = Writer(client.name, outcome.producer_id, outcome.epoch), None

    def write(self, client: Client, place: PartitionName, adds: bool) -> None:
        if client.me is None:
            return
        if adds and self.judge(client, self.machine.add(client.me, place)) is None:
            return
        code = self.machine.may_write(client.me, place)
        if code == E.NONE:
            assert self.oracle.holder[client.name] is client, "a zombie's batch was let in"
            assert self.oracle.outcome[client.name] is None, "a batch was let in behind the end"
            self.oracle.written[client.name].add(place)

    def end(self, client: Client, place: PartitionName, commit: bool) -> None:
        if client.me is None:
            return
        lost = place == PLACES[0]  # the reply does not arrive
        outcome = self.judge(client, self.machine.end(client.me, commit, bump=client.version_2))
        if outcome is None or outcome.error_code:
            return
        if client.version_2:
            client.asked = (client.me, commit) if lost else None
            if not lost:
                client.me = Writer(client.name, outcome.producer_id, outcome.epoch)

    def end_again(self, client: Client, _place: PartitionName, _flag: bool) -> None:
        """The same request, whose reply was lost: it is answered as it was, however often."""
        if client.asked is None or self.oracle.holder[client.name] is not client:
            return
        self.settle(client.name)
        me, commit = client.asked
        outcome = self.machine.end(me, commit, bump=True)
        assert isinstance(outcome, TransactionOutcome) and outcome.error_code == E.NONE, outcome
        client.me, client.asked = Writer(client.name, outcome.producer_id, outcome.epoch), None

    def judge(self, client: Client, outcome: TransactionOutcome | Later) -> TransactionOutcome | None:
        """Whoever is not the holder hears so, whatever it asks for; None where it must wait."""
        if self.oracle.holder[client.name] is not client:
            assert isinstance(outcome, TransactionOutcome) and outcome.error_code in NOT_THE_HOLDER, outcome
        return outcome if isinstance(outcome, TransactionOutcome) else None

    def mark(self, client: Client, _place: PartitionName, _flag: bool) -> None:
        self.settle(client.name)

    def restart(self, _client: Client, _place: PartitionName, _flag: bool) -> None:
        self.machine.restart()

    def time_out(self, client: Client, _place: PartitionName, _flag: bool) -> None:
        ongoing = [name for name, one in self.machine.state.transactions.items() if one.state is State.ONGOING]
        self.machine.pass_time(TIMEOUT_MS)
        self.machine.time_out()
        for name in ongoing:
            self.oracle.holder[name] = None

    def grow_old(self, client: Client, _place: PartitionName, _flag: bool) -> None:
        """Its epochs are nearly used up."""
        found = self.machine.state.transactions.get(client.name)
        at_rest = found is not None and found.state is State.EMPTY
        if found is None or not at_rest or self.oracle.holder[client.name] is not client or client.me is None:
            return
        self.machine.write([record(found._replace(epoch=LAST_EPOCH_FOR_CLIENTS, last_epoch=-1))])
        client.me, client.asked = client.me._replace(epoch=LAST_EPOCH_FOR_CLIENTS), None


WAYS = ("init", "write", "write", "end", "end", "end_again", "mark", "mark", "restart", "time_out", "grow_old")
STEPS = st.lists(
    st.tuples(st.sampled_from(WAYS), st.integers(0, 3), st.sampled_from(PLACES), st.booleans()), max_size=60
)


@proves("F2", "F3")
@tries(50)  # most of the steps of an example are refused, and find nothing new
@given(STEPS)
def test_only_the_holder_writes_and_every_end_stands(steps: list[tuple[str, int, PartitionName, bool]]) -> None:
    story = Story()
    for way, number, place, flag in steps:
        client = story.clients[number]
        getattr(story, way)(client, place, flag)
        for name in IDS:
            story.look(name)
