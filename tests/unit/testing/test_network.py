from __future__ import annotations

import pytest

from odradek.testing.network import BLOCKED, Network


def address_of(node_id: int) -> tuple[str, int]:
    return "127.0.0.1", 9000 + node_id


def test_rows_have_both_directions_of_each_broker() -> None:
    network = Network([1, 2, 3])
    network.set(1, 2, BLOCKED)
    network.set(3, 1, 200)
    assert network.rows(1, address_of) == [("127.0.0.1", 9002, None, 0.0), ("127.0.0.1", 9003, 0.0, 200)]
    assert network.rows(2, address_of) == [("127.0.0.1", 9001, 0.0, None), ("127.0.0.1", 9003, 0.0, 0.0)]
    network.heal()
    assert network.rows(2, address_of) == [("127.0.0.1", 9001, 0.0, 0.0), ("127.0.0.1", 9003, 0.0, 0.0)]


@pytest.mark.parametrize(("pair", "message"), [((1, 3), "broker 3 does not exist"), ((2, 2), "no link to itself")])
def test_link_that_does_not_exist_is_refused(pair: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Network([1, 2]).set(*pair, BLOCKED)
