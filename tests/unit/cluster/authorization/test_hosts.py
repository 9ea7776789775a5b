"""Hosts of ACLs: addresses and networks in CIDR notation."""

import pytest

from odradek.cluster.authorization.hosts import InvalidNetwork, host_key, keys_of_client, parse_network

SIZES = ((32, 8), (32, 0), (32, 31), (128, 64), (128, 0))


@pytest.mark.parametrize(
    ("acl_host", "client", "matches"),
    [
        ("*", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.9.9.9/8", "10.0.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("0.0.0.0/0", "11.0.0.1", True),
        ("0.0.0.0/0", "::1", False),
        ("::/0", "11.0.0.1", False),
        ("10.0.0.2/31", "10.0.0.3", True),
        ("10.0.0.2/31", "10.0.0.4", False),
        ("10.0.0.1/32", "10.0.0.1", True),
        ("fd00::/64", "fd00::9", True),
        ("fd00::/64", "fd00:0:0:1::9", False),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("host.example", "host.example", True),
        ("10.0.0.0/33", "10.0.0.1", False),
        ("a/b", "a/b", True),
    ],
)
def test_host_of_an_acl_matches_the_addresses_that_it_names(acl_host: str, client: str, matches: bool) -> None:
    assert (host_key(acl_host) in keys_of_client(client, SIZES)) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10.0.0.0", "Could not parse [10.0.0.0]"),
        ("10.0.0/8", "Could not parse [10.0.0/8]"),
        ("256.0.0.0/8", "Value [256] not in range [0,255]"),
        ("10.0.0.0/33", "Value [33] not in range [0,32]"),
        ("fd00::/x", "Could not parse [fd00::/x] - invalid prefix length"),
        ("fd00::/129", "Could not parse [fd00::/129] - prefix length must be between 0 and 128"),
        ("fd00:::/64", "Could not parse [fd00:::] - not an IPv6 address"),
        ("::ffff:1.2.3.4/96", "Could not parse [::ffff:1.2.3.4] - not an IPv6 address"),
    ],
)
def test_invalid_network_is_refused_with_the_text_of_kafka(text: str, message: str) -> None:
    with pytest.raises(InvalidNetwork) as refused:
        parse_network(text)
    assert str(refused.value) == message
