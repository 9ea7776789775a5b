"""A client of the run itself: prepares topics, asks a restarted node what it knows, and reads everything at the end."""

import asyncio
from typing import TYPE_CHECKING, Final

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.describe_producers import TopicRequest as ProducersOfTopic
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.sim.checkers.evidence import SnapshotRow
from tests.sim.history import Partition
from tests.sim.workloads.client import NONE, Client
from tests.sim.world import TOPIC

if TYPE_CHECKING:
    from protocol.schema import Message

TRANSACTION_KEY: Final = 1
TOPIC_EXISTS: Final = 36
SETUP_ATTEMPTS_MAX: Final = 200


class Inspector(Client):
    """Its requests are not part of the history."""

    async def ask(self, request: "Message", version: int) -> object:
        """The answer, over as many connections as it takes: the node may be on its way up."""
        for _ in range(SETUP_ATTEMPTS_MAX):
            try:
                return await self.call(request, version)
            except OSError:
                await asyncio.sleep(0.05)
        raise TimeoutError(f"no answer to {request.NAME}")

    async def create_topic(self, partitions: int) -> None:
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1)], timeout_ms=10_000
        )
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

    async def describe_producers(self, partitions: list[Partition]) -> dict[Partition, list[SnapshotRow]]:
        request = DescribeProducersRequest(
            topics=[ProducersOfTopic(name=TOPIC, partition_indexes=[index for _, index in partitions])]
        )
        response = await self.ask(request, 0)
        found = {}
        for answer in response.topics[0].partitions:  # type: ignore[attr-defined]
            assert answer.error_code == NONE, f"DescribeProducers: error {answer.error_code}"
            found[TOPIC, answer.partition_index] = [
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

    async def describe_transactions(self, transactional_ids: list[str]) -> dict[str, tuple[str, int, int]]:
        for _ in range(SETUP_ATTEMPTS_MAX):
            response = await self.ask(DescribeTransactionsRequest(transactional_ids=transactional_ids), 0)
            states = response.transaction_states  # type: ignore[attr-defined]
            if all(each.error_code in {NONE, 105} for each in states):
                return {
                    each.transactional_id: (each.transaction_state, each.producer_id, each.producer_epoch)
                    for each in states
                    if each.error_code == NONE
                }
            await asyncio.sleep(0.05)
        raise TimeoutError("the coordinator does not come back")
