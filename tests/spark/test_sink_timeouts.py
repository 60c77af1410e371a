"""A commit that outlasts its transaction: it is not tried again, and the error has the option, its value and the time.

The driver stands still before it asks for the end, until the broker has aborted what it wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

from against.patience import eventually
from proving import proves
from spark.sinking import PausedNetwork, committed, connected, numbers_of, run, staged_numbers, up_to, writing_of
from tidelog.client.admin import topics
from tidelog.client.admin.transactions import TransactionDescription, describe
from tidelog.client.cluster import Cluster
from tidelog.client.identity import ProducerIdentity
from tidelog.control.marks import Sources, transactional_id_of
from tidelog.control.timeouts import is_aborted
from tidelog.errors import TidelogError, TransactionTimedOut
from tidelog.spark.commit import Kept, Writing, commit, commit_once, commit_unmarked
from tidelog.wire.api import ApiKey

LOOKS = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
TIMEOUT_MS = 300
SAID = (
    r"the commit of sink 's' took (\d+\.\d) s and was aborted by the broker, since its kafka.transaction.timeout.ms is"
    r" 300; .* raise that option"
)
ABORTED = "CompleteAbort"
Act = Callable[..., bool]

pytestmark = pytest.mark.tidelog(settings={LOOKS: 50})


class StillNetwork(PausedNetwork):
    """Its owner stands still each time it asks for an end, until what it has open is aborted."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        super().__init__(ApiKey.END_TXN, self._wait)
        self._cluster = cluster
        self._transactional_id = transactional_id
        self.stood_still = self.tried_again = False

    def before(self, api_key: int) -> None:
        self.tried_again |= self.stood_still and api_key == ApiKey.INIT_PRODUCER_ID
        super().before(api_key)

    def _wait(self) -> None:
        self.paused = False
        self.stood_still = True
        eventually(lambda: describe(self._cluster, self._transactional_id).state, lambda state: state == ABORTED)


@pytest.fixture
def sink(topic: str, cluster: Cluster) -> str:
    topics.create(cluster, topic, partitions=3)
    return f"s-{topic}"


def said_of(sink: str, raised: pytest.ExceptionInfo[TidelogError]) -> float:
    """How long it took, by the error."""
    found = re.search(SAID.replace("'s'", repr(sink)), str(raised.value))
    assert found, raised.value
    return float(found[1])


@proves("eo.5", "F2", "T10")
@pytest.mark.parametrize("act", [commit_once, commit_unmarked], ids=["under an id", "without an id"])
def test_a_batch_write_that_outlasts_its_transaction_fails_at_once_and_says_why(
    cluster: Cluster, topic: str, sink: str, act: Act
) -> None:
    mine = writing_of(sink, 0, topic, query="mine", sources=Sources(), timeout_ms=TIMEOUT_MS)
    owner = transactional_id_of(sink) + ("" if act is commit_once else ".mine")
    network = StillNetwork(cluster, owner)
    with connected(cluster, network) as still, pytest.raises(TransactionTimedOut) as raised:
        act(still, mine, staged_numbers(cluster, topic, sink, numbers_of(0)), partial(connected, cluster))
    assert network.stood_still and not network.tried_again
    assert said_of(sink, raised) >= TIMEOUT_MS / 1000
    assert committed(cluster, topic) == []
    patient = mine._replace(timeout_ms=60_000)
    assert act(cluster, patient, staged_numbers(cluster, topic, sink, numbers_of(0)), partial(connected, cluster))
    assert committed(cluster, topic) == up_to(1)


@proves("eo.5", "F2", "T10")
@pytest.mark.parametrize("keeps", [True, False], ids=["a driver that keeps the id", "one that takes it"])
def test_a_micro_batch_that_outlasts_its_transaction_fails_at_once_and_says_why(
    cluster: Cluster, topic: str, sink: str, keeps: bool
) -> None:
    """Also where the id was kept from the commit before: then it is not one that somebody else has taken."""
    network = StillNetwork(cluster, transactional_id_of(sink))
    kept: Kept = {}
    with connected(cluster, network) as driver:
        if keeps:
            network.paused = True  # the first one is quick
            assert commit(*micro_batch(driver, topic, sink, 0), kept)
            network.paused = False
        else:
            assert run(cluster, topic, sink, 0)
        with pytest.raises(TransactionTimedOut) as raised:
            commit(*micro_batch(driver, topic, sink, 1), kept)
    assert network.stood_still and not network.tried_again and not kept
    said_of(sink, raised)
    assert committed(cluster, topic) == up_to(1)
    assert run(cluster, topic, sink, 1)
    assert committed(cluster, topic) == up_to(2)


def micro_batch(
    driver: Cluster, topic: str, sink: str, batch_id: int
) -> tuple[Cluster, Writing, list[object], Callable[[], Cluster]]:
    stages = staged_numbers(driver, topic, sink, numbers_of(batch_id))
    return (driver, writing_of(sink, batch_id, topic, timeout_ms=TIMEOUT_MS), list(stages), partial(connected, driver))


@proves("eo.5", "F2", "T10")
def test_a_batch_write_that_was_late_but_lost_its_id_to_another_tries_again(
    cluster: Cluster, topic: str, sink: str
) -> None:
    def outlast_and_lose() -> None:
        eventually(lambda: describe(cluster, transactional_id_of(sink)).state, lambda state: state == ABORTED)
        other = writing_of(sink, 0, topic, query="other", sources=Sources())
        stages = staged_numbers(cluster, topic, sink, numbers_of(1))
        assert commit_once(cluster, other, stages, partial(connected, cluster))

    mine = writing_of(sink, 0, topic, query="mine", sources=Sources(), timeout_ms=TIMEOUT_MS)
    stages = staged_numbers(cluster, topic, sink, numbers_of(0))
    with connected(cluster, PausedNetwork(ApiKey.END_TXN, outlast_and_lose)) as paused:
        assert commit_once(paused, mine, stages, partial(connected, cluster))
    assert committed(cluster, topic) == up_to(2)


@proves("eo.5")
@pytest.mark.parametrize(
    ("state", "producer_id", "epoch", "aborted"),
    [
        ("CompleteAbort", 7, 4, True),
        ("PrepareAbort", 7, 4, True),
        ("CompleteAbort", 7, 3, True),  # brokers of old, which leave the epoch
        ("Empty", 7, 5, False),  # taken by another
        ("CompleteAbort", 7, 6, False),  # taken, written and aborted by another
        ("CompleteAbort", 8, 0, False),
        ("Ongoing", 7, 3, False),
    ],
)
def test_only_an_abort_at_the_next_epoch_is_the_brokers_own(
    state: str, producer_id: int, epoch: int, aborted: bool
) -> None:
    found = TransactionDescription("id", state, producer_id, epoch, TIMEOUT_MS, None, ())
    assert is_aborted(found, ProducerIdentity("id", 7, 3)) is aborted
