"""Group membership of a process: by the classic protocol or by the consumer protocol (KIP-848).

A member sends one request after another. It gives up revoked partitions as soon as a response revokes them, and sends
heartbeats between transactions only. Every request is an operation in the history.
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
JOINING, LEAVING, LEAVING_TEMPORARILY = 0, -1, -2
CALM_SESSIONS: Final = 5
"""Factor on session and rebalance time-outs of classic members after the faults."""


class Membership:
    """Common part of both protocols. `joined`: True if the member may read and commit, as far as it knows."""

    def __init__(self, client: "Client", group: str, member_id: str, instance_id: str | None) -> None:
        self.client = client
        self.group = group
        self.instance_id = instance_id
        self.member_id = member_id
        self.epoch = -1
        self.assigned: tuple[Partition, ...] = ()
        self.joined = False
        self.fenced = False
        """True if another process has its instance id."""
        self._plan = client.world.options.groups
        assert self._plan is not None
        self.session_timeout_ms = self._plan.session_timeout_ms
        self.rebalance_timeout_ms = self._plan.rebalance_timeout_ms
        self.topics: tuple[str, ...] = (TOPIC,)

    async def join(self) -> bool:
        """Send one request to join or rejoin the group. Return True if the member has joined."""
        raise NotImplementedError

    async def heartbeat(self) -> None:
        """Send a heartbeat. The response may change `joined` and `assigned`."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Leave the group. A failed request is not repeated."""
        raise NotImplementedError

    async def _send(self, kind: str, request: "Message", version: int) -> tuple[Operation, Any]:
        """Send a request. Return the operation, settled if it failed, and the response or None."""
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
    """Member of the classic protocol with the eager protocol: it gives up all partitions when it rejoins."""

    def __init__(self, client: "Client", group: str, member_id: str, instance_id: str | None) -> None:
        super().__init__(client, group, "", instance_id)  # the coordinator generates the id
        self._generation = -1
        self.protocols: tuple[str, ...] = (ASSIGNOR,)
        self.user_data = b""

    async def join(self) -> bool:
        self.assigned, self.joined = (), False
        # Heartbeats wait for transactions. After the faults, a transaction must not end the session.
        factor = CALM_SESSIONS if self.client.world.monitor.groups.calm else 1
        metadata = encode_subscription(self.topics, self.user_data)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=factor * self.session_timeout_ms,
            rebalance_timeout_ms=factor * self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.protocols],
        )
        operation, response = await self._send(JOIN, request, self.client.rng.choice(JOIN_VERSIONS))
        if response is None:
            return False
        self.client.settle(operation, response.error_code)
        if response.error_code == MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        if response.error_code != NONE:
            self._handle_error(response.error_code)
            return False
        self.member_id, self._generation = response.member_id, response.generation_id
        return await self._sync(response)

    async def _sync(self, joined: Any) -> bool:
        assignments = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            members = sorted(member.member_id for member in joined.members)
            assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
                for member, partitions in self._assign(members).items()
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
        previous_epoch, self.epoch = self.epoch, self._generation
        operation, response = await self._send(SYNC, request, self.client.rng.choice(SYNC_VERSIONS))
        if response is None or response.error_code != NONE:
            self.epoch = previous_epoch
            if response is not None:
                self.client.settle(operation, response.error_code)
                self._handle_error(response.error_code)
            return False
        self.assigned = decode_assignment(bytes(response.assignment))
        self.client.settle(operation, NONE, granted=self.assigned)
        self.joined = True
        return True

    def _assign(self, members: list[str]) -> dict[str, list[Partition]]:
        assignment: dict[str, list[Partition]] = {member: [] for member in members}
        for number, partition in enumerate(self.client.world.partitions):
            assignment[members[(number + self._generation) % len(members)]].append(partition)
        return assignment

    async def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        operation, response = await self._send(HEARTBEAT, request, 4)
        if response is not None:
            self.client.settle(operation, response.error_code)
            self._handle_error(response.error_code)

    def _handle_error(self, error: int) -> None:
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
        operation, response = await self._send(LEAVE, request, self.client.rng.choice((3, 5)))
        if response is not None:
            self.client.settle(operation, response.error_code or response.members[0].error_code)

    def companions(self) -> list[MemberIdentity]:
        """Return further members to remove in the same LeaveGroup request."""
        return []


class ConsumerMember(Membership):
    """Member of the consumer protocol: the server assigns, and the member reconciles."""

    def __init__(self, client: "Client", group: str, member_id: str, instance_id: str | None) -> None:
        super().__init__(client, group, member_id, instance_id)
        self._owned_sent: tuple[Partition, ...] | None = None
        self._topics_sent: tuple[str, ...] = ()
        self._topic_id = client.world.monitor.groups.topic_id

    async def join(self) -> bool:
        self.assigned, self.joined, self.epoch = (), False, JOINING
        await self._heartbeat()
        return self.joined

    async def heartbeat(self) -> None:
        await self._heartbeat()

    async def _heartbeat(self) -> None:
        is_join = self.epoch == JOINING
        full = is_join or self._owned_sent is None
        owned = () if is_join else self.owned()
        topics = self.topics
        assert self._plan is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms if full else -1,
            subscribed_topic_names=[*topics] if full or topics != self._topics_sent else None,
            server_assignor=self._plan.assignor if full else None,
            topic_partitions=self._topic_partitions(owned) if full or owned != self._owned_sent else None,
        )
        operation, response = await self._send(HEARTBEAT, request, 1)
        if response is None or response.error_code != NONE:
            self._owned_sent = None  # the request may be lost: send all fields next time
            if response is not None:
                self.client.settle(operation, response.error_code)
                self._handle_error(response.error_code)
            return
        self._owned_sent, self._topics_sent = owned, topics
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
        """Return the partitions that it reports as owned. It gives up revoked partitions immediately."""
        return self.assigned

    def take(self, granted: tuple[Partition, ...]) -> None:
        """Accept a new assignment."""
        self.assigned = granted

    def _topic_partitions(self, owned: tuple[Partition, ...]) -> list[RequestTopicPartitions]:
        if not owned:
            return []
        return [RequestTopicPartitions(topic_id=self._topic_id, partitions=[index for _, index in owned])]

    def _handle_error(self, error: int) -> None:
        if error in {GROUP_ID_NOT_FOUND, *FENCED_MEMBER}:  # group not found: it is a classic group now
            self.joined, self.epoch, self.assigned = False, JOINING, ()
            self.client.world.count("member fenced from its group")
            self.fenced = error == FENCED_INSTANCE_ID

    async def leave(self) -> None:
        self.joined = False
        epoch = LEAVING if self.instance_id is None else self.client.rng.choice((LEAVING, LEAVING_TEMPORARILY))
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        operation, response = await self._send(LEAVE, request, 1)
        if response is not None:
            self.client.settle(operation, response.error_code)
