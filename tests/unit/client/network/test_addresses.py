"""Bootstrap addresses."""

from __future__ import annotations

import pytest

from odradek.client import InvalidArgument
from odradek.client.network.addresses import parse_bootstrap


def test_addresses_are_host_and_port() -> None:
    assert parse_bootstrap("a:1, [::1]:2,10.0.0.1:3") == [("a", 1), ("::1", 2), ("10.0.0.1", 3)]


@pytest.mark.parametrize("bootstrap", ["localhost", ":9092", "", "a:1,", "localhost:\N{SUPERSCRIPT TWO}", "a:-1"])
def test_a_malformed_address_is_an_invalid_argument(bootstrap: str) -> None:
    with pytest.raises(InvalidArgument, match="expected host:port"):
        parse_bootstrap(bootstrap)


@pytest.mark.parametrize("port", ["65536", "9" * 5000])
def test_a_port_above_the_highest_one_is_an_invalid_argument(port: str) -> None:
    with pytest.raises(InvalidArgument, match="the highest port is 65535"):
        parse_bootstrap(f"a:65535,b:{port}")
