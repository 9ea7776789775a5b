from __future__ import annotations

from typing import Any

import pytest

from odradek.local.security import Security
from odradek.testing.spec import BadMarker, ClusterSpec, Requirements, requirements_of


def test_equal_settings_in_another_order_are_the_same_cluster() -> None:
    first = ClusterSpec.of(3, {"num.partitions": 2, "min.insync.replicas": 1})
    assert first == ClusterSpec.of(3, {"min.insync.replicas": "1", "num.partitions": "2"})
    assert len({first, ClusterSpec.of(3)}) == 2


def test_marker_with_all_arguments() -> None:
    marker = {"brokers": 3, "topics": {"orders": 6}, "settings": {"num.partitions": 2}, "security": Security("ssl")}
    spec = ClusterSpec(3, (("num.partitions", "2"),), Security("ssl"))
    assert requirements_of(marker) == Requirements(spec, {"orders": 6})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"broker": 3}, "broker is unknown"),
        ({"brokers": 0}, "between 1 and 9"),
        ({"brokers": "3"}, "between 1 and 9"),
        ({"topics": ["orders"]}, "must be a dict"),
        ({"topics": {"orders": 0}}, "must be a dict"),
        ({"brokers": True}, "between 1 and 9"),
        ({"topics": {7: 1}}, "must be a dict"),
        ({"topics": {"orders": True}}, "must be a dict"),
        ({"security": 7}, "security=7 must be a str or a Security"),
        ({"settings": ["num.partitions=3"]}, "settings=.* must be a dict from names to values"),
        ({"security": ["ssl"]}, "must be a str or a Security"),
    ],
)
def test_invalid_argument_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadMarker, match=message):
        requirements_of(arguments)


def test_positional_argument_is_refused() -> None:
    with pytest.raises(BadMarker, match="3 is unknown"):
        requirements_of({}, (3,))
