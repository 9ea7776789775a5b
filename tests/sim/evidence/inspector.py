"""Client for set-up and final inspection: it creates topics, waits for coordinators, and describes producers and
transactions.
"""

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
from tests.sim.options.tenants import ADMIN
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
    """Client for set-up and final inspection. Its requests are not part of the history."""

    user = ADMIN

    async def send_with_retries(self, request: "Message", version: int, node: int | None = None) -> object:
        """Return the response of `node`, or of any broker. Retry failed connections: the broker may be starting."""
        for _ in range(SETUP_ATTEMPTS_MAX):
            try:
                return await self.call(request, version, node or self._random_node())
            except OSError:
                await asyncio.sleep(0.05)
        raise TimeoutError(f"no response to {request.NAME}")

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
            response = await self.send_with_retries(request, 7)
            error = response.topics[0].error_code  # type: ignore[attr-defined]
            if error in {NONE, TOPIC_EXISTS}:
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("the topic cannot be created")

    async def find_coordinators(self, transactional_ids: list[str]) -> None:
        """Wait until each transactional id has a coordinator.

        The first request makes the broker create `__transaction_state`.
        """
        request = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=transactional_ids)
        for _ in range(SETUP_ATTEMPTS_MAX):
            response = await self.send_with_retries(request, 4)
            if all(row.error_code == NONE for row in response.coordinators):  # type: ignore[attr-defined]
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("the transactional ids have no coordinator")

    async def topic_id(self, name: str) -> "UUID":
        """Return the id of the topic.

        A broker that does not know the topic yet returns an error, so the request is repeated.
        """
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        for _ in range(SETUP_ATTEMPTS_MAX):
            response = await self.send_with_retries(request, 12)
            (topic,) = response.topics  # type: ignore[attr-defined]
            if topic.error_code == NONE:
                return topic.topic_id  # type: ignore[no-any-return]
            await asyncio.sleep(0.05)
        raise TimeoutError(f"no broker knows topic {name}")

    async def describe_producers(self, partitions: list[Partition]) -> dict[Partition, list[SnapshotRow]]:
        """Return the active producers of each partition by its leader."""
        described = {}
        for partition in partitions:
            request = DescribeProducersRequest(
                topics=[ProducersOfTopic(name=partition[0], partition_indexes=[partition[1]])]
            )
            partition_response = await self._from_leader(partition, request)
            described[partition] = [
                SnapshotRow(
                    row.producer_id,
                    row.producer_epoch,
                    row.last_sequence,
                    row.coordinator_epoch,
                    row.current_txn_start_offset,
                )
                for row in partition_response.active_producers
            ]
        return described

    async def _from_leader(self, partition: Partition, request: DescribeProducersRequest) -> Any:
        for _ in range(SETUP_ATTEMPTS_MAX):
            try:
                response = await self.call(request, 0, await self.leader_of(partition))
            except OSError:
                self._leaders.pop(partition, None)
                await asyncio.sleep(0.05)
                continue
            partition_response = response.topics[0].partitions[0]
            if partition_response.error_code == NONE:
                return partition_response
            self._leaders.pop(partition, None)
            await asyncio.sleep(0.05)
        raise TimeoutError(f"DescribeProducers of {partition} got no response")

    async def describe_transactions(self, transactional_ids: list[str]) -> dict[str, tuple[str, int, int]]:
        """Return state, producer id and producer epoch of each transactional id by its coordinator."""
        described = {}
        for transactional_id in transactional_ids:
            state = await self._from_coordinator(transactional_id)
            if state.error_code == NONE:
                described[transactional_id] = (state.transaction_state, state.producer_id, state.producer_epoch)
        return described

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
        raise TimeoutError(f"no coordinator responds for {transactional_id}")
