"""Classic groups with members that join, sync, leave, crash and come back in any order, over restarts of the broker.

The clients here are as careless as real ones: they forget replies, ask again, and vanish. Whatever they do, generations
go up, the records fold to the state, a stable group has every partition once, and nobody waits for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from broker.groups.shell import GROUP, Shell, subscription
from proving import proves
from tidelog.broker.groups.phases import Phase
from tidelog.wire.error_code import ErrorCode as E
from tidelog.wire.messages.join_group import JoinGroupResponse

PARTITIONS = 7
SESSION_MS = 10_000
REBALANCE_MS = 20_000
FOR_EVER_MS = 1_000_000

PROTOCOLS = [
    {"range": subscription("orders")},
    {"range": subscription("orders", "payments"), "sticky": b"bytes"},
    {"sticky": b"other bytes", "range": subscription("orders")},
]


@dataclass
class Client:
    instance: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    waits_for: str | None = None
    alive: bool = True


def client_side_range(members: list[str]) -> dict[str, bytes]:
    """What a leading client computes: runs of partitions, as bytes that only clients understand."""
    members = sorted(members)
    return {
        one: bytes(range(at * PARTITIONS // len(members), (at + 1) * PARTITIONS // len(members)))
        for at, one in enumerate(members)
    }


class ClassicGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell({"orders": 1}, initial_rebalance_delay_ms=0)
        self.clients: list[Client] = []
        self.generation = 0
        self.joined: dict[int, set[str]] = {}

    def _pick(self, number: int) -> Client | None:
        alive = [one for one in self.clients if one.alive]
        return alive[number % len(alive)] if alive else None

    @rule(kind=st.sampled_from(["old", "dynamic", "static"]), name=st.sampled_from("abc"))
    def start_client(self, kind: str, name: str) -> None:
        if sum(one.alive for one in self.clients) < 5:
            instance = name if kind == "static" else None
            self.clients.append(Client(instance, 3 if kind == "old" else 9))

    @rule(number=st.integers(0, 9), protocols=st.sampled_from(PROTOCOLS))
    def join(self, number: int, protocols: dict[str, bytes]) -> None:
        if (client := self._pick(number)) is not None:
            client.waits_for = self.shell.join(
                client.member_id,
                instance=client.instance,
                version=client.version,
                protocols=protocols,
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
            )
            self._hear(client)

    @rule(number=st.integers(0, 9))
    def hear(self, number: int) -> None:
        if (client := self._pick(number)) is not None:
            self._hear(client)

    def _hear(self, client: Client) -> None:
        """Takes in the reply, if it is there, and does at once what a real client does next."""
        reply = self.shell.replies.get(client.waits_for)
        if reply is None:
            return
        client.waits_for = None
        if reply.error_code in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
            client.member_id, client.generation = "", -1
        elif isinstance(reply, JoinGroupResponse):
            client.member_id = reply.member_id or client.member_id
            if reply.error_code == 0:
                client.generation = reply.generation_id
                self._sync(client, reply)

    def _sync(self, client: Client, reply: JoinGroupResponse) -> None:
        assignments = {}
        if reply.leader == client.member_id and not reply.skip_assignment:
            assignments = client_side_range([one.member_id for one in reply.members])
        client.waits_for = self.shell.sync(client.member_id, client.generation, assignments, instance=client.instance)

    @rule(number=st.integers(0, 9))
    def heartbeat(self, number: int) -> None:
        client = self._pick(number)
        if client is not None and client.member_id:
            code = self.shell.heartbeat(client.member_id, client.generation, instance=client.instance)
            live = self.shell.state.live_group(GROUP)
            known = live is not None and client.member_id in live.members
            if code in (E.NONE, E.REBALANCE_IN_PROGRESS):
                assert live is not None
                assert known
                assert client.generation == live.generation

    @rule(number=st.integers(0, 9))
    def commit(self, number: int) -> None:
        client = self._pick(number)
        if client is not None and client.member_id:
            before = self.shell.committed("orders")
            [code] = self.shell.commit_offsets(
                {("orders", 0): before + 1},
                member_id=client.member_id,
                generation=client.generation,
                instance=client.instance,
            )
            assert self.shell.committed("orders") == before + (code == 0)

    @rule(number=st.integers(0, 9))
    def leave(self, number: int) -> None:
        if (client := self._pick(number)) is not None:
            self.shell.leave((client.member_id, client.instance))
            client.member_id, client.generation, client.waits_for = "", -1, None

    @rule(number=st.integers(0, 9))
    def crash(self, number: int) -> None:
        if (client := self._pick(number)) is not None:
            client.alive = False

    @rule(ms=st.sampled_from([1, 1_000, SESSION_MS - 1, SESSION_MS, REBALANCE_MS]))
    def wait(self, ms: int) -> None:
        self.shell.wait(ms)

    @rule()
    def restart_broker(self) -> None:
        self.shell.restart()
        kept = self.shell.state.classic.get(GROUP)
        self.generation = kept.generation if kept is not None else 0
        self.joined.clear()
        for client in self.clients:
            client.waits_for = None

    @invariant()
    def generations_go_up(self) -> None:
        live = self.shell.state.live_group(GROUP)
        if live is not None:
            assert live.generation >= self.generation
            self.generation = live.generation

    @invariant()
    def a_generation_is_one_set_of_members(self) -> None:
        live = self.shell.state.live_group(GROUP)
        if live is not None and live.phase is Phase.COMPLETING:
            assert self.joined.setdefault(live.generation, set(live.members)) == set(live.members)

    @invariant()
    def records_fold_to_the_state(self) -> None:
        self.shell.check_folds()

    @invariant()
    def a_stable_group_is_kept_and_has_every_partition_once(self) -> None:
        live = self.shell.state.live_group(GROUP)
        if live is not None and live.phase is Phase.STABLE:
            kept = self.shell.state.classic[GROUP]
            assert kept.generation == live.generation
            assert list(kept.members) == [one.kept for one in live.members.values()]
            given = [partition for one in kept.members for partition in one.assignment]
            assert sorted(given) == list(range(PARTITIONS))
            assert kept.leader in {one.member_id for one in kept.members}

    @invariant()
    def who_waits_is_in_the_group(self) -> None:
        live = self.shell.state.live_group(GROUP)
        members = live.members.values() if live is not None else []
        parked = {one.join_ticket for one in members} | {one.sync_ticket for one in members}
        assert set(self.shell.unanswered()) == parked - {None}

    def teardown(self) -> None:
        """When all clients are silent, everybody is answered and nothing is left to do."""
        self.shell.wait(FOR_EVER_MS)
        assert self.shell.unanswered() == []
        assert self.shell.state.live.classic == {}
        assert len(self.shell.state.live.deadlines) == 1, "only retention is left"
        self.shell.check_folds()


TestClassicGroups = proves("T3")(ClassicGroups.TestCase)
TestClassicGroups.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@proves("T3")
def test_classic_groups_for_long(seed: int) -> None:
    class Seeded(ClassicGroups):
        pass

    long = settings(max_examples=3_000, stateful_step_count=80, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(hypothesis.seed(seed)(Seeded), settings=long)  # type: ignore[no-untyped-call]
