"""The topology: racks, replicas and their positions."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from odradek.client.admin.status import BrokerDescription
from odradek.client.network.metadata import Partition, Topic
from odradek.console.model.topology import SQUARES_MAX, SQUARES_PER_BROKER_MAX, topology_of


def brokers(*racks: str | None) -> list[BrokerDescription]:
    return [BrokerDescription(index, "host", 9092, rack, fenced=False) for index, rack in enumerate(racks, 1)]


def topic(*partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> Topic:
    rows = {
        index: Partition(index, leader, 0, replicas, isr) for index, (leader, replicas, isr) in enumerate(partitions)
    }
    return Topic("payments", UUID(int=1), False, rows, 0)


def test_brokers_are_in_their_racks_and_replicas_are_counted() -> None:
    topics = [topic((1, (1, 2), (1, 2)), (2, (2, 3), (2,)), (-1, (3,), (3,)))]
    picture = topology_of(brokers("a", "b", "a"), topics, 2)
    assert [(rack.name, [box.node.broker.node_id for box in rack.boxes]) for rack in picture.racks] == [
        ("a", [1, 3]),
        ("b", [2]),
    ]
    nodes = {box.node.broker.node_id: box.node for rack in picture.racks for box in rack.boxes}
    assert [(node.leaders, node.followers, node.late) for _, node in sorted(nodes.items())] == [
        (1, 0, 0),
        (1, 1, 0),
        (0, 1, 1),
    ]
    assert [node_id for node_id, node in nodes.items() if node.controller] == [2]
    assert (picture.flows, picture.leaderless) == ({(1, 2): 1, (2, 3): 1}, 1)
    assert nodes[3].shown[0].kind == "late"


def test_picture_is_bounded_and_boxes_do_not_overlap() -> None:
    many = topic(
        *[(index % 20 + 1, (index % 20 + 1, (index + 1) % 20 + 1), (index % 20 + 1,)) for index in range(2_500)]
    )
    for racks in ([None] * 20, ["a", "b"] * 10):
        picture = topology_of(brokers(*racks), [many], None)
        boxes = [box for rack in picture.racks for box in rack.boxes]
        assert sum(len(box.squares) for box in boxes) <= SQUARES_MAX
        assert max(len(box.squares) for box in boxes) <= SQUARES_PER_BROKER_MAX
        assert all(box.node.more > 0 for box in boxes)
        for box in boxes:
            assert all(box.x < x and box.y < y < box.y + box.height for x, y, _ in box.squares)
            below = [each for each in boxes if each.x == box.x and each.y > box.y]
            assert all(each.y >= box.y + box.height for each in below)
            assert box.y + box.height <= picture.height


def test_replicas_that_need_attention_are_first_then_by_topic_and_partition() -> None:
    many = replace(topic(*[(1 if index % 2 else 2, (1, 2), (1, 2)) for index in range(600)]), name="b")
    behind = replace(topic((2, (1, 2), (2,)), (2, (2, 1), (2,))), name="c")
    few = replace(topic((2, (1, 2), (1, 2)), (1, (1, 2), (1, 2))), name="a")
    picture = topology_of(brokers(None, None), [behind, many, few], None)
    node = picture.racks[0].boxes[0].node
    kinds = [each.kind for each in node.shown]
    assert kinds == ["late"] * 2 + ["leader"] * 301 + ["follower"] * (SQUARES_PER_BROKER_MAX - 303)
    for kind in set(kinds):
        names = [(each.topic, each.partition) for each in node.shown if each.kind == kind]
        assert names == sorted(names)
    assert (node.leaders, node.followers, node.late, node.more) == (301, 301, 2, 604 - SQUARES_PER_BROKER_MAX)


def test_cluster_without_brokers_has_an_empty_picture() -> None:
    assert (topology_of([], [], None).width, topology_of([], [], None).racks) == (0, [])
