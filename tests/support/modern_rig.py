"""ClassicRig extended with the consumer protocol (KIP-848)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.modern.member import NO_MEMBER_EPOCH
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.protocol.messages.sync_group import SyncGroupResponse
from odradek.protocol.records.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.protocol.records.consumer_protocol_assignment import TopicPartition as AssignedPartitions
from odradek.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from tests.support.classic_rig import GROUP, ClassicRig, caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LATEST = 1
REBALANCE_MS = 60_000
SUBSCRIPTION_VERSION = 3
Held = dict[str, tuple[int, ...]]
"""Topic name -> partitions."""


def metadata(topics: Iterable[str], owned: Mapping[str, Iterable[int]] | None = None, rack: str | None = None) -> bytes:
    """Encode the subscription of a classic member, for JoinGroup."""
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[TopicPartition(name, list(numbers)) for name, numbers in (owned or {}).items()],
        rack_id=rack,
    )
    return SUBSCRIPTION_VERSION.to_bytes(2, "big") + encode(message, SUBSCRIPTION_VERSION)


def encode_assignment(held: Mapping[str, Iterable[int]], user_data: bytes | None = None) -> bytes:
    """Encode the assignment of a classic member, for SyncGroup."""
    topics = [AssignedPartitions(name, list(numbers)) for name, numbers in held.items()]
    message = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data)
    return SUBSCRIPTION_VERSION.to_bytes(2, "big") + encode(message, SUBSCRIPTION_VERSION)


def assignment(data: bytes) -> Held:
    message = decode(ConsumerProtocolAssignment, int.from_bytes(data[:2], "big"), data[2:])
    return {topic.topic: tuple(topic.partitions) for topic in message.assigned_partitions}


@dataclass
class Client:
    """State of a member. `assigned` is its last received assignment, `owned` the partitions that it consumes."""

    member_id: str
    topics: tuple[str, ...] = ()
    regex: str | None = None
    instance: str | None = None
    assignor: str | None = None
    epoch: int = 0
    assigned: Held = field(default_factory=dict)
    owned: Held = field(default_factory=dict)


class ModernRig(ClassicRig):
    """A ClassicRig with clients of the consumer protocol.

    By default, a target assignment is computed in the next heartbeat.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__(**({"consumer_assignment_interval_ms": 0} | config))
        self.clients: dict[str, Client] = {}

    def crash(self) -> None:
        """Replace the core by one that loads the log and restarts all session timers."""
        self.core = self._replayed_core()
        self.timers.clear()
        for timer in self.core.on_loaded(7, self.now_ms).timers:
            self._set(timer)

    def fire_due_timers(self) -> None:
        """Fire the timers that are due now."""
        self.wait(0)

    # ---- the consumer protocol --------------------------------------------------------------------------------------

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        owned: Held | None = None,
        group: str = GROUP,
        version: int = LATEST,
        client: str = "c",
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse | str:
        """Return the response to a heartbeat, or the name of its error. Timers that are due fire first."""
        self.fire_due_timers()
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=None
            if owned is None
            else [RequestTopicPartitions(self.topic_id(name), list(numbers)) for name, numbers in owned.items()],
            **fields,
        )
        reply: ConsumerGroupHeartbeatResponse | str = self.do(
            c.ConsumerGroupHeartbeat(request, caller(version, client))
        )
        return reply

    def topic_id(self, name: str) -> UUID:
        topic = self.topics.by_name(name)
        return UUID(bytes=topic.topic_id if topic is not None else name.encode().ljust(16, b"\0")[:16])

    def enter(self, member_id: str, *topics: str, regex: str | None = None, **fields: Any) -> Client | str:
        """Join with member epoch 0 and a subscription to `topics`."""
        client = Client(member_id, topics, regex, fields.get("instance"), fields.get("assignor"))
        reply = self.beat(
            member_id,
            0,
            owned={},
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=list(topics),
            subscribed_topic_regex=regex,
            instance_id=client.instance,
            server_assignor=client.assignor,
        )
        if isinstance(reply, str):
            return reply
        client.member_id = reply.member_id or ""
        self.clients[member_id] = client
        self._store_reply(client, reply)
        return client

    def follow(self, member_id: str, **fields: Any) -> ConsumerGroupHeartbeatResponse | str:
        """Send a heartbeat of a client that owns exactly its assignment."""
        client = self.clients[member_id]
        client.owned = dict(client.assigned)
        return self.send_heartbeat(member_id, owned=client.owned, **fields)

    def send_heartbeat(
        self, member_id: str, *, owned: Held | None = None, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse | str:
        """Send a heartbeat of a client with the owned partitions and fields given."""
        client = self.clients[member_id]
        reply = self.beat(client.member_id, client.epoch, owned=owned, instance_id=client.instance, **fields)
        if not isinstance(reply, str):
            self._store_reply(client, reply)
        return reply

    def _store_reply(self, client: Client, reply: ConsumerGroupHeartbeatResponse) -> None:
        client.epoch = reply.member_epoch
        if reply.assignment is not None:
            client.assigned = self.held(reply)

    def held(self, reply: ConsumerGroupHeartbeatResponse) -> Held:
        assert reply.assignment is not None
        return {self.topic_name(topic.topic_id): tuple(topic.partitions) for topic in reply.assignment.topic_partitions}

    def topic_name(self, topic_id: UUID) -> str:
        topic = self.topics.by_id(topic_id.bytes)
        return topic_id.bytes.rstrip(b"\0").decode() if topic is None else topic.name

    def send_leave(self, member_id: str, epoch: int = -1) -> ConsumerGroupHeartbeatResponse | str:
        client = self.clients[member_id]
        return self.beat(client.member_id, epoch, instance_id=client.instance)

    # ---- the classic protocol in a consumer group -------------------------------------------------------------------

    def join_classic(
        self, member_id: str, *topics: str, owned: Held | None = None, instance: str | None = None, **fields: Any
    ) -> JoinGroupResponse:
        """Join with the classic protocol.

        Repeat the request with the assigned member id after MEMBER_ID_REQUIRED (KIP-394).
        """
        fields = {"protocols": {"range": metadata(topics, owned)}, "instance": instance} | fields
        reply = self.join(member_id, **fields)
        if not isinstance(reply, int) and reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            reply = self.join(reply.member_id, **fields)
        assert isinstance(reply, JoinGroupResponse | int), reply
        return reply  # type: ignore[return-value]  # a waiter, in classic groups

    def sync_classic(self, member_id: str, generation: int, **fields: Any) -> Held | str:
        reply = self.sync(member_id, generation, protocol_type="consumer", protocol_name="range", **fields)
        return assignment(bytes(reply.assignment)) if isinstance(reply, SyncGroupResponse) else reply

    # ---- state ------------------------------------------------------------------------------------------------------

    @property
    def modern(self) -> ConsumerGroup:
        group = self.core.state.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def describe_consumer(self, group: str = GROUP) -> Any:
        return self.do(c.DescribeConsumer(group))

    def check(self) -> None:
        """Check the invariants of all consumer groups, and that the replay of the log gives the same state."""
        replica = self.replica()
        assert replica.state.groups.keys() == self.core.state.groups.keys()
        for group_id, group in self.core.state.groups.items():
            other = replica.state.groups[group_id]
            if isinstance(group, ConsumerGroup):
                assert isinstance(other, ConsumerGroup)
                assert other == group
                self._check_group(group)

    def _check_group(self, group: ConsumerGroup) -> None:
        holders: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for held in (member.assigned, member.revoking):
                for topic_id, partitions in held.items():
                    for partition in partitions:
                        before = holders.setdefault((topic_id, partition), member.member_id)
                        assert before == member.member_id, f"{topic_id!r}-{partition}: {before} and {member.member_id}"
                        assert group.partition_epoch(topic_id, partition) == member.epoch
            assert member.epoch <= group.assignment_epoch <= group.epoch
        held_epochs = sum(len(epochs) for epochs in group.partition_epochs.values())
        assert held_epochs == len(holders)
        targets: dict[tuple[bytes, int], str] = {}
        for member_id, target in group.targets.items():
            assert member_id in group.members
            for topic_id, numbers in target.items():
                for partition in numbers:
                    assert targets.setdefault((topic_id, partition), member_id) == member_id
        assert group.partition_epoch(b"nowhere", 0) == NO_MEMBER_EPOCH
