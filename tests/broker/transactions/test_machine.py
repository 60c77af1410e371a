"""The transaction coordinator as a pure machine: who holds an id, what may be written, how it ends."""

from __future__ import annotations

import pytest

from broker.transactions.machine import TIMEOUT_MS, Machine, writer
from proving import proves
from tidelog.broker.transactions.adding import Writer
from tidelog.broker.transactions.initialising import Holder
from tidelog.broker.transactions.outcome import Later, TransactionOutcome
from tidelog.broker.transactions.settings import TransactionSettings
from tidelog.broker.transactions.state import LAST_EPOCH_FOR_CLIENTS, apply, record
from tidelog.broker.transactions.states import MOVES, PREPARED, State
from tidelog.errors import DataFolderError
from tidelog.wire.error_code import ErrorCode as E

HERE, THERE = ("orders", 0), ("orders", 1)


def code(outcome: TransactionOutcome | Later) -> int:
    assert isinstance(outcome, TransactionOutcome), outcome
    return outcome.error_code


def at_epoch(machine: Machine, name: str, epoch: int) -> Writer:
    """A holder that has come this far."""
    holder = writer(name, machine.init(name))
    machine.write([record(machine[name]._replace(epoch=epoch))])
    return holder._replace(epoch=epoch)


@proves("F2")
def test_a_new_id_gets_a_producer_id_that_was_never_used_and_epoch_0() -> None:
    machine = Machine()
    assert machine.init("a") == TransactionOutcome(0, 101, 0)
    assert machine.init("b") == TransactionOutcome(0, 102, 0)


@proves("F2")
def test_who_asks_for_an_id_fences_who_had_it() -> None:
    machine = Machine()
    old = writer("a", machine.init("a"))
    new = writer("a", machine.init("a"))
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 1)
    assert code(machine.add(old, HERE)) == E.PRODUCER_FENCED
    assert code(machine.end(old, True)) == E.PRODUCER_FENCED
    assert code(machine.add(new, HERE)) == E.NONE
    assert machine.may_write(old, HERE) == E.PRODUCER_FENCED


@proves("F2")
def test_who_asks_for_an_id_with_an_open_transaction_has_it_aborted_first() -> None:
    machine = Machine()
    old = writer("a", machine.init("a"))
    machine.add(old, HERE)
    new = writer("a", machine.init("a"))
    assert machine["a"].state is State.EMPTY
    assert new.epoch == old.epoch + 2, "the epoch that fenced the transaction is given to nobody"


@proves("F2")
def test_a_zombie_that_names_its_epoch_ends_no_transaction_of_its_successor() -> None:
    machine = Machine()
    old = writer("a", machine.init("a"))
    new = writer("a", machine.init("a"))
    machine.add(new, HERE)
    assert code(machine.init("a", Holder(old.producer_id, old.epoch))) == E.PRODUCER_FENCED
    assert machine["a"].state is State.ONGOING


@proves("F2")
def test_a_holder_that_names_its_epoch_gets_the_next_one_and_the_same_again_if_the_reply_was_lost() -> None:
    machine = Machine()
    first = writer("a", machine.init("a"))
    me = Holder(first.producer_id, first.epoch)
    second = machine.init("a", me)
    assert second == TransactionOutcome(0, first.producer_id, first.epoch + 1)
    assert machine.init("a", me) == second
    writer("a", machine.init("a"))
    assert code(machine.init("a", me)) == E.PRODUCER_FENCED


@proves("F2")
def test_a_holder_that_has_a_transaction_open_and_names_its_epoch_goes_on_after_its_abort() -> None:
    machine = Machine()
    holder = writer("a", machine.init("a"))
    machine.add(holder, HERE)
    assert machine.init("a", Holder(holder.producer_id, holder.epoch)) == TransactionOutcome(0, holder.producer_id, 2)


@proves("F2")
def test_a_batch_may_be_written_only_where_the_open_transaction_says() -> None:
    machine = Machine()
    holder = writer("a", machine.init("a"))
    assert machine.may_write(holder, HERE) == E.TRANSACTION_ABORTABLE
    machine.add(holder, HERE)
    assert machine.may_write(holder, HERE) == E.NONE
    assert machine.may_write(holder, THERE) == E.TRANSACTION_ABORTABLE
    assert machine.may_write(holder._replace(producer_id=7), HERE) == E.INVALID_PRODUCER_ID_MAPPING
    machine.end(holder, True)
    assert machine.may_write(holder, HERE) == E.TRANSACTION_ABORTABLE
    machine.complete("a")
    assert machine.may_write(holder, HERE) == E.TRANSACTION_ABORTABLE
    machine.add(holder, THERE)
    assert machine.may_write(holder, HERE) == E.TRANSACTION_ABORTABLE, "that was the last transaction"


@proves("F2")
@pytest.mark.parametrize("commit", [True, False])
def test_while_markers_are_written_the_next_transaction_waits(commit: bool) -> None:
    machine = Machine()
    holder = writer("a", machine.init("a"))
    machine.add(holder, HERE)
    assert code(machine.end(holder, commit)) == E.NONE
    assert machine.add(holder, THERE) is Later.SETTLED
    assert machine.init("a") is Later.SETTLED
    assert machine.end(holder, commit) is Later.SETTLED
    assert code(machine.end(holder, not commit)) == E.INVALID_TXN_STATE
    machine.complete("a")
    assert code(machine.end(holder, commit)) == E.NONE
    assert code(machine.end(holder, not commit)) == E.INVALID_TXN_STATE
    assert code(machine.add(holder, THERE)) == E.NONE
    assert machine["a"].partitions == {THERE}


@proves("F2")
def test_what_was_prepared_is_marked_again_after_a_restart() -> None:
    machine = Machine()
    for name, commit in (("a", True), ("b", False), ("c", None)):
        holder = writer(name, machine.init(name))
        machine.add(holder, HERE, groups=["g"])
        if commit is not None:
            machine.end(holder, commit)
    assert machine.restart() == ["a", "b"]
    assert (machine["a"].state, machine["b"].state) == PREPARED
    machine.complete("a")
    assert machine.restart() == ["b"]


@proves("F2")
def test_a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced() -> None:
    machine = Machine()
    holder = writer("a", machine.init("a"))
    machine.add(holder, HERE)
    machine.pass_time(TIMEOUT_MS - 1)
    machine.add(holder, THERE)
    machine.time_out()
    assert machine["a"].state is State.ONGOING
    machine.pass_time(1)
    machine.time_out()
    assert machine["a"].state is State.PREPARE_ABORT
    assert machine["a"].partitions == {HERE, THERE}
    assert code(machine.end(holder, True)) == E.PRODUCER_FENCED
    assert code(machine.end(holder, False, bump=True)) == E.PRODUCER_FENCED
    machine.complete("a")
    assert code(machine.add(holder, HERE)) == E.PRODUCER_FENCED


@proves("F2")
def test_after_a_restart_an_open_transaction_has_its_whole_time_again() -> None:
    machine = Machine()
    holder = writer("a", machine.init("a"))
    machine.add(holder, HERE)
    machine.pass_time(10 * TIMEOUT_MS)
    machine.restart()
    machine.time_out()
    assert machine["a"].state is State.ONGOING
    machine.pass_time(TIMEOUT_MS)
    machine.time_out()
    assert machine["a"].state is State.PREPARE_ABORT


@proves("F2")
def test_an_id_that_nobody_uses_is_forgotten_but_not_one_that_is_busy() -> None:
    machine = Machine(TransactionSettings(id_expiration_ms=1_000))
    writer("idle", machine.init("idle"))
    busy = writer("busy", machine.init("busy"))
    machine.add(busy, HERE)
    machine.pass_time(1_000)
    machine.expire()
    assert set(machine.state.transactions) == {"busy"}
    assert machine.init("idle") == TransactionOutcome(0, 103, 0)


@proves("F2")
def test_the_number_of_ids_and_the_time_out_have_limits() -> None:
    machine = Machine(TransactionSettings(max_ids=1, max_timeout_ms=100))
    assert code(machine.init("a", timeout_ms=101)) == E.INVALID_TRANSACTION_TIMEOUT
    assert code(machine.init("a", timeout_ms=0)) == E.INVALID_TRANSACTION_TIMEOUT
    assert code(machine.init("", timeout_ms=100)) == E.INVALID_REQUEST
    assert code(machine.init("a", timeout_ms=100)) == E.NONE
    assert code(machine.init("b", timeout_ms=100)) == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert code(machine.init("a", timeout_ms=100)) == E.NONE


@proves("F2")
@pytest.mark.parametrize("commit", [True, False])
def test_version_2_moves_the_epoch_with_every_end_and_answers_a_lost_reply_again(commit: bool) -> None:
    machine = Machine()
    holder = writer("a", machine.init("a"))
    machine.add(holder, HERE)
    ended = machine.end(holder, commit, bump=True)
    assert ended == TransactionOutcome(0, holder.producer_id, holder.epoch + 1)
    assert machine.end(holder, commit, bump=True) is Later.SETTLED
    assert code(machine.end(holder, not commit, bump=True)) == E.INVALID_TXN_STATE
    assert machine.end(writer("a", ended), False, bump=True) is Later.SETTLED, "the next one, already"
    assert machine.may_write(holder, HERE) == E.PRODUCER_FENCED
    machine.complete("a")
    assert machine.end(holder, commit, bump=True) == ended
    assert code(machine.end(holder, not commit, bump=True)) == E.INVALID_TXN_STATE
    after = writer("a", ended)
    assert code(machine.end(after, True, bump=True)) == E.INVALID_TXN_STATE
    assert machine.end(after, False, bump=True) == TransactionOutcome(0, after.producer_id, after.epoch + 1)


@proves("F2")
def test_version_2_aborts_nothing_by_moving_the_epoch() -> None:
    machine = Machine()
    holder = writer("a", machine.init("a"))
    assert code(machine.end(holder, True, bump=True)) == E.INVALID_TXN_STATE
    assert code(machine.end(holder, False)) == E.INVALID_TXN_STATE, "version 1 has nothing to abort"
    ended = machine.end(holder, False, bump=True)
    assert ended == TransactionOutcome(0, holder.producer_id, holder.epoch + 1)
    assert machine.end(holder, False, bump=True) == ended, "its reply was lost"


@proves("F2")
def test_when_the_epochs_are_used_up_init_gives_a_new_producer_id() -> None:
    machine = Machine()
    last = at_epoch(machine, "a", LAST_EPOCH_FOR_CLIENTS)
    renewed = machine.init("a", Holder(last.producer_id, last.epoch))
    assert renewed == TransactionOutcome(0, 102, 0)
    assert machine.init("a", Holder(last.producer_id, last.epoch)) == renewed, "its reply was lost"
    assert code(machine.add(last, HERE)) == E.INVALID_PRODUCER_ID_MAPPING


@proves("F2")
def test_when_the_epochs_are_used_up_an_end_of_version_2_gives_a_new_producer_id() -> None:
    machine = Machine()
    last = at_epoch(machine, "a", LAST_EPOCH_FOR_CLIENTS)
    machine.add(last, HERE)
    ended = machine.end(last, True, bump=True)
    assert ended == TransactionOutcome(0, 102, 0)
    after = writer("a", ended)
    assert machine["a"].producer_id == last.producer_id, "the markers are for who wrote"
    assert machine.add(after, THERE) is Later.SETTLED
    assert machine.end(after, False, bump=True) is Later.SETTLED
    assert machine.end(last, True, bump=True) is Later.SETTLED
    machine.restart()
    machine.complete("a")
    assert machine.end(last, True, bump=True) == ended
    assert code(machine.add(after, THERE)) == E.NONE


@proves("F2")
def test_a_fence_at_the_last_epoch_leaves_one_to_fence_with_and_then_changes_the_producer_id() -> None:
    machine = Machine()
    last = at_epoch(machine, "a", LAST_EPOCH_FOR_CLIENTS)
    machine.add(last, HERE)
    assert machine.init("a") == TransactionOutcome(0, 102, 0)


@proves("F2")
def test_the_table_has_a_way_out_of_every_state_but_the_last() -> None:
    for state in State:
        ways = [event for (before, event) in MOVES if before is state]
        assert bool(ways) == (state is not State.DEAD), state


@proves("T6")
@pytest.mark.parametrize("key", [b'{"v":2,"kind":"transaction","id":"a"}', b'{"v":1,"kind":"pact","id":"a"}'])
def test_a_record_of_a_newer_tidelog_stops_the_fold_by_name(key: bytes) -> None:
    with pytest.raises(DataFolderError, match=r"in __tidelog.transactions is newer than this Tidelog.* use the newer"):
        apply(Machine().state, key, b"{}")
