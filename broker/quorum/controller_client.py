"""Requests of this broker to the active controller: a call if the controller is on this node, a request otherwise.

Each method can raise these refusals:

- Refusal(NOT_CONTROLLER): no controller is known or reachable.
- Refusal(REQUEST_TIMED_OUT): the controller did not respond. It may have carried out the request.
- The refusals of the same method of `odradek.cluster.controller.service.ControllerService`.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from odradek.broker.quorum.forwarding import Forwarding
from odradek.broker.quorum.peers import Channel, Peers
from odradek.cluster.controller.messages.brokers import (
    BrokerHeartbeat,
    BrokerRegistration,
    ControllerRegistration,
    HeartbeatReply,
    ProducerIdBlock,
)
from odradek.cluster.controller.messages.partitions import AlteredPartition, PartitionIsr
from odradek.cluster.controller.messages.topics import CreatedTopic, NewTopic
from odradek.cluster.controller.service import ControllerService
from odradek.cluster.metadata.image import RECOVERING
from odradek.cluster.raft.messages import NO_NODE
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages import alter_partition as isr
from odradek.protocol.messages import broker_registration as registering
from odradek.protocol.messages import controller_registration as controllers
from odradek.protocol.messages import create_topics as creating
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.schema import Message

REGISTRATION_VERSION: Final = 4
HEARTBEAT_VERSION: Final = 1
ALLOCATE_VERSION: Final = 0
ALTER_PARTITION_VERSION: Final = 3
CONTROLLER_REGISTRATION_VERSION: Final = 0
CREATE_TOPICS_VERSION: Final = 7
"""LeaderRecoveryState of AlterPartition after an unclean leader election (KIP-704)."""


class ControllerClient:
    """The controller, as this broker uses it. All calls belong on the event loop."""

    def __init__(
        self,
        controller: ControllerService,
        leader_id: Callable[[], int],
        peers: Peers,
        forwarding: Forwarding,
        *,
        request_timeout_ms: int,
        response_timeout_ms: int,
    ) -> None:
        """`leader_id()` returns the leader of the metadata log that this node knows, or NO_NODE.

        `response_timeout_ms`: if the controller does not respond within this time, its connection is closed. It is
        well below broker.session.timeout.ms, because a machine without power closes no connection.
        """
        self._controller = controller
        self._leader_id = leader_id
        self._peers = peers
        self._forwarding = forwarding
        self._request_timeout_ms = request_timeout_ms
        self._response_timeout_ms = response_timeout_ms

    async def register_broker(self, registration: BrokerRegistration) -> int:
        if self._controller.is_active:
            return await self._controller.register_broker(registration)
        request = registering.BrokerRegistrationRequest(
            registration.broker_id,
            registration.cluster_id,
            registration.incarnation_id,
            [registering.Listener(e.name, e.host, e.port, e.security_protocol) for e in registration.endpoints],
            [registering.Feature(name, levels.min, levels.max) for name, levels in registration.features.items()],
            registration.rack,
            log_dirs=list(registration.directories),
            previous_broker_epoch=registration.previous_broker_epoch,
        )
        response = await self._request(Channel.HEARTBEAT, request, REGISTRATION_VERSION)
        return int(response.broker_epoch)

    async def register_controller(self, registration: ControllerRegistration) -> None:
        if self._controller.is_active:
            await self._controller.register_controller(registration)
            return
        listening = [controllers.Listener(e.name, e.host, e.port, e.security_protocol) for e in registration.endpoints]
        features = [controllers.Feature(name, levels.min, levels.max) for name, levels in registration.features.items()]
        request = controllers.ControllerRegistrationRequest(
            registration.controller_id, registration.incarnation_id, False, listening, features
        )
        await self._request(Channel.HEARTBEAT, request, CONTROLLER_REGISTRATION_VERSION)

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply:
        if self._controller.is_active:
            return await self._controller.heartbeat(heartbeat)
        request = BrokerHeartbeatRequest(
            heartbeat.broker_id,
            heartbeat.broker_epoch,
            heartbeat.metadata_offset,
            heartbeat.want_fence,
            heartbeat.want_shut_down,
        )
        response = await self._request(Channel.HEARTBEAT, request, HEARTBEAT_VERSION)
        return HeartbeatReply(response.is_caught_up, response.is_fenced, response.should_shut_down)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        if self._controller.is_active:
            return await self._controller.allocate_producer_ids(broker_id, broker_epoch)
        request = AllocateProducerIdsRequest(broker_id, broker_epoch)
        response = await self._request(Channel.ISR, request, ALLOCATE_VERSION)
        return ProducerIdBlock(response.producer_id_start, response.producer_id_len)

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, partitions: Sequence[PartitionIsr]
    ) -> tuple[AlteredPartition, ...]:
        if self._controller.is_active:
            return await self._controller.alter_partition(broker_id, broker_epoch, partitions)
        request = isr.AlterPartitionRequest(broker_id, broker_epoch, _by_topic(partitions))
        response = await self._request(Channel.ISR, request, ALTER_PARTITION_VERSION)
        altered = {
            (topic.topic_id, result.partition_index): _altered(topic.topic_id, result)
            for topic in response.topics
            for result in topic.partitions
        }
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return tuple(
            altered.get((change.topic_id, change.index)) or AlteredPartition(change.topic_id, change.index, missing)
            for change in partitions
        )

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int | None = None
    ) -> tuple[CreatedTopic, ...]:
        """Create topics; return one result per topic, in order.

        A result has the name, error, message and topic id, but no partition counts and no configurations.
        """
        if self._controller.is_active:
            return await self._controller.create_topics(topics, timeout_ms=timeout_ms)
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        creations = [
            creating.CreatableTopic(
                topic.name,
                topic.num_partitions,
                topic.replication_factor,
                [creating.CreatableReplicaAssignment(index, list(brokers)) for index, brokers in topic.assignments],
                [creating.CreatableTopicConfig(name, value) for name, value in topic.configs],
            )
            for topic in topics
        ]
        request = creating.CreateTopicsRequest(creations, limit_ms)
        response = await self._forwarding.request(request, CREATE_TOPICS_VERSION, timeout_ms=limit_ms)
        results = {
            result.name: CreatedTopic(result.name, ErrorCode(result.error_code), result.error_message, result.topic_id)
            for result in response.topics
        }
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return tuple(results.get(topic.name) or CreatedTopic(topic.name, missing) for topic in topics)

    async def _request(self, channel: Channel, request: Message, version: int) -> Any:
        leader = self._leader_id()
        if leader == NO_NODE:
            raise Refusal(ErrorCode.NOT_CONTROLLER, "no controller is known")
        future = self._peers.request(leader, channel, request, version, timeout_ms=self._response_timeout_ms)
        try:
            response = await future
        except TimeoutError as error:
            raise Refusal(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
        except OSError as error:
            raise Refusal(ErrorCode.NOT_CONTROLLER, str(error)) from error
        if response.error_code:
            raise Refusal(ErrorCode(response.error_code), f"controller {leader} refused the request")
        return response


def _by_topic(partitions: Sequence[PartitionIsr]) -> list[isr.RequestTopicData]:
    return [
        isr.RequestTopicData(
            topic_id,
            [
                isr.RequestPartitionData(
                    change.index,
                    change.leader_epoch,
                    new_isr_with_epochs=[isr.BrokerState(broker, epoch) for broker, epoch in change.isr],
                    leader_recovery_state=RECOVERING if change.recovering else 0,
                    partition_epoch=change.partition_epoch,
                )
                for change in group
            ],
        )
        for topic_id, group in groupby(partitions, key=lambda change: change.topic_id)
    ]


def _altered(topic_id: UUID, result: isr.ResponsePartitionData) -> AlteredPartition:
    if result.error_code:
        return AlteredPartition(topic_id, result.partition_index, ErrorCode(result.error_code))
    return AlteredPartition(
        topic_id,
        result.partition_index,
        ErrorCode.NONE,
        result.leader_id,
        result.leader_epoch,
        result.partition_epoch,
        tuple(result.isr),
        result.leader_recovery_state == RECOVERING,
    )
