"""Shares of clients in a table: what one client, one address, and further clients may hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.client_shares import CLIENT_ID_CHARACTERS_MAX, Client, ClientShares, client_of

CAPACITY = 1_000


def fill(shares: ClientShares, client: Client, used: int) -> int:
    """Add entries of `client` to a table with `used` entries until it is refused. Return their number."""
    added = 0
    while shares.allows(client, CAPACITY - used - added):
        shares.add(client)
        added += 1
    return added


def test_one_client_fills_three_quarters_and_one_address_seven_eighths() -> None:
    shares = ClientShares()
    first = fill(shares, Client("a", "1"), 0)
    assert first == CAPACITY * 3 // 4
    second = fill(shares, Client("a", "2"), first)
    third = fill(shares, Client("a", "3"), first + second)
    assert first + second + third <= CAPACITY * 7 // 8 + 1
    assert fill(shares, Client("a", "4"), first + second + third) == 0, "a new client id gives the address no more"
    other = fill(shares, Client("b", "1"), first + second + third)
    assert other > 80, "another address has capacity"


def test_removed_entries_return_their_capacity() -> None:
    shares = ClientShares()
    client = Client("a", "1")
    added = fill(shares, client, 0)
    for _ in range(100):
        shares.remove(client)
    assert shares.held(client) == added - 100
    assert fill(shares, client, added - 100) == 100


def test_equal_clients_share_one_object_and_long_client_ids_are_truncated() -> None:
    shares = ClientShares()
    first = shares.add(client_of("a", "x" * 40_000))
    assert len(first.client_id) == CLIENT_ID_CHARACTERS_MAX
    assert shares.add(client_of("a", "x" * 30_000)) is first
    assert client_of("a", None) == Client("a", "")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12"), st.booleans()), max_size=200))
def test_counts_equal_those_of_a_model(steps: list[tuple[str, str, bool]]) -> None:
    shares = ClientShares()
    entries: list[Client] = []
    for address, client_id, adds in steps:
        client = Client(address, client_id)
        if adds:
            entries.append(shares.add(client, 2))
        elif client in entries:
            entries.remove(client)
            shares.remove(client, 2)
    for client in (Client(address, client_id) for address in "abc" for client_id in "12"):
        assert shares.held(client) == 2 * entries.count(client)
        of_address = sum(entry.address == client.address for entry in entries)
        allowed = 2 * entries.count(client) < 3 * 9 and 2 * of_address < 7 * 9
        assert shares.allows(client, 9) == allowed
    for entry in entries:
        shares.remove(entry, 2)
    assert not shares._held
    assert not shares._addresses
    assert not shares._clients


def test_amount_is_allowed_if_its_entries_are_allowed_one_after_another() -> None:
    for capacity in (4, 10, 101):
        one_by_one = ClientShares()
        client = Client("10.0.0.1", "c")
        while one_by_one.allows(client, capacity - one_by_one.held(client)):
            one_by_one.add(client)
        largest = one_by_one.held(client)
        assert ClientShares().allows(client, capacity, largest)
        assert not ClientShares().allows(client, capacity, largest + 1)
