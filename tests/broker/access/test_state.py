"""The fold of users, rules and quotas: its records give it back, what is newer stops it, and no secret is in a repr."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker.access.entities import CLIENT, USER, Entity
from tidelog.broker.access.state import (
    acl_record,
    apply,
    fresh,
    quota_record,
    secret_record,
    to_records,
    user_record,
)
from tidelog.errors import DataFolderError
from tidelog.wire.acl import Acl
from tidelog.wire.scram import Credential

names = st.text(min_size=1, max_size=5).filter(lambda text: text.isprintable())
credentials = st.builds(
    Credential, st.binary(min_size=1, max_size=8), st.integers(4096, 16384), st.binary(), st.binary()
)
acls = st.builds(Acl, st.integers(2, 7), st.integers(3, 4), names, names, names, st.integers(2, 12), st.integers(2, 3))
entities = st.sampled_from(
    [
        Entity(((USER, "alice"),)),
        Entity(((USER, None),)),
        Entity(((CLIENT, "app"),)),
        Entity(((CLIENT, None),)),
        Entity(((USER, "alice"), (CLIENT, None))),
        Entity(((USER, None), (CLIENT, "app"))),
    ]
)
records = st.lists(
    st.one_of(
        st.builds(user_record, names, st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]), st.none() | credentials),
        st.builds(acl_record, acls, gone=st.booleans()),
        st.builds(quota_record, entities, st.dictionaries(st.sampled_from(["producer_byte_rate"]), st.floats(1, 1e9))),
        st.builds(secret_record, st.binary(min_size=1, max_size=32)),
    ),
    max_size=30,
)


@proves("T6")
@given(records)
def test_a_snapshot_gives_the_state_again(history):
    state = fresh()
    for record in history:
        apply(state, record.key, record.value)
    again = fresh()
    for record in to_records(state):
        apply(again, record.key, record.value)
    assert again == state


@proves("T6")
@pytest.mark.parametrize("key", [b'{"v":2,"kind":"user"}', b'{"v":1,"kind":"token"}'])
def test_what_is_newer_stops_the_fold(key):
    with pytest.raises(DataFolderError, match="use the newer one"):
        apply(fresh(), key, b"{}")


@proves("T10")
def test_keys_of_a_password_are_in_no_repr():
    kept = Credential(b"the salt", 4096, b"stored", b"server")
    assert repr(kept) == "Credential(iterations=4096)"
