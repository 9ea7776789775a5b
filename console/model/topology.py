"""The topology: racks, their brokers, and the replicas on each broker, with positions for a picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from odradek.client.admin.status import BrokerDescription
    from odradek.client.network.metadata import Topic

SQUARES_MAX: Final = 4_000
"""Maximum replicas in the picture. Those that need attention are first; the others are counted."""
SQUARES_PER_BROKER_MAX: Final = 440
COLUMNS: Final = 22
"""Replicas per line of a broker."""
STEP: Final = 11
"""Distance of two replicas in the picture, in its units."""
BOX_WIDTH: Final = COLUMNS * STEP + 22
BOX_HEAD: Final = 54
"""Height of the text of a broker."""
GAP: Final = 16
RACK_HEAD: Final = 30


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica of a partition on a broker."""

    topic: str
    partition: int
    leads: bool
    in_sync: bool

    @property
    def kind(self) -> str:
        """Return the class of the picture."""
        return "late" if not self.in_sync else "leader" if self.leads else "follower"


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker with its replicas. `shown` are those of the picture, with those that need attention first."""

    broker: BrokerDescription
    controller: bool
    leaders: int
    followers: int
    late: int
    shown: Sequence[Replica]

    @property
    def more(self) -> int:
        """Return the number of replicas that are not in the picture."""
        return self.leaders + self.followers + self.late - len(self.shown)


@dataclass(frozen=True, slots=True)
class BrokerBox:
    """A broker in the picture. `squares` are the replicas with their positions."""

    node: BrokerNode
    x: int
    y: int
    height: int
    squares: Sequence[tuple[int, int, Replica]]


@dataclass(frozen=True, slots=True)
class RackBox:
    """A rack in the picture. `name` is empty for the brokers without rack."""

    name: str
    x: int
    height: int
    boxes: Sequence[BrokerBox]


@dataclass(frozen=True, slots=True)
class Topology:
    """The picture, and the number of partitions by leader and follower."""

    width: int
    height: int
    racks: Sequence[RackBox]
    flows: Mapping[tuple[int, int], int]
    leaderless: int


@dataclass(slots=True)
class _Hosted:
    """Replicas of a broker by kind: their numbers, and the first ones of each kind by topic and partition."""

    leaders: int = 0
    followers: int = 0
    late: int = 0
    first: tuple[list[Replica], list[Replica], list[Replica]] = field(default_factory=lambda: ([], [], []))


def topology_of(brokers: Sequence[BrokerDescription], topics: Iterable[Topic], controller: int | None) -> Topology:
    """Arrange the brokers by rack, with the replicas of topics."""
    limit = min(SQUARES_PER_BROKER_MAX, SQUARES_MAX // max(1, len(brokers)))
    hosted = {broker.node_id: _Hosted() for broker in brokers}
    flows: dict[tuple[int, int], int] = {}
    leaderless = 0
    for topic in sorted(topics, key=lambda topic: topic.name):
        for index, partition in sorted(topic.partitions.items()):
            leader, isr = partition.leader, partition.isr
            leaderless += leader == NO_LEADER
            for node_id in partition.replicas:
                leads, in_sync = node_id == leader, node_id in isr
                if not leads and leader != NO_LEADER:
                    flows[leader, node_id] = flows.get((leader, node_id), 0) + 1
                on_broker = hosted.get(node_id)
                if on_broker is None:
                    continue
                late, leaders, followers = on_broker.first
                if not in_sync:
                    on_broker.late += 1
                    first = late
                elif leads:
                    on_broker.leaders += 1
                    first = leaders
                else:
                    on_broker.followers += 1
                    first = followers
                if len(first) < limit:
                    first.append(Replica(topic.name, index, leads, in_sync))
    nodes = [_node(broker, broker.node_id == controller, hosted[broker.node_id], limit) for broker in brokers]
    by_rack: dict[str, list[BrokerNode]] = {}
    for node in nodes:
        by_rack.setdefault(node.broker.rack or "", []).append(node)
    racks = [
        _rack(name, column * (BOX_WIDTH + 3 * GAP), of_rack)
        for column, (name, of_rack) in enumerate(sorted(by_rack.items()))
    ]
    if len(racks) == 1:
        racks = [_row(racks[0].name, nodes)]
    width = max((box.x + BOX_WIDTH + GAP for rack in racks for box in rack.boxes), default=0)
    return Topology(width, max((rack.height for rack in racks), default=0), racks, flows, leaderless)


def _node(broker: BrokerDescription, controller: bool, hosted: _Hosted, limit: int) -> BrokerNode:
    late, leaders, followers = hosted.first
    shown = [*late, *leaders, *followers][:limit]
    return BrokerNode(broker, controller, hosted.leaders, hosted.followers, hosted.late, shown)


def _box(node: BrokerNode, x: int, y: int) -> BrokerBox:
    squares = [
        (x + 12 + index % COLUMNS * STEP, y + BOX_HEAD + index // COLUMNS * STEP, each)
        for index, each in enumerate(node.shown)
    ]
    lines = (len(node.shown) + COLUMNS - 1) // COLUMNS
    return BrokerBox(node, x, y, BOX_HEAD + lines * STEP + (18 if node.more else 4), squares)


def _rack(name: str, x: int, nodes: Sequence[BrokerNode]) -> RackBox:
    """Arrange the brokers of a rack below each other."""
    boxes: list[BrokerBox] = []
    y = RACK_HEAD
    for node in nodes:
        boxes.append(_box(node, x + GAP, y))
        y += boxes[-1].height + GAP
    return RackBox(name, x, y, boxes)


def _row(name: str, nodes: Sequence[BrokerNode]) -> RackBox:
    """Arrange the brokers of the only rack in lines of four."""
    boxes: list[BrokerBox] = []
    y = RACK_HEAD
    for first in range(0, len(nodes), 4):
        line = [_box(node, GAP + column * (BOX_WIDTH + GAP), y) for column, node in enumerate(nodes[first : first + 4])]
        boxes += line
        y += max(box.height for box in line) + GAP
    return RackBox(name, 0, y, boxes)
