"""How a process is a member of a group: by the classic protocol, or by the consumer protocol (KIP-848).

A member does one thing after another: it gives up what is taken away from it as soon as it hears of that, which it asks for between two
transactions only. Every request is an operation in the history.
"""

from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.sim.history import HEARTBEAT, JOIN, LEAVE, SYNC, Operation, Partition
from tests.sim.workloads.client import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from tests.sim.workloads.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from tests.sim.world import TOPIC

if TYPE_CHECKING:
    from odradek.protocol.schema import Message
    from tests.sim.workloads.client import Client

MEMBER_ID_REQUIRED: Final = 79
JOIN_VERSIONS: Final = (5, 6, 9)
SYNC_VERSIONS: Final = (3, 5)
CONSUMER: Final = "consumer"
ASSIGNOR: Final = "range"
JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2
CALM_SESSIONS: Final = 5
"""By so much the sessions and rebalances of classic members are longer when the faults have stopped."""


class Membership:
    """What both kinds share. `joined`: it may read and commit, as far as it knows."""

    def __init__(self, client: "Client", group: str, member_id: str, instance_id: str | None) -> None:
        self.client = client
        self.group = group
        self.instance_id = instance_id
        self.member_id = member_id
        self.epoch = -1
        self.assigned: tuple[Partition, ...] = ()
        self.joined = False
        self.fenced = False
        """Another process has its instance id."""
        self._plan = client.world.options.groups
        assert self._plan is not None
        self.session_timeout_ms = self._plan.session_timeout_ms
        self.rebalance_timeout_ms = self._plan.rebalance_timeout_ms
        self.topics: tuple[str, ...] = (TOPIC,)

    async def join(self) -> bool:
        """One attempt to become a member, or one again."""
        raise NotImplementedError

    async def heartbeat(self) -> None:
        """Say that it is alive, and hear what is new. `joined` and `assigned` may change."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Go, without coming back if that fails."""
        raise NotImplementedError

    async def _ask(self, kind: str, request: "Message", version: int) -> tuple[Operation, Any]:
        """The operation, settled when it has failed, and the answer."""
        client, groups = self.client, self.client.world.monitor.groups
        operation = client.invoke(
            kind,
            group=self.group,
            member=self.member_id,
            instance=self.instance_id or "",
            member_epoch=self.epoch,
        )
        try:
            node = operation.node = await client.group_coordinator_of(self.group)
            operation.coordinated_at_request = groups.leads(self.group, node)
            response = await client.call(request, version, node)
        except OSError as error:
            return client.settle_lost(operation, error), None
        operation.coordinated = operation.coordinated_at_request and groups.leads(self.group, node)
        return operation, response


class ClassicMember(Membership):
    """Eager: it gives up everything when it joins again."""

    def __init__(self, client: "Client", group: str, member_id: str, instance_id: str | None) -> None:
        super().__init__(client, group, "", instance_id)  # the coordinator gives the id
        self._generation = -1
        self.protocols: tuple[str, ...] = (ASSIGNOR,)
        self.user_data = b""

    async def join(self) -> bool:
        self.assigned, self.joined = (), False
        # Its heartbeats wait for its transactions: when all are to come to their end, a transaction must not cost it its session.
        longer = CALM_SESSIONS if self.client.world.monitor.groups.calm else 1
        metadata = encode_subscription(self.topics, self.user_data)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=longer * self.session_timeout_ms,
            rebalance_timeout_ms=longer * self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.protocols],
        )
        operation, response = await self._ask(JOIN, request, self.client.rng.choice(JOIN_VERSIONS))
        if response is None:
            return False
        self.client.settle(operation, response.error_code)
        if response.error_code == MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        if response.error_code != NONE:
            self._told(response.error_code)
            return False
        self.member_id, self._generation = response.member_id, response.generation_id
        return await self._sync(response)

    async def _sync(self, joined: Any) -> bool:
        assignments = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            members = sorted(each.member_id for each in joined.members)
            assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
                for member, partitions in self._share_out(members).items()
            ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        before, self.epoch = self.epoch, self._generation
        operation, response = await self._ask(SYNC, request, self.client.rng.choice(SYNC_VERSIONS))
        if response is None or response.error_code != NONE:
            self.epoch = before
            if response is not None:
                self.client.settle(operation, response.error_code)
                self._told(response.error_code)
            return False
        self.assigned = decode_assignment(bytes(response.assignment))
        self.client.settle(operation, NONE, granted=self.assigned)
        self.joined = True
        return True

    def _share_out(self, members: list[str]) -> dict[str, list[Partition]]:
        shares: dict[str, list[Partition]] = {member: [] for member in members}
        for number, partition in enumerate(self.client.world.partitions):
            shares[members[(number + self._generation) % len(members)]].append(partition)
        return shares

    async def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        operation, response = await self._ask(HEARTBEAT, request, 4)
        if response is not None:
            self.client.settle(operation, response.error_code)
            self._told(response.error_code)

    def _told(self, error: int) -> None:
        if error in {REBALANCE_IN_PROGRESS, *FENCED_MEMBER}:
            self.joined = False
        if error == UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if error == FENCED_INSTANCE_ID:
            self.fenced = True
        if error in {UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID}:
            self.client.world.count("member fenced from its group")

    async def leave(self) -> None:
        self.joined = False
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=self.group, members=[identity, *self.companions()])
        operation, response = await self._ask(LEAVE, request, self.client.rng.choice((3, 5)))
        if response is not None:
            self.client.settle(operation, response.error_code or response.members[0].error_code)

    def companions(self) -> list[MemberIdentity]:
        """Others that are taken out of the group with it."""
        return []


class ConsumerMember(Membership):
    """The server assigns; the member takes over step by step."""

    def __init__(self, client: "Client", group: str, member_id: str, instance_id: str | None) -> None:
        super().__init__(client, group, member_id, instance_id)
        self._owned_said: tuple[Partition, ...] | None = None
        self._topics_said: tuple[str, ...] = ()
        self._topic_id = client.world.monitor.groups.topic_id

    async def join(self) -> bool:
        self.assigned, self.joined, self.epoch = (), False, JOINING
        await self._beat()
        return self.joined

    async def heartbeat(self) -> None:
        await self._beat()

    async def _beat(self) -> None:
        joins = self.epoch == JOINING
        full = joins or self._owned_said is None
        owned = () if joins else self.owned()
        topics = self.topics
        assert self._plan is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms if full else -1,
            subscribed_topic_names=[*topics] if full or topics != self._topics_said else None,
            server_assignor=self._plan.assignor if full else None,
            topic_partitions=self._topic_partitions(owned) if full or owned != self._owned_said else None,
        )
        operation, response = await self._ask(HEARTBEAT, request, 1)
        if response is None or response.error_code != NONE:
            self._owned_said = None  # whatever it said may not have been heard: say it all again
            if response is not None:
                self.client.settle(operation, response.error_code)
                self._told(response.error_code)
            return
        self._owned_said, self._topics_said = owned, topics
        self.epoch = operation.member_epoch = response.member_epoch
        self.joined = True
        granted = None
        if response.assignment is not None:
            granted = tuple(
                (TOPIC, index)
                for topic in response.assignment.topic_partitions
                if topic.topic_id == self._topic_id
                for index in sorted(topic.partitions)
            )
            self.take(granted)
        self.client.settle(operation, NONE, granted=granted)

    def owned(self) -> tuple[Partition, ...]:
        """What it says that it has: it gives up at once what it is told to."""
        return self.assigned

    def take(self, granted: tuple[Partition, ...]) -> None:
        """Its new assignment."""
        self.assigned = granted

    def _topic_partitions(self, owned: tuple[Partition, ...]) -> list[RequestTopicPartitions]:
        if not owned:
            return []
        return [RequestTopicPartitions(topic_id=self._topic_id, partitions=[index for _, index in owned])]

    def _told(self, error: int) -> None:
        if error in {GROUP_ID_NOT_FOUND, *FENCED_MEMBER}:  # not found: it is a classic group by now
            self.joined, self.epoch, self.assigned = False, JOINING, ()
            self.client.world.count("member fenced from its group")
            self.fenced = error == FENCED_INSTANCE_ID

    async def leave(self) -> None:
        self.joined = False
        epoch = LEAVING if self.instance_id is None else self.client.rng.choice((LEAVING, LEAVING_FOR_A_WHILE))
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        operation, response = await self._ask(LEAVE, request, 1)
        if response is not None:
            self.client.settle(operation, response.error_code)
