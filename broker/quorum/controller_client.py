"""What this broker itself asks of the active controller, wherever that is: a call when it is here, a request when it is not.

Every call may raise Refusal: NOT_CONTROLLER while no controller is known or reachable, REQUEST_TIMED_OUT when nothing is known
about what became of it, and what `odradek.cluster.controller.service` says.
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
RECOVERING: Final = 1


class ControllerClient:
    """The controller requests of this broker. All calls belong on the event loop."""

    def __init__(
        self,
        controller: ControllerService,
        leader_id: Callable[[], int],
        peers: Peers,
        forwarding: Forwarding,
        *,
        request_timeout_ms: int,
        answer_timeout_ms: int,
    ) -> None:
        """`leader_id()`: who leads the metadata log as far as this node knows, -1 nobody.

        `answer_timeout_ms`: a controller that is silent for so long is taken for gone, and its connection ended: well below a
        session, since a machine that loses its power says nothing.
        """
        self._controller = controller
        self._leader_id = leader_id
        self._peers = peers
        self._forwarding = forwarding
        self._request_timeout_ms = request_timeout_ms
        self._answer_timeout_ms = answer_timeout_ms

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
        response = await self._ask(Channel.HEARTBEAT, request, REGISTRATION_VERSION)
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
        await self._ask(Channel.HEARTBEAT, request, CONTROLLER_REGISTRATION_VERSION)

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
        response = await self._ask(Channel.HEARTBEAT, request, HEARTBEAT_VERSION)
        return HeartbeatReply(response.is_caught_up, response.is_fenced, response.should_shut_down)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        if self._controller.is_active:
            return await self._controller.allocate_producer_ids(broker_id, broker_epoch)
        request = AllocateProducerIdsRequest(broker_id, broker_epoch)
        response = await self._ask(Channel.ISR, request, ALLOCATE_VERSION)
        return ProducerIdBlock(response.producer_id_start, response.producer_id_len)

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, partitions: Sequence[PartitionIsr]
    ) -> tuple[AlteredPartition, ...]:
        if self._controller.is_active:
            return await self._controller.alter_partition(broker_id, broker_epoch, partitions)
        request = isr.AlterPartitionRequest(broker_id, broker_epoch, _by_topic(partitions))
        response = await self._ask(Channel.ISR, request, ALTER_PARTITION_VERSION)
        answers = {
            (topic.topic_id, answer.partition_index): _altered(topic.topic_id, answer)
            for topic in response.topics
            for answer in topic.partitions
        }
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return tuple(
            answers.get((asked.topic_id, asked.index)) or AlteredPartition(asked.topic_id, asked.index, missing)
            for asked in partitions
        )

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int | None = None
    ) -> tuple[CreatedTopic, ...]:
        """The results hold name, error, message and id; numbers and settings are left out."""
        if self._controller.is_active:
            return await self._controller.create_topics(topics, timeout_ms=timeout_ms)
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        wanted = [
            creating.CreatableTopic(
                topic.name,
                topic.num_partitions,
                topic.replication_factor,
                [creating.CreatableReplicaAssignment(index, list(brokers)) for index, brokers in topic.assignments],
                [creating.CreatableTopicConfig(name, value) for name, value in topic.configs],
            )
            for topic in topics
        ]
        request = creating.CreateTopicsRequest(wanted, limit_ms)
        response = await self._forwarding.ask(request, CREATE_TOPICS_VERSION, timeout_ms=limit_ms)
        results = {
            result.name: CreatedTopic(result.name, ErrorCode(result.error_code), result.error_message, result.topic_id)
            for result in response.topics
        }
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return tuple(results.get(topic.name) or CreatedTopic(topic.name, missing) for topic in topics)

    async def _ask(self, channel: Channel, request: Message, version: int) -> Any:
        leader = self._leader_id()
        if leader == NO_NODE:
            raise Refusal(ErrorCode.NOT_CONTROLLER, "no controller is known")
        answer = self._peers.request(leader, channel, request, version, timeout_ms=self._answer_timeout_ms)
        try:
            response = await answer
        except TimeoutError as error:
            raise Refusal(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
        except OSError as error:
            raise Refusal(ErrorCode.NOT_CONTROLLER, str(error)) from error
        if response.error_code:
            raise Refusal(ErrorCode(response.error_code), f"controller {leader} refuses")
        return response


def _by_topic(partitions: Sequence[PartitionIsr]) -> list[isr.RequestTopicData]:
    return [
        isr.RequestTopicData(
            topic_id,
            [
                isr.RequestPartitionData(
                    asked.index,
                    asked.leader_epoch,
                    new_isr_with_epochs=[isr.BrokerState(broker, epoch) for broker, epoch in asked.isr],
                    leader_recovery_state=RECOVERING if asked.recovering else 0,
                    partition_epoch=asked.partition_epoch,
                )
                for asked in group
            ],
        )
        for topic_id, group in groupby(partitions, key=lambda asked: asked.topic_id)
    ]


def _altered(topic_id: UUID, answer: isr.ResponsePartitionData) -> AlteredPartition:
    if answer.error_code:
        return AlteredPartition(topic_id, answer.partition_index, ErrorCode(answer.error_code))
    return AlteredPartition(
        topic_id,
        answer.partition_index,
        ErrorCode.NONE,
        answer.leader_id,
        answer.leader_epoch,
        answer.partition_epoch,
        tuple(answer.isr),
        answer.leader_recovery_state == RECOVERING,
    )
