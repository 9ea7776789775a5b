"""A client of the run itself: prepares topics, asks a restarted node what it knows, and reads everything at the end."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.describe_producers import DescribeProducersRequest
from odradek.protocol.messages.describe_producers import TopicRequest as ProducersOfTopic
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.sim.checkers.evidence import SnapshotRow
from tests.sim.history import Partition
from tests.sim.workloads.client import NONE, TRANSACTION_KEY, Client
from tests.sim.world import TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from odradek.protocol.schema import Message

TOPIC_EXISTS: Final = 36
ID_NOT_FOUND: Final = 105
SETUP_ATTEMPTS_MAX: Final = 200


class Inspector(Client):
    """Its requests are not part of the history."""

    async def ask(self, request: "Message", version: int, node: int | None = None) -> object:
        """The answer, over as many connections as it takes: the node may be on its way up. Any node, unless it is named."""
        for _ in range(SETUP_ATTEMPTS_MAX):
            try:
                return await self.call(request, version, node or self._anyone())
            except OSError:
                await asyncio.sleep(0.05)
        raise TimeoutError(f"no answer to {request.NAME}")

    async def create_topic(
        self, partitions: int, *, name: str = TOPIC, configs: "Mapping[str, str] | None" = None
    ) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=self.world.options.replication,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        for _ in range(SETUP_ATTEMPTS_MAX):
            response = await self.ask(request, 7)
            error = response.topics[0].error_code  # type: ignore[attr-defined]
            if error in {NONE, TOPIC_EXISTS}:
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("the topic cannot be created")

    async def find_coordinators(self, transactional_ids: list[str]) -> None:
        """Until each id has a coordinator: the first question makes the broker create `__transaction_state`."""
        request = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=transactional_ids)
        for _ in range(SETUP_ATTEMPTS_MAX):
            response = await self.ask(request, 4)
            if all(each.error_code == NONE for each in response.coordinators):  # type: ignore[attr-defined]
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("no coordinator")

    async def topic_id(self, name: str) -> "UUID":
        """A node that has not heard of the topic yet says that there is none, and gives it no id: another one is asked."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        for _ in range(SETUP_ATTEMPTS_MAX):
            response = await self.ask(request, 12)
            (topic,) = response.topics  # type: ignore[attr-defined]
            if topic.error_code == NONE:
                return topic.topic_id  # type: ignore[no-any-return]
            await asyncio.sleep(0.05)
        raise TimeoutError(f"{name} is nowhere known")

    async def describe_producers(self, partitions: list[Partition]) -> dict[Partition, list[SnapshotRow]]:
        """What each partition's leader knows of its producers."""
        found = {}
        for partition in partitions:
            request = DescribeProducersRequest(
                topics=[ProducersOfTopic(name=partition[0], partition_indexes=[partition[1]])]
            )
            answer = await self._from_leader(partition, request)
            found[partition] = [
                SnapshotRow(
                    each.producer_id,
                    each.producer_epoch,
                    each.last_sequence,
                    each.coordinator_epoch,
                    each.current_txn_start_offset,
                )
                for each in answer.active_producers
            ]
        return found

    async def _from_leader(self, partition: Partition, request: DescribeProducersRequest) -> Any:
        for _ in range(SETUP_ATTEMPTS_MAX):
            try:
                response = await self.call(request, 0, await self.leader_of(partition))
            except OSError:
                self._leaders.pop(partition, None)
                await asyncio.sleep(0.05)
                continue
            answer = response.topics[0].partitions[0]
            if answer.error_code == NONE:
                return answer
            self._leaders.pop(partition, None)
            await asyncio.sleep(0.05)
        raise TimeoutError(f"DescribeProducers of {partition} is not answered")

    async def describe_transactions(self, transactional_ids: list[str]) -> dict[str, tuple[str, int, int]]:
        """What the coordinator of each id knows of it."""
        found = {}
        for transactional_id in transactional_ids:
            state = await self._from_coordinator(transactional_id)
            if state.error_code == NONE:
                found[transactional_id] = (state.transaction_state, state.producer_id, state.producer_epoch)
        return found

    async def _from_coordinator(self, transactional_id: str) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        for _ in range(SETUP_ATTEMPTS_MAX):
            try:
                response = await self.call(request, 0, await self.coordinator_of(transactional_id))
            except OSError:
                self._coordinators.pop(transactional_id, None)
                await asyncio.sleep(0.05)
                continue
            (state,) = response.transaction_states
            if state.error_code in {NONE, ID_NOT_FOUND}:
                return state
            self._coordinators.pop(transactional_id, None)
            await asyncio.sleep(0.05)
        raise TimeoutError("the coordinator does not come back")
