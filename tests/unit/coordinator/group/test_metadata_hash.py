"""XXH3, and the hash of a group's topics, compared with the library of Kafka 4.3.1 (hash4j 0.22.0)."""

import struct

import pytest
from xxhash import xxh3_64_intdigest

from odradek.coordinator.group.modern.subscriptions.metadata_hash import combined, group_hash, topic_hash
from odradek.coordinator.group.ports import TopicInfo
from tests.support.group_ports import FakeTopics

XXH3 = {
    0: 3244421341483603138,
    1: 1433843135270481901,
    3: 12180141160879835164,
    4: 7895465118229274323,
    8: 6941064856527638883,
    9: 18374517719163151272,
    16: 13314990914799711621,
    17: 8163341949877205007,
    32: 1873302701886544469,
    64: 2917965298538373825,
    100: 13083933661539568799,
    128: 7440608504995537343,
    129: 14295761343243267012,
    160: 15496299788031539331,
    240: 7229805477010515663,
    241: 10082113959289486871,
    1023: 15161797645365529668,
    1024: 11205349619999208113,
    1025: 9253807012321506678,
    5000: 8762507191635236893,
}
"""Number of bytes -> hash. Byte i is 7 i + 3."""


@pytest.mark.parametrize("count", XXH3)
def test_xxh3_hash_equals_the_reference_value(count: int) -> None:
    assert xxh3_64_intdigest(bytes((7 * i + 3) & 0xFF for i in range(count))) == XXH3[count]


def test_topic_hash_is_kafkas() -> None:
    topic = TopicInfo(struct.pack(">QQ", 1, 2), "foo", 2, (("rackB", "rackA"), ()))
    assert topic_hash(topic) == 14912279417817711141


def test_unknown_racks_count_as_no_racks() -> None:
    topic = TopicInfo(struct.pack(">QQ", 1, 2), "foo", 2, (("rackB", "rackA"),))
    assert topic_hash(topic) == 14912279417817711141


def test_hash_without_topics_is_0() -> None:
    assert combined({}) == 0
    assert group_hash(["gone"], FakeTopics(), {}) == 0


def test_hash_ignores_the_order_and_drops_deleted_topics() -> None:
    topics = FakeTopics()
    cache: dict[str, tuple[TopicInfo, int]] = {}
    topics.make("a", 1)
    topics.make("b", 2)
    both = group_hash(["a", "b"], topics, cache)
    assert group_hash(["b", "a", "c"], topics, cache) == both
    assert -(1 << 63) <= both < 1 << 63
    topics.make("b", 3)
    assert group_hash(["a", "b"], topics, cache) != both
    topics.delete("b")
    assert group_hash(["a", "b"], topics, cache) == group_hash(["a"], topics, cache)
    assert list(cache) == ["a"]
