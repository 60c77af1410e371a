"""How addresses are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.address import DEFAULT_PORT, Address, parse_address, parse_addresses
from tidelog.errors import UsageError

hosts = st.one_of(
    st.from_regex(r"[a-z0-9][a-z0-9.-]{0,30}", fullmatch=True),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str),
)


@proves("T10")
@given(st.lists(st.builds(Address, hosts, st.integers(1, 65535)), min_size=1, max_size=4))
def test_an_address_is_read_as_it_is_written(addresses: list[Address]) -> None:
    assert parse_addresses(",".join(map(str, addresses))) == tuple(addresses)
    assert parse_addresses([str(address) for address in addresses]) == tuple(addresses)


@proves("T10")
def test_the_port_may_be_left_out() -> None:
    assert parse_address("broker") == Address("broker", DEFAULT_PORT)
    assert parse_address("[::1]") == Address("::1", DEFAULT_PORT)


@proves("T10")
@pytest.mark.parametrize(
    "wrong",
    [
        "",
        ",",
        ":9092",
        "host:",
        "host:port",
        "host:0",
        "host:65536",
        "host:-1",
        "::1:9092",
        "[::1",
        "[::1]9092",
        "host:９",
    ],
)
def test_what_is_not_an_address_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError):
        parse_addresses(wrong)
